//! Greeting and handshake of a connection.

use crate::core::Core;
use bytes::BytesMut;
use switchboard_net::net::Io;
use switchboard_wire::{
    Input, Outbox,
    zmtp::{Connection, Event, Peer},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Capacity for the greeting and the commands of the handshake, in bytes.
const HANDSHAKE_BYTES: usize = 1024;

/// A connection whose handshake is complete, with the bytes that arrived after it.
pub(crate) struct HandshakeResult {
    pub(crate) machine: Connection,
    pub(crate) input: Input,
    pub(crate) peer: Box<Peer>,
}

/// Runs the handshake. Dropping the future leaves the connection unusable.
pub(crate) async fn run(core: &Core, io: &mut dyn Io) -> Result<HandshakeResult, String> {
    let mut out = Outbox::new();
    let mut machine = Connection::new(core.settings.clone(), &mut out);
    let mut input = Input::new(BytesMut::with_capacity(HANDSHAKE_BYTES));
    loop {
        let event = machine.recv(&mut input, &mut out);
        // An error of the handshake is the one to report, even if the peer is gone.
        let flushed = flush(io, &mut out).await;
        let event = event.map_err(|error| error.message().to_owned())?;
        flushed?;
        match event {
            Some(Event::Ready(peer)) => return Ok(HandshakeResult { machine, input, peer }),
            Some(Event::Credentials(credentials)) => {
                if core.options.security.verify(&credentials) {
                    machine.accept(&mut out);
                } else {
                    // The status of ZAP for rejected credentials, which libzmq expects.
                    machine.reject("400", &mut out);
                }
            }
            Some(_) => {}
            None if machine.is_closed() => return Err("the credentials of the peer were rejected".to_owned()),
            None => match io.read_buf(input.buffer()).await {
                Ok(0) => return Err("the peer closed the connection during the handshake".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("read: {error}")),
            },
        }
    }
}

async fn flush(io: &mut dyn Io, out: &mut Outbox) -> Result<(), String> {
    if out.is_empty() {
        return Ok(());
    }
    io.write_all(&out.take_all()).await.map_err(|error| format!("write: {error}"))
}

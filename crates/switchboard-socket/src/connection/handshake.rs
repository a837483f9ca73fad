//! Greeting and handshake of a connection.

use crate::{
    core::Core,
    options::{PeerCredentials, Verdict, VerifyRequest},
};
use bytes::BytesMut;
use std::sync::Arc;
use switchboard_net::net::Io;
use switchboard_wire::{
    Input, Outbox,
    zmtp::{Connection, Event, Peer},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Capacity for the greeting and the commands of the handshake, in bytes.
const HANDSHAKE_BYTES: usize = 1024;

/// The two ends of a connection, for the verifier.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) endpoint: Arc<str>,
    pub(crate) address: Arc<str>,
    /// The peer connected.
    pub(crate) is_accepted: bool,
}

/// A connection whose handshake is complete, with the bytes that arrived after it.
pub(crate) struct HandshakeResult {
    pub(crate) machine: Connection,
    pub(crate) input: Input,
    pub(crate) peer: Box<Peer>,
    /// User id of the verifier; empty if there is none.
    pub(crate) user_id: String,
}

/// Runs the handshake. Dropping the future leaves the connection unusable.
pub(crate) async fn run(core: &Core, io: &mut dyn Io, ends: &Ends) -> Result<HandshakeResult, String> {
    let mut out = Outbox::new();
    let mut machine = Connection::new(core.settings.clone(), &mut out);
    let mut input = Input::new(BytesMut::with_capacity(HANDSHAKE_BYTES));
    let mut user_id = String::new();
    let verifies_null = core.options.security.verifies_null();
    // A peer that has READY sends its messages. This side holds it back until the verdict if it accepted the
    // connection; if both did so, both would wait.
    let holds_ready = verifies_null && ends.is_accepted;
    flush(io, &mut out).await?;
    loop {
        let event = machine.recv(&mut input, &mut out);
        // An error of the handshake is the one to report, even if the peer is gone.
        let flushed = if holds_ready && event.is_ok() { Ok(()) } else { flush(io, &mut out).await };
        let event = event.map_err(|error| error.message().to_owned())?;
        flushed?;
        match event {
            Some(Event::Ready(peer)) => {
                if verifies_null {
                    let credentials = PeerCredentials::Null { identity: peer.identity.clone() };
                    let verdict = verify(core, ends, credentials).await;
                    if !matches!(verdict, Verdict::Accepted { .. }) {
                        out.take_all();
                        out.tail().extend_from_slice(&error_command(verdict.status()));
                    }
                    let flushed = flush(io, &mut out).await;
                    user_id = accepted(verdict)?;
                    flushed?;
                }
                return Ok(HandshakeResult { machine, input, peer, user_id });
            }
            Some(event) => {
                let credentials = match event {
                    Event::ClientKey(key) => PeerCredentials::Curve(key),
                    Event::Credentials(credentials) => PeerCredentials::Plain(credentials),
                    _ => continue,
                };
                let verdict = verify(core, ends, credentials).await;
                if let Verdict::Accepted { user_id: id } = verdict {
                    user_id = id;
                    machine.accept(&mut out);
                } else {
                    // The status of ZAP, which libzmq expects.
                    machine.reject(verdict.status(), &mut out);
                    // The peer may be gone already.
                    let _ = flush(io, &mut out).await;
                    accepted(verdict)?;
                }
            }
            None => match io.read_buf(input.buffer()).await {
                Ok(0) => return Err("the peer closed the connection during the handshake".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("read: {error}")),
            },
        }
    }
}

/// Returns the ERROR for a peer of NULL: the machine has completed this handshake.
fn error_command(status: &str) -> Vec<u8> {
    const NAME: &[u8] = b"\x05ERROR";
    // The flags of a short command, and three lengths of one byte: a status has three.
    let len = [(NAME.len() + 1 + status.len()) as u8];
    [&[4], &len[..], NAME, &[status.len() as u8], status.as_bytes()].concat()
}

async fn verify(core: &Core, ends: &Ends, credentials: PeerCredentials) -> Verdict {
    let Ends { endpoint, address, .. } = ends.clone();
    core.options.security.verify(VerifyRequest { endpoint, address, credentials }).await
}

/// Returns the user id of an accepted peer.
fn accepted(verdict: Verdict) -> Result<String, String> {
    match verdict {
        Verdict::Accepted { user_id } => Ok(user_id),
        Verdict::Failed => Err("the verification of the peer failed".to_owned()),
        Verdict::Refused => Err("the credentials of the peer were rejected".to_owned()),
        Verdict::Unavailable => Err("the peer was refused; it may try again later".to_owned()),
    }
}

async fn flush(io: &mut dyn Io, out: &mut Outbox) -> Result<(), String> {
    if out.is_empty() {
        return Ok(());
    }
    io.write_all(&out.take_all()).await.map_err(|error| format!("write: {error}"))
}

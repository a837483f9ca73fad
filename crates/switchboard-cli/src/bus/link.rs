//! The connection to a server of NATS or Redis: bytes between a socket and the machine of a client.

use super::target::Remote;
use crate::call::Failure;
use std::{io, time::Duration};
use switchboard::Status;
use switchboard_wire::{Input, Outbox};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Time limit of connecting, with the handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection with the bytes that are not parsed, and those that are not written.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    place: String,
    pub(super) input: Input,
    pub(super) out: Outbox,
}

impl Link {
    pub(super) async fn connect(remote: &Remote) -> Result<Link, Failure> {
        let place = remote.place();
        let failed = |why: String| Status::unavailable(format!("cannot connect to {place}: {why}"));
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect((remote.host.as_str(), remote.port)));
        let stream = match connecting.await {
            Ok(connected) => connected.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no answer within {CONNECT_TIMEOUT:?}")).into()),
        };
        // A delay of small messages is the only loss.
        let _ = stream.set_nodelay(true);
        Ok(Link { stream, place, input: Input::default(), out: Outbox::new() })
    }

    /// Writes the outbox, then reads more. Cancel safe: written bytes leave the outbox, and bytes are read into the
    /// input.
    pub(super) async fn exchange(&mut self) -> Result<(), Failure> {
        self.flush().await?;
        let read = self.stream.read_buf(self.input.buffer()).await.map_err(|error| self.lost(&error))?;
        if read == 0 {
            return Err(Status::unavailable(format!("{} closed the connection", self.place)).into());
        }
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        while !self.out.is_empty() {
            let mut slices = [io::IoSlice::new(&[])];
            self.out.fill(&mut slices);
            let written = self.stream.write(&slices[0]).await.map_err(|error| self.lost(&error))?;
            self.out.advance(written);
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Status::unavailable(format!("connection to {} lost: {error}", self.place)).into()
    }
}

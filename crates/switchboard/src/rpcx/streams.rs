//! Byte streams: `_streamservice/Stream`.

use super::{
    Meta, Pipe,
    permits::{check_bytes, meta_bytes},
    side::Side,
    ticket::{Ticket, TicketRequest},
};
use std::{io, sync::Arc};
use switchboard_client::{Channel, ClientMethod};
use switchboard_core::{Call, Cx, Error, Reply, Result, Service, codec::serde::decode};
use switchboard_wire::{Kind, MethodInfo, ServiceInfo};

static STREAMS: ServiceInfo = ServiceInfo {
    name: "_streamservice",
    methods: &[MethodInfo::new("Stream", Kind::Unary)],
    descriptor: &[],
};
static STREAM: ClientMethod = ClientMethod { service: &STREAMS, index: 0, path: "_streamservice/Stream" };

/// Handles byte streams. Errors of `stream` cannot be reported to the client: they are logged.
pub trait Streams: Send + Sync + 'static {
    /// Checks whether the caller gets a stream; by default every caller does.
    ///
    /// # Errors
    /// Returns the error of the client's call.
    fn check(&self, _meta: &Meta, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    /// Communicates with a client in a protocol of the application.
    fn stream(&self, meta: Meta, pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send;
}

/// The service that issues tokens, and the listener that accepts them.
///
/// A token is valid for 30 s and one connection. One caller can have at most 256 tokens and connections at
/// once, with 256 KiB of metadata; all callers together at most 1024, with 1 MiB. The metadata of a stream is
/// limited to 16 KiB. Calls above a limit fail with `ResourceExhausted`.
pub struct StreamService<S> {
    streams: Arc<S>,
    side: Side<Meta>,
}

impl<S: Streams> StreamService<S> {
    /// Listens for streams at `HOST:PORT`, in addition to the server that this service is
    /// [added](crate::Server::add) to. With port 0 the system chooses one.
    ///
    /// # Errors
    /// Fails if listening at the address fails.
    pub async fn listen(address: &str, streams: S) -> Result<StreamService<S>, Error> {
        let streams = Arc::new(streams);
        let served = streams.clone();
        let serve = move |meta, pipe| {
            let streams = served.clone();
            async move {
                if let Err(error) = streams.stream(meta, pipe).await {
                    tracing::warn!("a stream of rpcx has ended: {error}");
                }
            }
        };
        let side = Side::listen(address, serve).await?;
        Ok(StreamService { streams, side })
    }

    /// Sends clients the address `HOST:PORT` instead of the one of the listener.
    #[must_use]
    pub fn advertise(self, address: impl Into<String>) -> StreamService<S> {
        StreamService { side: self.side.advertise(address.into()), ..self }
    }
}

impl<S: Streams> Service for StreamService<S> {
    fn info(&self) -> &'static ServiceInfo {
        &STREAMS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        let (bytes, cx) = call.into_one()?;
        check_bytes(bytes.len())?;
        let meta = decode::<TicketRequest>(codec, bytes)?.meta.unwrap_or_default();
        let held = meta_bytes(&meta);
        check_bytes(held)?;
        let ticket = self.streams.check(&meta, &cx);
        let ticket = ticket.and_then(|()| self.side.ticket(meta, held, &cx)?.encode(codec));
        match ticket {
            Ok(ticket) => Ok(Reply::one(ticket, cx)),
            Err(status) => Err(cx.failed(status)),
        }
    }
}

/// Requests a byte stream from the server.
///
/// # Errors
/// Returns the errors of the call; `Unavailable` if the second connection fails; `PermissionDenied` for a
/// host as with [`upload`](super::upload).
pub async fn stream(channel: &Channel, meta: &Meta) -> Result<Pipe> {
    Ticket::of(channel, &STREAM, &TicketRequest { meta: Some(meta.clone()), ..TicketRequest::default() })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;
    use switchboard_wire::{Code, Status};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    struct Echo;

    impl Streams for Echo {
        fn check(&self, meta: &Meta, _cx: &Cx) -> Result<()> {
            if meta.contains_key("who") { Ok(()) } else { Err(Status::permission_denied("who is it?")) }
        }

        async fn stream(&self, meta: Meta, mut pipe: Pipe) -> io::Result<()> {
            pipe.write_all(meta["who"].as_bytes()).await?;
            let mut bytes = [0; 4];
            pipe.read_exact(&mut bytes).await?;
            pipe.write_all(&bytes).await
        }
    }

    #[tokio::test]
    async fn bytes_go_both_ways() {
        let streams = StreamService::listen("127.0.0.1:0", Echo).await.unwrap();
        let running = Server::new().add(streams).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        let mut pipe = stream(&channel, &Meta::from([("who".into(), "me".into())])).await.unwrap();
        assert!(pipe.peer_addr().unwrap().ip().is_loopback());
        pipe.write_all(b"ping").await.unwrap();
        let mut received = String::new();
        pipe.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "meping");
        let status = stream(&channel, &Meta::new()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
    }
}

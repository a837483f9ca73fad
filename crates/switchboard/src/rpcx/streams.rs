//! Streams of bytes: `_streamservice/Stream`.

use super::{
    Meta, Pipe,
    side::Side,
    ticket::{Asked, Ticket},
};
use crate::{
    Call, Channel, ClientMethod, Cx, Error, Kind, MethodInfo, Reply, Result, Service, ServiceInfo,
    codec::serde::decode,
};
use std::{io, sync::Arc};

static STREAMS: ServiceInfo = ServiceInfo {
    name: "_streamservice",
    methods: &[MethodInfo::new("Stream", Kind::Unary)],
    descriptor: &[],
};
static STREAM: ClientMethod = ClientMethod { service: &STREAMS, index: 0, path: "_streamservice/Stream" };

/// What becomes of streams. Errors of `stream` have no way to the client: they are logged.
pub trait Streams: Send + Sync + 'static {
    /// Whether the caller gets a stream; all do, unless this says otherwise.
    ///
    /// # Errors
    /// What the call of the client fails with.
    fn check(&self, _meta: &Meta, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    /// Speaks with a client, as both agree.
    fn stream(&self, meta: Meta, pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send;
}

/// The service that hands out tokens, and the listener where they are shown.
///
/// At most 1024 tokens wait, each 30 s and for one connection; at most 1024 connections are open at once.
pub struct StreamService<S> {
    streams: Arc<S>,
    side: Side<Meta>,
}

impl<S: Streams> StreamService<S> {
    /// Listens for streams at `HOST:PORT`, beside the server that this service is [added](crate::Server::add) to. Port
    /// 0 chooses one.
    ///
    /// # Errors
    /// An address that cannot be listened on.
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

    /// Tells clients to connect to `HOST:PORT` instead of where this listens.
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
        let meta = decode::<Asked>(codec, bytes)?.meta.unwrap_or_default();
        self.streams.check(&meta, &cx)?;
        Ok(Reply::one(self.side.ticket(meta)?.encode(codec)?, cx))
    }
}

/// Asks the server for a stream of bytes.
///
/// # Errors
/// Those of the call; `Unavailable` when the second connection cannot be made.
pub async fn stream(channel: &Channel, meta: &Meta) -> Result<Pipe> {
    Ticket::of(channel, &STREAM, &Asked { meta: Some(meta.clone()), ..Asked::default() }).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Server, Status};
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
        let mut said = String::new();
        pipe.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "meping");
        let status = stream(&channel, &Meta::new()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
    }
}

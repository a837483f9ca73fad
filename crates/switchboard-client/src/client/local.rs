//! Channels to a service of this process.

use super::{
    Begin,
    calls::RawResponse,
    connection::Connection,
    direct::{self, Direct, Prepared, Running},
    kind::ChannelKind,
    streaming::StartedStream,
};
use bytes::Bytes;
use std::{fmt, sync::Arc};
use switchboard_core::{
    Limit, Limits, Result, Service,
    call::RequestBody,
    erased::{Erased, ErasedService},
    layer::BoxFuture,
    queue::Queue,
};
use switchboard_wire::Codec;

pub(super) struct Local {
    service: Arc<dyn ErasedService>,
    direct: Direct,
}

impl Local {
    pub(super) fn new(service: impl Service, limits: &Limits) -> Local {
        let message_bytes_max = limits.get(Limit::MessageBytesMax) as usize;
        let direct = Direct::new("local".to_owned(), None, message_bytes_max);
        Local { service: Arc::new(Erased::new(service)), direct }
    }

    fn start(&self, begin: &mut Begin, body: RequestBody) -> Result<Running> {
        let Prepared { call, method, scope } = self.direct.prepare(begin, body, self.service.info())?;
        method.check_schema(begin.method.path, begin.codec, begin.method.schema())?;
        Ok(scope.run(self.service.call(call)))
    }
}

impl ChannelKind for Local {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local {}", self.service.info().name)
    }

    fn prepare(&self, _begin: &mut Begin) -> Option<Arc<Connection>> {
        None
    }

    fn unary(self: Arc<Self>, mut begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        let running = self.start(&mut begin, RequestBody::One(request));
        Box::pin(async move { running?.response().await })
    }

    fn oneway(self: Arc<Self>, mut begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let running = self.start(&mut begin, RequestBody::One(request))?;
            running.reply().await.map(drop)
        })
    }

    fn stream(
        self: Arc<Self>,
        mut begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(async move {
            let running = self.start(&mut begin, direct::requests(message, outbound))?;
            running.stream(begin.method.kind()).await
        })
    }

    fn codec(&self, preferred: Codec) -> Codec {
        preferred
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        // A service in this process listens on this machine.
        hosts.push("localhost".to_owned());
    }
}

//! The server: the generated service on hyper's connections, as connectrpc's own server has it.

use crate::WINDOW;
use crate::proto::{Bench as Service, BenchServer, BenchmarkMessage, EchoMessage};
use connectrpc::{
    ConnectRpcService, Limits, PreEncoded, RequestContext, Response, ServiceRequest, ServiceResult,
    ServiceStream, StreamMessage,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rustpeer::{Accepted, MESSAGE_BYTES_MAX};
use tokio_stream::StreamExt;

/// The service.
pub(crate) struct Bench;

impl rustpeer::Server for Bench {
    async fn serve(mut connections: Accepted) -> Result<(), String> {
        let limits = Limits::default()
            .with_max_request_body_size(MESSAGE_BYTES_MAX)
            .with_max_message_size(MESSAGE_BYTES_MAX);
        let service = ConnectRpcService::new(BenchServer::new(Bench)).with_limits(limits);
        let service = TowerToHyperService::new(service);
        let mut http = Builder::new(TokioExecutor::new());
        // hyper's 200 would make the callers of a benchmark wait for each other.
        http.http2()
            .max_concurrent_streams(None)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        while let Some(stream) = connections.next().await {
            let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
            let (http, service) = (http.clone(), service.clone());
            tokio::spawn(async move { http.serve_connection(stream, service).await });
        }
        Ok(())
    }
}

/// Replies are encoded from views of the requests: nothing is copied into an owned message.
#[expect(refining_impl_trait, reason = "the types of the replies are no secret here")]
impl Service for Bench {
    async fn echo(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, EchoMessage>,
    ) -> ServiceResult<PreEncoded<EchoMessage>> {
        Response::ok(PreEncoded::from_view(request.view()))
    }

    async fn message(
        &self,
        _: RequestContext,
        request: ServiceRequest<'_, BenchmarkMessage>,
    ) -> ServiceResult<PreEncoded<BenchmarkMessage>> {
        let mut message = request.view().clone();
        message.field1 = "OK";
        message.field2 = 100;
        Response::ok(PreEncoded::from_view(&message))
    }

    async fn stream(
        &self,
        _: RequestContext,
        requests: ServiceStream<StreamMessage<EchoMessage>>,
    ) -> ServiceResult<ServiceStream<StreamMessage<EchoMessage>>> {
        Response::ok(requests)
    }
}

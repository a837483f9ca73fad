//! `Watch` of the health service, as its contract has it: a service that is not known is `SERVICE_UNKNOWN`, and the
//! stream stays open. `connectrpc` would end it with `NOT_FOUND`.

use connectrpc::{ErrorCode, Response, Router, ServiceStream, streaming_handler_fn};
use connectrpc_health::{
    Checker, HEALTH_SERVICE_NAME, StaticChecker, StatusStream, request_limits,
    wire::{HEALTH_WATCH_SPEC, HealthCheckRequest, HealthCheckResponse, ServingStatus},
};
use futures_core::Stream;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Puts it in place of that of `connectrpc`.
pub(super) fn install(router: Router, health: Arc<StaticChecker>) -> Router {
    let watch = move |_, request: HealthCheckRequest| {
        let health = health.clone();
        async move {
            let known = match health.watch(&request.service).await {
                Ok(known) => Watched::Known(known),
                // Services are added before the server starts: one that is not known now never will be.
                Err(error) if error.code == ErrorCode::NotFound => Watched::Unknown { told: false },
                Err(error) => return Err(error),
            };
            let stream: ServiceStream<HealthCheckResponse> = Box::pin(known);
            Ok(Response::new(stream))
        }
    };
    router
        .allow_overrides()
        .route_server_stream::<_, HealthCheckRequest, HealthCheckResponse>(
            HEALTH_SERVICE_NAME,
            "Watch",
            streaming_handler_fn(watch),
        )
        .with_spec(HEALTH_WATCH_SPEC)
        .with_route_limits(HEALTH_WATCH_SPEC.procedure, request_limits())
}

/// What a watcher is told.
enum Watched {
    /// Now, and whenever it changes.
    Known(StatusStream),
    /// Once, and then nothing more.
    Unknown { told: bool },
}

impl Stream for Watched {
    type Item = Result<HealthCheckResponse, connectrpc::ConnectError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let status = match self.get_mut() {
            Watched::Known(stream) => match ready!(Pin::new(stream).poll_next(cx)) {
                Some(status) => ServingStatus::from(status),
                None => return Poll::Ready(None),
            },
            Watched::Unknown { told: true } => return Poll::Pending,
            Watched::Unknown { told } => {
                *told = true;
                ServingStatus::SERVICE_UNKNOWN
            }
        };
        Poll::Ready(Some(Ok(HealthCheckResponse { status: status.into(), ..Default::default() })))
    }
}

//! `Watch` of the health service as its contract defines it: an unknown service is `SERVICE_UNKNOWN`, and the stream
//! stays open. `connectrpc` would end it with `NOT_FOUND`.

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

/// Replaces the method of `connectrpc`.
pub(super) fn install(router: Router, health: Arc<StaticChecker>) -> Router {
    let watch = move |_, request: HealthCheckRequest| {
        let health = health.clone();
        async move {
            let known = match health.watch(&request.service).await {
                Ok(known) => Watched::Known(known),
                // Services are added before the server starts: a service that is unknown now stays unknown.
                Err(error) if error.code == ErrorCode::NotFound => Watched::Unknown { sent: false },
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

/// The stream of statuses that a watcher receives.
enum Watched {
    /// The current status, and every change.
    Known(StatusStream),
    /// One status, and no further messages.
    Unknown { sent: bool },
}

impl Stream for Watched {
    type Item = Result<HealthCheckResponse, connectrpc::ConnectError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let status = match self.get_mut() {
            Watched::Known(stream) => match ready!(Pin::new(stream).poll_next(cx)) {
                Some(status) => ServingStatus::from(status),
                None => return Poll::Ready(None),
            },
            Watched::Unknown { sent: true } => return Poll::Pending,
            Watched::Unknown { sent } => {
                *sent = true;
                ServingStatus::SERVICE_UNKNOWN
            }
        };
        Poll::Ready(Some(Ok(HealthCheckResponse { status: status.into(), ..Default::default() })))
    }
}

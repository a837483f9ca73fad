//! Requests that fail before their calls begin: the guards have not seen their callers.
//!
//! A caller without credentials gets the same response to such a request, whether the method exists or not.

use super::{
    body::Reply,
    dispatch::{CallStarted, Dispatch},
    refusal,
    rest::{Failure, Style},
};
use ::http::{HeaderMap, Response};
use connectrpc::ConnectRpcBody;
use std::sync::Arc;
use switchboard_wire::{MethodId, Status};

/// The parts of a request that decide whether its caller may learn why it failed.
pub(super) struct UncheckedRequest {
    pub(super) started: CallStarted,
    pub(super) dispatch: Arc<Dispatch>,
    /// The declared method at the path.
    pub(super) method: Option<MethodId>,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    /// The response is that of HTTP/JSON.
    pub(super) is_rest: bool,
}

impl UncheckedRequest {
    /// Returns the refusal if the caller may not find out whether there is a method at the path.
    pub(super) async fn denied(self) -> Option<Denied> {
        let status = self.dispatch.check_caller(&self.headers, self.method, &self.path).await.err()?;
        Some(Denied { status, headers: self.headers, is_rest: self.is_rest })
    }
}

/// The refusal of a caller that the guards do not admit.
pub(super) struct Denied {
    status: Status,
    headers: HeaderMap,
    is_rest: bool,
}

impl Denied {
    /// Creates the response; `finished` completes that of a dialect other than HTTP/JSON.
    pub(super) fn response(
        &self,
        finished: impl FnOnce(Response<ConnectRpcBody>) -> Response<Reply>,
    ) -> Response<Reply> {
        match self.is_rest {
            true => Failure::new(&self.status).response(Style::Rest),
            false => finished(refusal::response(&self.status, None, &self.headers)),
        }
    }
}

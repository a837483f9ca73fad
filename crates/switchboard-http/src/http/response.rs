//! Responses that need no call: complete bodies, and refusals of wires.

use super::body::Reply;
use ::http::{Response, StatusCode};
use bytes::Bytes;
use switchboard_guard::guard::admit_wire;
use switchboard_wire::{WireId, WireSet};

/// Creates a response with a complete body.
pub(super) fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::whole(body.into()));
    *response.status_mut() = status;
    response
}

/// Returns the response to a request of a wire that the listener has not enabled, or that is not in this build, before
/// its body is read.
pub(super) fn disabled(enabled: WireSet, wire: Option<WireId>) -> Option<Response<Reply>> {
    let text = match wire {
        Some(wire) => admit_wire(enabled, Some(wire)).err()?.message().to_owned(),
        None => format!("the wire of this request is not in this program; enabled: {enabled} (wires)"),
    };
    Some(respond(StatusCode::NOT_IMPLEMENTED, text + "\n"))
}

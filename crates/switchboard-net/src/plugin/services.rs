//! Calls of a server's services by the peers of its plugins, and the authentication of these peers.

use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::{Caller, Peer, Result, layer::BoxFuture};
use switchboard_wire::{Codec, Metadata, MethodTable, Status};

/// The services of a server, as its plugins call them for their peers: see
/// [`PluginContext::services`](super::PluginContext::services).
///
/// A future that a method returns is polled by the plugin: in a task that it spawns, whose result goes to the mailbox
/// of its engine. Nothing happens before the first poll. Dropping the future cancels the call.
pub trait Services: Send + Sync + fmt::Debug {
    /// Calls a unary method for a peer. The call passes the guards and layers of the server, is counted and logged
    /// under the wire of the peer, and counts in `server_calls_max`, in the memory budget, and in the drain.
    ///
    /// The plugin limits the number of calls of a peer that are in flight, and the size of its messages; the server
    /// checks the limit of the method, and the limits of metadata.
    ///
    /// # Errors
    /// The status with which the call ends: `Unimplemented` for an unknown method and for one that streams,
    /// `DeadlineExceeded`, `ResourceExhausted` for a limit that the call exceeds, `Unavailable` when the server stops,
    /// those of guards, and those of the handler.
    fn call(&self, peer: &Arc<Peer>, call: ServiceCall) -> BoxFuture<'static, Result<ServiceResponse>>;

    /// Returns the methods of the server, for protocols that list them, or that distinguish calls from other messages
    /// by the name. `None` without a server, and after its end.
    fn methods(&self) -> Option<Arc<MethodTable>>;

    /// Checks credentials, as the guards do it for each call: the entries that a caller sends as metadata, such as
    /// `authorization`. `None` if they are of no kind that the server checks.
    ///
    /// # Errors
    /// `Unauthenticated` for invalid credentials, and the errors of the verifier.
    fn authenticate(
        &self,
        peer: &Arc<Peer>,
        credentials: Metadata,
    ) -> BoxFuture<'static, Result<Option<Arc<Caller>>>>;
}

/// A call of a unary method by a peer of a plugin.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceCall {
    /// Name of the method: `package.Service/Method`, or with a dot instead of the slash.
    pub method: String,
    /// Codec of the request and of the response.
    pub codec: Codec,
    /// The request.
    pub message: Bytes,
    /// Metadata, with the credentials of the peer.
    pub metadata: Metadata,
    /// Time from now on after which the call ends; the server may have a shorter limit.
    pub timeout: Option<Duration>,
    /// Set if the peer expects no response.
    pub is_oneway: bool,
}

impl ServiceCall {
    /// Creates a call without metadata and deadline.
    pub fn new(method: impl Into<String>, codec: Codec, message: impl Into<Bytes>) -> ServiceCall {
        ServiceCall {
            method: method.into(),
            codec,
            message: message.into(),
            metadata: Metadata::new(),
            timeout: None,
            is_oneway: false,
        }
    }

    /// Sets the metadata.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> ServiceCall {
        self.metadata = metadata;
        self
    }

    /// Sets the time after which the call ends.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ServiceCall {
        self.timeout = Some(timeout);
        self
    }

    /// Declares that the peer expects no response: the one of the future is empty.
    #[must_use]
    pub fn oneway(mut self) -> ServiceCall {
        self.is_oneway = true;
        self
    }
}

/// The response to a [`ServiceCall`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceResponse {
    /// The message, in the codec of the call.
    pub message: Bytes,
    /// Metadata that the handler added, before and after the message.
    pub metadata: Metadata,
}

impl ServiceResponse {
    /// Creates a response.
    pub fn new(message: Bytes, metadata: Metadata) -> ServiceResponse {
        ServiceResponse { message, metadata }
    }
}

/// The services of a plugin that runs without a server: there are none.
#[derive(Debug)]
pub(super) struct NoServices;

impl Services for NoServices {
    fn call(&self, _: &Arc<Peer>, call: ServiceCall) -> BoxFuture<'static, Result<ServiceResponse>> {
        let text = format!("method {:?} not found: this plugin runs without a server", call.method);
        Box::pin(std::future::ready(Err(Status::unimplemented(text))))
    }

    fn methods(&self) -> Option<Arc<MethodTable>> {
        None
    }

    fn authenticate(&self, _: &Arc<Peer>, _: Metadata) -> BoxFuture<'static, Result<Option<Arc<Caller>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

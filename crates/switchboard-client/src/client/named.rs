//! Calls of methods by name, for programs without generated code.

use super::{Channel, ClientMethod, ServerStreamCall, UnaryCall};
use ::serde::{Serialize, de::DeserializeOwned};
use bytes::Bytes;
use switchboard_core::{Result, codec::serde};
use switchboard_wire::{Codec, Idempotency, Kind};

/// A method of a channel, by name: choose the form of its messages.
///
/// The name is checked when the call is awaited, as [`ClientMethod::intern`] does; a process keeps up to 4096 names, so
/// they should not come from callers of the process.
#[derive(Clone, Copy, Debug)]
#[must_use = "choose the form of the messages, as with `json`"]
pub struct NamedCall<'a> {
    channel: &'a Channel,
    method: &'a str,
}

impl<'a> NamedCall<'a> {
    pub(super) fn new(channel: &'a Channel, method: &'a str) -> Self {
        NamedCall { channel, method }
    }

    /// Begins a unary call with `request` as JSON; the reply is a value of a type that deserializes from JSON, such
    /// as `serde_json::Value`. On wires without JSON, messages are in the codec of the wire if serde types can be.
    ///
    /// # Errors
    /// When awaited: those of the call, `InvalidArgument` for an invalid name, and for a wire without a codec for serde
    /// types.
    pub fn json<R: DeserializeOwned>(self, request: &(impl Serialize + ?Sized)) -> UnaryCall<R> {
        let codec = self.channel.codec(Codec::Json);
        let (method, request) = self.encode(Kind::Unary, codec, request);
        self.channel.unary(method, codec, request, serde::decode::<R>)
    }

    /// Begins a call with one request and a stream of replies, in the form that [`json`](Self::json) has.
    ///
    /// # Errors
    /// Returns the errors of [`json`](Self::json).
    pub fn json_stream<R: DeserializeOwned>(
        self,
        request: &(impl Serialize + ?Sized),
    ) -> ServerStreamCall<R> {
        let codec = self.channel.codec(Codec::Json);
        let (method, request) = self.encode(Kind::ServerStream, codec, request);
        self.channel.server_stream(method, codec, request, serde::decode::<R>)
    }

    /// Begins a unary call with a request that is encoded already; the reply is its bytes.
    ///
    /// # Errors
    /// When awaited: those of the call, and `InvalidArgument` for an invalid name.
    pub fn encoded(self, codec: Codec, request: impl Into<Bytes>) -> UnaryCall<Bytes> {
        let (method, named) = self.intern(Kind::Unary);
        self.channel.unary(method, codec, named.map(|()| request.into()), |_, reply| Ok(reply))
    }

    /// The method and the encoded request, or the error of the name or of the encoding.
    fn encode(
        self,
        kind: Kind,
        codec: Codec,
        request: &(impl Serialize + ?Sized),
    ) -> (&'static ClientMethod, Result<Bytes>) {
        let (method, named) = self.intern(kind);
        (method, named.and_then(|()| serde::encode(&request, codec)))
    }

    /// The method; one without a name after an error, with which the call fails.
    fn intern(self, kind: Kind) -> (&'static ClientMethod, Result<()>) {
        match ClientMethod::intern(self.method, kind, Idempotency::Unknown) {
            Ok(method) => (method, Ok(())),
            Err(status) => (ClientMethod::undeclared(kind), Err(status)),
        }
    }
}

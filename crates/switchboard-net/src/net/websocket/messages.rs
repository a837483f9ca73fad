//! Messages of a WebSocket that are no bytes of a connection, but are translated into them.

use bytes::{Bytes, BytesMut};
use std::fmt;
use switchboard_wire::{Fatal, Input, Outbox};

/// Translates the binary messages of one WebSocket into the bytes of a connection, and the other way around.
pub trait MessageTranslation: Send + 'static {
    /// Translates a message of the peer: appends the bytes of a connection to `into`.
    ///
    /// # Errors
    /// The message is not valid; the WebSocket is closed.
    fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal>;

    /// Takes the bytes of the connection from `out`, and returns the messages for the peer. Keeps the bytes that are
    /// not a whole message yet.
    fn send(&mut self, out: &mut Outbox) -> Vec<Bytes>;
}

/// A WebSocket whose messages a plugin translates.
#[non_exhaustive]
pub struct WebSocketMessages {
    /// The sub-protocol that the server selects; empty for none.
    pub subprotocol: &'static str,
    /// Bytes that the connection begins with, before those of the first message.
    pub first: BytesMut,
    /// The translation of the messages.
    pub translation: Box<dyn MessageTranslation>,
    /// Largest message of the client in bytes, if it is less than that of the listener.
    pub message_bytes_max: Option<u64>,
}

impl WebSocketMessages {
    /// Creates a WebSocket with this sub-protocol.
    pub fn new(
        subprotocol: &'static str,
        first: BytesMut,
        translation: impl MessageTranslation,
    ) -> WebSocketMessages {
        WebSocketMessages { subprotocol, first, translation: Box::new(translation), message_bytes_max: None }
    }

    /// Sets the largest message of the client in bytes; a longer one closes the WebSocket with 1009.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: u64) -> WebSocketMessages {
        self.message_bytes_max = Some(bytes);
        self
    }
}

impl fmt::Debug for WebSocketMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketMessages").field("subprotocol", &self.subprotocol).finish_non_exhaustive()
    }
}

/// State of a translated WebSocket.
pub(super) struct Translated {
    translation: Box<dyn MessageTranslation>,
    /// The message that is arriving.
    pub(super) message: BytesMut,
    /// Bytes of the connection that wait for their translation.
    plain: Outbox,
}

impl Translated {
    #[cfg(feature = "http")]
    pub(super) fn new(translation: Box<dyn MessageTranslation>) -> Translated {
        Translated { translation, message: BytesMut::new(), plain: Outbox::new() }
    }

    /// Translates the message that has arrived, and appends its bytes to `payload`.
    pub(super) fn receive(&mut self, payload: &mut BytesMut) -> Result<(), Fatal> {
        let mut input = Input::new(std::mem::take(payload));
        let received = self.translation.receive(&self.message, &mut input);
        *payload = input.into_buffer();
        // The memory of a large message is not kept.
        self.message = BytesMut::new();
        received
    }

    /// Translates bytes of the connection into messages.
    pub(super) fn send(&mut self, parts: &[&[u8]]) -> Vec<Bytes> {
        for part in parts {
            self.plain.tail().extend_from_slice(part);
        }
        self.translation.send(&mut self.plain)
    }
}

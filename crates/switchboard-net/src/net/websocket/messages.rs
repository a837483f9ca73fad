//! Messages of a WebSocket that are no bytes of a connection, but are translated into them.

use bytes::{Bytes, BytesMut};
use std::{fmt, sync::Arc};
use switchboard_core::memory::{LARGE, MemoryBudget, Pressure, ReportedBytes};
use switchboard_wire::{Fatal, Input, Outbox, Status};

/// Translates the messages of one WebSocket into the bytes of a connection, and the other way around.
pub trait MessageTranslation: Send + 'static {
    /// Translates a message of the peer: appends the bytes of a connection to `into`.
    ///
    /// # Errors
    /// The message is not valid; the WebSocket is closed.
    fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal>;

    /// Takes the bytes of the connection from `out`, and returns the messages for the peer. Keeps the bytes that are
    /// not a whole message yet.
    fn send(&mut self, out: &mut Outbox) -> Vec<Bytes>;

    /// Returns the code and the reason of the CLOSE, when the connection ends or a message was not valid. The default
    /// leaves both to the server. A reason of over 123 bytes is cut.
    fn close(&mut self) -> Option<(u16, String)> {
        None
    }
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
    /// The messages are text; those of the other kind close the WebSocket with 1003.
    pub is_text: bool,
}

impl WebSocketMessages {
    /// Creates a WebSocket with this sub-protocol and binary messages.
    pub fn new(
        subprotocol: &'static str,
        first: BytesMut,
        translation: impl MessageTranslation,
    ) -> WebSocketMessages {
        let translation = Box::new(translation);
        WebSocketMessages { subprotocol, first, translation, message_bytes_max: None, is_text: false }
    }

    /// Has text messages in both directions instead of binary ones.
    #[must_use]
    pub fn text(mut self) -> WebSocketMessages {
        self.is_text = true;
        self
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
    /// Budget of the server, and the bytes that are charged to it.
    memory: Arc<MemoryBudget>,
    charged: ReportedBytes,
}

impl Translated {
    #[cfg(feature = "http")]
    pub(super) fn new(translation: Box<dyn MessageTranslation>, memory: Arc<MemoryBudget>) -> Translated {
        let (message, plain, charged) = (BytesMut::new(), Outbox::new(), ReportedBytes::default());
        Translated { translation, message, plain, memory, charged }
    }

    /// Charges the message that is arriving, and `waiting` bytes that were not read, to the budget. Drops a large
    /// message when the server has no memory for its rest, and returns the reason: the WebSocket must be closed.
    pub(super) fn charge(&mut self, waiting: usize) -> Option<Status> {
        let is_large = self.message.len() > LARGE;
        let refused =
            (is_large && self.memory.restrictions(false).pressure == Pressure::Exhausted).then(|| {
                self.message = BytesMut::new();
                self.memory.aborts()
            });
        let held = self.message.len().saturating_add(waiting);
        if let Some(before) = self.charged.set(held) {
            self.memory.change(before, held);
        }
        refused
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

    /// Returns the code and the reason of the CLOSE.
    pub(super) fn close(&mut self) -> Option<(u16, String)> {
        self.translation.close()
    }

    /// Translates bytes of the connection into messages.
    pub(super) fn send(&mut self, parts: &[&[u8]]) -> Vec<Bytes> {
        for part in parts {
            self.plain.tail().extend_from_slice(part);
        }
        self.translation.send(&mut self.plain)
    }
}

impl Drop for Translated {
    fn drop(&mut self) {
        self.memory.change(self.charged.get(), 0);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "http")]
    mod memory {
        use crate::net::{MessageTranslation, WebSocketMessages, websocket::WebSocketIo};
        use bytes::{Bytes, BytesMut};
        use std::sync::Arc;
        use switchboard_core::{Flag, limits::Unit, memory::MemoryBudget};
        use switchboard_wire::{Fatal, Input, Outbox, websocket::close};
        use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

        const PART: usize = 100 << 10;

        /// Passes the bytes of messages on.
        struct Same;

        impl MessageTranslation for Same {
            fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal> {
                into.extend(message);
                Ok(())
            }

            fn send(&mut self, _out: &mut Outbox) -> Vec<Bytes> {
                Vec::new()
            }
        }

        fn budget(max: u64) -> Arc<MemoryBudget> {
            Arc::new(MemoryBudget::new(
                Flag::new("memory_bytes_max", Unit::Bytes, max, 0..=1 << 40, "test"),
                1,
            ))
        }

        fn server(memory: &Arc<MemoryBudget>) -> (DuplexStream, WebSocketIo) {
            let (peer, io) = tokio::io::duplex(4 * PART);
            let messages = WebSocketMessages::new("test", BytesMut::new(), Same);
            let io = WebSocketIo::translated(
                Box::new(io),
                BytesMut::new(),
                None,
                messages,
                1 << 30,
                memory.clone(),
            );
            (peer, io)
        }

        /// A frame of a binary message with a mask of zeros.
        fn frame(is_first: bool, is_last: bool) -> Vec<u8> {
            let mut frame = vec![u8::from(is_last) << 7 | u8::from(is_first) << 1, 0x80 | 127];
            frame.extend((PART as u64).to_be_bytes());
            frame.extend([0; 4]);
            frame.resize(frame.len() + PART, b'x');
            frame
        }

        /// Reads what has arrived, until the pipe waits for more.
        async fn read(io: &mut WebSocketIo) -> usize {
            let (mut read, mut buffer) = (0, vec![0; PART]);
            loop {
                let next = std::pin::pin!(io.read(&mut buffer));
                tokio::select! {
                    biased;
                    count = next => match count.unwrap() {
                        0 => return read,
                        count => read += count,
                    },
                    // A pipe in memory pauses after a number of reads.
                    () = async { for _ in 0..1_000 { tokio::task::yield_now().await } } => return read,
                }
            }
        }

        #[tokio::test]
        async fn a_message_under_assembly_counts_until_it_is_read() {
            let memory = budget(1 << 30);
            let held = || memory.stats().held as usize;
            let (mut peer, mut io) = server(&memory);
            for part in 1..=3 {
                peer.write_all(&frame(part == 1, false)).await.unwrap();
                assert_eq!(read(&mut io).await, 0, "the message is not complete");
                assert!(held() > part * PART - 1024 && held() <= part * PART, "{part}: {}", held());
            }
            peer.write_all(&frame(false, true)).await.unwrap();
            assert_eq!(io.read(&mut [0; 10]).await.unwrap(), 10);
            assert!(held() > 4 * PART - 1024, "the message waits to be read: {}", held());
            assert_eq!(read(&mut io).await, 4 * PART - 10);
            assert_eq!(held(), 0);
            peer.write_all(&frame(true, false)).await.unwrap();
            assert_eq!(read(&mut io).await, 0);
            assert!(held() > 0);
            drop(io);
            assert_eq!(held(), 0, "the connection has ended");
        }

        #[tokio::test]
        async fn a_large_message_is_refused_without_memory_and_small_ones_are_not() {
            let memory = budget(2 * PART as u64);
            let (mut peer, mut io) = server(&memory);
            memory.change(0, 2 * PART);
            peer.write_all(&[0x82, 0x81, 0, 0, 0, 0, b'x']).await.unwrap();
            assert_eq!(read(&mut io).await, 1);
            peer.write_all(&frame(true, false)).await.unwrap();
            assert_eq!(read(&mut io).await, 0, "the end");
            let mut close = [0; 4];
            peer.read_exact(&mut close).await.unwrap();
            assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, close::TOO_BIG));
            let mut reason = vec![0; usize::from(close[1]) - 2];
            peer.read_exact(&mut reason).await.unwrap();
            let reason = String::from_utf8(reason).unwrap();
            assert!(reason.contains("no room for the rest of a message"), "{reason}");
            assert_eq!(memory.stats().aborted, 1);
            drop(io);
            assert_eq!(memory.stats().held as usize, 2 * PART);
        }
    }
}

//! Encoded messages to be sent: small ones in reused memory, the large parts of others without copies.

pub(crate) mod arena;
#[cfg(feature = "proto")]
pub(crate) mod segments;

use bytes::{Bytes, BytesMut};
#[cfg(feature = "proto")]
pub(crate) use segments::MESSAGE_MIN as PARTS_FROM;
use std::{
    cell::RefCell,
    fmt,
    ops::{Deref, DerefMut},
    sync::OnceLock,
};
use switchboard_wire::Outgoing;

/// Offset of a message in memory of its own.
///
/// Allocators return large memory at the same offset in a page, and the source of a copy usually lies at the start of
/// such memory as well. After a few bytes of tag and length, the copy goes to an offset 1 to 15 bytes further in its
/// page than its source. In that case `rep movsb`, which C libraries and the kernel use for copies, takes 13 times as
/// long on some processors (AMD Zen 3 to 5: 3.5 instead of 47 GB/s).
pub(crate) const OFFSET: usize = 128;

/// Larger messages get separate memory.
const SMALL_MAX: usize = 4 << 10;
/// Buffers that a thread keeps, with room for a small message each.
const KEPT_MAX: usize = 128;

/// An encoded message that is to be sent.
///
/// A small message lies in memory that the thread reuses, because it is written once and then dropped: counting
/// references to it would cost more than the copy that puts it after the head of its frame. A large protobuf message
/// whose `bytes` fields lie in memory that can be shared (a [`Bytes`], or the request that a view borrows from) is a
/// list of parts: the native wire writes them one after the other, and all other wires join them.
///
/// It is one word, because many functions move it.
pub struct Payload(PooledBuffer);

/// The buffer of a message; set until it is dropped, and then kept for the next message.
struct PooledBuffer(Option<Box<Buffer>>);

/// The content of a message: shared bytes, otherwise parts, otherwise a few bytes.
#[derive(Default)]
struct Buffer {
    shared: Option<Bytes>,
    parts: Vec<Bytes>,
    small: BytesMut,
    /// The parts, or the few bytes, joined into one shareable piece at the first call that needs it.
    joined: OnceLock<Bytes>,
}

/// A message in the form that wires expect.
// closed: every wire writes each form
pub enum Pieces<'a> {
    /// One piece.
    One(Outgoing<'a>),
    /// Several pieces, none of which is empty.
    Parts(&'a [Bytes]),
}

// Of the thread: messages are encoded where no connection is at hand, and dropped after they were written.
thread_local! {
    #[expect(clippy::vec_box, reason = "a message holds the box itself")]
    static FREE: RefCell<Vec<Box<Buffer>>> = const { RefCell::new(Vec::new()) };
}

impl Payload {
    /// Encodes a message of `len` bytes that `write` appends.
    #[inline]
    pub(super) fn encode(len: usize, write: impl FnOnce(&mut BytesMut)) -> Payload {
        if len > SMALL_MAX {
            return arena::alone(len, write).into();
        }
        let mut buffer = PooledBuffer::free();
        buffer.small.reserve(len);
        write(&mut buffer.small);
        Payload(buffer)
    }

    /// Creates a message of these parts, none of which is empty.
    #[cfg(feature = "proto")]
    pub(super) fn of_parts(mut parts: Vec<Bytes>) -> Payload {
        if parts.len() == 1 {
            return parts.remove(0).into();
        }
        let mut buffer = PooledBuffer::free();
        buffer.parts = parts;
        Payload(buffer)
    }

    /// Returns the length of the message in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self.pieces() {
            Pieces::One(message) => message.len(),
            Pieces::Parts(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the message in the form that wires expect.
    #[inline]
    #[doc(hidden)]
    pub fn pieces(&self) -> Pieces<'_> {
        let held = &*self.0;
        match &held.shared {
            Some(message) => Pieces::One(Outgoing::Shared(message)),
            None if held.parts.is_empty() => Pieces::One(Outgoing::Lent(&held.small)),
            None => Pieces::Parts(&held.parts),
        }
    }

    /// Returns the message, if it is in one piece.
    #[inline]
    #[doc(hidden)]
    pub fn one(&self) -> Option<Outgoing<'_>> {
        match self.pieces() {
            Pieces::One(message) => Some(message),
            Pieces::Parts(_) => None,
        }
    }

    /// Returns the message as one shareable piece; a small message or one in parts is copied the first time.
    pub fn whole(&self) -> &Bytes {
        let held = &*self.0;
        held.shared.as_ref().unwrap_or_else(|| held.joined.get_or_init(|| held.join()))
    }

    /// Converts the message to one shareable piece; a small message or one in parts is copied.
    #[inline]
    pub fn into_whole(mut self) -> Bytes {
        let held = &mut *self.0;
        held.shared.take().or_else(|| held.joined.take()).unwrap_or_else(|| held.join())
    }
}

impl Buffer {
    #[cold]
    fn join(&self) -> Bytes {
        if self.parts.is_empty() {
            return arena::encode(self.small.len(), |into| into.extend_from_slice(&self.small));
        }
        let mut whole = BytesMut::with_capacity(self.parts.iter().map(Bytes::len).sum());
        self.parts.iter().for_each(|part| whole.extend_from_slice(part));
        whole.freeze()
    }
}

impl PooledBuffer {
    #[inline]
    fn free() -> PooledBuffer {
        // A thread that exits keeps no buffers.
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        PooledBuffer(Some(kept.unwrap_or_default()))
    }
}

impl Deref for PooledBuffer {
    type Target = Buffer;

    #[inline]
    fn deref(&self) -> &Buffer {
        self.0.as_deref().expect("taken when it is dropped")
    }
}

impl DerefMut for PooledBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Buffer {
        self.0.as_deref_mut().expect("taken when it is dropped")
    }
}

impl Drop for PooledBuffer {
    #[inline]
    fn drop(&mut self) {
        let Some(mut held) = self.0.take() else { return };
        if held.shared.is_some() {
            held.shared = None;
        }
        if held.joined.get().is_some() {
            held.joined = OnceLock::new();
        }
        if !held.parts.is_empty() {
            held.parts = Vec::new();
        }
        held.small.clear();
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT_MAX {
                free.push(held);
            }
        });
    }
}

impl From<Vec<u8>> for Payload {
    #[inline]
    fn from(bytes: Vec<u8>) -> Payload {
        Bytes::from(bytes).into()
    }
}

impl From<Bytes> for Payload {
    #[inline]
    fn from(bytes: Bytes) -> Payload {
        let mut buffer = PooledBuffer::free();
        buffer.shared = Some(bytes);
        Payload(buffer)
    }
}

impl Clone for Payload {
    fn clone(&self) -> Payload {
        self.whole().clone().into()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> Payload {
        Payload::encode(text.len(), |into| into.extend_from_slice(text.as_bytes()))
    }

    fn address(payload: &Payload) -> *const u8 {
        payload.one().expect("one piece").as_ptr()
    }

    #[test]
    fn memory_of_a_small_message_is_used_again() {
        let first = encoded("first");
        let (at, second) = (address(&first), encoded("second"));
        assert_ne!(address(&second), at);
        drop(first);
        let third = encoded("third");
        assert_eq!(address(&third), at);
        assert_eq!((&**third.whole(), &**second.whole()), (&b"third"[..], &b"second"[..]));
    }

    #[test]
    fn nothing_is_left_of_the_message_before() {
        let kept = encoded("a small one").into_whole();
        drop(Payload::from(Bytes::from_static(b"a whole one")));
        #[cfg(feature = "proto")]
        drop(Payload::of_parts(vec![Bytes::from_static(b"of "), Bytes::from_static(b"parts")]));
        assert!(encoded("").is_empty());
        let next = encoded("next");
        assert_eq!((next.len(), &**next.whole()), (4, &b"next"[..]));
        assert_eq!(next.clone().into_whole(), "next");
        assert_eq!(kept, "a small one");
    }

    #[test]
    fn message_beyond_the_limit_has_memory_of_its_own() {
        let large = "x".repeat(SMALL_MAX + 1);
        let payload = encoded(&large);
        assert!(matches!(payload.one(), Some(Outgoing::Shared(_))) && payload.len() == large.len());
        let at = address(&payload);
        assert_eq!(payload.into_whole().as_ptr(), at);
    }

    #[cfg(feature = "proto")]
    #[test]
    fn parts_are_joined_when_one_piece_is_requested() {
        let payload = Payload::of_parts(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")]);
        assert!(payload.one().is_none() && payload.len() == 3);
        assert_eq!(payload.whole(), "abc");
        assert_eq!(payload.into_whole(), "abc");
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_limit() {
        let many: Vec<Payload> = (0..2 * KEPT_MAX).map(|_| encoded("one of many")).collect();
        drop(many);
        assert_eq!(FREE.with_borrow(Vec::len), KEPT_MAX);
    }
}

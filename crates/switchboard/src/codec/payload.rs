//! Encoded messages on their way out: small ones in memory that is used again, the large parts of others not copied.

use super::arena;
use bytes::{Bytes, BytesMut};
use std::{
    cell::RefCell,
    fmt,
    ops::{Deref, DerefMut},
    sync::OnceLock,
};
use switchboard_wire::Outgoing;

/// Larger messages get memory of their own.
const SMALL_MAX: usize = 4 << 10;
/// Places that a thread keeps, with room for a small message each.
const KEPT_MAX: usize = 128;

/// An encoded message that is to be sent.
///
/// A small one lies in memory that the thread uses again, since it is written once and then gone: counting references
/// to it would cost more than the copy that puts it behind its frame's head. A large protobuf message whose `bytes`
/// fields lie in memory that can be shared (a [`Bytes`], or the request that a view borrows from) is a list of parts:
/// the native wire writes them one after the other, and everything else joins them.
///
/// One word, since it passes through many hands.
pub struct Payload(Place);

/// The place of a message; there until it is dropped, and kept for the next one then.
struct Place(Option<Box<Held>>);

/// What is held of a message: what is shared, else its parts, else its few bytes.
#[derive(Default)]
struct Held {
    shared: Option<Bytes>,
    parts: Vec<Bytes>,
    small: BytesMut,
    /// The parts, or the few bytes, in one piece that can be kept, once somebody wanted that.
    joined: OnceLock<Bytes>,
}

/// A message as wires take it.
pub(crate) enum Pieces<'a> {
    /// In one piece.
    One(Outgoing<'a>),
    /// In several, none of which is empty.
    Parts(&'a [Bytes]),
}

thread_local! {
    #[expect(clippy::vec_box, reason = "what a message holds is the box")]
    static FREE: RefCell<Vec<Box<Held>>> = const { RefCell::new(Vec::new()) };
}

impl Payload {
    /// A message of `len` bytes that `write` appends.
    #[inline]
    pub(super) fn encode(len: usize, write: impl FnOnce(&mut BytesMut)) -> Payload {
        if len > SMALL_MAX {
            return arena::alone(len, write).into();
        }
        let mut place = Place::free();
        place.small.reserve(len);
        write(&mut place.small);
        Payload(place)
    }

    /// A message of these parts, none of which is empty.
    #[cfg(feature = "proto")]
    pub(super) fn of_parts(mut parts: Vec<Bytes>) -> Payload {
        if parts.len() == 1 {
            return parts.remove(0).into();
        }
        let mut place = Place::free();
        place.parts = parts;
        Payload(place)
    }

    /// The length of the message in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self.pieces() {
            Pieces::One(message) => message.len(),
            Pieces::Parts(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    /// Whether there is no byte in the message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message as wires take it.
    #[inline]
    pub(crate) fn pieces(&self) -> Pieces<'_> {
        let held = &*self.0;
        match &held.shared {
            Some(message) => Pieces::One(Outgoing::Shared(message)),
            None if held.parts.is_empty() => Pieces::One(Outgoing::Lent(&held.small)),
            None => Pieces::Parts(&held.parts),
        }
    }

    /// The message, if it is in one piece.
    #[inline]
    pub(crate) fn one(&self) -> Option<Outgoing<'_>> {
        match self.pieces() {
            Pieces::One(message) => Some(message),
            Pieces::Parts(_) => None,
        }
    }

    /// The message in one piece that can be kept; what is small or in parts is copied the first time.
    pub fn whole(&self) -> &Bytes {
        let held = &*self.0;
        held.shared.as_ref().unwrap_or_else(|| held.joined.get_or_init(|| held.join()))
    }

    /// The message in one piece that can be kept; what is small or in parts is copied.
    #[inline]
    pub fn into_whole(mut self) -> Bytes {
        let held = &mut *self.0;
        held.shared.take().or_else(|| held.joined.take()).unwrap_or_else(|| held.join())
    }
}

impl Held {
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

impl Place {
    #[inline]
    fn free() -> Place {
        // A thread that ends keeps nothing any more.
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        Place(Some(kept.unwrap_or_default()))
    }
}

impl Deref for Place {
    type Target = Held;

    #[inline]
    fn deref(&self) -> &Held {
        self.0.as_deref().expect("taken when it is dropped")
    }
}

impl DerefMut for Place {
    #[inline]
    fn deref_mut(&mut self) -> &mut Held {
        self.0.as_deref_mut().expect("taken when it is dropped")
    }
}

impl Drop for Place {
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
        let mut place = Place::free();
        place.shared = Some(bytes);
        Payload(place)
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
    fn parts_are_joined_when_one_piece_is_asked_for() {
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

//! Encoded messages on their way out, the large parts of which are not copied.

use bytes::{Bytes, BytesMut};
use std::sync::OnceLock;

/// An encoded message that is to be sent.
///
/// One piece of memory, as a rule. A large protobuf message whose `bytes` fields lie in memory that can be shared (a
/// [`Bytes`], or the request that a view borrows from) is a list of parts instead: the native wire writes them one
/// after the other, and everything else joins them.
#[derive(Clone, Debug)]
pub struct Payload(pub(crate) Form);

#[derive(Clone, Debug)]
pub(crate) enum Form {
    One(Bytes),
    #[cfg_attr(not(feature = "proto"), expect(dead_code, reason = "only protobuf gathers parts"))]
    Parts(Box<Parts>),
}

/// The parts of a large message, in order.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    parts: Vec<Bytes>,
    /// All of them in one piece, once somebody wanted that.
    joined: OnceLock<Bytes>,
}

impl Payload {
    /// A message of these parts, none of which is empty.
    #[cfg(feature = "proto")]
    pub(super) fn of_parts(mut parts: Vec<Bytes>) -> Payload {
        Payload(match parts.len() {
            0 => Form::One(Bytes::new()),
            1 => Form::One(parts.remove(0)),
            _ => Form::Parts(Box::new(Parts { parts, joined: OnceLock::new() })),
        })
    }

    /// The length of the message in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::One(bytes) => bytes.len(),
            Form::Parts(parts) => parts.parts().iter().map(Bytes::len).sum(),
        }
    }

    /// Whether there is no byte in the message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message in one piece; parts are copied the first time.
    #[inline]
    pub fn whole(&self) -> &Bytes {
        match &self.0 {
            Form::One(bytes) => bytes,
            Form::Parts(parts) => parts.whole(),
        }
    }

    /// The message in one piece; parts are copied.
    #[inline]
    pub fn into_whole(self) -> Bytes {
        match self.0 {
            Form::One(bytes) => bytes,
            Form::Parts(parts) => parts.whole().clone(),
        }
    }
}

impl Parts {
    pub(crate) fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    #[cold]
    pub(crate) fn whole(&self) -> &Bytes {
        self.joined.get_or_init(|| {
            let mut whole = BytesMut::with_capacity(self.parts.iter().map(Bytes::len).sum());
            self.parts.iter().for_each(|part| whole.extend_from_slice(part));
            whole.freeze()
        })
    }
}

impl From<Vec<u8>> for Payload {
    #[inline]
    fn from(bytes: Vec<u8>) -> Payload {
        Payload(Form::One(bytes.into()))
    }
}

impl From<Bytes> for Payload {
    #[inline]
    fn from(bytes: Bytes) -> Payload {
        Payload(Form::One(bytes))
    }
}

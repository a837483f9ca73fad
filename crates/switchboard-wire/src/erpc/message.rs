//! Messages, independent of their framing.

use bytes::Bytes;
use std::borrow::Cow;

/// Kinds of messages.
pub(super) mod kind {
    pub(crate) const CALL: u8 = 1;
    pub(crate) const REPLY: u8 = 2;
    pub(crate) const PUSH: u8 = 3;
    pub(crate) const AUTH_CALL: u8 = 4;
    pub(crate) const AUTH_REPLY: u8 = 5;
}

/// The ids of codecs.
pub(super) mod codec {
    use crate::Codec;

    pub(crate) const NONE: u8 = 0;
    pub(crate) const JSON: u8 = b'j';
    pub(crate) const PLAIN: u8 = b's';
    pub(crate) const PROTO: u8 = b'p';

    /// Returns the id of a codec, if erpc has one.
    pub(crate) fn id(codec: Codec) -> Option<u8> {
        match codec {
            Codec::Json => Some(JSON),
            Codec::Proto => Some(PROTO),
            _ => None,
        }
    }
}

/// The status of a success.
pub(super) const SUCCESS: &[u8] = b"code=0";

/// A message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Message<'a> {
    pub(super) sequence: i32,
    pub(super) kind: u8,
    /// The name of the method; empty in a reply.
    pub(super) name: Cow<'a, [u8]>,
    /// A query string.
    pub(super) status: Cow<'a, [u8]>,
    /// A query string.
    pub(super) metadata: Cow<'a, [u8]>,
    pub(super) codec: u8,
    pub(super) body: Bytes,
}

impl Message<'_> {
    /// Returns the name of the method, and the query string behind it.
    pub(super) fn names(&self) -> (&[u8], &[u8]) {
        let mut parts = self.name.splitn(2, |byte| *byte == b'?');
        let mut part = || parts.next().unwrap_or_default();
        (part(), part())
    }
}

/// Fields read from the first bytes of a message whose body is too large to be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Glance {
    pub(super) sequence: i32,
    pub(super) kind: u8,
    /// Empty if it was not among the first bytes.
    pub(super) name: Vec<u8>,
}

/// Number of bytes that are read for a [`Glance`]: they include sequence, kind and name.
pub(super) const GLANCE_BYTES: usize = 320;

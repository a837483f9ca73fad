//! The reply of a handler.

use super::{Cx, ReplyMetadata};
use crate::{
    Payload, Result,
    compression::{Message, Packing},
    queue::Items,
};
use bytes::Bytes;
use std::{
    fmt, mem,
    pin::Pin,
    sync::{Mutex, PoisonError},
};
use switchboard_wire::Metadata;

/// The reply of a handler.
///
/// It is two words, because many functions move it before it reaches the wire.
pub struct Reply(ReplyStorage);

/// The storage of a reply.
enum ReplyStorage {
    /// In the context of its call.
    Context(Cx),
    /// In an allocation, if the context is still in use or there is none.
    Apart(Box<ReplyParts>),
}

/// The parts of a reply.
pub struct ReplyParts {
    /// Metadata before the messages.
    pub metadata: Metadata,
    /// Metadata after the messages.
    pub trailers: Metadata,
    /// The messages.
    pub body: ReplyBody,
}

/// The messages of a reply.
// closed: every driver sends each of them
pub enum ReplyBody {
    /// A single message, compressed as its caller requested.
    Compressed(Bytes),
    /// A single message.
    One(Payload),
    /// A stream of messages, as they are produced.
    Many(Streamed),
}

/// The messages of a stream.
///
/// The context of a call is shared by reference, but the stream is not shared: the lock is never taken.
pub struct Streamed(Mutex<Pin<Box<dyn Items>>>);

impl Reply {
    /// Creates a reply of one message, with the metadata that the handler added to `cx`.
    #[inline]
    pub fn one(message: impl Into<Payload>, mut cx: Cx) -> Reply {
        let message = message.into();
        let context = cx.context_mut();
        let packing = context.packing;
        let ReplyMetadata { head, trailers, .. } = context.reply.take();
        let body = match packing.packs_size(message.len()) {
            false => ReplyBody::One(message),
            true => compressed(packing, message.into_whole()),
        };
        context.stored_reply = Some(ReplyParts { metadata: head, trailers, body });
        Reply(ReplyStorage::Context(cx))
    }

    /// Creates a reply of a stream of messages.
    #[doc(hidden)]
    pub fn many(items: Pin<Box<dyn Items>>) -> Reply {
        let body = ReplyBody::Many(Streamed::new(items));
        ReplyParts { metadata: Metadata::new(), trailers: Metadata::new(), body }.into()
    }

    /// Returns its parts.
    #[inline]
    #[doc(hidden)]
    pub fn parts(&self) -> &ReplyParts {
        match &self.0 {
            ReplyStorage::Context(cx) => cx.context().stored_reply.as_ref().expect(STORED),
            ReplyStorage::Apart(parts) => parts,
        }
    }

    /// Returns its parts, mutably.
    #[doc(hidden)]
    pub fn parts_mut(&mut self) -> &mut ReplyParts {
        match &mut self.0 {
            ReplyStorage::Context(cx) => cx.context_mut().stored_reply.as_mut().expect(STORED),
            ReplyStorage::Apart(parts) => parts,
        }
    }

    /// Takes the reply apart.
    #[doc(hidden)]
    pub fn into_parts(self) -> ReplyParts {
        match self.0 {
            ReplyStorage::Context(mut cx) => cx.context_mut().stored_reply.take().expect(STORED),
            ReplyStorage::Apart(parts) => *parts,
        }
    }

    /// Returns its messages.
    #[inline]
    #[doc(hidden)]
    pub fn body(&self) -> &ReplyBody {
        &self.parts().body
    }

    /// Returns whether it is a stream.
    #[doc(hidden)]
    pub fn is_many(&self) -> bool {
        matches!(self.body(), ReplyBody::Many(_))
    }

    /// Replaces its stream, if it is one.
    #[doc(hidden)]
    pub fn map_items(self, change: impl FnOnce(Pin<Box<dyn Items>>) -> Pin<Box<dyn Items>>) -> Reply {
        self.map(|body| match body {
            ReplyBody::Many(items) => ReplyBody::Many(Streamed::new(change(items.into_items()))),
            one => one,
        })
    }

    /// Replaces its messages in place.
    pub(crate) fn map(mut self, change: impl FnOnce(ReplyBody) -> ReplyBody) -> Reply {
        let body = &mut self.parts_mut().body;
        *body = change(mem::replace(body, ReplyBody::Compressed(Bytes::new())));
        self
    }

    /// Replaces its messages in place, with a function that may fail.
    ///
    /// # Errors
    /// The error of `change`.
    #[doc(hidden)]
    pub fn try_map(mut self, change: impl FnOnce(ReplyBody) -> Result<ReplyBody>) -> Result<Reply> {
        let body = &mut self.parts_mut().body;
        *body = change(mem::replace(body, ReplyBody::Compressed(Bytes::new())))?;
        Ok(self)
    }
}

/// No other code takes the reply out of the context.
const STORED: &str = "a reply is taken from its context only once";

impl Streamed {
    pub(crate) fn new(items: Pin<Box<dyn Items>>) -> Streamed {
        Streamed(Mutex::new(items))
    }

    /// Returns the stream.
    pub fn into_items(self) -> Pin<Box<dyn Items>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<ReplyParts> for Reply {
    fn from(parts: ReplyParts) -> Reply {
        Reply(ReplyStorage::Apart(Box::new(parts)))
    }
}

/// Compresses the only message, if that is requested and makes it smaller.
#[cold]
pub fn compressed(packing: Packing, message: Bytes) -> ReplyBody {
    let Message { bytes, compressed, .. } = packing.pack(message);
    if compressed { ReplyBody::Compressed(bytes) } else { ReplyBody::One(bytes.into()) }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReplyParts { metadata, trailers, body } = self.parts();
        let body = match body {
            ReplyBody::Compressed(message) => format!("Compressed({} bytes)", message.len()),
            ReplyBody::One(message) => format!("One({} bytes)", message.len()),
            ReplyBody::Many(_) => "Many".to_owned(),
        };
        f.debug_struct("Reply")
            .field("metadata", metadata)
            .field("body", &body)
            .field("trailers", trailers)
            .finish()
    }
}

//! What a handler answered, on its way to the wire.

use super::{Cx, ReplyMetadata};
use crate::{
    Metadata, Payload, Result,
    compression::{Message, Packing},
    stream::Items,
};
use bytes::Bytes;
use std::{
    fmt, mem,
    pin::Pin,
    sync::{Mutex, PoisonError},
};

/// What a handler answered.
///
/// Two words, since it passes through a dozen hands on its way to the wire.
pub struct Reply(Held);

/// Where a reply is.
enum Held {
    /// In the context of its call.
    Context(Cx),
    /// By itself, where the context is still in use or there is none.
    Apart(Box<ReplyParts>),
}

/// What a reply is made of.
pub(crate) struct ReplyParts {
    pub(crate) metadata: Metadata,
    pub(crate) trailers: Metadata,
    pub(crate) body: ReplyBody,
}

/// The messages of a reply.
pub(crate) enum ReplyBody {
    /// The only one, compressed as its caller asked for.
    Compressed(Bytes),
    /// The only one.
    One(Payload),
    /// As they are made.
    Many(Streamed),
}

/// The messages of a stream.
///
/// The context of a call is shared by reference, a stream is not: the lock is never taken.
pub(crate) struct Streamed(Mutex<Pin<Box<dyn Items>>>);

impl Reply {
    /// A reply of one message, with the metadata that the handler added to `cx`.
    #[inline]
    pub fn one(message: impl Into<Payload>, mut cx: Cx) -> Reply {
        let message = message.into();
        let context = cx.context_mut();
        let packing = context.packing;
        let ReplyMetadata { head, trailers } = context.reply.take();
        let body = match packing.packs() {
            false => ReplyBody::One(message),
            true => compressed(packing, message.into_whole()),
        };
        context.answered = Some(ReplyParts { metadata: head, trailers, body });
        Reply(Held::Context(cx))
    }

    /// A reply of a stream of messages.
    pub(crate) fn many(items: Pin<Box<dyn Items>>) -> Reply {
        let body = ReplyBody::Many(Streamed::new(items));
        ReplyParts { metadata: Metadata::new(), trailers: Metadata::new(), body }.into()
    }

    /// What it is made of.
    #[inline]
    pub(crate) fn parts(&self) -> &ReplyParts {
        match &self.0 {
            Held::Context(cx) => cx.context().answered.as_ref().expect(ANSWERED),
            Held::Apart(parts) => parts,
        }
    }

    /// The same, to be changed.
    pub(crate) fn parts_mut(&mut self) -> &mut ReplyParts {
        match &mut self.0 {
            Held::Context(cx) => cx.context_mut().answered.as_mut().expect(ANSWERED),
            Held::Apart(parts) => parts,
        }
    }

    /// The same, taken apart.
    pub(crate) fn into_parts(self) -> ReplyParts {
        match self.0 {
            Held::Context(mut cx) => cx.context_mut().answered.take().expect(ANSWERED),
            Held::Apart(parts) => *parts,
        }
    }

    /// Its messages.
    #[inline]
    pub(crate) fn body(&self) -> &ReplyBody {
        &self.parts().body
    }

    /// Whether it is a stream.
    pub(crate) fn is_many(&self) -> bool {
        matches!(self.body(), ReplyBody::Many(_))
    }

    /// Puts another in the place of its stream, if it is one.
    pub(crate) fn map_items(self, change: impl FnOnce(Pin<Box<dyn Items>>) -> Pin<Box<dyn Items>>) -> Reply {
        self.map(|body| match body {
            ReplyBody::Many(items) => ReplyBody::Many(Streamed::new(change(items.into_items()))),
            one => one,
        })
    }

    /// Puts others in the place of its messages, where the reply is.
    pub(crate) fn map(mut self, change: impl FnOnce(ReplyBody) -> ReplyBody) -> Reply {
        let body = &mut self.parts_mut().body;
        *body = change(mem::replace(body, ReplyBody::Compressed(Bytes::new())));
        self
    }

    /// The same with what may fail.
    ///
    /// # Errors
    /// That of `change`.
    pub(crate) fn try_map(mut self, change: impl FnOnce(ReplyBody) -> Result<ReplyBody>) -> Result<Reply> {
        let body = &mut self.parts_mut().body;
        *body = change(mem::replace(body, ReplyBody::Compressed(Bytes::new())))?;
        Ok(self)
    }
}

/// Nobody else takes it out of the context.
const ANSWERED: &str = "a reply in its context is there until it is taken apart";

impl Streamed {
    pub(crate) fn new(items: Pin<Box<dyn Items>>) -> Streamed {
        Streamed(Mutex::new(items))
    }

    /// What comes.
    pub(crate) fn into_items(self) -> Pin<Box<dyn Items>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<ReplyParts> for Reply {
    fn from(parts: ReplyParts) -> Reply {
        Reply(Held::Apart(Box::new(parts)))
    }
}

/// The only message, compressed if that is wanted and pays.
#[cold]
pub(crate) fn compressed(packing: Packing, message: Bytes) -> ReplyBody {
    let Message { bytes, compressed } = packing.pack(message);
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

//! The messages of a call and its reply as layers see them: encoded, not yet or no longer compressed.

use super::{Call, Cx, Reply, ReplyBody, RequestBody, Streamed};
use crate::{
    Metadata, Result,
    compression::{Message, Packing},
    stream::{Items, Passing},
};
use bytes::Bytes;
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// What a layer does with the messages of a stream.
pub(crate) type Change = Box<dyn FnMut(Bytes) -> Result<Bytes> + Send + Sync>;

impl Call {
    /// The request message of a call that has one, encoded as [`codec`](Self::codec) says; none of a call whose
    /// requests are a stream.
    pub fn message(&self) -> Option<&Bytes> {
        match self.body() {
            RequestBody::One(bytes) => Some(bytes),
            RequestBody::Many(_) => None,
        }
    }

    /// The same call once more, for a layer that tries it again; none where the requests are a stream, whose messages
    /// are read once. What is added to the reply of one is not in that of the other.
    pub fn again(&self) -> Option<Call> {
        let RequestBody::One(bytes) = self.body() else { return None };
        let context = self.cx.context();
        let metadata = context.metadata.clone();
        let mut cx = Cx::new(&context.peer, context.service, context.method, context.deadline, metadata);
        let copied = cx.context_mut();
        copied.codec = context.codec;
        copied.compressed = context.compressed;
        copied.packing = context.packing;
        copied.caller = context.caller.clone();
        copied.has_caller = context.has_caller;
        copied.trace = context.trace.clone();
        copied.body = Some(RequestBody::One(bytes.clone()));
        Some(Call { method: self.method, cx })
    }

    /// Passes every request message through `change` on its way to the handler, the only one at once, those of a
    /// stream as the handler reads them.
    ///
    /// What it makes has to be a message of the method in the same [codec](Self::codec).
    ///
    /// # Errors
    /// That of `change` for the only message; for one of a stream the handler gets it in its place, and no other after.
    pub fn each_message(
        &mut self,
        mut change: impl FnMut(Bytes) -> Result<Bytes> + Send + Sync + 'static,
    ) -> Result<()> {
        match self.body_mut() {
            RequestBody::One(bytes) => *bytes = change(std::mem::take(bytes))?,
            RequestBody::Many(queue) => queue.change(Box::new(change)),
        }
        Ok(())
    }

    /// Decompresses the only request message, and has the handler answer without compression; how it would have
    /// compressed is for [`Reply::packed`].
    ///
    /// # Errors
    /// Those of a message that is too large or broken.
    pub(crate) fn unpack(&mut self) -> Result<Packing> {
        self.unpack_message()?;
        let context = self.cx.context_mut();
        Ok(std::mem::replace(&mut context.packing, Packing::OFF))
    }

    /// Whether the only request message is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.cx.context().compressed
    }

    /// Decompresses the only request message.
    ///
    /// # Errors
    /// Those of a message that is too large or broken.
    pub(crate) fn unpack_message(&mut self) -> Result<()> {
        let context = self.cx.context_mut();
        let packing = context.packing;
        let compressed = std::mem::take(&mut context.compressed);
        if let RequestBody::One(bytes) = self.body_mut() {
            *bytes = packing.unpack(Message { bytes: std::mem::take(bytes), compressed })?;
        }
        Ok(())
    }
}

impl Reply {
    /// The message of a reply that has one, encoded; none of a stream.
    pub fn message(&self) -> Option<&Bytes> {
        match self.body() {
            ReplyBody::Compressed(bytes) => Some(bytes),
            ReplyBody::One(message) => Some(message.whole()),
            ReplyBody::Many(_) => None,
        }
    }

    /// Metadata that goes before the message of a reply that has one; handlers add it with
    /// [`Cx::reply_metadata`](crate::Cx::reply_metadata).
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.parts_mut().metadata
    }

    /// Passes every message through `change` on its way out, the only one at once, those of a stream as they are sent.
    ///
    /// # Errors
    /// That of `change` for the only message; for one of a stream it ends the stream.
    pub fn each_message(
        self,
        mut change: impl FnMut(Bytes) -> Result<Bytes> + Send + 'static,
    ) -> Result<Reply> {
        self.try_map(|body| {
            Ok(match body {
                ReplyBody::Compressed(bytes) => ReplyBody::Compressed(bytes),
                ReplyBody::One(message) => ReplyBody::One(change(message.into_whole())?.into()),
                ReplyBody::Many(items) => {
                    let change = move |message: Message| change(message.bytes).map(Message::from);
                    ReplyBody::Many(Changed::of(items, Box::new(change)))
                }
            })
        })
    }

    /// Compresses what was answered without it, see [`Call::unpack`].
    pub(crate) fn packed(self, packing: Packing) -> Reply {
        if !packing.packs() {
            return self;
        }
        self.map(|body| match body {
            ReplyBody::One(message) => super::compressed(packing, message.into_whole()),
            ReplyBody::Many(items) => {
                ReplyBody::Many(Changed::of(items, Box::new(move |message| Ok(packing.pack(message.bytes)))))
            }
            compressed => compressed,
        })
    }
}

/// A stream whose messages are changed.
struct Changed {
    items: Pin<Box<dyn Items>>,
    change: Box<dyn FnMut(Message) -> Result<Message> + Send>,
    ended: bool,
}

impl Changed {
    fn of(items: Streamed, change: Box<dyn FnMut(Message) -> Result<Message> + Send>) -> Streamed {
        Streamed::new(Box::pin(Changed { items: items.into_items(), change, ended: false }))
    }
}

impl Passing for Changed {
    fn items(&self) -> &dyn Items {
        &*self.items
    }

    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let item = this.items.as_mut().poll_next(cx);
        item.map(|item| {
            let item = item.map(|item| item.and_then(&mut this.change));
            this.ended = matches!(item, Some(Err(_)));
            item
        })
    }
}

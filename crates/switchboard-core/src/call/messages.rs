//! The messages of a call and its reply as layers see them: encoded and uncompressed.

use super::{Call, Cx, Reply, ReplyBody, RequestBody, Streamed};
use crate::{
    Result,
    compression::{Message, Packing},
    queue::{Items, Passing},
};
use bytes::Bytes;
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::Metadata;

impl Call {
    /// Returns the request message, encoded in [`codec`](Self::codec); `None` if the requests are a stream.
    pub fn message(&self) -> Option<&Bytes> {
        match self.body() {
            RequestBody::One(bytes) => Some(bytes),
            RequestBody::Many(_) => None,
        }
    }

    /// Clones the call, for a layer that retries it; `None` if the requests are a stream, whose messages can be read
    /// only once. Metadata that is added to the reply of one call does not appear in that of the other.
    pub fn try_clone(&self) -> Option<Call> {
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

    /// Passes every request message through `change` before the handler gets it: a single message at once, those of a
    /// stream as the handler reads them.
    ///
    /// The result must be a message of the method in the same [codec](Self::codec).
    ///
    /// # Errors
    /// The error of `change` for a single message. For a message of a stream, the handler gets the error instead of the
    /// message, and the stream ends.
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

    /// Decompresses the only request message, and makes the handler reply uncompressed. Returns the compression of the
    /// reply for [`Reply::packed`].
    ///
    /// # Errors
    /// The message is too large or malformed.
    #[doc(hidden)]
    pub fn unpack(&mut self) -> Result<Packing> {
        self.unpack_message()?;
        let context = self.cx.context_mut();
        Ok(std::mem::replace(&mut context.packing, Packing::OFF))
    }

    /// Returns whether the only request message is compressed.
    #[doc(hidden)]
    pub fn is_compressed(&self) -> bool {
        self.cx.context().compressed
    }

    /// Decompresses the only request message.
    ///
    /// # Errors
    /// The message is too large or malformed.
    #[doc(hidden)]
    pub fn unpack_message(&mut self) -> Result<()> {
        let context = self.cx.context_mut();
        let packing = context.packing;
        let compressed = std::mem::take(&mut context.compressed);
        if let RequestBody::One(bytes) = self.body_mut() {
            *bytes = packing.unpack(Message { bytes: std::mem::take(bytes), compressed, codec: None })?;
        }
        Ok(())
    }
}

impl Reply {
    /// Returns the message of a reply that has one, encoded; `None` for a stream.
    pub fn message(&self) -> Option<&Bytes> {
        match self.body() {
            ReplyBody::Compressed(bytes) => Some(bytes),
            ReplyBody::One(message) => Some(message.whole()),
            ReplyBody::Many(_) => None,
        }
    }

    /// Returns the metadata that is sent before the message of a reply that has one; handlers add it with
    /// [`Cx::reply_metadata`](crate::Cx::reply_metadata).
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.parts_mut().metadata
    }

    /// Passes every message through `change` before it is sent: a single message at once, those of a stream as they are
    /// sent.
    ///
    /// # Errors
    /// The error of `change` for a single message; for a message of a stream, the error ends the stream.
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
                    ReplyBody::Many(MappedItems::of(items, Box::new(change)))
                }
            })
        })
    }

    /// Compresses an uncompressed reply; see [`Call::unpack`].
    #[doc(hidden)]
    pub fn packed(self, packing: Packing) -> Reply {
        if !packing.packs() {
            return self;
        }
        self.map(|body| match body {
            ReplyBody::One(message) => super::compressed(packing, message.into_whole()),
            ReplyBody::Many(items) => ReplyBody::Many(MappedItems::of(
                items,
                Box::new(move |message| Ok(packing.pack(message.bytes))),
            )),
            compressed => compressed,
        })
    }
}

/// A stream whose messages are changed.
struct MappedItems {
    items: Pin<Box<dyn Items>>,
    change: Box<dyn FnMut(Message) -> Result<Message> + Send>,
    ended: bool,
}

impl MappedItems {
    fn of(items: Streamed, change: Box<dyn FnMut(Message) -> Result<Message> + Send>) -> Streamed {
        Streamed::new(Box::pin(MappedItems { items: items.into_items(), change, ended: false }))
    }
}

impl Passing for MappedItems {
    fn items(&self) -> &dyn Items {
        &*self.items
    }

    fn items_mut(self: Pin<&mut Self>) -> Pin<&mut (dyn Items + 'static)> {
        self.get_mut().items.as_mut()
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

//! Responses to calls.

use super::Connection;
use crate::driver::calls::Parked;
use bytes::Bytes;
use switchboard_core::{
    Result,
    call::{ReplyBody, ReplyParts},
    memory::LARGE,
    payload::Pieces,
};
use switchboard_wire::{
    Metadata, Outgoing, Status,
    wire::{CallId, ServerWire},
};

impl<W: ServerWire> Connection<W> {
    /// Ends a call with its only message.
    pub(super) fn succeed_with(&mut self, call: &Parked, reply: &ReplyParts) {
        let ReplyParts { metadata, trailers, body } = reply;
        match body {
            ReplyBody::One(message) => match message.pieces() {
                Pieces::One(item) => self.succeed(call, metadata, item, trailers, false),
                Pieces::Parts(parts) => self.succeed_in_parts(call, metadata, parts, trailers),
            },
            ReplyBody::Compressed(item) => self.succeed(call, metadata, item.into(), trailers, true),
            // The caller of this function has sent the stream.
            ReplyBody::Many(_) => {}
        }
    }

    /// Ends a call with its only message, which is large and in parts.
    #[cold]
    fn succeed_in_parts(&mut self, call: &Parked, metadata: &Metadata, parts: &[Bytes], trailers: &Metadata) {
        if call.oneway || !trailers.is_empty() {
            let whole = Bytes::from(parts.concat());
            return self.succeed(call, metadata, (&whole).into(), trailers, false);
        }
        let bytes = parts.iter().map(Bytes::len).sum::<usize>();
        if !self.takes_reply(call.record.method, bytes) {
            return self.end(call, Err(&self.shared.memory.drops(bytes)));
        }
        self.record(call, switchboard_wire::Code::Ok, bytes as u64);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
            counts.sent(1, self.now);
        }
        if !metadata.is_empty() {
            self.wire.head(call.id, metadata, &mut self.out);
        }
        self.wire.reply_parts(call.id, parts, &mut self.out);
    }

    /// Ends a call with its only message.
    fn succeed(
        &mut self,
        call: &Parked,
        metadata: &Metadata,
        item: Outgoing<'_>,
        trailers: &Metadata,
        compressed: bool,
    ) {
        if item.len() > LARGE && !call.oneway && !self.takes_reply(call.record.method, item.len()) {
            return self.end(call, Err(&self.shared.memory.drops(item.len())));
        }
        self.record(call, switchboard_wire::Code::Ok, item.len() as u64);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if call.oneway {
            return;
        }
        self.reply(call.id, metadata, item, compressed, trailers);
    }

    #[inline]
    pub(super) fn reply(
        &mut self,
        id: CallId,
        metadata: &Metadata,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
    ) {
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, self.now);
        }
        if !metadata.is_empty() {
            self.wire.head(id, metadata, &mut self.out);
        }
        if trailers.is_empty() && !compressed {
            self.wire.reply(id, item, &mut self.out);
        } else {
            self.wire.reply_with(id, item, compressed, trailers, &mut self.out);
        }
    }

    pub(super) fn end(&mut self, call: &Parked, end: Result<&Metadata, &Status>) {
        let code = end.map_or_else(Status::code, |_| switchboard_wire::Code::Ok);
        self.record(call, code, 0);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if !call.oneway {
            self.wire.end(call.id, end, &mut self.out);
        }
    }
}

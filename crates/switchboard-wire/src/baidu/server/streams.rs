//! Calls with streams.

use super::{Pending, Server};
use crate::{
    Fatal, Input, Kind, Metadata, MethodId, Outbox, Retry, Status,
    baidu::{
        Layout, STREAMS_MAX,
        error::bad_request,
        fields,
        frame::{self, Frame, Payload},
        meta::Meta,
        stream::{self, NO_STREAM, Settings, Stream, StreamMeta},
    },
    proto,
    wire::{CallId, Head, ServerEvent, ServerWire, no_streams},
};
use bytes::Bytes;
use std::collections::HashMap;

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    count: usize,
    /// Number of streams opened so far.
    opened: u32,
    /// Bytes of messages that are not complete yet.
    gathered: usize,
    /// The call that was delivered last, if it has no response yet.
    owed: Option<CallId>,
    /// Held ends of streams whose callers may not have read the response yet, by local stream number.
    ends: HashMap<u64, HeldEnd>,
    /// Bytes of the held ends.
    held: usize,
}

/// The frame that ends a stream. A brpc client reads the response in a separate task, and fails the call if the stream
/// ends before that task has run.
#[derive(Debug)]
struct HeldEnd {
    frame: Bytes,
    /// The end was already held at the previous call of [`Streams::release`].
    waited: bool,
}

impl Streams {
    /// Returns true if a call waits for its response, which is sent once its handler has not failed at once.
    #[inline]
    pub(super) fn owes_response(&self) -> bool {
        self.owed.is_some()
    }

    /// Bytes of messages that are not complete yet.
    pub(super) fn gathered(&self) -> usize {
        self.gathered
    }

    /// Returns true if ends of streams are held.
    #[inline]
    pub(super) fn hold_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Bytes of the held ends.
    pub(super) fn unsent_response_bytes(&self) -> usize {
        self.held
    }

    /// Writes the ends that were already held at the previous call.
    pub(super) fn release(&mut self, out: &mut Outbox) {
        let held = &mut self.held;
        self.ends.retain(|_, end| {
            if std::mem::replace(&mut end.waited, true) {
                *held -= end.frame.len();
                out.put(&end.frame);
                return false;
            }
            true
        });
    }

    /// Writes the held end of the stream `ours`: a frame from its caller shows that the caller has read the response.
    /// Returns false if no end is held.
    fn release_end(&mut self, ours: u64, kind: Option<stream::Kind>, out: &mut Outbox) -> bool {
        let Some(end) = self.ends.remove(&ours) else { return false };
        self.held -= end.frame.len();
        if kind != Some(stream::Kind::Reset) {
            out.put(&end.frame);
        }
        true
    }

    /// Removes a stream whose call has ended.
    pub(super) fn forget(&mut self, opened: &Opened) {
        if opened.is_accepted() {
            self.count -= 1;
            self.gathered -= opened.stream.gathered();
        }
    }
}

/// The stream that a caller opens with its call.
#[derive(Debug)]
pub(super) struct Opened {
    stream: Stream,
    answered: bool,
    /// The caller has ended its requests.
    half_closed: bool,
    /// The end may be sent: the caller is Switchboard, or has sent a frame to the stream.
    may_end: bool,
}

impl Opened {
    /// Creates a stream that is not accepted yet.
    pub(super) fn refused(peer: Settings) -> Opened {
        Opened {
            stream: Stream::new(NO_STREAM, peer),
            answered: false,
            half_closed: false,
            may_end: peer.half_closes,
        }
    }

    fn is_accepted(&self) -> bool {
        self.stream.id() != NO_STREAM
    }

    /// Returns the meta of the stream frame around the response of the call.
    pub(super) fn answer(&self) -> StreamMeta {
        self.stream.meta(stream::Kind::Data)
    }

    /// Returns the meta of the stream frame around the error of the call.
    pub(super) fn failure(&self) -> StreamMeta {
        match self.answered {
            true => self.stream.meta(stream::Kind::Reset),
            false => StreamMeta { from: NO_STREAM, ..self.answer() },
        }
    }

    /// Returns the settings of this end for the response.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.is_accepted().then(|| Settings::of(self.stream.id()))
    }

    /// Records that the handler has consumed `bytes`.
    pub(super) fn consume(&mut self, bytes: u32, out: &mut Outbox) {
        self.stream.consume(bytes, out);
    }
}

impl Pending {
    /// Returns true if the messages of the call use a stream.
    pub(super) fn is_streaming(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_accepted())
    }

    /// Writes the response of the call if it is still pending; this opens the stream.
    fn accept(&mut self, sum: Option<[u8; 4]>, out: &mut Outbox) {
        if self.stream.as_ref().is_some_and(|stream| !stream.answered) {
            let head = self.head.take();
            let attachment = head.as_ref().and_then(|head| head.attachment().cloned());
            let payload = Payload { attachment: attachment.as_ref(), ..Payload::default() };
            self.put(Layout::Standard, false, payload, sum, head.as_deref(), out);
        }
        if let Some(stream) = &mut self.stream {
            stream.answered = true;
        }
    }
}

impl Server {
    /// Checks that the call of a streaming method opens a stream with supported settings.
    pub(super) fn check_stream(&self, method: MethodId, meta: &Meta<'_>) -> Result<(), Status> {
        if self.framer.layout != Layout::Standard {
            return Err(no_streams(self.name()));
        }
        let Some(settings) = &meta.stream else {
            return Err(Status::unimplemented(format!(
                "{} streams: its calls open a stream (stream_settings)",
                self.table.full_name(method)
            )));
        };
        if settings.has_more {
            return Err(Status::unimplemented("a call can open one stream, not several (extra_stream_ids)"));
        }
        if meta.compress_type != 0 {
            return Err(bad_request("a call that opens a stream must be uncompressed"));
        }
        if self.streams.count + self.streams.ends.len() >= STREAMS_MAX {
            let text = format!("{STREAMS_MAX} streams are open on this connection");
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        Ok(())
    }

    /// Starts a call whose messages use a stream.
    pub(super) fn open_stream(&mut self, id: CallId, kind: Kind, head: Head, first: Bytes) -> ServerEvent {
        self.streams.opened = self.streams.opened.wrapping_add(1) & (u32::MAX >> 1);
        self.streams.count += 1;
        self.streams.owed = Some(id);
        let ours = u64::from(self.streams.opened) << 32 | u64::from(id);
        if let Some(opened) = self.pending(id).and_then(|pending| pending.stream.as_mut()) {
            opened.stream.number(ours);
        }
        let more = kind != Kind::ServerStream;
        let first = (!more || !first.is_empty()).then_some(first);
        ServerEvent::Open { id, head, first, compressed: false, more }
    }

    /// Responds to the call that was delivered last, whose handler waits.
    pub(super) fn send_owed_response(&mut self, out: &mut Outbox) {
        if let Some(id) = self.streams.owed.take() {
            self.accept(id, out);
        }
    }

    fn accept(&mut self, id: CallId, out: &mut Outbox) {
        let attachment = self.pending(id).and_then(|pending| pending.head.as_ref()?.attachment().cloned());
        let sum = self.sum(id, Payload { attachment: attachment.as_ref(), ..Payload::default() });
        if let Some(pending) = self.pending(id) {
            pending.accept(sum, out);
        }
    }

    /// Sends a message in the stream of a call.
    pub(super) fn send(&mut self, id: CallId, item: &Bytes, out: &mut Outbox) {
        self.accept(id, out);
        if let Some(opened) = self.pending(id).and_then(|pending| pending.stream.as_mut())
            // A peer that is not writable accepts no messages.
            && opened.stream.is_writable()
        {
            opened.stream.send(item, out);
        }
    }

    /// Ends a successful call and its stream.
    pub(super) fn close_stream(&mut self, id: CallId, trailers: Option<&Metadata>, out: &mut Outbox) {
        self.accept(id, out);
        let Some(Pending { stream: Some(opened), head, correlation_id, .. }) = self.finish(id) else {
            return;
        };
        let lists = [head.as_deref(), trailers].into_iter().flatten();
        let lists: Vec<&Metadata> = lists.filter(|metadata| !metadata.is_empty()).collect();
        self.put_end(&opened, out, |out| {
            if lists.is_empty() {
                return opened.stream.send_empty(stream::Kind::Close, out);
            }
            let inside = opened.stream.meta(stream::Kind::Close);
            frame::put(Layout::Standard, out, Some(&inside), &Payload::default(), |meta| {
                proto::put_number(meta, 4, correlation_id);
                lists.iter().for_each(|metadata| fields::put(meta, metadata));
            });
        });
    }

    /// Writes the end of a stream, or holds it until the caller may receive it.
    pub(super) fn put_end(&mut self, opened: &Opened, out: &mut Outbox, put: impl FnOnce(&mut Outbox)) {
        if opened.may_end || !opened.answered {
            return put(out);
        }
        let mut end = Outbox::new();
        put(&mut end);
        let frame = Bytes::from(end.take_all());
        self.streams.held += frame.len();
        let before = self.streams.ends.insert(opened.stream.id(), HeldEnd { frame, waited: false });
        self.streams.held -= before.map_or(0, |end| end.frame.len());
    }

    /// Finds the call with this local stream number.
    fn call_of(&mut self, ours: u64) -> Option<(CallId, &mut Opened)> {
        // The lower half is the slot of the call.
        let id = ours as CallId;
        let opened = self.pending(id)?.stream.as_deref_mut()?;
        if !opened.is_accepted() || opened.stream.id() != ours {
            return None;
        }
        opened.may_end = true;
        Some((id, opened))
    }

    /// Processes a frame of a stream.
    pub(super) fn stream_frame(
        &mut self,
        frame: Frame,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, Fatal> {
        let meta = StreamMeta::read(frame.meta_of(input));
        let meta = meta.map_err(|_| Fatal("a StreamFrameMeta that cannot be read".into()))?;
        if meta.kind == Some(stream::Kind::Data) {
            return Ok(self.data(frame, meta, input, out));
        }
        self.framer.refuse(frame, input);
        // Frames of ended streams are ignored: the peer may have sent them before it received the end.
        if self.streams.release_end(meta.to, meta.kind, out) {
            return Ok(Some(ServerEvent::Handled));
        }
        let Some((id, opened)) = self.call_of(meta.to) else { return Ok(Some(ServerEvent::Handled)) };
        Ok(Some(match meta.kind {
            Some(stream::Kind::Feedback) => {
                ServerEvent::Credit { id, bytes: opened.stream.acknowledge(meta.consumed) }
            }
            Some(stream::Kind::Close) => {
                opened.half_closed = true;
                ServerEvent::HalfClose { id }
            }
            Some(stream::Kind::Reset) => {
                self.finish(id);
                ServerEvent::Cancel { id }
            }
            Some(stream::Kind::Data) | None => ServerEvent::Handled,
        }))
    }

    /// Reads a message, or a part of one; `None` if more bytes are needed.
    fn data(
        &mut self,
        frame: Frame,
        meta: StreamMeta,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Option<ServerEvent> {
        let max = self.table.largest_message(self.limits.message_bytes_max) as usize;
        let gathered = self.streams.gathered;
        let Some((id, opened)) = self.call_of(meta.to).filter(|(_, opened)| !opened.half_closed) else {
            self.framer.refuse(frame, input);
            if !self.streams.release_end(meta.to, meta.kind, out) {
                stream::put_reset(meta.from, meta.to, out);
            }
            return Some(ServerEvent::Handled);
        };
        if gathered + frame.payload() > max {
            let bytes = gathered + frame.payload();
            self.framer.refuse(frame, input);
            let text = format!(
                "a request of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
            );
            return Some(ServerEvent::Refused { id, status: Status::resource_exhausted(text) });
        }
        if !frame.is_whole(input) {
            self.framer.wait(frame, input);
            return None;
        }
        let (part, _) = frame.take(0, input);
        let before = opened.stream.gathered();
        let item = opened.stream.take(part, meta.continues);
        self.streams.gathered = gathered - before + opened.stream.gathered();
        Some(match item {
            Some(item) => ServerEvent::Item { id, item, compressed: false },
            None => ServerEvent::Handled,
        })
    }
}

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

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    count: usize,
    /// How many there were.
    opened: u32,
    /// Bytes of messages whose ends have not come.
    gathered: usize,
    /// The call that was handed on last, if it is not answered.
    owed: Option<CallId>,
}

impl Streams {
    /// Whether a call waits to be answered as soon as it is known that its handler did not fail at once.
    #[inline]
    pub(super) fn owe_answer(&self) -> bool {
        self.owed.is_some()
    }

    /// Its call has ended.
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
    /// The caller sends no more.
    half_closed: bool,
}

impl Opened {
    /// One that is not accepted, as far as is known.
    pub(super) fn refused(peer: Settings) -> Opened {
        Opened { stream: Stream::new(NO_STREAM, peer), answered: false, half_closed: false }
    }

    fn is_accepted(&self) -> bool {
        self.stream.id() != NO_STREAM
    }

    /// The frame around the answer of the call.
    pub(super) fn answer(&self) -> StreamMeta {
        self.stream.meta(stream::Kind::Data)
    }

    /// The frame around its error.
    pub(super) fn failure(&self) -> StreamMeta {
        match self.answered {
            true => self.stream.meta(stream::Kind::Reset),
            false => StreamMeta { from: NO_STREAM, ..self.answer() },
        }
    }

    /// What the answer says of this end.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.is_accepted().then(|| Settings::of(self.stream.id()))
    }

    /// The handler has taken so many bytes.
    pub(super) fn consume(&mut self, bytes: u32, out: &mut Outbox) {
        self.stream.consume(bytes, out);
    }
}

impl Pending {
    /// Whether its messages go into a stream.
    pub(super) fn is_streaming(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_accepted())
    }

    /// Answers the call, if it is not: its stream is open.
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
    /// Whether the call of a method that streams opens a stream, and one that is taken.
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
            return Err(Status::unimplemented(
                "a call opens one stream here, not several (extra_stream_ids)",
            ));
        }
        if meta.compress_type != 0 {
            return Err(bad_request("calls that open a stream are taken uncompressed: nothing in it can be"));
        }
        if self.streams.count >= STREAMS_MAX {
            let text = format!("{STREAMS_MAX} streams are open on this connection");
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        Ok(())
    }

    /// Begins a call whose messages come and go in its stream.
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

    /// Answers the call that was begun last, whose handler waits.
    pub(super) fn answer_owed(&mut self, out: &mut Outbox) {
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
            // Who takes no messages wants none.
            && opened.stream.is_writable()
        {
            opened.stream.send(item, out);
        }
    }

    /// Ends a call that succeeded, and its stream.
    pub(super) fn close_stream(&mut self, id: CallId, trailers: Option<&Metadata>, out: &mut Outbox) {
        self.accept(id, out);
        let Some(Pending { stream: Some(opened), head, correlation_id, .. }) = self.finish(id) else {
            return;
        };
        let told = [head.as_deref(), trailers].into_iter().flatten();
        let told: Vec<&Metadata> = told.filter(|metadata| !metadata.is_empty()).collect();
        if told.is_empty() {
            return opened.stream.tell(stream::Kind::Close, out);
        }
        let inside = opened.stream.meta(stream::Kind::Close);
        frame::put(Layout::Standard, out, Some(&inside), &Payload::default(), |meta| {
            proto::put_number(meta, 4, correlation_id);
            told.iter().for_each(|metadata| fields::put(meta, metadata));
        });
    }

    /// The call whose stream has this number here.
    fn call_of(&mut self, ours: u64) -> Option<(CallId, &mut Opened)> {
        // The lower half is the place of the call.
        let id = ours as CallId;
        let opened = self.pending(id)?.stream.as_deref_mut()?;
        (opened.is_accepted() && opened.stream.id() == ours).then_some((id, opened))
    }

    /// Takes a frame of a stream.
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
        // Of streams that have ended nothing more is said: what crosses the end is nobody's fault.
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

    /// Takes a message, or a part of one; none if more bytes are needed.
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
            stream::put_reset(meta.from, meta.to, out);
            return Some(ServerEvent::Handled);
        };
        if gathered + frame.payload() > max {
            let bytes = gathered + frame.payload();
            self.framer.refuse(frame, input);
            let text = format!("{bytes} bytes of a message are over the limit of {max} (message_bytes_max)");
            return Some(ServerEvent::Refused { id, status: Status::resource_exhausted(text) });
        }
        if !frame.is_whole(input) {
            frame.make_room(input);
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

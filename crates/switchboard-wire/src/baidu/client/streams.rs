//! Calls with streams.

use super::{Client, broken, read};
use crate::{
    Fatal, Input, Metadata, Origin, Outbox, Status,
    baidu::{
        META_BYTES_MAX, error, fields,
        frame::{Frame, Framer},
        stream::{self, Kind, Settings, Stream, StreamMeta, WINDOW},
    },
    wire::{CallId, ClientEvent},
};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;

/// The number of a call's stream here: that of a call may be 0, which is none.
pub(super) fn number(id: CallId) -> u64 {
    u64::from(id) + 1
}

/// Streams of the calls in flight.
#[derive(Debug, Default)]
pub(super) struct Streams {
    calls: HashMap<CallId, Call>,
    /// Bytes of messages whose ends have not come.
    gathered: usize,
}

/// A call that opens a stream.
#[derive(Debug)]
struct Call {
    /// Requests follow, for which the server has to have an end.
    more: bool,
    stream: Stream,
    answered: bool,
}

impl Streams {
    pub(super) fn are_open(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether the call has a stream.
    #[inline]
    pub(super) fn has(&self, id: CallId) -> bool {
        self.are_open() && self.calls.contains_key(&id)
    }

    /// Begins a call whose stream the server has not answered.
    pub(super) fn begin(&mut self, id: CallId, more: bool) {
        let stream = Stream::new(number(id), Settings::default());
        self.calls.insert(id, Call { more, stream, answered: false });
    }

    pub(super) fn send(&mut self, id: CallId, item: &Bytes, out: &mut Outbox) -> Result<(), Status> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Err(Status::internal("a message of a call that opened no stream"));
        };
        if !call.stream.is_writable() {
            return Err(Status::failed_precondition("the server takes no messages of this stream"));
        }
        call.stream.send(item, out);
        Ok(())
    }

    pub(super) fn half_close(&mut self, id: CallId, out: &mut Outbox) {
        if let Some(call) = self.calls.get(&id) {
            call.stream.tell(Kind::Close, out);
        }
    }

    /// Gives up; a stream that was not answered is reset when it is.
    pub(super) fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        if let Some(call) = self.end(id).filter(|call| call.answered) {
            call.stream.tell(Kind::Reset, out);
        }
    }

    pub(super) fn consume(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.stream.consume(bytes, out);
        }
    }

    fn end(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.gathered -= call.stream.gathered();
        Some(call)
    }

    /// The call whose stream has this number here.
    fn call_of(&mut self, ours: u64) -> Option<(CallId, &mut Call)> {
        let id = CallId::try_from(ours.checked_sub(1)?).ok()?;
        self.calls.get_mut(&id).map(|call| (id, call))
    }
}

impl Client {
    /// Takes a frame of a stream; what it means is queued.
    pub(super) fn stream_frame(
        &mut self,
        frame: Frame,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<(), Fatal> {
        let meta = StreamMeta::read(frame.meta_of(input));
        let meta = meta.map_err(|_| Fatal("a StreamFrameMeta that cannot be read".into()))?;
        let max = self.limits.message_bytes_max as usize;
        let gathered = self.streams.gathered;
        let Some((id, call)) = self.streams.call_of(meta.to) else {
            self.framer.refuse(frame, input);
            if meta.kind == Some(Kind::Data) {
                stream::put_reset(meta.from, meta.to, out);
            }
            return Ok(());
        };
        match meta.kind {
            // The first message holds the meta of the answer too.
            Some(Kind::Data) if gathered + frame.payload() > max + META_BYTES_MAX as usize => {
                self.framer.refuse(frame, input);
                self.streams.cancel(id, out);
                let status = Status::resource_exhausted(format!(
                    "a reply is over the limit of {max} bytes (message_bytes_max of the receiver)"
                ));
                self.queued.push_back(ClientEvent::End { id, end: Err(status) });
            }
            Some(Kind::Close | Kind::Reset) if frame.payload() > 2 * META_BYTES_MAX as usize => {
                return Err(Fatal(format!("the end of a stream with {} bytes", frame.payload())));
            }
            Some(Kind::Data | Kind::Close | Kind::Reset) if !frame.is_whole(input) => frame.make_room(input),
            Some(Kind::Data) => {
                let (part, _) = frame.take(0, input);
                let before = call.stream.gathered();
                let message = call.stream.take(part, meta.continues);
                let answered = call.answered;
                self.streams.gathered = gathered - before + call.stream.gathered();
                match message {
                    None => {}
                    Some(message) if answered => self.reply(id, message, max, out),
                    Some(message) => self.answered_inside(id, &message)?,
                }
            }
            Some(kind @ (Kind::Close | Kind::Reset)) => {
                let (payload, _) = frame.take(0, input);
                self.streams.end(id);
                let end = self.told(&payload)?.unwrap_or_else(|| match kind {
                    Kind::Reset => {
                        Err(Status::unavailable("the server reset the stream").with_origin(Origin::Peer))
                    }
                    _ => Ok(Metadata::new()),
                });
                self.queued.push_back(ClientEvent::End { id, end });
            }
            Some(Kind::Feedback) => {
                self.framer.refuse(frame, input);
                let bytes = call.stream.acknowledge(meta.consumed);
                self.queued.push_back(ClientEvent::Credit { id, bytes });
            }
            None => self.framer.refuse(frame, input),
        }
        Ok(())
    }

    fn reply(&mut self, id: CallId, item: Bytes, max: usize, out: &mut Outbox) {
        if item.len() > max {
            self.streams.cancel(id, out);
            let bytes = item.len();
            let status = Status::resource_exhausted(format!(
                "a reply of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
            ));
            return self.queued.push_back(ClientEvent::End { id, end: Err(status) });
        }
        self.queued.push_back(ClientEvent::Item { id, item, compressed: false });
    }

    /// How a stream ended, if its last frame says so: it holds a response of the call then.
    fn told(&self, payload: &Bytes) -> Result<Option<Result<Metadata, Status>>, Fatal> {
        if payload.is_empty() {
            return Ok(None);
        }
        let mut input = Input::new(BytesMut::from(&payload[..]));
        let frame = response_in(&mut input)?;
        let meta = read(frame.meta_of(&input))?;
        Ok(Some(match meta.response {
            Some(response) if response.error_code != 0 => Err(error::read(&meta, &self.limits)),
            _ => fields::read(meta.user_fields, &self.limits),
        }))
    }

    /// Takes the answer of a call that came as the first message of its stream.
    fn answered_inside(&mut self, id: CallId, message: &Bytes) -> Result<(), Fatal> {
        let mut input = Input::new(BytesMut::from(&message[..]));
        let frame = response_in(&mut input)?;
        let settings = read(frame.meta_of(&input))?.stream;
        let event = self.response(frame, &mut input)?;
        self.answered(id, settings, event);
        Ok(())
    }

    /// Takes a response that may be that of a call with a stream.
    pub(super) fn response_of_any(
        &mut self,
        frame: Frame,
        input: &mut Input,
    ) -> Result<Option<ClientEvent>, Fatal> {
        let meta = read(frame.meta_of(input))?;
        let (settings, id) = (meta.stream, CallId::try_from(meta.correlation_id).ok());
        let event = self.response(frame, input)?;
        match id.filter(|id| event.is_some() && self.streams.has(*id)) {
            Some(id) => {
                self.answered(id, settings, event);
                Ok(None)
            }
            None => Ok(event),
        }
    }

    /// Queues what the answer of a call with a stream means; with settings its stream is open.
    fn answered(&mut self, id: CallId, settings: Option<Settings>, event: Option<ClientEvent>) {
        let events: Vec<ClientEvent> = event.into_iter().chain(self.queued.drain(..)).collect();
        for event in events {
            match (event, settings) {
                (ClientEvent::Head { metadata, .. }, _) => {
                    self.queued.push_back(ClientEvent::Head { id, metadata });
                }
                (ClientEvent::Reply { item, .. }, Some(settings)) => {
                    if let Some(call) = self.streams.calls.get_mut(&id) {
                        call.stream.open(settings);
                        call.answered = true;
                    }
                    if !item.is_empty() {
                        self.queued.push_back(ClientEvent::Item { id, item, compressed: false });
                    }
                    self.queued.push_back(ClientEvent::Credit { id, bytes: WINDOW });
                }
                (ClientEvent::Reply { item, compressed, .. }, None) => {
                    let call = self.streams.end(id);
                    self.queued.push_back(match call.is_some_and(|call| call.more) {
                        true => {
                            let text = "the server took the call and not its stream";
                            ClientEvent::End {
                                id,
                                end: Err(Status::unimplemented(text).with_origin(Origin::Peer)),
                            }
                        }
                        false => ClientEvent::Reply { id, item, compressed },
                    });
                }
                (ClientEvent::End { end, .. }, _) => {
                    self.streams.end(id);
                    self.queued.push_back(ClientEvent::End { id, end });
                }
                (other, _) => self.queued.push_back(other),
            }
        }
        if self.queued.is_empty() {
            self.streams.end(id);
            let end = Err(broken("the answer to another call came in the stream of this one"));
            self.queued.push_back(ClientEvent::End { id, end });
        }
    }
}

/// The response in a message, all of which is there.
fn response_in(input: &mut Input) -> Result<Frame, Fatal> {
    let frame = Framer::default().next(input)?;
    frame
        .filter(|frame| !frame.of_stream && frame.is_whole(input))
        .ok_or_else(|| Fatal("a stream does not begin with a whole response".into()))
}

//! Calls with streams.

use super::{Client, broken, read};
use crate::{
    Fatal, Input, Metadata, Origin, Outbox, Status,
    baidu::{
        META_BYTES_MAX, error, fields,
        frame::{Frame, Framer},
        stream::{self, Kind, Settings, Stream, StreamMeta, WINDOW},
    },
    wire::{ClientCallId, ClientEvent},
};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;

/// Local stream number of a call. The id of a call may be 0, which is not a valid stream number.
pub(super) fn number(id: ClientCallId) -> u64 {
    id + 1
}

/// Streams of the calls in flight.
#[derive(Debug, Default)]
pub(super) struct Streams {
    calls: HashMap<ClientCallId, Call>,
    /// Bytes of messages that are not complete yet.
    gathered: usize,
}

/// A call that opens a stream.
#[derive(Debug)]
struct Call {
    /// Requests follow, so the server has to have an end of the stream.
    more: bool,
    /// The call has exactly one reply, which follows its requests.
    one_reply: bool,
    stream: Stream,
    answered: bool,
    /// A message from the server has arrived.
    replied: bool,
    /// The requests have ended, and `CLOSE` has not been sent to the server.
    closing: bool,
}

impl Call {
    /// Ends the requests as soon as the server may receive `CLOSE`. To brpc `CLOSE` ends the replies too: its server
    /// can no longer write. A client stream therefore waits for the reply. Other calls wait until the server has
    /// consumed all requests: replies that it writes while it reads requests have been sent by then.
    fn close(&mut self, out: &mut Outbox) {
        let may = match (self.stream.half_closes(), self.one_reply) {
            (true, _) => true,
            (false, true) => self.replied,
            (false, false) => self.stream.is_consumed(),
        };
        if self.closing && may {
            self.closing = false;
            self.stream.send_empty(Kind::Close, out);
        }
    }
}

impl Streams {
    pub(super) fn are_open(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns true if the call has a stream.
    #[inline]
    pub(super) fn has(&self, id: ClientCallId) -> bool {
        self.are_open() && self.calls.contains_key(&id)
    }

    /// Registers a call whose stream the server has not accepted yet.
    pub(super) fn begin(&mut self, id: ClientCallId, more: bool, one_reply: bool) {
        let stream = Stream::new(number(id), Settings::default());
        let call = Call { more, one_reply, stream, answered: false, replied: false, closing: false };
        self.calls.insert(id, call);
    }

    pub(super) fn send(&mut self, id: ClientCallId, item: &Bytes, out: &mut Outbox) -> Result<(), Status> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Err(Status::internal("a message of a call that opened no stream"));
        };
        if !call.stream.is_writable() {
            return Err(Status::failed_precondition("the server accepts no messages on this stream"));
        }
        call.stream.send(item, out);
        Ok(())
    }

    pub(super) fn half_close(&mut self, id: ClientCallId, out: &mut Outbox) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.closing = true;
            call.close(out);
        }
    }

    /// Records that a message from the server has arrived.
    fn replied(&mut self, id: ClientCallId, out: &mut Outbox) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.replied = true;
            call.close(out);
        }
    }

    /// Abandons the call. A stream that the server has not accepted yet is reset when it does.
    pub(super) fn cancel(&mut self, id: ClientCallId, out: &mut Outbox) {
        if let Some(call) = self.end(id).filter(|call| call.answered) {
            call.stream.send_empty(Kind::Reset, out);
        }
    }

    pub(super) fn consume(&mut self, id: ClientCallId, bytes: u32, out: &mut Outbox) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.stream.consume(bytes, out);
        }
    }

    fn end(&mut self, id: ClientCallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.gathered -= call.stream.gathered();
        Some(call)
    }

    /// Finds the call with this local stream number.
    fn call_of(&mut self, ours: u64) -> Option<(ClientCallId, &mut Call)> {
        let id = ours.checked_sub(1)?;
        self.calls.get_mut(&id).map(|call| (id, call))
    }
}

impl Client {
    /// Processes a frame of a stream and queues its events.
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
            // The first message also holds the meta of the response.
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
            Some(Kind::Data | Kind::Close | Kind::Reset) if !frame.is_whole(input) => {
                self.framer.wait(frame, input);
            }
            Some(Kind::Data) => {
                let (part, _) = frame.take(0, input);
                let before = call.stream.gathered();
                let message = call.stream.take(part, meta.continues);
                let answered = call.answered;
                self.streams.gathered = gathered - before + call.stream.gathered();
                match message {
                    None => {}
                    Some(message) if answered => {
                        self.streams.replied(id, out);
                        self.reply(id, message, max, out);
                    }
                    Some(message) => self.response_inside(id, &message)?,
                }
            }
            Some(kind @ (Kind::Close | Kind::Reset)) => {
                let (payload, _) = frame.take(0, input);
                let (answered, gathered) = (call.answered, call.stream.gathered());
                self.streams.end(id);
                let end = self.end_of(kind, &payload, answered, gathered)?;
                self.queued.push_back(ClientEvent::End { id, end });
            }
            Some(Kind::Feedback) => {
                self.framer.refuse(frame, input);
                let bytes = call.stream.acknowledge(meta.consumed);
                call.close(out);
                self.queued.push_back(ClientEvent::Credit { id, bytes });
            }
            None => self.framer.refuse(frame, input),
        }
        Ok(())
    }

    /// Returns the result of a call whose stream the server closed or reset, after a response (`answered`) and
    /// `gathered` bytes of an incomplete message.
    fn end_of(
        &self,
        kind: Kind,
        payload: &Bytes,
        answered: bool,
        gathered: usize,
    ) -> Result<Result<Metadata, Status>, Fatal> {
        let early = |text: String| Err(Status::unavailable(text).with_origin(Origin::Peer));
        Ok(match self.read_end(payload)? {
            Some(Err(status)) => Err(status),
            _ if kind == Kind::Close && gathered > 0 => early(format!(
                "the server closed the stream in the middle of a message, after {gathered} bytes of it"
            )),
            _ if kind == Kind::Close && !answered => {
                early("the server closed the stream before it responded to the call".into())
            }
            Some(end) => end,
            None if kind == Kind::Reset => early("the server reset the stream".into()),
            None => Ok(Metadata::new()),
        })
    }

    fn reply(&mut self, id: ClientCallId, item: Bytes, max: usize, out: &mut Outbox) {
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

    /// Reads how a stream ended: the payload of its last frame may hold a response of the call.
    fn read_end(&self, payload: &Bytes) -> Result<Option<Result<Metadata, Status>>, Fatal> {
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

    /// Processes the response of a call that arrived as the first message of its stream.
    fn response_inside(&mut self, id: ClientCallId, message: &Bytes) -> Result<(), Fatal> {
        let mut input = Input::new(BytesMut::from(&message[..]));
        let frame = response_in(&mut input)?;
        let settings = read(frame.meta_of(&input))?.stream;
        let event = self.response(frame, &mut input)?;
        self.open_stream(id, settings, event);
        Ok(())
    }

    /// Processes a response that may belong to a call with a stream.
    pub(super) fn any_response(
        &mut self,
        frame: Frame,
        input: &mut Input,
    ) -> Result<Option<ClientEvent>, Fatal> {
        let meta = read(frame.meta_of(input))?;
        let (settings, id) = (meta.stream, meta.correlation_id);
        let event = self.response(frame, input)?;
        if event.is_none() || !self.streams.has(id) {
            return Ok(event);
        }
        self.open_stream(id, settings, event);
        Ok(None)
    }

    /// Queues the events of the response to a call with a stream; with settings the stream is open.
    fn open_stream(&mut self, id: ClientCallId, settings: Option<Settings>, event: Option<ClientEvent>) {
        let events: Vec<ClientEvent> = event.into_iter().chain(self.queued.drain(..)).collect();
        for event in events {
            match (event, settings) {
                (ClientEvent::Head { metadata, .. }, _) => {
                    self.queued.push_back(ClientEvent::Head { id, metadata });
                }
                (ClientEvent::Reply { item, .. }, Some(settings)) => {
                    if let Some(call) = self.streams.calls.get_mut(&id) {
                        call.stream.open(settings, item.len());
                        call.answered = true;
                        call.replied = !item.is_empty();
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
                            let text = "the server accepted the call but not its stream";
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
            let end = Err(broken("the response to another call arrived in the stream of this call"));
            self.queued.push_back(ClientEvent::End { id, end });
        }
    }
}

/// Reads the response in a complete message.
fn response_in(input: &mut Input) -> Result<Frame, Fatal> {
    let frame = Framer::default().next(input)?;
    frame
        .filter(|frame| !frame.of_stream && frame.is_whole(input))
        .ok_or_else(|| Fatal("a stream does not begin with a whole response".into()))
}

//! Streams: what opens them, their frames, and what each side knows of its end.

use super::{
    frame::{self, Payload},
    meta::put_nonzero,
};
use crate::{
    Outbox,
    proto::{self, Fields, Malformed},
};
use bytes::{Bytes, BytesMut};

/// Bytes of messages that one side may send ahead of the other's reader: what brpc's streams have unless they are told
/// otherwise, and what is not told to the peer.
pub(super) const WINDOW: u32 = 2 << 20;
/// The number of no stream: with it a server answers that opened none.
pub(super) const NO_STREAM: u64 = u64::MAX;

/// `StreamSettings`: what a call, and its answer, says of the stream that it opens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Settings {
    /// The sender's number for its end.
    pub(super) stream_id: u64,
    /// The sender wants to know what was consumed of its messages.
    pub(super) need_feedback: bool,
    /// The sender takes messages.
    pub(super) writable: bool,
    /// The call opens more streams than this one.
    pub(super) has_more: bool,
}

impl Settings {
    /// Those of an end of ours.
    pub(super) fn of(stream_id: u64) -> Settings {
        Settings { stream_id, need_feedback: true, writable: true, has_more: false }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Settings, Malformed> {
        let (mut settings, mut has_id) = (Settings::default(), false);
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => (settings.stream_id, has_id) = (value.number(), true),
                2 => settings.need_feedback = value.number() != 0,
                3 => settings.writable = value.number() != 0,
                4 => settings.has_more = true,
                _ => {}
            }
        }
        if has_id { Ok(settings) } else { Err(Malformed) }
    }

    /// Appends the field of a meta.
    pub(super) fn put(self, into: &mut BytesMut) {
        proto::put_message(into, 8, |into| {
            proto::put_number(into, 1, self.stream_id);
            proto::put_number(into, 2, u64::from(self.need_feedback));
            proto::put_number(into, 3, u64::from(self.writable));
        });
    }
}

/// What a frame of a stream is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The stream is gone.
    Reset = 1,
    /// Its sender sends nothing more.
    Close = 2,
    /// A message, or a part of one.
    Data = 3,
    /// How much was consumed.
    Feedback = 4,
}

/// `StreamFrameMeta`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct StreamMeta {
    /// The number of the receiver's end.
    pub(super) to: u64,
    /// That of the sender's; 0 if it does not say.
    pub(super) from: u64,
    /// None for one that is not known here.
    pub(super) kind: Option<Kind>,
    /// The message goes on in the next frame.
    pub(super) continues: bool,
    /// Bytes of messages that were consumed in all.
    pub(super) consumed: u64,
}

impl StreamMeta {
    /// That of a frame with a whole message, or with none.
    pub(super) fn new(kind: Kind, to: u64, from: u64) -> StreamMeta {
        StreamMeta { to, from, kind: Some(kind), continues: false, consumed: 0 }
    }

    pub(super) fn read(bytes: &[u8]) -> Result<StreamMeta, Malformed> {
        let mut meta = StreamMeta { to: 0, from: 0, kind: None, continues: false, consumed: 0 };
        let (mut fields, mut has_id) = (Fields(bytes), false);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => (meta.to, has_id) = (value.number(), true),
                2 => meta.from = value.number(),
                3 => {
                    meta.kind = [Kind::Reset, Kind::Close, Kind::Data, Kind::Feedback]
                        .into_iter()
                        .find(|kind| *kind as u64 == value.number());
                }
                4 => meta.continues = value.number() != 0,
                5 => {
                    let mut feedback = Fields(value.bytes());
                    while let Some((field, value)) = feedback.next()? {
                        if field == 1 {
                            meta.consumed = value.number();
                        }
                    }
                }
                _ => {}
            }
        }
        if has_id { Ok(meta) } else { Err(Malformed) }
    }

    pub(super) fn put(&self, into: &mut BytesMut) {
        proto::put_number(into, 1, self.to);
        put_nonzero(into, 2, self.from);
        put_nonzero(into, 3, self.kind.map_or(0, |kind| kind as u64));
        put_nonzero(into, 4, u64::from(self.continues));
        if self.kind == Some(Kind::Feedback) {
            proto::put_message(into, 5, |into| proto::put_number(into, 1, self.consumed));
        }
    }
}

/// Says that there is no such stream here; to a frame that does not say whose it is, nothing.
pub(super) fn put_reset(to: u64, from: u64, out: &mut Outbox) {
    if to != 0 && to != NO_STREAM {
        frame::put_stream(out, &StreamMeta::new(Kind::Reset, to, from), &Payload::default());
    }
}

/// This side's end of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its number here.
    ours: u64,
    /// What the peer said of its end.
    peer: Settings,
    /// The parts of a message whose end has not come.
    gathered: BytesMut,
    /// Bytes of messages in all, as this side sent them, and as the peer told to have consumed them.
    sent: u64,
    acknowledged: u64,
    /// The same the other way.
    received: u64,
    consumed: u64,
    /// Messages without bytes since the last feedback: each is a byte of credit, of which the peer knows nothing.
    empty: u32,
}

impl Stream {
    pub(super) fn new(ours: u64, peer: Settings) -> Stream {
        Stream {
            ours,
            peer,
            gathered: BytesMut::new(),
            sent: 0,
            acknowledged: 0,
            received: 0,
            consumed: 0,
            empty: 0,
        }
    }

    /// Its number here.
    pub(super) fn id(&self) -> u64 {
        self.ours
    }

    /// The peer has said what its end is; what came before was no message.
    pub(super) fn open(&mut self, peer: Settings) {
        self.peer = peer;
        self.received = 0;
    }

    /// Gives it another number.
    pub(super) fn number(&mut self, ours: u64) {
        self.ours = ours;
    }

    /// Whether the peer takes messages.
    pub(super) fn is_writable(&self) -> bool {
        self.peer.writable
    }

    /// What a frame of this kind to the peer says.
    pub(super) fn meta(&self, kind: Kind) -> StreamMeta {
        StreamMeta::new(kind, self.peer.stream_id, self.ours)
    }

    /// Sends a message.
    pub(super) fn send(&mut self, item: &Bytes, out: &mut Outbox) {
        self.sent += item.len() as u64;
        self.empty += u32::from(item.is_empty());
        frame::put_stream(out, &self.meta(Kind::Data), &Payload::one(item));
    }

    /// Sends a frame without a message.
    pub(super) fn tell(&self, kind: Kind, out: &mut Outbox) {
        frame::put_stream(out, &self.meta(kind), &Payload::default());
    }

    /// The peer has consumed so many bytes in all: how many more may be sent.
    pub(super) fn acknowledge(&mut self, consumed: u64) -> u32 {
        let more = consumed.min(self.sent).saturating_sub(self.acknowledged);
        self.acknowledged += more;
        u32::try_from(more).unwrap_or(u32::MAX).saturating_add(std::mem::take(&mut self.empty))
    }

    /// The reader has taken so many bytes more, with one for each empty message.
    pub(super) fn consume(&mut self, bytes: u32, out: &mut Outbox) {
        self.consumed = self.received.min(self.consumed + u64::from(bytes));
        if self.peer.need_feedback {
            let meta = StreamMeta { consumed: self.consumed, ..self.meta(Kind::Feedback) };
            frame::put_stream(out, &meta, &Payload::default());
        }
    }

    /// Takes a message, or a part of it; the whole message once its end has come.
    pub(super) fn take(&mut self, part: Bytes, continues: bool) -> Option<Bytes> {
        self.received += part.len() as u64;
        if self.gathered.is_empty() && !continues {
            return Some(part);
        }
        self.gathered.extend_from_slice(&part);
        (!continues).then(|| self.gathered.split().freeze())
    }

    /// Bytes of a message whose end has not come.
    pub(super) fn gathered(&self) -> usize {
        self.gathered.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metas_survive_the_round_trip() {
        let meta = StreamMeta { continues: true, ..StreamMeta::new(Kind::Data, u64::MAX, 1 << 63) };
        let feedback = StreamMeta { consumed: 77, ..StreamMeta::new(Kind::Feedback, 0, 0) };
        for meta in [meta, feedback] {
            let mut bytes = BytesMut::new();
            meta.put(&mut bytes);
            assert_eq!(StreamMeta::read(&bytes), Ok(meta));
        }
        // A kind of a later version, and no number.
        assert_eq!(StreamMeta::read(&[0x08, 5, 0x18, 9]).unwrap().kind, None);
        assert_eq!(StreamMeta::read(&[0x18, 3]), Err(Malformed));
        assert_eq!(Settings::read(&[0x10, 1]), Err(Malformed));
        assert!(Settings::read(&[0x08, 1, 0x20, 2]).unwrap().has_more);
    }

    #[test]
    fn credit_is_what_was_consumed_and_never_more_than_was_sent() {
        let mut stream = Stream::new(1, Settings::of(2));
        let mut out = Outbox::new();
        for item in [&b"abc"[..], b"", b"de"] {
            stream.send(&Bytes::from_static(item), &mut out);
        }
        assert_eq!(stream.acknowledge(3), 3 + 1);
        assert_eq!((stream.acknowledge(3), stream.acknowledge(u64::MAX), stream.acknowledge(4)), (0, 2, 0));
    }

    #[test]
    fn feedback_counts_bytes_of_messages_in_all() {
        let mut stream = Stream::new(1, Settings::of(2));
        assert_eq!(stream.take(Bytes::from_static(b"abc"), true), None);
        assert_eq!(stream.gathered(), 3);
        assert_eq!(stream.take(Bytes::from_static(b"de"), false).unwrap(), "abcde");
        assert_eq!((stream.take(Bytes::new(), false).unwrap().len(), stream.gathered()), (0, 0));
        let mut out = Outbox::new();
        stream.consume(4, &mut out);
        stream.consume(2, &mut out);
        let all = out.take_all();
        assert_eq!(all.len() % 2, 0);
        for (frame, consumed) in all.chunks(all.len() / 2).zip([4, 5]) {
            assert_eq!(StreamMeta::read(&frame[12..]).unwrap().consumed, consumed);
        }
        let mut silent = Stream::new(1, Settings { need_feedback: false, ..Settings::of(2) });
        silent.consume(9, &mut out);
        assert!(out.is_empty());
    }
}

//! Streams: settings, frames, and the state of one end.

use super::{
    frame::{self, Payload},
    meta::put_nonzero,
};
use crate::{
    Outbox,
    proto::{self, Fields, Malformed},
};
use bytes::{Bytes, BytesMut};

/// Bytes of messages that one side may send ahead of the other side's reader. It is the default of brpc streams and is
/// not sent to the peer.
pub(super) const WINDOW: u32 = 2 << 20;
/// Stream number that means no stream: a server responds with it to a call whose stream it did not open.
pub(super) const NO_STREAM: u64 = u64::MAX;
/// Field of `StreamSettings` for [`Settings::half_closes`]. brpc skips unknown fields.
const HALF_CLOSES: u32 = 1000;

/// `StreamSettings`: in a call and in its response, describes the sender's end of the stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Settings {
    /// The sender's stream number.
    pub(super) stream_id: u64,
    /// The sender wants feedback on consumed bytes.
    pub(super) need_feedback: bool,
    /// The sender accepts messages.
    pub(super) writable: bool,
    /// The call opens more streams than this one.
    pub(super) has_more: bool,
    /// The sender is Switchboard: `CLOSE` ends one direction of the stream, and may follow the response at once. To
    /// brpc it ends both, and fails a call whose response is still in its queue.
    pub(super) half_closes: bool,
}

impl Settings {
    /// Returns the settings of a local end.
    pub(super) fn of(stream_id: u64) -> Settings {
        Settings { stream_id, need_feedback: true, writable: true, has_more: false, half_closes: true }
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
                HALF_CLOSES => settings.half_closes = value.number() != 0,
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
            put_nonzero(into, HALF_CLOSES, u64::from(self.half_closes));
        });
    }
}

/// Kind of a stream frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The stream no longer exists.
    Reset = 1,
    /// The sender has no more messages.
    Close = 2,
    /// A message, or a part of one.
    Data = 3,
    /// Reports the number of consumed bytes.
    Feedback = 4,
}

/// `StreamFrameMeta`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct StreamMeta {
    /// The receiver's stream number.
    pub(super) to: u64,
    /// The sender's stream number; 0 if absent.
    pub(super) from: u64,
    /// `None` for an unknown kind.
    pub(super) kind: Option<Kind>,
    /// The message goes on in the next frame.
    pub(super) continues: bool,
    /// Total number of consumed message bytes.
    pub(super) consumed: u64,
}

impl StreamMeta {
    /// Returns the meta of a frame with a complete message or without one.
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

/// Sends a reset for an unknown stream; sends nothing if the frame did not name its sender.
pub(super) fn put_reset(to: u64, from: u64, out: &mut Outbox) {
    if to != 0 && to != NO_STREAM {
        frame::put_stream(out, &StreamMeta::new(Kind::Reset, to, from), &Payload::default());
    }
}

/// Local end of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Local stream number.
    ours: u64,
    /// Settings of the peer's end.
    peer: Settings,
    /// Parts of a message that is not complete yet.
    gathered: BytesMut,
    /// Total bytes of messages that this side sent, and that the peer reported as consumed.
    sent: u64,
    acknowledged: u64,
    /// Total bytes of messages that this side received, and that its reader consumed.
    received: u64,
    consumed: u64,
    /// Empty messages since the last feedback: each costs one byte of local credit that the peer does not count.
    empty: u32,
    /// Bytes that the reader has not consumed of a message in the response; they do not count as stream bytes.
    beside: u32,
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
            beside: 0,
        }
    }

    /// Local stream number.
    pub(super) fn id(&self) -> u64 {
        self.ours
    }

    /// Sets the peer's end from a response with a message of `beside` bytes; bytes received before are not a message.
    pub(super) fn open(&mut self, peer: Settings, beside: usize) {
        self.peer = peer;
        self.received = 0;
        self.beside = beside as u32;
    }

    /// Sets the local stream number.
    pub(super) fn number(&mut self, ours: u64) {
        self.ours = ours;
    }

    /// Returns true if `CLOSE` ends only one direction for the peer.
    pub(super) fn half_closes(&self) -> bool {
        self.peer.half_closes
    }

    /// Returns true if the peer accepts messages.
    pub(super) fn is_writable(&self) -> bool {
        self.peer.writable
    }

    /// Creates the meta of a frame of this kind to the peer.
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
    pub(super) fn send_empty(&self, kind: Kind, out: &mut Outbox) {
        frame::put_stream(out, &self.meta(kind), &Payload::default());
    }

    /// Returns true if the peer has consumed all sent bytes.
    pub(super) fn is_consumed(&self) -> bool {
        self.acknowledged == self.sent
    }

    /// Records that the peer has consumed `consumed` bytes in total; returns how many more may be sent.
    pub(super) fn acknowledge(&mut self, consumed: u64) -> u32 {
        let more = consumed.min(self.sent).saturating_sub(self.acknowledged);
        self.acknowledged += more;
        u32::try_from(more).unwrap_or(u32::MAX).saturating_add(std::mem::take(&mut self.empty))
    }

    /// Records that the reader has consumed `bytes` more, where an empty message counts as one.
    pub(super) fn consume(&mut self, bytes: u32, out: &mut Outbox) {
        let beside = self.beside.min(bytes);
        self.beside -= beside;
        if bytes == beside {
            return;
        }
        let bytes = bytes - beside;
        self.consumed = self.received.min(self.consumed + u64::from(bytes));
        if self.peer.need_feedback {
            let meta = StreamMeta { consumed: self.consumed, ..self.meta(Kind::Feedback) };
            frame::put_stream(out, &meta, &Payload::default());
        }
    }

    /// Takes a message or a part of it; returns the message once it is complete.
    pub(super) fn take(&mut self, part: Bytes, continues: bool) -> Option<Bytes> {
        self.received += part.len() as u64;
        if self.gathered.is_empty() && !continues {
            return Some(part);
        }
        self.gathered.extend_from_slice(&part);
        (!continues).then(|| self.gathered.split().freeze())
    }

    /// Bytes of a message that is not complete yet.
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
        // An unknown kind, and a meta without a stream number.
        assert_eq!(StreamMeta::read(&[0x08, 5, 0x18, 9]).unwrap().kind, None);
        assert_eq!(StreamMeta::read(&[0x18, 3]), Err(Malformed));
        assert_eq!(Settings::read(&[0x10, 1]), Err(Malformed));
        assert!(Settings::read(&[0x08, 1, 0x20, 2]).unwrap().has_more);
    }

    #[test]
    fn credit_is_the_consumed_bytes_and_at_most_the_sent_bytes() {
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

//! State of a connection: frames in order, messages in fragments, the closing handshake.

use super::{
    close,
    deflate::{Deflate, Inflate, OUT_MAX},
    frame::{self, COMPRESSED_BIT, CONTROL_MAX, Header, Kind, Opcode},
    utf8::Utf8,
};
use crate::{Fatal, Input, Outbox};
use bytes::{BufMut, BytesMut};

/// Compressed bytes that are unmasked at once.
const COMPRESSED_MAX: usize = 2 << 10;

/// Role of this side. Frames of a client are masked, those of a server are not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: a connection has two sides
pub enum Role {
    /// The masks are derived from `seed`, which must be random: they prevent intermediaries from reading payload as
    /// requests.
    Client {
        /// Seed of the masks.
        seed: u64,
    },
    /// The side that accepted the connection.
    Server,
}

/// Limits on the input. Sizes are bytes of payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest frame in its wire form.
    pub frame_bytes_max: u64,
    /// Largest message, all of its frames together, both compressed and decompressed.
    pub message_bytes_max: u64,
}

/// Event from the peer.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum Event {
    /// The peer closed the connection in order; the response is in the outbox. Nothing follows.
    Closed(Option<Close>),
    /// Payload of a message was appended to the buffer; with `last` the message is complete. Without `last` the payload
    /// may be empty, if the consumed bytes decompress to nothing.
    Data {
        /// Kind of the message.
        kind: Kind,
        /// The message ends here.
        last: bool,
    },
    /// The peer responded to a ping.
    Pong,
}

/// Reason why a connection was closed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Close {
    /// Close code, see section 7.4.
    pub code: u16,
    /// Human-readable text.
    pub reason: String,
}

/// One WebSocket connection after its handshake.
#[derive(Debug)]
pub struct WebSocket {
    masks: Option<Masks>,
    limits: Limits,
    deflate: Option<Deflate>,
    /// Text messages may contain any bytes.
    any_text: bool,
    /// The data frame whose payload is arriving.
    frame: Option<Open>,
    /// The message whose frames are arriving.
    message: Option<Message>,
    close_sent: bool,
    closed: bool,
}

#[derive(Debug)]
struct Open {
    mask: Option<[u8; 4]>,
    at: usize,
    left: u64,
    fin: bool,
}

#[derive(Debug)]
struct Message {
    kind: Kind,
    /// Bytes in wire form.
    bytes: u64,
    /// Bytes after decompression.
    inflated: u64,
    inflate: Option<Inflate>,
    utf8: Utf8,
}

/// A protocol error of the peer: the close code and the reason.
type ProtocolError = (u16, String);

/// Progress of reading a frame.
enum Step {
    Event(Event),
    More,
}

impl WebSocket {
    /// Creates the state machine of a connection whose handshake has succeeded.
    pub fn new(role: Role, limits: Limits) -> WebSocket {
        let masks = match role {
            Role::Client { seed } => Some(Masks(seed)),
            Role::Server => None,
        };
        WebSocket {
            masks,
            limits,
            deflate: None,
            any_text: false,
            frame: None,
            message: None,
            close_sent: false,
            closed: false,
        }
    }

    /// Compresses messages as negotiated, and accepts compressed ones.
    #[must_use]
    pub fn with_deflate(mut self, agreed: Option<Deflate>) -> WebSocket {
        self.deflate = agreed;
        self
    }

    /// Accepts text messages with any bytes, against RFC 6455, 8.1: for peers whose library sends every message as
    /// text.
    #[must_use]
    pub fn with_any_text(mut self) -> WebSocket {
        self.any_text = true;
        self
    }

    /// Processes bytes of `input`. Payload is unmasked and appended to `payload`, responses to `out`. `None` means that
    /// more bytes are needed, or that the connection is closed.
    ///
    /// # Errors
    /// Returns the protocol error of the peer. A CLOSE with its code is in `out`; the connection is finished.
    pub fn recv(
        &mut self,
        input: &mut Input,
        payload: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<Event>, Fatal> {
        loop {
            if self.closed {
                input.skip(input.len());
                return Ok(None);
            }
            if self.frame.is_some() {
                match self.data(input, payload) {
                    Ok(Step::Event(event)) => return Ok(Some(event)),
                    Ok(Step::More) => return Ok(None),
                    Err((code, why)) => return Err(self.fail(code, &why, out)),
                }
            }
            let header = match Header::read(input.rest(), self.deflate.is_some()) {
                Ok(None) => return Ok(None),
                Ok(Some(header)) => header,
                Err(why) => return Err(self.fail(close::PROTOCOL, &why, out)),
            };
            if header.mask.is_some() == self.masks.is_some() {
                let why =
                    if header.mask.is_some() { "a server masks a frame" } else { "a frame is not masked" };
                return Err(self.fail(close::PROTOCOL, why, out));
            }
            match header.opcode {
                Opcode::Binary | Opcode::Continuation | Opcode::Text => {
                    if let Err((code, why)) = self.begin(&header) {
                        return Err(self.fail(code, &why, out));
                    }
                    input.skip(header.bytes);
                }
                opcode => {
                    let len = header.len as usize;
                    if input.len() < header.bytes + len {
                        return Ok(None);
                    }
                    input.skip(header.bytes);
                    let mut body = [0; CONTROL_MAX];
                    let body = &mut body[..len];
                    body.copy_from_slice(&input.rest()[..len]);
                    input.skip(len);
                    if let Some(mask) = header.mask {
                        frame::apply_mask(body, mask, 0);
                    }
                    match opcode {
                        Opcode::Ping if !self.close_sent => self.write(Opcode::Pong, &[body], out),
                        Opcode::Pong => return Ok(Some(Event::Pong)),
                        Opcode::Close => return self.closed(body, out).map(Some),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Takes payload of the open frame.
    fn data(&mut self, input: &mut Input, payload: &mut BytesMut) -> Result<Step, ProtocolError> {
        let (Some(open), Some(message)) = (&mut self.frame, &mut self.message) else { return Ok(Step::More) };
        let begin = payload.len();
        let took = match &mut message.inflate {
            None => open.take(input, payload),
            Some(inflate) => {
                let left = self.limits.message_bytes_max - message.inflated;
                open.inflate(inflate, left, input, payload)?
            }
        };
        if took == Progress::TooMuch {
            return Err(too_large(self.limits.message_bytes_max));
        }
        let produced = payload.len() - begin;
        message.inflated = message.inflated.saturating_add(produced as u64);
        let (kind, last) = (message.kind, took == Progress::All && open.fin);
        if took == Progress::All {
            self.frame = None;
        }
        if kind == Kind::Text
            && !self.any_text
            && !(message.utf8.push(&payload[begin..]) && (!last || message.utf8.is_whole()))
        {
            return Err((close::INVALID, "a text message is not UTF-8".to_owned()));
        }
        if last {
            self.message = None;
        } else if took == Progress::Nothing {
            return Ok(Step::More);
        }
        Ok(Step::Event(Event::Data { kind, last }))
    }

    /// Checks a data frame against its message and the limits.
    fn begin(&mut self, header: &Header) -> Result<(), ProtocolError> {
        let wrong = |why: &str| Err((close::PROTOCOL, why.to_owned()));
        match (header.opcode, &self.message) {
            (Opcode::Continuation, None) => return wrong("a continuation without a message"),
            (Opcode::Continuation, Some(_)) if header.compressed => {
                return wrong("the first reserved bit is set in a continuation");
            }
            (Opcode::Continuation, Some(_)) => {}
            (_, Some(_)) => return wrong("a message begins before the previous one has ended"),
            (opcode, None) => {
                let kind = if opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
                let inflate = header.compressed.then(Inflate::new);
                self.message = Some(Message { kind, bytes: 0, inflated: 0, inflate, utf8: Utf8::default() });
            }
        }
        let (len, Limits { frame_bytes_max, message_bytes_max }) = (header.len, self.limits);
        let Some(message) = &mut self.message else { return Ok(()) };
        // Compression makes incompressible data slightly longer.
        let more =
            |max: u64| if message.inflate.is_some() { max.saturating_add(max / 256 + 64) } else { max };
        let (frame_max, message_max) = (more(frame_bytes_max), more(message_bytes_max));
        if len > frame_max {
            return Err((
                close::TOO_BIG,
                format!("a frame of {len} bytes is over the limit of {frame_max} bytes (message_bytes_max)"),
            ));
        }
        message.bytes = message.bytes.saturating_add(len);
        if message.bytes > message_max {
            return Err(too_large(message_bytes_max));
        }
        self.frame = Some(Open { mask: header.mask, at: 0, left: len, fin: header.fin });
        Ok(())
    }

    /// Handles a CLOSE of the peer: responds with its code, unless this side closed first.
    fn closed(&mut self, body: &[u8], out: &mut Outbox) -> Result<Event, Fatal> {
        let close = match body {
            [] => None,
            [_] => return Err(self.fail(close::PROTOCOL, "a CLOSE has half a code", out)),
            [high, low, reason @ ..] => {
                let code = u16::from_be_bytes([*high, *low]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(self.fail(close::PROTOCOL, &format!("{code} is not a close code"), out));
                }
                let Ok(reason) = std::str::from_utf8(reason) else {
                    return Err(self.fail(close::INVALID, "the reason of a CLOSE is not UTF-8", out));
                };
                Some(Close { code, reason: reason.to_owned() })
            }
        };
        if !self.close_sent {
            self.close_sent = true;
            self.write(Opcode::Close, &[&body[..body.len().min(2)]], out);
        }
        self.closed = true;
        Ok(Event::Closed(close))
    }

    fn fail(&mut self, code: u16, why: &str, out: &mut Outbox) -> Fatal {
        self.close(code, why, out);
        self.closed = true;
        Fatal(format!("websocket: {why}"))
    }

    /// Sends a CLOSE, once; the peer responds. `reason` is human-readable and truncated to 123 bytes.
    pub fn close(&mut self, code: u16, reason: &str, out: &mut Outbox) {
        if !std::mem::replace(&mut self.close_sent, true) {
            let reason = &reason[..reason.floor_char_boundary(CONTROL_MAX - 2)];
            self.write(Opcode::Close, &[&code.to_be_bytes(), reason.as_bytes()], out);
        }
    }

    /// Returns true if a CLOSE was sent: no messages can follow.
    pub fn is_closing(&self) -> bool {
        self.close_sent
    }

    /// Returns true if no more input is accepted.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends a PING.
    pub fn ping(&mut self, out: &mut Outbox) {
        if !self.close_sent {
            self.write(Opcode::Ping, &[], out);
        }
    }

    /// Sends a message of these parts in one frame; nothing once the connection is closing.
    pub fn send(&mut self, kind: Kind, parts: &[&[u8]], out: &mut Outbox) {
        if self.close_sent {
            return;
        }
        let first = Opcode::from(kind).first_byte();
        let compressed = self.deflate.is_some_and(|deflate| {
            deflate.compress(parts, |shorter| self.write_frame(first | COMPRESSED_BIT, &[shorter], out))
        });
        if !compressed {
            self.write_frame(first, parts, out);
        }
    }

    /// Returns true if a message of `len` bytes would be compressed, which only [`send`](Self::send) can do.
    pub fn compresses(&self, len: usize) -> bool {
        self.deflate.is_some_and(|deflate| deflate.compresses(len))
    }

    /// Sends the head of a message of `len` bytes, for a server to append the payload without a copy; returns false
    /// once the connection is closing.
    #[must_use]
    pub fn head(&mut self, kind: Kind, len: usize, out: &mut Outbox) -> bool {
        debug_assert!(self.masks.is_none(), "the payload of a client is masked");
        if !self.close_sent {
            Header::write(Opcode::from(kind).first_byte(), len, None, out.tail());
        }
        !self.close_sent
    }

    fn write(&mut self, opcode: Opcode, parts: &[&[u8]], out: &mut Outbox) {
        self.write_frame(opcode.first_byte(), parts, out);
    }

    fn write_frame(&mut self, first: u8, parts: &[&[u8]], out: &mut Outbox) {
        let len = parts.iter().map(|part| part.len()).sum();
        let mask = self.masks.as_mut().map(Masks::next);
        let tail = out.tail();
        Header::write(first, len, mask, tail);
        let begin = tail.len();
        tail.reserve(len);
        for part in parts {
            tail.put_slice(part);
        }
        if let Some(mask) = mask {
            frame::apply_mask(&mut tail[begin..], mask, 0);
        }
    }
}

/// Result of taking the payload of a frame.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Progress {
    /// All of it was consumed and appended.
    All,
    Nothing,
    Some,
    /// The message exceeds its limit.
    TooMuch,
}

fn too_large(message_bytes_max: u64) -> ProtocolError {
    (close::TOO_BIG, format!("a message is over the limit of {message_bytes_max} bytes (message_bytes_max)"))
}

impl Open {
    fn take(&mut self, input: &mut Input, payload: &mut BytesMut) -> Progress {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        if count == 0 && self.left > 0 {
            return Progress::Nothing;
        }
        let begin = payload.len();
        payload.extend_from_slice(&input.rest()[..count]);
        self.taken(count, input, &mut payload[begin..]);
        if self.left == 0 { Progress::All } else { Progress::Some }
    }

    /// Consumes compressed bytes and appends a part of their content. Input that decompresses to much more than its
    /// size stays in `input` for the next call.
    fn inflate(
        &mut self,
        inflate: &mut Inflate,
        left: u64,
        input: &mut Input,
        payload: &mut BytesMut,
    ) -> Result<Progress, ProtocolError> {
        let invalid = |why| (close::INVALID, why);
        let mut room = [0; OUT_MAX];
        // One more byte than allowed detects that the limit is exceeded.
        let room = &mut room[..usize::try_from(left).unwrap_or(usize::MAX).min(OUT_MAX - 1) + 1];
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len()).min(COMPRESSED_MAX);
        let (produced, took) = if self.left > 0 || !inflate.is_drained() {
            if count == 0 && self.left > 0 && inflate.is_drained() {
                return Ok(Progress::Nothing);
            }
            let mut bytes = [0; COMPRESSED_MAX];
            let bytes = &mut bytes[..count];
            bytes.copy_from_slice(&input.rest()[..count]);
            self.unmask(bytes);
            let inflated = inflate.push(bytes, room).map_err(invalid)?;
            self.taken(inflated.taken, input, &mut []);
            let whole = self.left == 0 && inflate.is_drained() && !self.fin;
            (inflated.produced, if whole { Progress::All } else { Progress::Some })
        } else if self.fin {
            let (produced, done) = inflate.finish(room).map_err(invalid)?;
            (produced, if done { Progress::All } else { Progress::Some })
        } else {
            (0, Progress::All)
        };
        if produced as u64 > left {
            return Ok(Progress::TooMuch);
        }
        payload.extend_from_slice(&room[..produced]);
        Ok(took)
    }

    fn unmask(&self, bytes: &mut [u8]) {
        if let Some(mask) = self.mask {
            frame::apply_mask(bytes, mask, self.at);
        }
    }

    /// Counts consumed bytes and unmasks their copy.
    fn taken(&mut self, count: usize, input: &mut Input, copy: &mut [u8]) {
        input.skip(count);
        self.unmask(copy);
        self.at = self.at.wrapping_add(count);
        self.left -= count as u64;
    }
}

/// Generator of the masks of a client: SplitMix64.
#[derive(Debug)]
struct Masks(u64);

impl Masks {
    fn next(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 31)).to_le_bytes();
        [a, b, c, d]
    }
}

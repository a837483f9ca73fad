//! The state of one connection: frames in order, messages in fragments, the closing handshake.

use super::{
    close,
    frame::{self, CONTROL_MAX, Header, Kind, Opcode},
    utf8::Utf8,
};
use crate::{Fatal, Input, Outbox};
use bytes::{BufMut, BytesMut};

/// Which side this is. Frames of a client are masked, those of a server are not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The masks follow from `seed`, which must be random: they keep intermediaries from reading payload as requests.
    Client {
        /// Where the masks begin.
        seed: u64,
    },
    /// The side that was connected to.
    Server,
}

/// What a peer may send. Sizes are bytes of payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest frame.
    pub frame_bytes_max: u64,
    /// Largest message, all of its frames together.
    pub message_bytes_max: u64,
}

/// What arrived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The peer closed the connection, in order; the answer is in the outbox. Nothing follows.
    Closed(Option<Close>),
    /// Payload of a message was appended to the buffer; with `last` the message is whole.
    Data {
        /// What the message is.
        kind: Kind,
        /// Whether the message ends here.
        last: bool,
    },
    /// The peer answered a ping.
    Pong,
}

/// Why a connection was closed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Close {
    /// The number, see section 7.4.
    pub code: u16,
    /// For people.
    pub reason: String,
}

/// One WebSocket connection after its handshake.
#[derive(Debug)]
pub struct WebSocket {
    masks: Option<Masks>,
    limits: Limits,
    /// The data frame whose payload is coming.
    frame: Option<Open>,
    /// The message whose frames are coming.
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
    bytes: u64,
    utf8: Utf8,
}

impl WebSocket {
    /// A connection whose handshake has succeeded.
    pub fn new(role: Role, limits: Limits) -> WebSocket {
        let masks = match role {
            Role::Client { seed } => Some(Masks(seed)),
            Role::Server => None,
        };
        WebSocket { masks, limits, frame: None, message: None, close_sent: false, closed: false }
    }

    /// Takes what it can from `input`; payload goes unmasked to the end of `payload`, answers to `out`. None means
    /// that more bytes are needed, or that the connection is closed.
    ///
    /// # Errors
    /// What the peer did wrong. A CLOSE that says so is in `out`; the connection is over.
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
            if let Some(open) = &mut self.frame {
                let count = usize::try_from(open.left).unwrap_or(usize::MAX).min(input.len());
                if count == 0 && open.left > 0 {
                    return Ok(None);
                }
                let begin = payload.len();
                payload.extend_from_slice(&input.rest()[..count]);
                input.skip(count);
                if let Some(mask) = open.mask {
                    frame::apply_mask(&mut payload[begin..], mask, open.at);
                }
                open.at = open.at.wrapping_add(count);
                open.left -= count as u64;
                let (ends, fin) = (open.left == 0, open.fin);
                if ends {
                    self.frame = None;
                }
                let Some(message) = &mut self.message else { continue };
                let (kind, last) = (message.kind, ends && fin);
                if kind == Kind::Text
                    && !(message.utf8.push(&payload[begin..]) && (!last || message.utf8.is_whole()))
                {
                    return Err(self.fail(close::INVALID, "a text message is not UTF-8", out));
                }
                if last {
                    self.message = None;
                } else if count == 0 {
                    continue;
                }
                return Ok(Some(Event::Data { kind, last }));
            }
            let header = match Header::read(input.rest()) {
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

    /// Checks a data frame against its message and the limits.
    fn begin(&mut self, header: &Header) -> Result<(), (u16, String)> {
        let wrong = |why: &str| Err((close::PROTOCOL, why.to_owned()));
        match (header.opcode, &self.message) {
            (Opcode::Continuation, None) => return wrong("a continuation continues nothing"),
            (Opcode::Continuation, Some(_)) => {}
            (_, Some(_)) => return wrong("a message begins before the one before it has ended"),
            (opcode, None) => {
                let kind = if opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
                self.message = Some(Message { kind, bytes: 0, utf8: Utf8::default() });
            }
        }
        let (len, Limits { frame_bytes_max, message_bytes_max }) = (header.len, self.limits);
        if len > frame_bytes_max {
            return Err((
                close::TOO_BIG,
                format!(
                    "a frame of {len} bytes is over the limit of {frame_bytes_max} bytes (message_bytes_max)"
                ),
            ));
        }
        if let Some(message) = &mut self.message {
            message.bytes = message.bytes.saturating_add(len);
            if message.bytes > message_bytes_max {
                let why = format!("a message of more than {message_bytes_max} bytes (message_bytes_max)");
                return Err((close::TOO_BIG, why));
            }
        }
        self.frame = Some(Open { mask: header.mask, at: 0, left: len, fin: header.fin });
        Ok(())
    }

    /// The peer closes: answers with its code, unless this side closed first.
    fn closed(&mut self, body: &[u8], out: &mut Outbox) -> Result<Event, Fatal> {
        let close = match body {
            [] => None,
            [_] => return Err(self.fail(close::PROTOCOL, "a CLOSE has half a code", out)),
            [high, low, reason @ ..] => {
                let code = u16::from_be_bytes([*high, *low]);
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(self.fail(close::PROTOCOL, &format!("{code} is no close code"), out));
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

    /// Says that this side is done, once; the peer answers. `reason` is for people and cut at 123 bytes.
    pub fn close(&mut self, code: u16, reason: &str, out: &mut Outbox) {
        if !std::mem::replace(&mut self.close_sent, true) {
            let reason = &reason[..reason.floor_char_boundary(CONTROL_MAX - 2)];
            self.write(Opcode::Close, &[&code.to_be_bytes(), reason.as_bytes()], out);
        }
    }

    /// Whether a CLOSE was sent: no messages can follow.
    pub fn is_closing(&self) -> bool {
        self.close_sent
    }

    /// Whether nothing more will be taken.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self, out: &mut Outbox) {
        if !self.close_sent {
            self.write(Opcode::Ping, &[], out);
        }
    }

    /// Sends a message of these parts in one frame; nothing once the connection closes.
    pub fn send(&mut self, kind: Kind, parts: &[&[u8]], out: &mut Outbox) {
        if !self.close_sent {
            self.write(kind.into(), parts, out);
        }
    }

    /// Sends the head of a message of `len` bytes, for a server to append the payload without a copy; false once the
    /// connection closes.
    #[must_use]
    pub fn head(&mut self, kind: Kind, len: usize, out: &mut Outbox) -> bool {
        debug_assert!(self.masks.is_none(), "the payload of a client is masked");
        if !self.close_sent {
            Header::write(kind.into(), len, None, out.tail());
        }
        !self.close_sent
    }

    fn write(&mut self, opcode: Opcode, parts: &[&[u8]], out: &mut Outbox) {
        let len = parts.iter().map(|part| part.len()).sum();
        let mask = self.masks.as_mut().map(Masks::next);
        let tail = out.tail();
        Header::write(opcode, len, mask, tail);
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

/// The masks of a client, one after the other: SplitMix64.
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

//! Separation of the JSON texts of a connection: by their own end, or by the messages of a WebSocket.

use super::{ErrorObject, Scanned, Scanner};
use crate::{
    Fatal, Input, Outbox, Status,
    websocket::{self, Deflate, Kind, Role, WebSocket},
};
use bytes::{Bytes, BytesMut};

#[derive(Debug)]
pub(super) enum Transport {
    /// Texts that follow one another, with or without line ends; each response ends with one.
    Lines(Lines),
    WebSocket(Box<Messages>),
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    scanner: Scanner,
    /// The rest of a line after an error is skipped.
    skipping: bool,
}

#[derive(Debug)]
pub(super) struct Messages {
    socket: WebSocket,
    payload: BytesMut,
}

/// Next unit of the input.
#[derive(Debug)]
pub(super) enum Next {
    Closed,
    Pong,
    /// A part of a text that is not complete yet.
    Part,
    /// Bytes that are not a JSON text; the connection continues.
    Refused(ErrorObject),
    Text(Bytes),
}

impl Transport {
    pub(super) fn websocket(message_bytes_max: u32, deflate: Option<Deflate>) -> Transport {
        let max = u64::from(message_bytes_max);
        let limits = websocket::Limits { frame_bytes_max: max, message_bytes_max: max };
        let socket = WebSocket::new(Role::Server, limits).with_deflate(deflate);
        Transport::WebSocket(Box::new(Messages { socket, payload: BytesMut::new() }))
    }

    /// Takes the next text of at most `max` bytes; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes after which texts cannot be separated any more. An [`ErrorObject`] with it is still
    /// to be sent; without one the transport has already written the reason.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
        max: usize,
    ) -> Result<Option<Next>, (Fatal, Option<ErrorObject>)> {
        match self {
            Transport::Lines(lines) => lines.next(input, max),
            Transport::WebSocket(messages) => messages.next(input, out).map_err(|fatal| (fatal, None)),
        }
    }

    /// Writes one text made of these parts.
    pub(super) fn write(&mut self, before: &[u8], item: &Bytes, behind: &[u8], out: &mut Outbox) {
        if let Transport::WebSocket(messages) = self {
            let len = before.len() + item.len() + behind.len();
            if messages.socket.compresses(len) {
                return messages.socket.send(Kind::Text, &[before, item, behind], out);
            }
            if !messages.socket.head(Kind::Text, len, out) {
                return;
            }
        }
        out.tail().extend_from_slice(before);
        out.put(item);
        out.tail().extend_from_slice(behind);
        if let Transport::Lines(_) = self {
            out.tail().extend_from_slice(b"\n");
        }
    }

    /// Bytes of a message that is not complete yet.
    pub(super) fn gathered(&self) -> usize {
        match self {
            Transport::Lines(_) => 0,
            Transport::WebSocket(messages) => messages.payload.len(),
        }
    }

    pub(super) fn ping(&mut self, out: &mut Outbox) {
        if let Transport::WebSocket(messages) = self {
            messages.socket.ping(out);
        }
    }

    pub(super) fn responds_to_pings(&self) -> bool {
        matches!(self, Transport::WebSocket(_))
    }

    /// Announces the end of the connection; returns true if the peer responds.
    pub(super) fn close(&mut self, code: u16, reason: &str, out: &mut Outbox) -> bool {
        match self {
            Transport::Lines(_) => false,
            Transport::WebSocket(messages) => {
                messages.socket.close(code, reason, out);
                !messages.socket.is_closed()
            }
        }
    }
}

impl Lines {
    fn next(&mut self, input: &mut Input, max: usize) -> Result<Option<Next>, (Fatal, Option<ErrorObject>)> {
        if self.skipping {
            match input.rest().iter().position(|byte| *byte == b'\n') {
                None => input.skip(input.len()),
                Some(end) => {
                    input.skip(end);
                    self.skipping = false;
                }
            }
        }
        if self.scanner.scanned() == 0 {
            let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let blanks = input.rest().iter().take_while(|byte| blank(byte)).count();
            input.skip(blanks);
        }
        let scanned = self.scanner.scan(input.rest());
        if self.scanner.scanned() > max {
            let why = format!("a request of more than {max} bytes (message_bytes_max)");
            let status = Status::resource_exhausted(why.clone());
            return Err((Fatal(why), Some(ErrorObject::from(&status))));
        }
        let why = match scanned {
            Scanned::End(len) => {
                self.scanner = Scanner::default();
                return Ok(Some(Next::Text(input.take(len))));
            }
            Scanned::More => return Ok(None),
            Scanned::Deep => {
                format!("nested deeper than {}; reading continues at the next line", super::DEPTH_MAX)
            }
            Scanned::Wrong => {
                "expected a JSON array or object; reading continues at the next line".to_owned()
            }
        };
        input.skip(self.scanner.scanned());
        *self = Lines { skipping: true, ..Lines::default() };
        Ok(Some(Next::Refused(ErrorObject::parse(&why))))
    }
}

impl Messages {
    fn next(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Next>, Fatal> {
        Ok(Some(match self.socket.recv(input, &mut self.payload, out)? {
            None => {
                if self.payload.is_empty() {
                    self.payload = BytesMut::new();
                }
                return Ok(None);
            }
            Some(websocket::Event::Closed(_)) => Next::Closed,
            Some(websocket::Event::Pong) => Next::Pong,
            Some(websocket::Event::Data { kind: Kind::Binary, .. }) => {
                let why = "binary messages need the sub-protocol swb.1";
                self.socket.close(websocket::close::UNSUPPORTED, why, out);
                return Err(Fatal(why.into()));
            }
            Some(websocket::Event::Data { last: false, .. }) => Next::Part,
            Some(websocket::Event::Data { .. }) => Next::Text(self.payload.split().freeze()),
        }))
    }
}

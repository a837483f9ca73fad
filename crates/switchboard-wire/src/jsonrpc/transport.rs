//! What separates the JSON texts of a connection: their own end, or the messages of a WebSocket.

use super::{ErrorObject, Scanned, Scanner};
use crate::{
    Fatal, Input, Outbox, Status,
    websocket::{self, Deflate, Kind, Role, WebSocket},
};
use bytes::{Bytes, BytesMut};

#[derive(Debug)]
pub(super) enum Transport {
    /// Texts one after the other, with or without line ends; answers end in one.
    Lines(Lines),
    WebSocket(Box<Messages>),
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    scanner: Scanner,
    /// What follows a mistake is skipped to the end of its line.
    skipping: bool,
}

#[derive(Debug)]
pub(super) struct Messages {
    socket: WebSocket,
    payload: BytesMut,
}

/// What came next.
#[derive(Debug)]
pub(super) enum Next {
    Closed,
    Pong,
    /// Bytes that are no JSON text; the connection can go on.
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

    /// Takes the next text of at most `max` bytes; none means that more bytes are needed.
    ///
    /// # Errors
    /// Bytes after which nothing can be told apart any more; `Err` of the outer kind has written what there is to say,
    /// with an [`ErrorObject`] that is still to be.
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

    pub(super) fn ping(&mut self, out: &mut Outbox) {
        if let Transport::WebSocket(messages) = self {
            messages.socket.ping(out);
        }
    }

    pub(super) fn answers_pings(&self) -> bool {
        matches!(self, Transport::WebSocket(_))
    }

    /// Says that nothing follows; true if the peer answers.
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
            Scanned::Deep => format!("nested deeper than {}; going on at the next line", super::DEPTH_MAX),
            Scanned::Wrong => "this is no array or object in JSON; going on at the next line".to_owned(),
        };
        input.skip(self.scanner.scanned());
        *self = Lines { skipping: true, ..Lines::default() };
        Ok(Some(Next::Refused(ErrorObject::parse(&why))))
    }
}

impl Messages {
    fn next(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Next>, Fatal> {
        loop {
            return Ok(Some(match self.socket.recv(input, &mut self.payload, out)? {
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
                Some(websocket::Event::Data { last: false, .. }) => continue,
                Some(websocket::Event::Data { .. }) => Next::Text(self.payload.split().freeze()),
            }));
        }
    }
}

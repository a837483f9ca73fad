//! The client side of the native wire.

use super::frame::{self, CALL_FIXED, Framer, HEADER_LEN, Header, Next, PeerSettings, flag, kind};
use crate::{
    Code, Fatal, Input, Limits, Metadata, Origin, Outbox, Outgoing, Retry, SchemaId, Status,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Encodings, Open},
};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of unwritten output from which the client no longer responds to frames.
const ANSWERS_MAX: usize = 512 << 10;

/// State machine of a client connection.
///
/// The client chooses the numbers of calls and methods; the driver tracks the calls in flight.
#[derive(Debug)]
pub struct Client {
    framer: Framer,
    limits: Limits,
    peer: PeerSettings,
    greeted: bool,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits) -> Client {
        Client { framer: Framer::default(), limits, peer: PeerSettings::default(), greeted: false }
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "native"
    }

    fn greet(&mut self, out: &mut Outbox) {
        if !std::mem::replace(&mut self.greeted, true) {
            frame::put_preface(&self.limits, self.limits.message_bytes_max, Encodings::NONE, out);
        }
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Canceled
    }

    fn method(&mut self, number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox) {
        frame::put_method(number, name, schema, out);
    }

    #[inline]
    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let metadata_len = open.metadata.encoded_len();
        if metadata_len > (self.limits.metadata_bytes_max as usize).min(usize::from(u16::MAX)) {
            return Err(Status::resource_exhausted(format!(
                "request metadata of {metadata_len} bytes is over the limit of {} bytes (metadata_bytes_max)",
                self.limits.metadata_bytes_max
            )));
        }
        let message_len =
            first.map_or(0, |first| first.len()) + open.rest.iter().map(Bytes::len).sum::<usize>();
        self.check_size(message_len)?;
        let mut flags = 0;
        flags |= if open.more { 0 } else { flag::END };
        flags |= if first.is_some() { flag::MESSAGE } else { 0 };
        flags |= if open.oneway { flag::ONEWAY } else { 0 };
        flags |= if open.compressed { flag::COMPRESSED } else { 0 };
        let len = (CALL_FIXED + metadata_len + message_len) as u32;
        let mut start = [0u8; HEADER_LEN + CALL_FIXED];
        let (header, fixed) = start.split_at_mut(HEADER_LEN);
        header.copy_from_slice(
            &Header { len, kind: kind::CALL, flags, aux: open.method, id: id as u32 }.bytes(),
        );
        fixed[..4].copy_from_slice(&timeout_ms(open.timeout).to_le_bytes());
        fixed[4] = open.codec as u8;
        fixed[5] = open.encoding as u8;
        fixed[6..].copy_from_slice(&(metadata_len as u16).to_le_bytes());
        match first {
            Some(first) if metadata_len == 0 => out.put_with(&start, first),
            first => {
                let tail = out.tail();
                tail.extend_from_slice(&start);
                open.metadata.encode(tail);
                if let Some(first) = first {
                    out.put(first);
                }
            }
        }
        open.rest.iter().for_each(|part| out.put(part));
        Ok(())
    }

    fn item(
        &mut self,
        id: ClientCallId,
        item: &Bytes,
        compressed: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        self.check_size(item.len())?;
        let flags = if compressed { flag::COMPRESSED } else { 0 };
        Header { len: item.len() as u32, kind: kind::ITEM, flags, aux: 0, id: id as u32 }.put(out.tail());
        out.put(item);
        Ok(())
    }

    fn half_close(&mut self, id: ClientCallId, out: &mut Outbox) {
        frame::put_empty(kind::END, flag::END, 0, id as u32, out);
    }

    fn cancel(&mut self, id: ClientCallId, out: &mut Outbox) {
        frame::put_empty(kind::CANCEL, 0, 0, id as u32, out);
    }

    fn credit(&mut self, id: ClientCallId, bytes: u32, out: &mut Outbox) {
        frame::put_credit(id as u32, bytes, out);
    }

    fn ping(&mut self, out: &mut Outbox) {
        frame::put_empty(kind::PING, 0, 0, 0, out);
    }

    fn responds_to_pings(&self) -> bool {
        true
    }

    fn calls_max(&self) -> u32 {
        self.peer.calls_max.min(self.limits.calls_max)
    }

    fn methods_max(&self) -> u16 {
        u16::try_from(self.peer.methods_max).unwrap_or(u16::MAX)
    }

    fn knows_server(&self) -> bool {
        self.peer.seen
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        self.peer.encodings.has(encoding)
    }

    fn message_bytes_max(&self) -> u32 {
        self.peer.message_bytes_max
    }

    fn send_window(&self) -> u32 {
        self.peer.window
    }

    #[inline(always)]
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        let header = self.framer.next_of(kind::REPLY, input, self.limits.message_bytes_max)?;
        if header.has(flag::COMPRESSED) {
            // Compressed replies are rare: `recv` reports the compression.
            input.unskip(HEADER_LEN);
            return None;
        }
        Some((header.id.into(), header.len as usize))
    }

    #[inline]
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        loop {
            let header = match self.framer.next(input, &self.limits, |_| self.limits.message_bytes_max)? {
                Next::Wait => return Ok(None),
                Next::Frame(header) => header,
                Next::TooLarge(header) => match header.kind {
                    kind::REPLY | kind::ITEM | kind::HEAD => return Ok(Some(self.refuse(header, out))),
                    kind::SETTINGS..=kind::GO_AWAY => {
                        return Err(Fatal(format!(
                            "a frame of kind {} with {} bytes",
                            header.kind, header.len
                        )));
                    }
                    _ => continue,
                },
            };
            let len = header.len as usize;
            let id = ClientCallId::from(header.id);
            let event = match header.kind {
                kind::REPLY | kind::ITEM if header.len > self.limits.message_bytes_max => {
                    input.skip(len);
                    return Ok(Some(self.refuse(header, out)));
                }
                kind::REPLY | kind::ITEM => {
                    let (item, compressed) = (input.take(len), header.has(flag::COMPRESSED));
                    return Ok(Some(match header.kind {
                        kind::REPLY => ClientEvent::Reply { id, item, compressed },
                        _ => ClientEvent::Item { id, item, compressed },
                    }));
                }
                _ => self.control(header, &input.rest()[..len], out)?,
            };
            input.skip(len);
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

impl Client {
    fn control(
        &mut self,
        header: Header,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Fatal> {
        let id = ClientCallId::from(header.id);
        Ok(match header.kind {
            kind::SETTINGS => {
                let before = self.peer.window;
                frame::parse_settings(body, &mut self.peer)?;
                Some(ClientEvent::Settings { window_growth: self.peer.window.saturating_sub(before) })
            }
            kind::HEAD => {
                match Metadata::decode(body, self.limits.metadata_entries_max as usize) {
                    Ok(metadata) => Some(ClientEvent::Head { id, metadata }),
                    Err(error) => {
                        // The error concerns one call; the other calls on the connection continue.
                        self.answer(kind::CANCEL, 0, id, out);
                        Some(ClientEvent::End { id, end: Err(error.into()) })
                    }
                }
            }
            kind::END => {
                let end = frame::parse_end(header.aux, body, &self.limits)?;
                Some(ClientEvent::End { id, end: end.map_err(|status| status.with_origin(Origin::Peer)) })
            }
            kind::CREDIT => Some(ClientEvent::Credit { id, bytes: frame::parse_credit(body)? }),
            kind::PING if header.has(flag::ANSWER) => Some(ClientEvent::Pong),
            kind::PING => {
                self.answer(kind::PING, flag::ANSWER, id, out);
                None
            }
            kind::GO_AWAY => {
                let code = match Code::from_number(header.aux) {
                    Code::Ok | Code::Unknown => Code::Unavailable,
                    code => code,
                };
                let status = Status::new(code, String::from_utf8_lossy(body))
                    .with_origin(Origin::Peer)
                    .with_retry(Retry::Safe);
                Some(ClientEvent::GoAway { status })
            }
            _ => None,
        })
    }

    /// Sends a response frame, unless much output waits to be written: a server might send frames that require
    /// responses and not read them. A server that reads misses nothing: bytes in flight show that the connection is
    /// alive, and it drops frames of a call that has ended here.
    fn answer(&self, kind: u8, flags: u8, id: ClientCallId, out: &mut Outbox) {
        if out.len() < ANSWERS_MAX {
            frame::put_empty(kind, flags, 0, id as u32, out);
        }
    }

    /// Ends a call whose reply exceeds the local limit, and sends a cancel to the server.
    fn refuse(&mut self, header: Header, out: &mut Outbox) -> ClientEvent {
        self.answer(kind::CANCEL, 0, header.id.into(), out);
        let status = if header.kind == kind::HEAD {
            Status::resource_exhausted(format!(
                "reply metadata of {} bytes is over the limit of {} bytes (metadata_bytes_max)",
                header.len, self.limits.metadata_bytes_max
            ))
        } else {
            frame::too_large("a reply", header.len, self.limits.message_bytes_max)
        };
        ClientEvent::End { id: header.id.into(), end: Err(status) }
    }

    #[inline]
    fn check_size(&self, bytes: usize) -> Result<(), Status> {
        if bytes > self.peer.message_bytes_max as usize {
            return Err(frame::too_large("a request", bytes as u32, self.peer.message_bytes_max));
        }
        Ok(())
    }
}

/// Whole milliseconds, rounded up; 0 on the wire means no deadline, so an expired one becomes 1.
fn timeout_ms(timeout: Option<Duration>) -> u32 {
    timeout
        .map_or(0, |timeout| u32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1))
}

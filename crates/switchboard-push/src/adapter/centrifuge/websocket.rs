//! The plugin in a server: WebSockets.

use super::{adapter::CentrifugeAdapter, ending::Ending, settings::Settings, stats::Counters};
use bytes::{Bytes, BytesMut};
use std::{sync::Arc, time::Duration};
use switchboard::plugin::{
    ConnectionList, ListPosition, MessageTranslation, PluginConnection, PluginServer, RouteHead,
    WebSocketMessages, WebSocketRefusal,
};
use switchboard_fanout::Engines;
use switchboard_wire::{
    Fatal, Input, Outbox, WireId,
    centrifuge::{ErrorKind, Format, code},
};

/// Path of the WebSockets, which the client libraries have in their examples.
const PATH: &str = "/connection/websocket";
/// Bytes after which a message for a client has no further reply.
const MESSAGE_BYTES: usize = 64 << 10;
/// First byte of a connection, which names its format.
const JSON: u8 = b'J';
const PROTOBUF: u8 = b'P';

/// The engines of a server, and its WebSockets.
pub(super) struct CentrifugeServer {
    engines: Engines<CentrifugeAdapter>,
    settings: Settings,
    counters: Arc<Counters>,
}

impl CentrifugeServer {
    pub(super) fn new(
        engines: Engines<CentrifugeAdapter>,
        settings: Settings,
        counters: Arc<Counters>,
    ) -> CentrifugeServer {
        CentrifugeServer { engines, settings, counters }
    }

    fn messages(&self, format: Format, subprotocol: &'static str) -> WebSocketMessages {
        let first = match format {
            Format::Json => JSON,
            Format::Protobuf => PROTOBUF,
        };
        let translation = Translation {
            format,
            commands_max: self.settings.commands_per_message_max,
            counters: self.counters.clone(),
            waiting: BytesMut::new(),
            close: None,
        };
        let commands = self.settings.commands_per_message_max as u64;
        let bytes_max = u64::from(self.settings.limits.command_bytes_max).saturating_mul(commands);
        let messages = WebSocketMessages::new(subprotocol, BytesMut::from(&[first][..]), translation)
            .message_bytes_max(bytes_max);
        if format == Format::Json { messages.text() } else { messages }
    }
}

/// Returns the format that the first byte of a connection names.
pub(super) fn format_of(first: u8) -> Option<Format> {
    match first {
        JSON => Some(Format::Json),
        PROTOBUF => Some(Format::Protobuf),
        _ => None,
    }
}

impl PluginServer for CentrifugeServer {
    fn connect(&self, connection: PluginConnection) {
        self.engines.connect(connection);
    }

    fn websocket(
        &self,
        _wire: WireId,
        path: &str,
        subprotocols: &str,
    ) -> Option<Result<WebSocketMessages, String>> {
        if path != PATH {
            return None;
        }
        let offered =
            |format: Format| subprotocols.split(',').any(|offered| offered.trim() == format.subprotocol());
        let format = [Format::Protobuf, Format::Json].into_iter().find(|format| offered(*format))?;
        Some(Ok(self.messages(format, format.subprotocol())))
    }

    fn websocket_at(
        &self,
        _wire: WireId,
        head: &RouteHead,
    ) -> Option<Result<WebSocketMessages, WebSocketRefusal>> {
        if head.path != PATH {
            return None;
        }
        let mut formats = head.parameters("format").chain(head.parameters("cf_protocol"));
        let format = match formats.next() {
            None | Some("json") => Format::Json,
            Some("protobuf") => Format::Protobuf,
            Some(other) => {
                let text = format!("format=\"{}\": use json or protobuf", other.escape_debug());
                return Some(Err(WebSocketRefusal::new(400, text)));
            }
        };
        Some(Ok(self.messages(format, "")))
    }

    fn drain(&self, limit: Duration) {
        self.engines.drain(limit);
    }

    fn abort(&self) {
        self.engines.abort();
    }

    fn list(&self, from: ListPosition, max: usize) -> ConnectionList<'_> {
        self.engines.list(from, max)
    }
}

/// The messages of one WebSocket: each holds commands or replies.
struct Translation {
    format: Format,
    commands_max: usize,
    counters: Arc<Counters>,
    /// The beginning of a reply for the client.
    waiting: BytesMut,
    /// The code and the reason of the CLOSE.
    close: Option<(u16, String)>,
}

impl Translation {
    fn refuse(&mut self, kind: ErrorKind, text: String) -> Fatal {
        self.counters.violation(kind);
        self.close = Some((kind.code(), text.clone()));
        Fatal(text)
    }

    /// Returns the length of the first reply that waits, with its framing.
    fn first_reply(&self, from: usize) -> Option<usize> {
        let bytes = self.waiting.get(from..)?;
        match self.format {
            Format::Json => bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
            Format::Protobuf => {
                let (head, length) = varint(bytes)?;
                Some(head.saturating_add(length)).filter(|end| *end <= bytes.len())
            }
        }
    }
}

/// Reads a length, and its own length.
fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((at + 1, length));
        }
    }
    None
}

/// Returns the number of commands of a message with Protocol Buffers, as far as its lengths fit.
fn count_messages(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0_usize;
    while !bytes.is_empty() {
        let (head, length) = varint(bytes)?;
        bytes = bytes.get(head.checked_add(length)?..)?;
        count += 1;
    }
    Some(count)
}

impl MessageTranslation for Translation {
    fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal> {
        let count = match self.format {
            Format::Json => {
                Some(message.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
            }
            Format::Protobuf => count_messages(message),
        };
        // The machine would wait for the rest of a command, which cannot come.
        let Some(count) = count else {
            let text = "a message ends within a command".to_owned();
            return Err(self.refuse(ErrorKind::Encoding, text));
        };
        if count > self.commands_max {
            let max = self.commands_max;
            let text =
                format!("a message has {count} commands; the limit is {max} (commands_per_message_max)");
            return Err(self.refuse(ErrorKind::Limit, text));
        }
        into.extend(message);
        if self.format == Format::Json {
            into.extend(b"\n");
        }
        Ok(())
    }

    fn send(&mut self, out: &mut Outbox) -> Vec<Bytes> {
        self.waiting.extend_from_slice(&out.take_all());
        let mut messages = Vec::new();
        let mut end = 0;
        loop {
            let is_close = Ending::is_next(self.format, self.waiting.get(end..).unwrap_or_default());
            let next = if is_close { None } else { self.first_reply(end) };
            let is_full = end > 0 && end.saturating_add(next.unwrap_or(0)) > MESSAGE_BYTES;
            if end > 0 && (next.is_none() || is_full) {
                let mut message = self.waiting.split_to(end);
                if self.format == Format::Json {
                    // Lines are separated, not ended.
                    message.truncate(end - 1);
                }
                messages.push(message.freeze());
                end = 0;
            }
            match next {
                Some(length) => end += length,
                None => break,
            }
        }
        if let Some(close) = Ending::take(self.format, &mut self.waiting) {
            self.close = Some(close);
        }
        messages
    }

    fn close(&mut self) -> Option<(u16, String)> {
        Some(self.close.take().unwrap_or_else(|| (code::SHUTDOWN, "shutdown".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DisconnectReason;
    use switchboard_wire::centrifuge::Reply;

    fn translation(format: Format) -> Translation {
        let (waiting, close) = (BytesMut::new(), None);
        Translation { format, commands_max: 2, counters: Arc::default(), waiting, close }
    }

    #[test]
    fn replies_are_joined_and_the_close_follows_them_whatever_the_pieces() {
        let mut reply = Reply::default();
        reply.id = 7;
        for (format, joined) in [
            (Format::Json, &b"{\"id\":7}\n{}\n{\"id\":7}"[..]),
            (Format::Protobuf, b"\x02\x08\x07\x00\x02\x08\x07"),
        ] {
            let mut bytes = Outbox::new();
            for reply in [&reply, &Reply::default(), &reply] {
                assert!(reply.write(format, &mut bytes));
            }
            Ending::new(3503, "by a command", DisconnectReason::Closed).write(format, &mut bytes);
            let bytes = bytes.take_all();
            for step in [1, 2, 5, 1000] {
                let mut translation = translation(format);
                let mut messages = Vec::new();
                for piece in bytes.chunks(step) {
                    let mut out = Outbox::new();
                    out.tail().extend_from_slice(piece);
                    messages.extend(translation.send(&mut out));
                }
                let separator = if format == Format::Json { &b"\n"[..] } else { b"" };
                assert_eq!(messages.join(separator), joined, "{step}");
                assert_eq!(translation.close(), Some((3503, "by a command".to_owned())));
            }
        }
    }

    #[test]
    fn a_message_for_a_client_is_small() {
        let mut translation = translation(Format::Json);
        let line = format!("{{\"error\":{{\"message\":\"{}\"}}}}\n", "x".repeat(30_000));
        let mut out = Outbox::new();
        for _ in 0..5 {
            out.tail().extend_from_slice(line.as_bytes());
        }
        let sizes: Vec<usize> = translation.send(&mut out).iter().map(Bytes::len).collect();
        assert_eq!(sizes, [2 * line.len() - 1, 2 * line.len() - 1, line.len() - 1]);
    }

    #[test]
    fn the_commands_of_a_message_are_limited_and_whole() {
        for (format, message, expected) in [
            (Format::Json, &b"{}\n{}"[..], Ok(&b"{}\n{}\n"[..])),
            (Format::Json, b"{}\n{}\n{}", Err(())),
            (Format::Protobuf, b"\0\0", Ok(b"\0\0")),
            (Format::Protobuf, b"\0\0\0", Err(())),
            (Format::Protobuf, b"\x02\x08", Err(())),
            (Format::Protobuf, b"\xff\xff\xff\xff\xff", Err(())),
        ] {
            let (mut translation, mut input) = (translation(format), Input::default());
            let received = translation.receive(message, &mut input);
            assert_eq!(received.map(|()| input.rest()).map_err(|_| ()), expected);
            if expected.is_err() {
                assert_eq!(translation.close().map(|(code, _)| code), Some(code::BAD_COMMAND));
            }
        }
    }
}

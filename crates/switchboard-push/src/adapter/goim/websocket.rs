//! The plugin in a server, and devices in WebSockets.

use super::{GOIM, adapter::GoimAdapter, stats::Counters};
use bytes::{Buf, Bytes, BytesMut};
use std::{sync::Arc, time::Duration};
use switchboard::plugin::{
    ConnectionList, ListPosition, MessageTranslation, PluginConnection, PluginServer, RouteHead,
    WebSocketMessages, WebSocketRefusal,
};
use switchboard_fanout::Engines;
use switchboard_wire::{
    Fatal, Input, Outbox, WireId,
    goim::{ErrorKind, HEADER_BYTES, Limits},
};

/// The engines of a server, and its WebSockets.
pub(super) struct GoimServer {
    engines: Engines<GoimAdapter>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl GoimServer {
    pub(super) fn new(engines: Engines<GoimAdapter>, limits: Limits, counters: Arc<Counters>) -> GoimServer {
        GoimServer { engines, limits, counters }
    }
}

/// Returns whether a wire has this path. Both have `/sub`: that of the wire that the listener serves is used.
fn has_path(wire: WireId, path: &str) -> bool {
    let own = if wire.name() == GOIM.name { "/goim/sub" } else { "/im/sub" };
    path == "/sub" || path == own
}

impl PluginServer for GoimServer {
    fn connect(&self, connection: PluginConnection) {
        self.engines.connect(connection);
    }

    fn websocket_at(
        &self,
        wire: WireId,
        head: &RouteHead,
    ) -> Option<Result<WebSocketMessages, WebSocketRefusal>> {
        if !has_path(wire, &head.path) {
            return None;
        }
        if !head.parameters.is_empty() {
            let text = format!("{} has no query; send the token in the first packet", head.path);
            return Some(Err(WebSocketRefusal::new(404, text)));
        }
        let bytes_max = u64::from(self.limits.body_bytes_max).saturating_add(HEADER_BYTES as u64);
        let translation = Translation { counters: self.counters.clone(), waiting: BytesMut::new() };
        let messages = WebSocketMessages::new("", BytesMut::new(), translation);
        Some(Ok(messages.message_bytes_max(bytes_max)))
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

/// The messages of one WebSocket: each is a packet.
struct Translation {
    counters: Arc<Counters>,
    /// The beginning of a packet for the device.
    waiting: BytesMut,
}

impl MessageTranslation for Translation {
    /// Appends the packet of a message. Bytes after the packet are ignored, as in goim. A packet with a bad header is
    /// appended too, so that it ends the connection as it does on TCP.
    fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal> {
        let length = message.get(..4).map_or(0, |mut length| length.get_i32());
        let length = usize::try_from(length).unwrap_or(0);
        if message.len() < HEADER_BYTES {
            self.counters.error(ErrorKind::PackageLength);
            return Err(Fatal(format!("goim: message has {} bytes, less than a header", message.len())));
        }
        let is_cut = length >= HEADER_BYTES && length <= message.len();
        into.extend(if is_cut { &message[..length] } else { message });
        // The rest of a packet that is longer than its message never comes: the machine waits for it until the time for
        // a heartbeat has passed, unless the length is over the limit.
        if length > message.len() && length <= HEADER_BYTES + 4096 {
            self.counters.error(ErrorKind::PackageLength);
            return Err(Fatal(format!(
                "goim: message has {} bytes of a packet with the length {length}",
                message.len()
            )));
        }
        Ok(())
    }

    fn send(&mut self, out: &mut Outbox) -> Vec<Bytes> {
        self.waiting.extend_from_slice(&out.take_all());
        let mut messages = Vec::new();
        while let Some(length) = self.waiting.get(..4).map(|mut length| length.get_u32() as usize) {
            if self.waiting.len() < length {
                break;
            }
            messages.push(self.waiting.split_to(length.max(HEADER_BYTES).min(self.waiting.len())).freeze());
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::goim::{Push, PushForm};

    fn translation() -> Translation {
        Translation { counters: Arc::default(), waiting: BytesMut::new() }
    }

    #[test]
    fn each_packet_is_a_message_whatever_the_pieces() {
        let mut bytes = BytesMut::new();
        for payload in [&b"one"[..], b"", b"three"] {
            PushForm::Packets.write(&[Push { operation: 1000, payload }], &mut bytes).unwrap();
        }
        for step in [1, 5, 19, 1000] {
            let mut translation = translation();
            let mut messages = Vec::new();
            for piece in bytes.chunks(step) {
                let mut out = Outbox::new();
                out.tail().extend_from_slice(piece);
                messages.extend(translation.send(&mut out));
            }
            let sizes: Vec<usize> = messages.iter().map(Bytes::len).collect();
            assert_eq!((sizes, messages.concat()), (vec![19, 16, 21], bytes.to_vec()));
        }
    }

    #[test]
    fn bytes_after_the_packet_of_a_message_are_ignored() {
        let mut packet = BytesMut::new();
        PushForm::Packets.write(&[Push { operation: 4, payload: b"hello" }], &mut packet).unwrap();
        for (message, taken) in [
            (packet.to_vec(), Ok(packet.to_vec())),
            ([&packet[..], b"rest"].concat(), Ok(packet.to_vec())),
            (packet[..20].to_vec(), Err(())),
            (packet[..15].to_vec(), Err(())),
            (Vec::new(), Err(())),
            ([&[0, 0, 0, 15][..], &packet[4..]].concat(), Ok([&[0, 0, 0, 15][..], &packet[4..]].concat())),
            ([&[0xff; 4][..], &packet[4..]].concat(), Ok([&[0xff; 4][..], &packet[4..]].concat())),
        ] {
            let mut input = Input::default();
            let result = translation().receive(&message, &mut input);
            assert_eq!(
                result.map(|()| input.rest().to_vec()).map_err(|_| ()),
                taken,
                "{}",
                message.escape_ascii()
            );
        }
    }
}

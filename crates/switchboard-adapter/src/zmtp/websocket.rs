//! The plugin in a server, with peers of ZeroMQ in WebSockets, by ZWS 2.0 (RFC 45).
//!
//! The messages are translated into the bytes that a connection has on TCP, so an engine knows no difference.

use super::{Zmtp, adapter::ZmtpAdapter, profiles::Profiles};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchboard_core::Limits;
use switchboard_fanout::Engines;
use switchboard_net::plugin::{
    ConnectionList, ListPosition, MessageTranslation, PluginConnection, PluginServer, WebSocketMessages,
};
use switchboard_wire::{
    Fatal, Input, Outbox, WireId,
    zmtp::{
        Mechanism, SocketType,
        zws::{self, PLAIN_SUBPROTOCOL, Zws},
    },
};

/// The engines of a server, and its WebSockets.
pub(super) struct ZmtpServer {
    engines: Engines<ZmtpAdapter>,
    mechanism: Mechanism,
    /// Types of peers that are served.
    peers: Vec<SocketType>,
    profiles: Arc<Profiles>,
}

impl ZmtpServer {
    pub(super) fn new(engines: Engines<ZmtpAdapter>, zmtp: &Zmtp, profiles: Arc<Profiles>) -> ZmtpServer {
        let (mechanism, peers) = (zmtp.mechanism(), zmtp.shared.mapping.peers());
        ZmtpServer { engines, mechanism, peers, profiles }
    }

    /// Returns the type of a peer that does not send it: the last segment of the path, or the only type that is served.
    fn peer_type(&self, path: &str) -> Result<SocketType, String> {
        let last = path.rsplit('/').next().unwrap_or_default();
        if let Some(named) = SocketType::from_name(last.to_ascii_uppercase().as_bytes()) {
            return Ok(named);
        }
        if let [only] = self.peers[..] {
            return Ok(only);
        }
        let names: Vec<_> = self.peers.iter().map(|peer| peer.name().to_ascii_lowercase()).collect();
        Err(format!(
            "the sub-protocol {PLAIN_SUBPROTOCOL} has no socket type: name the type of the client in the path, /zmtp/{}",
            names.join(", /zmtp/")
        ))
    }

    fn messages(&self, path: &str, offered: &str) -> Result<WebSocketMessages, String> {
        let Some(subprotocol) = zws::subprotocol(offered, &self.mechanism) else {
            let name = self.mechanism.name();
            return Err(format!("the server has the mechanism {name}: offer the sub-protocol ZWS2.0/{name}"));
        };
        let mut first = Input::default();
        let translation = match subprotocol {
            PLAIN_SUBPROTOCOL => Zws::without_handshake(self.peer_type(path)?, &mut first),
            _ => Zws::new(&self.mechanism, &mut first),
        };
        Ok(WebSocketMessages::new(subprotocol, first.into_buffer(), Translation(translation)))
    }
}

impl PluginServer for ZmtpServer {
    fn connect(&self, connection: PluginConnection) {
        self.engines.connect(connection);
    }

    fn check_listener(&self, limits: &Limits) -> Result<(), String> {
        self.profiles.add(limits)
    }

    fn websocket(
        &self,
        _wire: WireId,
        path: &str,
        subprotocols: &str,
    ) -> Option<Result<WebSocketMessages, String>> {
        let is_zws = |name: &str| name == PLAIN_SUBPROTOCOL || name.starts_with("ZWS2.0/");
        subprotocols.split(',').any(|name| is_zws(name.trim())).then(|| self.messages(path, subprotocols))
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

/// The messages of one peer.
struct Translation(Zws);

impl MessageTranslation for Translation {
    fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), Fatal> {
        Ok(self.0.receive(message, into)?)
    }

    fn send(&mut self, out: &mut Outbox) -> Vec<Bytes> {
        self.0.send(out)
    }
}

//! Labels of counters: the protocol of a connection. The label of a call is its [`WireId`].

use switchboard_wire::{WireId, WireSet};

/// Protocol of a connection. An HTTP connection carries calls of several wires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionProtocol(u8);

impl ConnectionProtocol {
    /// Number of protocols: every wire, and the two versions of HTTP.
    pub(crate) const COUNT: usize = WireId::COUNT_MAX + 2;

    pub const HTTP1: ConnectionProtocol = ConnectionProtocol(WireId::COUNT_MAX as u8);
    pub const HTTP2: ConnectionProtocol = ConnectionProtocol(WireId::COUNT_MAX as u8 + 1);
    /// An HTTP connection after its upgrade.
    pub const WEBSOCKET: ConnectionProtocol = ConnectionProtocol::of(WireId::WEBSOCKET);

    /// Returns the protocol of connections of one wire.
    pub const fn of(wire: WireId) -> ConnectionProtocol {
        ConnectionProtocol(wire.index() as u8)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the wire; `None` for HTTP.
    fn wire(self) -> Option<WireId> {
        WireId::all().nth(self.index())
    }

    pub fn name(self) -> &'static str {
        match self {
            ConnectionProtocol::HTTP1 => "http1",
            ConnectionProtocol::HTTP2 => "http2",
            wire => wire.wire().map_or("none", WireId::name),
        }
    }

    /// Returns the protocols of a server, sorted by name: those of this build, and the `enabled` wires.
    pub(crate) fn all(enabled: WireSet) -> Vec<ConnectionProtocol> {
        let has_connections = |wire: &WireId| wire.spec().sniff.is_some() || *wire == WireId::WEBSOCKET;
        let registered = WireId::registered().filter(|wire| enabled.has(*wire));
        let wires = WireId::built_in_all().chain(registered).filter(has_connections);
        let mut all: Vec<_> = wires.map(ConnectionProtocol::of).collect();
        all.extend([ConnectionProtocol::HTTP1, ConnectionProtocol::HTTP2]);
        all.sort_unstable_by_key(|protocol| protocol.name());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_the_names_of_their_wires() {
        let names: Vec<_> =
            ConnectionProtocol::all(WireSet::NONE).iter().map(|protocol| protocol.name()).collect();
        assert!(names.is_sorted() && names.contains(&"native") && names.contains(&"http2"));
        assert!(names.contains(&"websocket") && !names.contains(&"grpc") && !names.contains(&"local"));
    }
}

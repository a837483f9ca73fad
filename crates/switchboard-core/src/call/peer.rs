//! The peer that sent a call.

use super::Extensions;
use crate::metrics::PeerCount;
use crate::push::Pusher;
use std::{net::SocketAddr, sync::Arc};
use switchboard_wire::{WireId, WireSet};

/// The peer that sent a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The wire; `None` for an HTTP connection before its first call.
    #[doc(hidden)]
    pub wire: Option<WireId>,
    /// Address of the peer, for logs: `tcp://[::1]:4444`, `tls://[::1]:4444`, `unix:`,
    /// `memory://name`, `local`.
    pub address: String,
    /// The socket address of the peer, if it has one.
    pub socket: Option<SocketAddr>,
    /// Identity from the peer's verified certificate, if TLS requests client certificates.
    pub identity: Option<Arc<Identity>>,
    /// Public key of the peer, if it has proved that it has the secret key: by CURVE, the mechanism of ZeroMQ.
    pub curve_key: Option<Arc<[u8; 32]>>,
    /// The wires that the peer may use.
    #[doc(hidden)]
    pub wires: WireSet,
    /// Counters of the connection, if they are exposed.
    #[doc(hidden)]
    pub counts: Option<Arc<crate::metrics::ConnectionCounters>>,
    /// Counters of all connections of the peer.
    #[doc(hidden)]
    pub tally: Option<Arc<PeerCount>>,
    /// The memory budget of the server, for data that outlives a call; `None` for calls inside the process.
    #[doc(hidden)]
    pub memory: Option<Arc<crate::memory::MemoryBudget>>,
    /// The number of the connection in this process; 0 for calls inside it.
    #[doc(hidden)]
    pub connection: u64,
    /// Sends messages that the client did not request, if the wire supports server push.
    #[doc(hidden)]
    pub pusher: Option<Pusher>,
    /// Set if its calls may not have fields that their types do not have, unless they say otherwise.
    #[doc(hidden)]
    pub strict_fields: bool,
    /// Values that all calls of the server or channel share.
    #[doc(hidden)]
    pub extensions: Option<Arc<Extensions>>,
}

/// Names in the verified certificate of a peer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Identity {
    /// Its distinguished name as RFC 4514 writes it, the most specific part first: `CN=alice,O=example`.
    pub subject: String,
    /// Distinguished name of the issuer, in the same form.
    pub issuer: String,
    /// Its alternative names with their kind: `dns:a.example`, `uri:spiffe://example/alice`, `email:…`, `ip:…`.
    pub names: Vec<String>,
}

impl Peer {
    /// Creates a peer without a connection: for calls inside the process, and for tests.
    #[doc(hidden)]
    pub fn without_connection(wire: WireId, address: String) -> Peer {
        Peer {
            wire: Some(wire),
            address,
            socket: None,
            identity: None,
            curve_key: None,
            wires: WireSet::ALL,
            counts: None,
            tally: None,
            memory: None,
            connection: 0,
            pusher: None,
            strict_fields: false,
            extensions: None,
        }
    }

    /// Returns the same peer on this wire: connections of HTTP have one for each of theirs.
    #[doc(hidden)]
    pub fn on_wire(&self, wire: Option<WireId>) -> Peer {
        Peer { wire, ..self.clone() }
    }

    /// Creates the peer of an accepted connection, whose wire is not known yet.
    #[doc(hidden)]
    pub fn connected(address: String, socket: Option<SocketAddr>) -> Peer {
        Peer { wire: None, socket, ..Peer::without_connection(WireId::NATIVE, address) }
    }

    /// Returns the name of the wire, as in [`WIRES`](crate::wire::WIRES): `native`, `grpc`, `local` and so on. It is
    /// empty for an HTTP connection before its first call.
    #[inline]
    pub fn wire(&self) -> &'static str {
        self.wire.map_or("", WireId::name)
    }

    /// Returns the wire, with its capabilities; `None` for an HTTP connection before its first call.
    #[inline]
    pub fn wire_id(&self) -> Option<WireId> {
        self.wire
    }
}

//! The two drivers that are compiled: that of the native wire, and one for all other wires.
//!
//! They are types without parameters, so that this crate has their code: the code of a generic future is compiled in
//! each crate that polls it, and a driver takes a tenth of the binary.

use super::server::{Accepted, Connection};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::{native, wire::ServerWire};

/// Machine of any wire but the native one.
pub type DynWire = Box<dyn ServerWire + Unpin>;

/// Connection of the native wire; the future ends with the connection.
pub struct NativeConnection(Connection<native::Server>);

/// Connection of any wire but the native one; the future ends with the connection.
pub struct DynConnection(Connection<DynWire>);

impl NativeConnection {
    /// Takes over a connection whose first bytes are in `accepted`.
    pub fn new(accepted: Accepted) -> NativeConnection {
        let (limits, table) = (accepted.settings.wire(), accepted.shared.table.clone());
        let encodings = accepted.shared.compression.encodings();
        let wire = native::Server::new(limits, table).with_encodings(encodings);
        NativeConnection(Connection::new(accepted, wire))
    }

    /// Counts the traffic of this connection for WebSockets.
    #[cfg(feature = "http")]
    pub fn inside_websocket(self) -> NativeConnection {
        NativeConnection(self.0.inside_websocket())
    }
}

impl DynConnection {
    /// Takes over a connection whose first bytes are in `accepted`.
    pub fn new(accepted: Accepted, wire: DynWire) -> DynConnection {
        DynConnection(Connection::new(accepted, wire))
    }

    /// Counts the traffic of this connection for HTTP/2.
    #[cfg(feature = "http")]
    pub fn over_http2(self) -> DynConnection {
        DynConnection(self.0.over_http2())
    }

    /// Counts the traffic of this connection for WebSockets.
    #[cfg(feature = "http")]
    pub fn inside_websocket(self) -> DynConnection {
        DynConnection(self.0.inside_websocket())
    }
}

impl Future for NativeConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Future for DynConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

//! Connections of listeners whose wire cannot be detected, because its server sends the first bytes.

use super::Detected;
#[cfg(feature = "tls")]
use super::{FIRST_BYTES, secure, until_drained};
use crate::server::listening::Resolved;
use bytes::BytesMut;
use switchboard_core::Peer;
use switchboard_driver::serving::ServerState;
#[cfg(feature = "tls")]
use switchboard_net::net::tls::{Acceptor, Plaintext};
use switchboard_net::{connection::Wakes, net::Io};
use switchboard_wire::{WireId, sniff::Protocol};
#[cfg(feature = "tls")]
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// First byte of a TLS record with a handshake.
#[cfg(feature = "tls")]
const TLS_HANDSHAKE: u8 = 0x16;

/// Begins a connection of the wire. With TLS, the first bytes of the server are sent before the handshake, which the
/// peer begins then.
#[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, unused_variables, reason = "only TLS waits"))]
pub(super) async fn begin(
    wire: WireId,
    io: Box<dyn Io>,
    peer: Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<Detected> {
    #[cfg(feature = "tls")]
    if let Some(acceptor) = &resolved.acceptor {
        return Box::pin(before_tls(acceptor, wire, io, peer, shared, resolved, wakes)).await;
    }
    Some(Detected { protocol: Protocol::Wire(wire), io, first: BytesMut::new(), peer, is_greeted: false })
}

/// Sends the first bytes of the server, and runs the TLS handshake if the peer begins it.
#[cfg(feature = "tls")]
async fn before_tls(
    acceptor: &Acceptor,
    wire: WireId,
    mut io: Box<dyn Io>,
    mut peer: Peer,
    shared: &ServerState,
    resolved: &Resolved,
    wakes: &Wakes,
) -> Option<Detected> {
    let requires_tls = acceptor.plaintext() == Plaintext::Refused;
    let greeting = shared.plugins.of(wire)?.server.greeting(wire, requires_tls);
    let mut first = BytesMut::with_capacity(FIRST_BYTES);
    let answered = async {
        io.write_all(&greeting).await.ok()?;
        io.flush().await.ok()?;
        io.read_buf(&mut first).await.ok().filter(|read| *read > 0)
    };
    let limit = resolved.limits.handshake_timeout();
    let Ok(answered) = timeout(limit, until_drained(answered, shared, wakes)).await else {
        tracing::debug!(peer = %peer.address, "closed: no byte of the peer within {limit:?} (handshake_timeout)");
        return None;
    };
    answered?;
    let (protocol, is_greeted) = (Protocol::Wire(wire), !greeting.is_empty());
    if first.first() != Some(&TLS_HANDSHAKE) {
        if requires_tls {
            super::mismatch::plaintext(io, protocol, &peer, shared, &resolved.limits).await;
            return None;
        }
        return Some(Detected { protocol, io, first, peer, is_greeted });
    }
    let (io, _) = secure(acceptor, io, first, &mut peer, shared, resolved, wakes).await?;
    Some(Detected { protocol, io, first: BytesMut::new(), peer, is_greeted })
}

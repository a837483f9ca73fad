//! Responses to TLS connections on plaintext listeners, and to plaintext connections where TLS is required.

#[cfg(feature = "tls")]
use crate::Limits;
use crate::{Peer, net::Io, serving::ServerState};
use std::{sync::atomic::Ordering, time::Duration};
#[cfg(feature = "tls")]
use switchboard_wire::{Input, Outbox, native, sniff::Protocol, wire::ServerWire};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Time for a rejected caller to read the response.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of bytes that it may still send.
const LINGER_BYTES: u64 = 256 << 10;

/// Number of rejected callers that are logged as warnings; later ones are logged at the level `debug`.
const LOGGED_MAX: u64 = 100;

/// A fatal alert, `handshake_failure`: TLS has no alert for a peer without TLS.
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

/// Rejects a caller that uses TLS.
pub(super) async fn tls(io: Box<dyn Io>, peer: &Peer, shared: &ServerState) {
    count(shared, peer, "tls", "it speaks TLS, and this port takes plaintext only");
    send_and_linger(io, &ALERT).await;
}

/// Rejects a caller without TLS, in its own protocol.
#[cfg(feature = "tls")]
pub(super) async fn plaintext(
    io: Box<dyn Io>,
    protocol: Protocol,
    peer: &Peer,
    shared: &ServerState,
    limits: &Limits,
) {
    const TEXT: &str = "this port takes TLS only: use https://, or tls:// on the native wire";
    count(shared, peer, protocol.name(), "it speaks plaintext, and this port takes TLS only");
    let response = match protocol {
        Protocol::Http1 => http1(TEXT),
        Protocol::Http2 => http2(TEXT),
        Protocol::Native => {
            let mut out = Outbox::new();
            let mut wire = native::Server::new(limits.wire(), shared.table.clone());
            // Without input, this call only writes the preface.
            let _ = wire.recv(&mut Input::new(bytes::BytesMut::new()), &mut out);
            wire.drain(TEXT, &mut out);
            out.take_all()
        }
        _ => Vec::new(),
    };
    send_and_linger(io, &response).await;
}

/// Counts a mismatch and logs it for the operator; the number of warnings is limited, because any peer can
/// cause them.
fn count(shared: &ServerState, peer: &Peer, wire: &str, why: &str) {
    let before = shared.metrics.tls_mismatches.fetch_add(1, Ordering::Relaxed);
    if before < LOGGED_MAX {
        tracing::info!(peer = %peer.address, wire, "closed: {why}");
    } else {
        tracing::debug!(peer = %peer.address, wire, "closed: {why}");
    }
}

#[cfg(feature = "tls")]
fn http1(text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}\n"
    )
    .into_bytes()
}

/// Empty SETTINGS, and GOAWAY with `INADEQUATE_SECURITY` (RFC 9113, 6.8).
#[cfg(feature = "tls")]
fn http2(text: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    bytes.extend([0, 0, 8 + text.len() as u8, 7, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0xc]);
    bytes.extend(text.as_bytes());
    bytes
}

/// Writes the response and waits until the peer has closed: closing with unread bytes would send a reset,
/// which may overtake the response.
pub(super) async fn send_and_linger(mut io: Box<dyn Io>, response: &[u8]) {
    let last = async {
        io.write_all(response).await?;
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // The connection ends in any case.
    let _ = timeout(LINGER, last).await;
}

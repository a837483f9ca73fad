//! Responses to connections that a listener rejects by their first bytes: TLS on a plaintext listener, plaintext where
//! TLS is required, and wires that are not enabled.

use super::listening::Resolved;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use switchboard_core::{Limits, Peer};
use switchboard_driver::serving::ServerState;
use switchboard_guard::guard::disabled_wire;
use switchboard_net::net::Io;
use switchboard_wire::{Status, sniff::Protocol};
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
    count(&shared.metrics.tls_mismatches, peer, "tls", "it speaks TLS, and this port takes plaintext only");
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
    let why = "it speaks plaintext, and this port takes TLS only";
    count(&shared.metrics.tls_mismatches, peer, protocol.name(), why);
    // INADEQUATE_SECURITY, RFC 9113, 6.8.
    let response = rejection(protocol, limits, &Status::unavailable(TEXT), "400 Bad Request", 0xc);
    send_and_linger(io, &response).await;
}

/// Rejects a caller on a wire that its listener has not enabled, before the machine of the wire sees a byte.
pub(super) async fn disabled(
    io: Box<dyn Io>,
    protocol: Protocol,
    peer: &Peer,
    shared: &ServerState,
    resolved: &Resolved,
) {
    let status = disabled_wire(resolved.wires, protocol.name());
    count(&shared.metrics.disabled_wires, peer, protocol.name(), status.message());
    // NO_ERROR: the text explains it.
    let response = rejection(protocol, &resolved.limits, &status, "501 Not Implemented", 0);
    send_and_linger(io, &response).await;
}

/// Returns the response of a protocol that has one for a rejected connection: HTTP/1.1 with this status line, HTTP/2
/// with this error code.
fn rejection(protocol: Protocol, limits: &Limits, status: &Status, line: &str, code: u8) -> Vec<u8> {
    match protocol {
        Protocol::Http1 => http1(line, status.message()),
        Protocol::Http2 => http2(code, status.message()),
        Protocol::Tls => Vec::new(),
        Protocol::Wire(wire) => {
            wire.spec().rejection.map_or_else(Vec::new, |rejection| rejection(&limits.wire(), status))
        }
    }
}

/// Counts a mismatch and logs it for the operator; the number of warnings is limited, because any peer can
/// cause them.
fn count(counter: &AtomicU64, peer: &Peer, wire: &str, why: &str) {
    let before = counter.fetch_add(1, Ordering::Relaxed);
    if before < LOGGED_MAX {
        tracing::info!(peer = %peer.address, wire, "closed: {why}");
    } else {
        tracing::debug!(peer = %peer.address, wire, "closed: {why}");
    }
}

fn http1(line: &str, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 {line}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}\n"
    )
    .into_bytes()
}

/// Empty SETTINGS, and GOAWAY with the start of a text.
fn http2(code: u8, text: &str) -> Vec<u8> {
    // The length of the frame is one byte here.
    let text = &text.as_bytes()[..text.len().min(usize::from(u8::MAX) - 8)];
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    bytes.extend([0, 0, 8 + text.len() as u8, 7, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, code]);
    bytes.extend(text);
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

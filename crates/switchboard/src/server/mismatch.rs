//! Answers to callers that come with TLS where none is taken, or without where it is required.

#[cfg(feature = "tls")]
use crate::Limits;
use crate::{Peer, net::Io, server::Shared};
use std::{sync::atomic::Ordering, time::Duration};
#[cfg(feature = "tls")]
use switchboard_wire::{Input, Outbox, native, sniff::Protocol, wire::ServerWire};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// How long a caller that is turned away gets to read the answer.
const LINGER: Duration = Duration::from_secs(1);
/// What it may still send meanwhile.
const LINGER_BYTES: u64 = 256 << 10;

/// Callers that are turned away with a line in the log for each; later ones have theirs at the level `debug`.
const LOGGED_MAX: u64 = 100;

/// A fatal alert, `handshake_failure`: there is none that says that TLS is not spoken.
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

/// Turns away a caller with TLS.
pub(super) async fn tls(io: Box<dyn Io>, peer: &Peer, shared: &Shared) {
    count(shared, peer, "tls", "it speaks TLS, and this port takes plaintext only");
    say(io, &ALERT).await;
}

/// Turns away a caller without TLS, in its own protocol.
#[cfg(feature = "tls")]
pub(super) async fn plaintext(
    io: Box<dyn Io>,
    protocol: Protocol,
    peer: &Peer,
    shared: &Shared,
    limits: &Limits,
) {
    const TEXT: &str = "this port takes TLS only: use https://, or tls:// on the native wire";
    count(shared, peer, protocol.name(), "it speaks plaintext, and this port takes TLS only");
    let answer = match protocol {
        Protocol::Http1 => http1(TEXT),
        Protocol::Http2 => http2(TEXT),
        Protocol::Native => {
            let mut out = Outbox::new();
            let mut wire = native::Server::new(limits.wire(), shared.table.clone());
            // No input: this only writes the preface.
            let _ = wire.recv(&mut Input::new(bytes::BytesMut::new()), &mut out);
            wire.drain(TEXT, &mut out);
            out.take_all()
        }
        _ => Vec::new(),
    };
    say(io, &answer).await;
}

/// Counts, and tells whoever set up one of the two; not more than some times, because strangers can cause it.
fn count(shared: &Shared, peer: &Peer, wire: &str, why: &str) {
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

/// Says the last word and waits until the peer has gone: unread bytes of its would turn the close into a reset,
/// which may overtake the answer.
pub(super) async fn say(mut io: Box<dyn Io>, answer: &[u8]) {
    let last = async {
        io.write_all(answer).await?;
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // Whatever comes of it, the connection ends.
    let _ = timeout(LINGER, last).await;
}

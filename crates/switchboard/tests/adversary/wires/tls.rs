//! The handshake of TLS, before any wire.

use crate::wire::Wire;
use std::sync::{Arc, LazyLock};

pub const TLS: Wire = Wire {
    name: "tls",
    channel: "tls://ADDRESS",
    show: |_, _| HELLO.clone(),
    hold: |_| HELLO.clone(),
    unknown: |_| HELLO.clone(),
    large_head: |_| record(22, &[&[1, 0, 0x3F, 0xFA][..], &[0; 0x3FFA]].concat()),
    cheap: || {
        vec![
            ("an alert", record(21, &[1, 0])),
            ("an empty record", record(22, b"")),
            ("a change of the cipher", record(20, &[1])),
            ("application data before the handshake", record(23, &[7; 100])),
        ]
    },
    wrong: || {
        vec![
            ("a handshake of no kind", record(22, &[0xFF; 64])),
            ("a record over the largest", [&[22, 3, 1, 0xFF, 0xFF][..], &[0; 0xFFFF]].concat()),
            ("bytes after the hello", [&HELLO[..], &[0xFF; 1000]].concat()),
            (
                "a handshake message of 16 MiB",
                record(22, &[&[1, 0xFF, 0xFF, 0xFF][..], &[0; 10_000]].concat()).repeat(20),
            ),
        ]
    },
    readable: false,
    tls: true,
    ..Wire::PLAIN
};

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat()
}

/// First bytes of a client.
static HELLO: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
});

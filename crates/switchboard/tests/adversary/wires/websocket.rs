//! The native wire and JSON-RPC inside WebSockets.

use super::{jsonrpc, native};
use crate::wire::{Wire, json};

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
/// The first byte of a compressed message in one frame.
const COMPRESSED: u8 = 0x40;

pub const WEBSOCKET: Wire = Wire {
    name: "websocket",
    channel: "ws://ADDRESS/",
    hello: || [shake("swb.1").into_bytes(), frame(BINARY, &(native::NATIVE.hello)())].concat(),
    show: |id, padding| frame(BINARY, &(native::NATIVE.show)(id, padding)),
    hold: |id| frame(BINARY, &(native::NATIVE.hold)(id)),
    unknown: |id| frame(BINARY, &(native::NATIVE.unknown)(id)),
    large_head: |id| frame(BINARY, &(native::NATIVE.large_head)(id)),
    cancel: Some(|id| frame(BINARY, &native::NATIVE.cancel.unwrap()(id))),
    cheap: || {
        let inside = native::cheap().into_iter().map(|(name, bytes)| (name, frame(BINARY, &bytes)));
        inside.chain(control()).collect()
    },
    wrong: || {
        let mut all = wrong();
        all.push(("a text message", frame(TEXT, b"text")));
        all
    },
    bombs,
    ..Wire::PLAIN
};

pub const JSON_RPC: Wire = Wire {
    name: "websocket jsonrpc",
    channel: "ws://ADDRESS/?wire=jsonrpc",
    hello: || shake("jsonrpc").into_bytes(),
    show: |id, padding| frame(TEXT, jsonrpc::request("Show", id, &json(padding)).as_bytes()),
    hold: |id| frame(TEXT, jsonrpc::request("Hold", id, "{}").as_bytes()),
    unknown: |id| frame(TEXT, jsonrpc::request("Nothing", id, "{}").as_bytes()),
    large_head: |id| {
        let id = format!("\"{}{id}\"", "i".repeat(1000));
        let call =
            format!(r#"{{"jsonrpc":"2.0","method":"test.Target.Show","params":{},"id":{id}}}"#, json(0));
        frame(TEXT, call.as_bytes())
    },
    cancel: Some(|id| frame(TEXT, jsonrpc::cancel(id).as_bytes())),
    cheap: || {
        let texts = jsonrpc::texts().into_iter().take(6);
        texts.map(|(name, text)| (name, frame(TEXT, text.as_bytes()))).chain(control()).collect()
    },
    wrong: || {
        let mut all = wrong();
        // Inside the native wire frames have no limit: their bytes are a stream.
        all.push(("a frame of 8 EiB", [&[TEXT, 0xFF][..], &[0x7F; 8], &[0; 4]].concat()));
        all.push(("a binary message", frame(BINARY, b"bytes")));
        all.push(("text that is not UTF-8", frame(TEXT, &[0xFF; 10])));
        all.push(("no JSON", frame(TEXT, b"}{")));
        all
    },
    bombs,
    ..Wire::PLAIN
};

/// With compression, which the server may agree to.
fn shake(protocol: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n\r\n"
    )
}

/// A masked frame whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ ..126 => bytes.push(0x80 | len as u8),
        len @ ..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

fn control() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("PING", frame(0x89, b"")),
        ("PING with a body", frame(0x89, &[7; 125])),
        ("PONG", frame(0x8A, b"")),
        ("an empty message", frame(BINARY, b"")),
        ("empty fragments", [frame(0x02, b""), frame(0x00, b"").repeat(50), frame(0x80, b"")].concat()),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a frame without a mask", vec![BINARY, 1, 7]),
        ("a long PING", frame(0x89, &[7; 126])),
        ("a frame of no kind", frame(0x83, b"x")),
        (
            "a message in endless fragments",
            [frame(0x01, b"x"), frame(0x00, &vec![b'x'; 60_000]).repeat(40)].concat(),
        ),
        ("a compressed message that is none", frame(TEXT | COMPRESSED, &[0xFF; 40])),
        ("close", frame(0x88, &[3, 0xE8])),
    ]
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let mut deflate = flate2::Compress::new(flate2::Compression::fast(), false);
    let mut zeros = Vec::with_capacity(1 << 20);
    deflate.compress_vec(&vec![b' '; 32 << 20], &mut zeros, flate2::FlushCompress::Sync).unwrap();
    // Empty blocks that each say that they are the last.
    let empty = [0x03, 0x00].repeat(400_000);
    vec![
        ("deflate", frame(TEXT | COMPRESSED, &zeros)),
        ("deflate in a binary message", frame(BINARY | COMPRESSED, &zeros)),
        ("empty final blocks of deflate", frame(TEXT | COMPRESSED, &empty)),
    ]
}

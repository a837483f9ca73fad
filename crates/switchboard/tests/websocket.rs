//! WebSocket frame by frame: JSON-RPC in text, the native wire in binary messages.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use support::{
    Probe, Seen, ask,
    raw::{head_of, soon},
    served_over_websocket,
};
use switchboard::{Channel, Code, Limit, Running, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8A;

/// A client that frames by hand.
struct Raw(TcpStream);

impl Raw {
    /// The head of the answer to a handshake with these headers beside the necessary ones.
    async fn shake(running: &Running, headers: &str) -> (Raw, String) {
        let request = format!(
            "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
        );
        Raw::send_request(running, &request).await
    }

    async fn send_request(running: &Running, request: &str) -> (Raw, String) {
        let mut stream = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head_of(&mut stream).await.to_lowercase();
        (Raw(stream), head)
    }

    async fn open(running: &Running) -> Raw {
        let (raw, head) = Raw::shake(running, "").await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        raw
    }

    async fn send(&mut self, first: u8, payload: &[u8]) {
        self.0.write_all(&frame(first, payload)).await.unwrap();
    }

    /// The next frame, which a server does not mask.
    async fn next(&mut self) -> (u8, Vec<u8>) {
        let first = soon(self.0.read_u8()).await.unwrap();
        let len = match self.0.read_u8().await.unwrap() {
            126 => usize::from(self.0.read_u16().await.unwrap()),
            127 => self.0.read_u64().await.unwrap() as usize,
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        soon(self.0.read_exact(&mut payload)).await.unwrap();
        (first, payload)
    }

    async fn json(&mut self) -> Value {
        let (first, payload) = self.next().await;
        assert_eq!(first, TEXT, "{payload:02x?}");
        serde_json::from_slice(&payload).unwrap()
    }

    /// The code of the CLOSE that comes next, and that the connection ends then.
    async fn closed(mut self) -> u16 {
        let (first, payload) = self.next().await;
        assert_eq!(first, CLOSE, "{payload:02x?}");
        let code = u16::from_be_bytes([payload[0], payload[1]]);
        self.send(CLOSE, &payload[..2]).await;
        assert_eq!(soon(self.0.read(&mut [0])).await.unwrap_or(0), 0);
        code
    }
}

/// Kinds of the native frames in `bytes`, which begin with the preface.
fn kinds(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes.strip_prefix(support::raw::PREFACE).expect("the preface comes first");
    let mut kinds = Vec::new();
    while let Some((header, body)) = rest.split_first_chunk::<12>() {
        kinds.push(header[4]);
        rest = &body[u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize..];
    }
    assert!(rest.is_empty(), "half a header: {rest:02x?}");
    kinds
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..=125 => bytes.push(0x80 | len as u8),
        len @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

async fn start(limits: &[(Limit, u64)]) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).listen_with("tcp://127.0.0.1:0", limits);
    (server.start().await.unwrap(), seen)
}

fn request(method: &str, params: impl Into<Value>, id: impl Into<Value>) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "method": method, "params": params.into(), "id": id.into()})
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn handshakes_choose_a_protocol() {
    let (running, _) = start(&[]).await;
    for (headers, chosen) in [
        ("", None),
        ("Sec-WebSocket-Protocol: jsonrpc\r\n", Some("jsonrpc")),
        ("Sec-WebSocket-Protocol: other, swb.1\r\n", Some("swb.1")),
        ("Sec-WebSocket-Protocol: jsonrpc\r\nSec-WebSocket-Protocol: swb.1\r\n", Some("swb.1")),
        ("Sec-WebSocket-Protocol: other\r\n", None),
        ("Sec-WebSocket-Extensions: permessage-deflate\r\n", None),
        ("Origin: http://localhost\r\n", None),
    ] {
        let (_, head) = Raw::shake(&running, headers).await;
        assert!(head.starts_with("http/1.1 101"), "{headers}: {head}");
        assert!(head.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        assert!(!head.contains("sec-websocket-extensions"), "{head}");
        let protocol = head.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        assert_eq!(protocol, chosen, "{headers}");
    }
    let good = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    for (from, to, status) in [
        ("Version: 13", "Version: 8", "426"),
        ("Sec-WebSocket-Version: 13\r\n", "", "426"),
        ("Key: dGhl", "Key: ", "400"),
        ("Connection: Upgrade", "Connection: close", "400"),
        ("GET / ", "POST / ", "415"),
        ("\r\n\r\n", "\r\nOrigin: http://elsewhere\r\n\r\n", "403"),
        ("\r\n\r\n", "\r\nx-bad-bin: !\r\n\r\n", "400"),
    ] {
        let (_, head) = Raw::send_request(&running, &good.replace(from, to)).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{to}: {head}");
    }
    let listed = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let listed = listed.websocket_origins(["http://elsewhere"]).start().await.unwrap();
    let (_, head) = Raw::shake(&listed, "Origin: http://elsewhere\r\n").await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
}

#[tokio::test]
async fn compression_is_agreed_on_where_the_server_allows_it() {
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").websocket_deflate();
    let running = server.start().await.unwrap();
    let agreed = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    for (offer, answer) in [
        ("", None),
        ("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n", Some("")),
        ("Sec-WebSocket-Extensions: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n", Some("")),
        (
            "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n",
            Some("; server_max_window_bits=10"),
        ),
        ("Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=16\r\n", None),
    ] {
        let (_, head) = Raw::shake(&running, offer).await;
        assert!(head.starts_with("http/1.1 101"), "{offer}: {head}");
        let answered = head.lines().find_map(|line| line.strip_prefix("sec-websocket-extensions: "));
        assert_eq!(answered, answer.map(|more| format!("{agreed}{more}")).as_deref(), "{offer}");
    }
}

/// A server that compresses, and the connection of a client that requested compression and `protocol`.
async fn compressed(protocol: &str, limits: &[(Limit, u64)]) -> (Running, Raw) {
    let server = Server::new().add(Probe::default()).listen_with("tcp://127.0.0.1:0", limits);
    let running = server.websocket_deflate().start().await.unwrap();
    let headers =
        format!("Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: {protocol}\r\n");
    let (raw, head) = Raw::shake(&running, &headers).await;
    assert!(head.contains("sec-websocket-extensions: permessage-deflate"), "{head}");
    (running, raw)
}

fn deflate(payload: &[u8]) -> Vec<u8> {
    let mut into = Vec::with_capacity(payload.len() + 100);
    flate2::Compress::new(flate2::Compression::default(), false)
        .compress_vec(payload, &mut into, flate2::FlushCompress::Sync)
        .unwrap();
    assert!(into.ends_with(&[0, 0, 0xFF, 0xFF]));
    into.truncate(into.len() - 4);
    into
}

fn inflate(payload: &[u8], most: usize) -> Vec<u8> {
    let mut into = Vec::with_capacity(most);
    let bytes = [payload, &[0, 0, 0xFF, 0xFF]].concat();
    flate2::Decompress::new(false).decompress_vec(&bytes, &mut into, flate2::FlushDecompress::Sync).unwrap();
    into
}

#[tokio::test]
async fn compressed_texts_are_json_rpc_in_both_directions() {
    let (_running, mut raw) = compressed("jsonrpc", &[]).await;
    let large = vec![7; 20_000];
    let ask = deflate(&request("Probe.Echo", json!([large]), 1));
    for cut in [0, 1, ask.len() / 2, ask.len()] {
        raw.send(0x41, &ask[..cut]).await;
        raw.send(PING, b"?").await;
        raw.send(0x80, &ask[cut..]).await;
        assert_eq!(raw.next().await, (PONG, b"?".to_vec()));
        let (first, answer) = raw.next().await;
        assert!(first == TEXT | 0x40 && answer.len() < 1000, "{first:x} {}", answer.len());
        let answer: Value = serde_json::from_slice(&inflate(&answer, 100_000)).unwrap();
        assert_eq!(answer["result"], json!(large));
    }
    // Uncompressed messages are accepted too, and short ones are sent uncompressed.
    raw.send(TEXT, &request("Probe.Echo", json!([[1]]), 2)).await;
    assert_eq!(raw.json().await["result"], json!([1]));
    raw.send(TEXT | 0x40, b"\0").await;
    assert_eq!(raw.json().await["error"]["code"], -32700);
}

#[tokio::test]
async fn the_native_wire_is_compressed_too() {
    let (_running, mut native) = compressed("swb.1", &[]).await;
    let message = support::raw::message(&vec![7u8; 20_000]);
    let call = support::raw::open_call(support::raw::WHOLE, 12, 1, &message);
    let bytes = [support::raw::PREFACE, &support::raw::method(12, "test.Probe/Echo"), &call].concat();
    native.send(BINARY | 0x40, &deflate(&bytes)).await;
    let mut answered = Vec::new();
    let mut saw_compressed = false;
    while answered.len() < message.len() {
        let (first, payload) = native.next().await;
        saw_compressed |= first == BINARY | 0x40;
        answered.extend(if first == BINARY { payload } else { inflate(&payload, 100_000) });
    }
    assert!(saw_compressed && answered.windows(message.len()).any(|window| window == message));
}

#[tokio::test]
async fn mistakes_in_compression_close_with_their_code() {
    let limits = [(Limit::MessageBytesMax, 1000)];
    let good = deflate(&request("Probe.Echo", json!([[1]]), 1));
    for (name, bytes, code) in [
        ("no deflate", frame(0xC1, b"\xff\xff\xff"), 1007),
        ("cut", frame(0xC1, &good[..good.len() / 2]), 1007),
        ("no utf-8", frame(0xC1, &deflate(b"{\"\xff\"}")), 1007),
        ("bit of a continuation", [frame(0x01, b"{"), frame(0xC0, b"}")].concat(), 1002),
        ("bit of a ping", frame(0xC9, b""), 1002),
        ("bit of a close", frame(0xC8, b""), 1002),
        ("second reserved bit", frame(0xA1, b"{}"), 1002),
        ("a bomb", frame(0xC1, &deflate(&[b' '; 100_000])), 1009),
        ("a large frame", frame(0xC1, &[0; 1200]), 1009),
        ("compressed binary", frame(0xC2, &deflate(b"\xF5SWB")), 1003),
    ] {
        for step in [1, bytes.len()] {
            let (running, mut raw) = compressed("jsonrpc", &limits).await;
            for piece in bytes.chunks(step) {
                // The server may have closed already.
                if raw.0.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert_eq!(raw.closed().await, code, "{name}");
            assert_eq!(running.stats().protocol_errors, 1, "{name}");
        }
    }
}

#[tokio::test]
async fn channels_compress_where_the_server_agrees() {
    for (running, allows) in [
        (start(&[]).await.0, false),
        (
            Server::new()
                .add(Probe::default())
                .listen("tcp://127.0.0.1:0")
                .websocket_deflate()
                .start()
                .await
                .unwrap(),
            true,
        ),
    ] {
        let url = running.url().replace("tcp://", "ws://") + "?deflate=true";
        let channel = Channel::connect(&url).await.unwrap();
        for len in [0, 100, 10_000, 1 << 20] {
            let sent: Vec<u8> = (0..len).map(|n: u32| (n / 100) as u8).collect();
            let reply: Vec<u8> = ask(&channel, &support::ECHO, &sent).await.unwrap();
            assert!(reply == sent, "{len} {allows}");
        }
    }
    let status = Channel::builder("tcp://127.0.0.1:1?deflate=true").lazy().unwrap_err();
    assert!(status.message().contains("ws:// and wss://"), "{status}");
}

#[tokio::test]
async fn messages_may_follow_the_handshake_at_once() {
    let (running, _) = start(&[]).await;
    let mut stream = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let handshake = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    // The second frame is larger than what an HTTP engine reads ahead.
    let frames = [
        frame(TEXT, &request("Probe.Echo", json!([[1]]), 1)),
        frame(TEXT, &request("Probe.Echo", json!([vec![7; 100_000]]), 2)),
    ];
    let (mut read, mut write) = stream.split();
    let all = [handshake.as_bytes(), &frames.concat()].concat();
    let (wrote, head) = tokio::join!(write.write_all(&all), head_of(&mut read));
    wrote.unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut raw = Raw(stream);
    assert_eq!(raw.json().await["result"], json!([1]));
    assert_eq!(raw.json().await["result"].as_array().map(Vec::len), Some(100_000));
}

#[tokio::test]
async fn text_messages_are_json_rpc() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(TEXT, &request("Probe.Echo", json!([[1]]), json!(1.5))).await;
    assert_eq!(raw.json().await, json!({"jsonrpc": "2.0", "result": [1], "id": 1.5}));
    // In fragments, a byte at a time, with a ping in between.
    let ask = request("Probe.Block", json!([""]), json!(2));
    let (head, tail) = ask.split_at(20);
    let fragments = [frame(0x01, head), frame(PING, b"?"), frame(0x00, b""), frame(0x80, tail)].concat();
    for byte in fragments {
        raw.0.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(raw.next().await, (PONG, b"?".to_vec()));
    assert_eq!(raw.json().await["result"], "jsonrpc");
    // A message is one text: two values in it are none.
    for bad in [&b"{"[..], b"{}{}", b"", b"nonsense"] {
        raw.send(TEXT, bad).await;
        assert_eq!(raw.json().await["error"]["code"], -32700);
    }
    let batch = [&b"["[..], &request("Probe.Echo", json!([[2]]), json!(1)), b",1]"].concat();
    raw.send(TEXT, &batch).await;
    assert_eq!(raw.json().await.as_array().map(Vec::len), Some(2));
    raw.send(TEXT, &request("Probe.Count", json!([[2, 1]]), json!("s"))).await;
    for n in 0..2 {
        assert_eq!(raw.json().await["params"], json!({"id": "s", "result": [n]}));
    }
    assert_eq!(raw.json().await["result"], Value::Null);
    // The call ends with the connection.
    raw.send(TEXT, &request("Probe.Hang", json!([""]), json!(3))).await;
    seen.until(|seen| seen.hanging() == 1).await;
    raw.send(CLOSE, &[0x03, 0xE8, b'b', b'y', b'e']).await;
    assert_eq!(raw.next().await, (CLOSE, vec![0x03, 0xE8]));
    assert_eq!(soon(raw.0.read(&mut [0])).await.unwrap(), 0);
    seen.until(|seen| seen.hanging() == 0).await;
    assert_eq!(running.stats().protocol_errors, 0);
}

#[tokio::test]
async fn mistakes_close_with_their_code_whole_and_a_byte_at_a_time() {
    let (running, _) = start(&[(Limit::MessageBytesMax, 1000)]).await;
    let with_length = |length: &[u8]| [&[BINARY], length, &[0; 4]].concat();
    for (name, bytes, code) in [
        ("unmasked", b"\x81\x02{}".to_vec(), 1002),
        ("first reserved bit", frame(0xC1, b"{}"), 1002),
        ("second reserved bit", frame(0xA1, b"{}"), 1002),
        ("third reserved bit", frame(0x91, b"{}"), 1002),
        ("reserved bit of a ping", frame(0xC9, b""), 1002),
        ("reserved opcode", frame(0x83, b""), 1002),
        ("reserved control opcode", frame(0x8B, b""), 1002),
        ("nothing to continue", frame(0x80, b"{}"), 1002),
        ("text in a fragmented text", [frame(0x01, b"{"), frame(TEXT, b"}")].concat(), 1002),
        ("fragmented ping", frame(0x09, b""), 1002),
        ("large ping", frame(PING, &[0; 126]), 1002),
        ("large close", frame(CLOSE, &[0; 126]), 1002),
        ("length with the highest bit", with_length(b"\xFF\x80\0\0\0\0\0\0\0"), 1002),
        ("length in too many bytes", with_length(b"\xFE\0\x7D"), 1002),
        ("close with one byte", frame(CLOSE, &[3]), 1002),
        ("close with a reserved code", frame(CLOSE, &[0x03, 0xED]), 1002),
        ("close with an unknown code", frame(CLOSE, &[0x07, 0xD0]), 1002),
        ("close with a reason that is no text", frame(CLOSE, b"\x03\xE8\xFF"), 1007),
        ("binary", frame(BINARY, b"\xF5SWB"), 1003),
        ("no utf-8", frame(TEXT, b"{\"\xff"), 1007),
        ("no utf-8 in a later fragment", [frame(0x01, b"{\"\xCE"), frame(0x00, b"\"")].concat(), 1007),
        ("a character without its end", [frame(0x01, b"{}"), frame(0x80, b"\xCE")].concat(), 1007),
        ("a surrogate", frame(TEXT, b"\xED\xA0\x80"), 1007),
        ("large frame", frame(TEXT, &[b' '; 1001]), 1009),
        ("large message", [frame(0x01, &[b' '; 600]), frame(0x80, &[b' '; 600])].concat(), 1009),
        ("declared large frame", with_length(b"\xFF\0\0\0\x01\0\0\0\0"), 1009),
    ] {
        for step in [1, bytes.len()] {
            let before = running.stats().protocol_errors;
            let mut raw = Raw::open(&running).await;
            for piece in bytes.chunks(step) {
                // The server may have closed already.
                if raw.0.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert_eq!(raw.closed().await, code, "{name}");
            assert_eq!(running.stats().protocol_errors, before + 1, "{name}");
        }
    }
}

#[tokio::test]
async fn peers_close_with_any_code_and_even_within_a_message() {
    let (running, _) = start(&[]).await;
    for (payload, answer) in [
        (&b""[..], &b""[..]),
        (b"\x03\xE8", b"\x03\xE8"),
        (b"\x03\xE9gone", b"\x03\xE9"),
        (b"\x0B\xB8", b"\x0B\xB8"),
        (b"\x13\x87", b"\x13\x87"),
    ] {
        let mut raw = Raw::open(&running).await;
        raw.send(0x01, b"{\"jsonrpc\"").await;
        raw.send(PING, b"").await;
        raw.send(CLOSE, payload).await;
        // What comes after a CLOSE is not looked at.
        raw.send(0xFF, b"nonsense").await;
        assert_eq!(raw.next().await, (PONG, vec![]));
        assert_eq!(raw.next().await, (CLOSE, answer.to_vec()));
        assert_eq!(soon(raw.0.read(&mut [0])).await.unwrap_or(0), 0);
    }
    assert_eq!(running.stats().protocol_errors, 0);
}

#[tokio::test]
async fn calls_bring_the_headers_of_the_handshake() {
    let (running, _) = start(&[]).await;
    let (mut raw, _) = Raw::shake(&running, "x-head: a\r\nAuthorization: b\r\n").await;
    raw.send(TEXT, &request("Probe.Meta", json!([""]), json!(1))).await;
    assert_eq!(raw.json().await["result"], json!(["x-head", "authorization"]));
}

#[tokio::test]
async fn silent_peers_are_pinged_and_then_given_up() {
    let (running, _) = start(&[(Limit::IdleTimeout, 100), (Limit::KeepaliveTimeout, 1000)]).await;
    let mut raw = Raw::open(&running).await;
    assert_eq!(raw.next().await, (PING, vec![]));
    raw.send(PONG, b"").await;
    assert_eq!(raw.next().await, (PING, vec![]));
    assert_eq!(soon(raw.0.read(&mut [0])).await.unwrap(), 0);
    // Bare TCP has no pings: silence ends the connection only when no call runs.
    let mut bare = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    bare.write_all(&request("Probe.Count", json!([[u32::MAX, 1]]), json!(1))).await.unwrap();
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1300) {
        assert!(soon(bare.read(&mut [0; 4096])).await.unwrap() > 0);
    }
}

#[tokio::test]
async fn drain_closes_with_going_away() {
    let (running, seen) = start(&[]).await;
    let (mut json, mut busy) = (Raw::open(&running).await, Raw::open(&running).await);
    let (mut silent, _) = Raw::shake(&running, "Sec-WebSocket-Protocol: swb.1\r\n").await;
    json.send(TEXT, &request("Probe.Echo", json!([[1]]), json!(1))).await;
    json.json().await;
    busy.send(TEXT, &request("Probe.Hang", json!([""]), json!(1))).await;
    seen.until(|seen| seen.hanging() == 1).await;
    let (rpcx, head) = Raw::send_request(
        &running,
        "GET /_rpcx_ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    let (mut native, _) = Raw::shake(&running, "Sec-WebSocket-Protocol: swb.1\r\n").await;
    let hang = support::raw::open_call(support::raw::WHOLE, 2, 1, b"");
    let bytes = [support::raw::PREFACE, &support::raw::method(2, "test.Probe/Hang"), &hang].concat();
    native.send(BINARY, &bytes).await;
    seen.until(|seen| seen.hanging() == 2).await;
    let (first, payload) = native.next().await;
    assert_eq!((first, kinds(&payload)), (BINARY, vec![support::raw::SETTINGS]));
    let drained = tokio::spawn(running.drain(Duration::from_secs(60)));
    assert_eq!(json.closed().await, 1001);
    assert_eq!(rpcx.closed().await, 1001);
    // One that has sent nothing gets the preface before it hears that the server goes away.
    let (first, payload) = silent.next().await;
    assert_eq!((first, kinds(&payload)), (BINARY, vec![support::raw::SETTINGS, support::raw::GO_AWAY]));
    assert_eq!(silent.closed().await, 1001);
    // A call in flight keeps its connection.
    let (first, payload) = native.next().await;
    assert_eq!((first, payload.get(4)), (BINARY, Some(&support::raw::GO_AWAY)), "{payload:02x?}");
    native.send(BINARY, &support::raw::frame(support::raw::CANCEL, 0, 0, 1, &[])).await;
    assert_eq!(native.closed().await, 1001);
    busy.send(TEXT, br#"{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":1}}"#).await;
    assert_eq!(busy.json().await["error"]["code"], -32099);
    assert_eq!(busy.closed().await, 1001);
    assert_eq!(drained.await.unwrap().aborted, 0);
}

#[tokio::test]
async fn native_calls_end_with_their_connection_and_text_is_refused() {
    let (running, channel, seen) = served_over_websocket().await;
    let wire: String = ask(&channel, &support::BLOCK, &"").await.unwrap();
    assert_eq!(wire, "native");
    let calling = tokio::spawn(async move { ask::<_, ()>(&channel, &support::HANG, &"").await });
    seen.until(|seen| seen.hanging() == 1).await;
    running.kill();
    assert_eq!(soon(calling).await.unwrap().unwrap_err().code(), Code::Unavailable);
    seen.until(|seen| seen.hanging() == 0).await;

    let (running, _) = start(&[]).await;
    let (mut native, _) = Raw::shake(&running, "Sec-WebSocket-Protocol: swb.1\r\n").await;
    native.send(TEXT, b"{}").await;
    let (mut first, mut payload) = native.next().await;
    if first == BINARY {
        (first, payload) = native.next().await;
    }
    assert_eq!((first, &payload[..2]), (CLOSE, &[0x03, 0xEB][..]));
}

#[tokio::test]
async fn a_client_says_what_keeps_it_from_connecting() {
    let (running, _) = start(&[]).await;
    let ws = running.url().replace("tcp://", "ws://");
    assert!(Channel::connect(&ws).await.is_ok());
    drop(running);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/x", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = head_of(&mut stream).await;
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        head
    });
    let refused = Channel::connect(&url).await.unwrap_err();
    assert!(refused.message().contains("404 Not Found"), "{refused}");
    assert!(server.await.unwrap().starts_with("GET /x HTTP/1.1\r\nHost: 127.0.0.1:"));
    let listening = Server::new().add(Probe::default()).listen("ws://127.0.0.1:0").start().await;
    assert!(listening.err().unwrap().to_string().contains("listen on tcp://"));
}

#[tokio::test]
async fn old_connections_are_closed_in_order() {
    let (running, _) = start(&[(Limit::ConnectionAge, 100)]).await;
    for protocol in ["jsonrpc", "swb.1"] {
        let (mut raw, _) = Raw::shake(&running, &format!("Sec-WebSocket-Protocol: {protocol}\r\n")).await;
        if protocol == "swb.1" {
            let (first, payload) = raw.next().await;
            assert_eq!(
                (first, kinds(&payload)),
                (BINARY, vec![support::raw::SETTINGS, support::raw::GO_AWAY])
            );
        }
        assert_eq!(raw.closed().await, 1001, "{protocol}");
    }
    // A call in flight gets the time of `drain_timeout`.
    let limits = [(Limit::ConnectionAge, 100), (Limit::DrainTimeout, 300)];
    let (running, hanging) = start(&limits).await;
    let mut raw = Raw::open(&running).await;
    raw.send(TEXT, &request("test.Probe.Hang", json!([""]), 1)).await;
    soon(hanging.until(|hanging| hanging.hanging() == 1)).await;
    soon(hanging.until(|hanging| hanging.hanging() == 0)).await;
}

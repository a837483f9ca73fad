//! rpcx from a peer that writes its bytes by hand, and from our own client.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::BytesMut;
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};
use support::{
    raw::{head_of, soon},
    *,
};
use switchboard::{
    Channel, Code, Codec, Compression, Cx, Limit, Push, Pusher, Pushes, Result, Retry, Running, Server,
    auth::{Caller, Tokens},
    codec::serde,
};
use switchboard_wire::{
    Input, Outbox,
    websocket::{self, Kind, Role, WebSocket, accept_key},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A frame: bits of its third byte, sequence, path and method, metadata, payload in JSON.
fn frame(bits: u8, sequence: u64, names: [&str; 2], metadata: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let part = |into: &mut Vec<u8>, part: &[u8]| {
        into.extend_from_slice(&(part.len() as u32).to_be_bytes());
        into.extend_from_slice(part);
    };
    let mut block = Vec::new();
    for text in metadata.iter().flat_map(|(name, value)| [name, value]) {
        part(&mut block, text.as_bytes());
    }
    let mut parts = Vec::new();
    for bytes in [names[0].as_bytes(), names[1].as_bytes(), &block, payload] {
        part(&mut parts, bytes);
    }
    let mut frame = vec![8, 0, bits, 1 << 4];
    frame.extend_from_slice(&sequence.to_be_bytes());
    part(&mut frame, &parts);
    frame
}

fn echo(sequence: u64) -> Vec<u8> {
    frame(0, sequence, ["test.Probe", "Echo"], &[], b"[1,2]")
}

/// A peer of the server.
struct Raw(TcpStream);

impl Raw {
    async fn open(running: &Running) -> Raw {
        Raw(TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap())
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next frame: its bits, sequence, and everything behind the names; none at the end.
    async fn next(&mut self) -> Option<(u8, u64, Vec<u8>)> {
        let mut header = [0; 16];
        if soon(self.0.read(&mut header[..1])).await.ok()? == 0 {
            return None;
        }
        soon(self.0.read_exact(&mut header[1..])).await.ok()?;
        assert_eq!(header[0], 8, "{header:02x?}");
        let mut rest = vec![0; u32::from_be_bytes([header[12], header[13], header[14], header[15]]) as usize];
        soon(self.0.read_exact(&mut rest)).await.ok()?;
        Some((header[2], u64::from_be_bytes(*header[4..].first_chunk().unwrap()), rest))
    }

    /// The answer to an echo.
    async fn echoed(&mut self, sequence: u64) {
        let (bits, of, rest) = self.next().await.expect("an answer");
        assert_eq!((bits, of), (0x80, sequence));
        assert!(rest.ends_with(b"\0\0\0\x05[1,2]"), "{rest:02x?}");
    }

    /// The text of an error.
    async fn refused(&mut self) -> String {
        let (bits, _, rest) = self.next().await.expect("an answer");
        assert_eq!(bits, 0x81);
        let text = String::from_utf8_lossy(&rest).into_owned();
        assert!(text.contains("__rpcx_error__"), "{text:?}");
        text
    }
}

#[tokio::test]
async fn calls_come_one_byte_at_a_time() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    let note = frame(0x20, 5, ["Probe", "Note"], &[], b"3");
    let beat = frame(0x40, 6, ["", ""], &[], b"beat");
    for byte in [echo(0), note, beat, echo(u64::MAX)].concat() {
        raw.send(&[byte]).await;
    }
    raw.echoed(0).await;
    let (bits, sequence, rest) = raw.next().await.unwrap();
    assert_eq!((bits, sequence), (0xC0, 6));
    assert!(rest.ends_with(b"beat"));
    raw.echoed(u64::MAX).await;
    seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 3).await;
    let stats = running.stats();
    let protocol = stats.protocols.iter().find(|protocol| protocol.protocol == "rpcx").unwrap();
    assert_eq!(protocol.open, 1);
}

#[tokio::test]
async fn replies_come_in_any_order_and_errors_fail_one_call() {
    let (running, seen) = start(&[(Limit::MessageBytesMax, 100), (Limit::CallsMax, 2)]).await;
    let mut raw = Raw::open(&running).await;
    let hang = |sequence| frame(0, sequence, ["test.Probe", "Hang"], &[], b"[]");
    raw.send(&[hang(1), echo(2), hang(3)].concat()).await;
    raw.echoed(2).await;
    seen.until(|seen| seen.hanging() == 2).await;
    for (bytes, expected) in [
        (hang(4), "(calls_max)"),
        (frame(0, 4, ["Missing", "Echo"], &[], b""), "rpcx: can't find service Missing"),
        (frame(0, 4, ["Probe", "Nothing"], &[], b""), "rpcx: can't find method Nothing"),
        (frame(0, 4, ["Probe", "Count"], &[], b""), "test.Probe/Count has a stream"),
    ] {
        raw.send(&bytes).await;
        let text = raw.refused().await;
        assert!(text.contains(expected), "{text}");
    }
    drop(raw);
    seen.until(|seen| seen.hanging() == 0).await;

    let mut raw = Raw::open(&running).await;
    for (bytes, expected) in [
        (frame(0, 4, ["Probe", "Fail"], &[], b"\"no such post\""), "not_found: no such post"),
        (frame(0, 4, ["Probe", "Panic"], &[], b"[]"), "internal: "),
        (frame(0, 4, ["Probe", "Echo"], &[], b"{"), "invalid_argument: "),
        (frame(0, 4, ["Probe", "Echo"], &[], &[b'1'; 101]), "limit of 100 bytes (message_bytes_max"),
        (frame(4, 4, ["Probe", "Echo"], &[], b"no gzip"), "cannot be decompressed as gzip"),
        (frame(0, 4, ["Probe", "Hang"], &[("__ServerTimeout", "20")], b"[]"), "deadline_exceeded: "),
    ] {
        raw.send(&bytes).await;
        let text = raw.refused().await;
        assert!(text.contains(expected), "{text}");
    }
    raw.send(&echo(9)).await;
    raw.echoed(9).await;
    assert_eq!(running.stats().protocol_errors, 0);
}

#[tokio::test]
async fn bytes_that_are_no_frame_close_their_connection_only() {
    let (running, _) = start(&[]).await;
    let mut good = Raw::open(&running).await;
    good.send(&echo(1)).await;
    good.echoed(1).await;
    let mut short = echo(2);
    short[15] -= 9;
    let mut names = echo(2);
    names[17] = 0xFF;
    let bad = [short, names, [&echo(1)[..], b"GET / HTTP/1.1\r\n\r\n"].concat(), vec![8; 40]];
    for bytes in &bad {
        let mut raw = Raw::open(&running).await;
        raw.send(bytes).await;
        while let Some((bits, sequence, _)) = raw.next().await {
            // Calls before the error get their responses.
            assert_eq!((bits, sequence), (0x80, 1));
        }
    }
    assert_eq!(running.stats().protocol_errors, bad.len() as u64);
    good.send(&echo(2)).await;
    good.echoed(2).await;
}

#[tokio::test]
async fn connect_comes_first_on_the_network_http() {
    let (running, _) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&[b"CONNECT /_rpcx_ HTTP/1.0\n\n", &echo(1)[..]].concat()).await;
    let mut answer = [0; 32];
    soon(raw.0.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.0 200 Connected to rpcx\n\n");
    raw.echoed(1).await;
    let mut raw = Raw::open(&running).await;
    raw.send(b"CONNECT /elsewhere HTTP/1.0\n\n").await;
    let mut answer = String::new();
    soon(raw.0.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 404 Not Found\n"), "{answer}");
}

#[tokio::test]
async fn credentials_are_those_of_every_wire() {
    let tokens = Tokens::default().token("sesame", Caller::new("ali"));
    let server = Server::new().auth(tokens).add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    let call = |sequence, auth| frame(0, sequence, ["Probe", "Echo"], &[("__AUTH", auth)], b"[1,2]");
    raw.send(&call(1, "Bearer nonsense")).await;
    assert!(raw.refused().await.contains("unauthenticated: "));
    raw.send(&echo(2)).await;
    assert!(raw.refused().await.contains("unauthenticated: "));
    for (sequence, auth) in [(3, "bearer sesame"), (4, "sesame")] {
        raw.send(&call(sequence, auth)).await;
        raw.echoed(sequence).await;
    }
}

#[tokio::test]
async fn calls_that_come_while_the_server_drains_are_refused() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(0, 1, ["Probe", "Hang"], &[], b"[]")).await;
    seen.until(|seen| seen.hanging() == 1).await;
    let drained = tokio::spawn(running.drain(Duration::from_secs(2)));
    loop {
        raw.send(&echo(2)).await;
        match raw.next().await {
            // Callers have a moment to hear of it; rpcx has no word for that.
            Some((0x80, 2, _)) => {}
            Some((0x81, 2, rest)) => {
                let text = String::from_utf8_lossy(&rest).into_owned();
                assert!(text.contains("unavailable: the server is going away"), "{text}");
                assert!(text.contains("x-retry") && text.contains("safe"), "{text}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    drop(raw);
    soon(drained).await.unwrap();
}

/// rpcx's networks tcp, http and ws, as URLs.
const NETWORKS: [&str; 3] =
    ["tcp://ADDRESS?wire=rpcx", "tcp://ADDRESS?wire=rpcx&network=http", "ws://ADDRESS?wire=rpcx"];

fn url_of(running: &Running, network: &str) -> String {
    network.replace("ADDRESS", running.url().trim_start_matches("tcp://"))
}

async fn channel(running: &Running, network: &str, compression: Compression) -> Channel {
    Channel::builder(&url_of(running, network)).compression(compression).connect().await.unwrap()
}

#[tokio::test]
async fn our_client_calls_our_server() {
    let names = ["tcp://ADDRESS?wire=rpcx&names=short", "ws://ADDRESS/_rpcx_?wire=rpcx&names=short"];
    for network in [&NETWORKS[..], &names].concat() {
        let (running, seen) = start(&[]).await;
        for compression in [Compression::None, Compression::Gzip] {
            let channel = channel(&running, network, compression).await;
            for codec in [Codec::Json, Codec::MsgPack] {
                // The last is more than one message of a WebSocket has.
                for size in [0, 1, 1000, 300_000] {
                    let echoed = echo_of(&channel, codec, size).await.unwrap();
                    assert!(echoed == vec![7; size], "{network} {compression} {codec} {size}");
                }
            }
        }
        note_and_fail(&channel(&running, network, Compression::None).await, &seen).await;
    }
    let (running, _) = start(&[]).await;
    let channel = channel(&running, NETWORKS[0], Compression::None).await;
    assert_eq!(channel.codec(Codec::Postcard), Codec::MsgPack);
    let status = echo_of(&channel, Codec::Postcard, 1).await.unwrap_err();
    assert!(status.message().contains("codec postcard is not supported on rpcx"), "{status}");
    let status = sum(&channel).await.err().unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[switchboard::service(name = "test.News")]
trait News {
    async fn subscribe(&self, cx: &Cx) -> Result<()>;
}

/// The connections to push to.
#[derive(Clone, Default)]
struct Readers(Arc<Mutex<Vec<Pusher>>>);

impl News for Readers {
    async fn subscribe(&self, cx: &Cx) -> Result<()> {
        let pusher = cx.pusher()?;
        pusher.push(Push::new("test.News/Flash", "welcome"))?;
        self.0.lock().unwrap().push(pusher);
        Ok(())
    }
}

impl Readers {
    async fn start() -> (Running, Readers) {
        let readers = Readers::default();
        let server = Server::new().add(NewsServer::new(readers.clone())).listen("tcp://127.0.0.1:0");
        (server.start().await.unwrap(), readers)
    }

    fn push(&self, text: &str) -> Result<()> {
        let readers = self.0.lock().unwrap();
        readers.iter().try_for_each(|reader| reader.push(Push::new("test.News/Flash", text.to_owned())))
    }
}

#[tokio::test]
async fn server_push_works_during_a_call_and_after_it() {
    let (running, readers) = Readers::start().await;
    for network in NETWORKS {
        let (url, pushes) = (url_of(&running, network), Pushes::new());
        let news = NewsClient::new(Channel::builder(&url).pushes(&pushes).connect().await.unwrap());
        soon(news.subscribe()).await.unwrap();
        // More than fits into the buffers of a socket and our own.
        let large = "n".repeat(300_000);
        for text in ["one", &large, "two"] {
            readers.push(text).unwrap();
        }
        for text in ["welcome", "one", &large, "two"] {
            let push = soon(pushes.next()).await;
            assert_eq!((&*push.path, &push.message[..]), ("test.News/Flash", text.as_bytes()));
        }
        drop(news);
        soon(async {
            while !readers.0.lock().unwrap()[0].is_closed() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(readers.push("three").unwrap_err().code(), Code::Unavailable);
        readers.0.lock().unwrap().clear();
        assert_eq!(pushes.lost(), 0);
    }
}

#[tokio::test]
async fn a_reader_that_does_not_read_gets_no_more_pushes() {
    let (running, readers) = Readers::start().await;
    let mut raw = Raw::open(&running).await;
    raw.send(&frame(0, 1, ["test.News", "Subscribe"], &[], b"{}")).await;
    let large = "n".repeat(1 << 20);
    let refused = soon(async {
        loop {
            match readers.push(&large) {
                Ok(()) => tokio::task::yield_now().await,
                Err(status) => return status,
            }
        }
    });
    let status = refused.await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("outbox_bytes_max"), "{status}");
    // What was taken comes whole, the reply among it.
    let mut bits = Vec::new();
    for _ in 0..3 {
        bits.push(raw.next().await.unwrap().0);
    }
    bits.sort_unstable();
    assert_eq!(bits, [0x20, 0x20, 0x80]);
}

#[tokio::test]
async fn pushes_on_wires_without_them_are_errors() {
    let (running, _) = Readers::start().await;
    let news = NewsClient::connect(&running.url()).await.unwrap();
    let status = news.subscribe().await.err().unwrap();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("not supported on native"), "{status}");
    let builder = Channel::builder(&running.url()).pushes(&Pushes::new());
    let status = builder.connect().await.err().unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("those that do: erpc, rpcx"), "{status}");
}

#[tokio::test]
async fn heartbeats_keep_a_silent_call_alive() {
    for network in NETWORKS {
        let (running, seen) = start(&[]).await;
        let url = url_of(&running, network) + "&keepalive=20ms";
        let channel = Channel::connect(&url).await.unwrap();
        // Time passes as soon as nothing else happens: however busy the machine is, answers are in time.
        tokio::time::pause();
        let hang = channel
            .unary(&HANG, Codec::Json, serde::encode(&(), Codec::Json), serde::decode::<()>)
            .timeout(Duration::from_millis(300));
        let status = soon(hang).await.err().unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{network}: {status}");
        seen.until(|seen| seen.hanging() == 0).await;
        echo_of(&channel, Codec::Json, 1).await.unwrap();
        tokio::time::resume();
    }
}

/// Takes a connection and the head of the handshake with which it begins, and answers with what `answer` makes of that.
async fn shaken(listener: TcpListener, answer: impl FnOnce(&str) -> String) -> (TcpStream, String) {
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    let head = head_of(&mut stream).await;
    stream.write_all(answer(&head).as_bytes()).await.unwrap();
    (stream, head)
}

/// The answer to the key of a handshake.
fn accepted(key: &str) -> String {
    let accept = accept_key(key);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

fn key_of(head: &str) -> &str {
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    key.expect("a handshake has a key")
}

#[tokio::test]
async fn handshakes_that_open_no_websocket_say_why() {
    type Answer = fn(&str) -> String;
    for (answer, expected) in [
        (
            (|_| String::new()) as Answer,
            "closed the connection without a response to the WebSocket handshake",
        ),
        (|_| "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), "\"HTTP/1.1 404 Not Found\", not 101"),
        (|_| accepted("dGhlIHNhbXBsZSBub25jZQ=="), "Sec-WebSocket-Accept does not match the key"),
        (
            |head| accepted(key_of(head)).replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n"),
            "the server chose the sub-protocol \"chat\", not none",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}?wire=rpcx", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { drop(shaken(listener, answer).await) });
        let status = soon(Channel::builder(&url).connections(1).connect()).await.unwrap_err();
        server.await.unwrap();
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
        let (_, address) = url.split_at("ws://".len());
        let address = address.trim_end_matches("?wire=rpcx");
        let expected = [&format!("connect to ws://{address}/_rpcx_: "), expected];
        assert!(expected.iter().all(|expected| status.message().contains(expected)), "{status}");
    }
}

/// Messages say nothing about frames: where they are cut, and whether they are texts, as they are from programs in Go
/// that set nothing.
#[tokio::test]
async fn frames_come_in_websocket_messages_of_any_kind_and_length() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, head) = shaken(listener, |head| accepted(key_of(head))).await;
        assert!(head.starts_with(&format!("GET /_rpcx_ HTTP/1.1\r\nHost: {at}\r\n")), "{head}");
        // Servers in Go want to know where a caller comes from.
        assert!(head.contains(&format!("Origin: http://{at}\r\n")), "{head}");
        assert!(!head.contains("Sec-WebSocket-Protocol"), "{head}");

        let limits = websocket::Limits { frame_bytes_max: 1 << 20, message_bytes_max: 1 << 20 };
        let mut socket = WebSocket::new(Role::Server, limits);
        let (mut input, mut heard, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
        // The heartbeat, and the call behind it, which ends with its message.
        while !heard.ends_with(b"[1,2]") {
            assert_ne!(soon(stream.read_buf(input.buffer())).await.unwrap(), 0);
            while socket.recv(&mut input, &mut heard, &mut out).unwrap().is_some() {}
        }
        let heartbeat = 16 + u32::from_be_bytes(*heard[12..].first_chunk().unwrap()) as usize;
        let sequence = u64::from_be_bytes(*heard[heartbeat + 4..].first_chunk().unwrap());
        let answer = frame(0x80, sequence, ["test.Probe", "Echo"], &[], b"[1,2]");
        for (piece, kind) in answer.chunks(7).zip([Kind::Text, Kind::Binary].into_iter().cycle()) {
            socket.send(kind, &[piece], &mut out);
        }
        stream.write_all(&out.take_all()).await.unwrap();
        stream
    });
    let channel = Channel::builder(&format!("ws://{at}?wire=rpcx")).connections(1).connect().await.unwrap();
    let echo = serde::encode(&[1, 2], Codec::Json);
    let call = channel.unary(&ECHO, Codec::Json, echo, serde::decode::<Vec<u8>>);
    assert_eq!(*soon(call).await.unwrap(), [1, 2]);
    server.await.unwrap();
}

#[tokio::test]
async fn options_that_are_not_known_are_named() {
    for (options, expected) in [
        ("codec=xml", "json, msgpack, proto, raw or thrift"),
        ("names=odd", "full or short"),
        ("network=quic", "http, tcp or unix; a WebSocket is in the address"),
    ] {
        let url = format!("tcp://127.0.0.1:1?wire=rpcx&{options}");
        let status = Channel::connect(&url).await.err().unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{status}");
    }
}

#[tokio::test]
async fn not_every_wire_goes_through_websockets() {
    for (options, expected) in [
        ("wire=rpcx&network=http", "has network=http, which is for tcp:// and tls://: remove it"),
        ("wire=thrift", "does not run in WebSockets: use tcp://"),
    ] {
        let status = Channel::connect(&format!("ws://127.0.0.1:1?{options}")).await.err().unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{status}");
    }
}

/// The answer of the gateway: its status, its headers in lower case, and the body.
async fn gateway(running: &Running, request: &str, body: &str) -> (String, String) {
    let mut raw = Raw::open(running).await;
    let head = format!("{request}host: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    raw.send([head.as_bytes(), body.as_bytes()].concat().as_slice()).await;
    let mut answer = String::new();
    soon(raw.0.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn the_gateway_takes_calls_in_headers() {
    let (running, seen) = start(&[(Limit::MessageBytesMax, 1000)]).await;
    let call = "POST / HTTP/1.1\r\nX-RPCX-ServicePath: Probe\r\nX-RPCX-ServiceMethod: Echo\r\n\
        X-RPCX-SerializeType: 1\r\nX-RPCX-MessageID: 77\r\nX-RPCX-Meta: X-Head-A=b%20c&tenant=d\r\n";
    let (head, body) = gateway(&running, call, "[1,2]").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("x-rpcx-messageid: 77") && head.contains("x-rpcx-meta: x-head-a=b+c"), "{head}");
    assert_eq!(body, "[1,2]");
    // The service in the path, and no reply.
    let note = "PUT /test.Probe HTTP/1.1\r\nX-RPCX-ServiceMethod: Note\r\nX-RPCX-SerializeType: 1\r\n\
        X-RPCX-Oneway: true\r\n";
    assert!(gateway(&running, note, "4").await.0.starts_with("http/1.1 200"));
    seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 4).await;
    for (from, to, code, expected) in [
        ("Echo", "Fail", "500", "not_found: [1,2]"),
        ("Echo", "Nothing", "500", "rpcx: can't find method nothing"),
        ("Path: Probe", "Path: Missing", "500", "rpcx: can't find service missing"),
        ("Type: 1", "Type: 9", "500", "can not find codec for 9"),
        ("Type: 1", "Type: x", "200", "the serialized type is not a number"),
        ("X-RPCX-ServiceMethod", "X-Other", "200", "empty servicemethod"),
        ("POST", "DELETE", "405", "allow: get, post, put"),
    ] {
        let body = if to == "Fail" { "\"[1,2]\"" } else { "[1,2]" };
        let (head, _) = gateway(&running, &call.replacen(from, to, 1), body).await;
        assert!(head.starts_with(&format!("http/1.1 {code}")) && head.contains(expected), "{to}: {head}");
    }
    let (head, _) = gateway(&running, call, &"1".repeat(1001)).await;
    assert!(
        head.starts_with("http/1.1 413") && head.contains("(message_bytes_max of the receiver)"),
        "{head}"
    );
}

#[tokio::test]
async fn the_gateway_authenticates_callers() {
    let tokens = Tokens::default().token("sesame", Caller::new("ali"));
    let server = Server::new().auth(tokens).add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let call = |auth: &str| {
        format!(
            "POST /Probe HTTP/1.1\r\nX-RPCX-ServiceMethod: Block\r\nX-RPCX-SerializeType: 1\r\nAuthorization: {auth}\r\n"
        )
    };
    let (head, body) = gateway(&running, &call("Bearer sesame"), "[]").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "\"rpcx\"");
    let (head, _) = gateway(&running, &call("Bearer nonsense"), "[]").await;
    assert!(head.starts_with("http/1.1 401") && head.contains("x-rpcx-messagestatustype: error"), "{head}");
}

//! eRPC with a peer whose bytes the test writes, and with Switchboard's client.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::sync::atomic::Ordering;
use support::{raw::soon, *};
use switchboard::{
    Channel, Code, Codec, Cx, Limit, Push, Pushes, Result, Running, Server,
    auth::{Caller, Tokens},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const CALL: u8 = 1;
const REPLY: u8 = 2;
const PUSH: u8 = 3;
const AUTH_CALL: u8 = 4;

/// A message in the raw framing, in JSON.
fn message(kind: u8, sequence: u8, name: &str, metadata: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 1, b'0' + sequence, kind, name.len() as u8];
    bytes.extend_from_slice(name.as_bytes());
    for query in ["code=0", metadata] {
        bytes.extend_from_slice(&(query.len() as u16).to_be_bytes());
        bytes.extend_from_slice(query.as_bytes());
    }
    bytes.push(b'j');
    bytes.extend_from_slice(body);
    [&(bytes.len() as u32 + 4).to_be_bytes()[..], &bytes].concat()
}

fn echo(sequence: u8) -> Vec<u8> {
    message(CALL, sequence, "/probe/echo", "", b"[1,2]")
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

    /// The next frame behind its length, which counts so many bytes of its own; none at the end.
    async fn frame(&mut self, own: usize) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        soon(self.0.read_exact(&mut length)).await.ok()?;
        let mut rest = vec![0; u32::from_be_bytes(length) as usize - own];
        soon(self.0.read_exact(&mut rest)).await.ok()?;
        Some(rest)
    }

    /// The next answer in the raw framing: its sequence, and everything behind the empty name.
    async fn answer(&mut self) -> Option<(u8, Vec<u8>)> {
        let frame = self.frame(4).await?;
        assert_eq!((&frame[..2], &frame[3..5]), (&[0, 1][..], &[REPLY, 0][..]), "{frame:02x?}");
        Some((frame[2] - b'0', frame[5..].to_vec()))
    }

    /// The answer to an echo.
    async fn echoed(&mut self, sequence: u8) {
        let (of, rest) = self.answer().await.expect("an answer");
        assert_eq!((of, &rest[..]), (sequence, &b"\0\x06code=0\0\0j[1,2]"[..]));
    }

    /// The status of an error.
    async fn refused(&mut self) -> String {
        let (_, rest) = self.answer().await.expect("an answer");
        String::from_utf8_lossy(&rest).replace("%20", " ")
    }
}

#[tokio::test]
async fn calls_come_one_byte_at_a_time_in_every_framing() {
    let (running, seen) = start(&[]).await;
    let mut raw = Raw::open(&running).await;
    let note = message(PUSH, 5, "/probe/note", "", b"3");
    let beat = message(CALL, 6, "/heartbeat", "hb_=3", b"");
    for byte in [echo(1), note, beat, echo(7)].concat() {
        raw.send(&[byte]).await;
    }
    raw.echoed(1).await;
    assert_eq!(raw.answer().await.unwrap(), (6, b"\0\x06code=0\0\0j".to_vec()));
    raw.echoed(7).await;
    seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 3).await;

    let json = br#"{"seq":1,"mtype":1,"serviceMethod":"Probe.Echo","bodyCodec":106,"body":"[1,2]"}"#;
    let proto = b"\x08\x01\x10\x01\x1a\x10/test.Probe/Echo0\x6a:\x05[1,2]";
    for (payload, expected) in [(&json[..], &b"\"body\":\"[1,2]\""[..]), (proto, b":\x05[1,2]")] {
        let mut peer = Raw::open(&running).await;
        for byte in [&(payload.len() as u32 + 1).to_be_bytes()[..], &[0], payload].concat() {
            peer.send(&[byte]).await;
        }
        let answer = peer.frame(0).await.unwrap();
        assert!(answer.windows(expected.len()).any(|part| part == expected), "{answer:02x?}");
    }
    let stats = running.stats();
    let protocol = stats.protocols.iter().find(|protocol| protocol.protocol == "erpc").unwrap();
    assert_eq!(protocol.connections, 3);
}

#[tokio::test]
async fn replies_come_in_any_order_and_errors_fail_one_call() {
    let (running, seen) = start(&[(Limit::MessageBytesMax, 100), (Limit::CallsMax, 2)]).await;
    let mut raw = Raw::open(&running).await;
    let hang = |sequence| message(CALL, sequence, "/probe/hang", "", b"");
    raw.send(&[hang(1), echo(2), hang(3)].concat()).await;
    raw.echoed(2).await;
    seen.until(|seen| seen.hanging() == 2).await;
    raw.send(&hang(4)).await;
    assert!(raw.refused().await.contains("calls_max"));
    drop(raw);
    seen.until(|seen| seen.hanging() == 0).await;

    let mut raw = Raw::open(&running).await;
    for (name, metadata, body, expected) in [
        ("/missing/echo", "", &b""[..], "code=404&msg=unknown service missing"),
        ("/probe/nothing", "", b"", "code=404&msg=unknown method test.Probe"),
        ("/probe/count", "", b"", "has a stream"),
        ("/probe/fail", "", b"\"no such post\"", "code=1005&msg=not_found%3A no such post"),
        ("/probe/panic", "", b"", "code=500"),
        ("/probe/echo", "", b"{", "code=400"),
        ("/probe/echo", "", &[b'1'; 101], "limit of 100 bytes %28message_bytes_max"),
        ("/probe/echo", "", &[b'1'; 200_000], "limit of 100 bytes %28message_bytes_max"),
        ("/probe/hang", "x-timeout-ms=20", b"", "code=408"),
    ] {
        raw.send(&message(CALL, 4, name, metadata, body)).await;
        let text = raw.refused().await;
        assert!(text.contains(expected), "{text}");
    }
    raw.send(&echo(9)).await;
    raw.echoed(9).await;
    assert_eq!(running.stats().protocol_errors, 0);
}

#[tokio::test]
async fn bytes_that_are_no_message_close_their_connection_only() {
    let (running, _) = start(&[]).await;
    let mut good = Raw::open(&running).await;
    good.send(&echo(1)).await;
    good.echoed(1).await;
    let mut short = echo(2);
    short[3] = 10;
    let mut kind = echo(2);
    kind[7] = 6;
    let mut filter = echo(2);
    filter[4] = 1;
    let bad = [short, kind, filter, b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    for bytes in &bad {
        let mut raw = Raw::open(&running).await;
        raw.send(&[&echo(1), &bytes[..]].concat()).await;
        // Calls before the error get their responses.
        raw.echoed(1).await;
        assert!(raw.answer().await.is_none());
    }
    assert_eq!(running.stats().protocol_errors, bad.len() as u64);
    good.send(&echo(2)).await;
    good.echoed(2).await;
}

#[tokio::test]
async fn credentials_are_those_of_every_wire() {
    let tokens = Tokens::default().token("sesame", Caller::new("ali"));
    let server = Server::new().auth(tokens).add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    raw.send(&echo(2)).await;
    assert!(raw.refused().await.contains("code=401"));
    raw.send(&message(CALL, 3, "/probe/echo", "authorization=Bearer%20sesame", b"[1,2]")).await;
    raw.echoed(3).await;
    // As the plug-in of erpc does it: once, before the first call.
    for (token, known) in [("\"sesame\"", true), ("\"nonsense\"", false)] {
        let mut raw = Raw::open(&running).await;
        raw.send(&message(AUTH_CALL, 1, "", "", token.as_bytes())).await;
        let answer = raw.frame(4).await.unwrap();
        assert_eq!(answer, [&[0, 1, b'1', 5, 0][..], b"\0\x06code=0\0\0\0"].concat());
        raw.send(&echo(2)).await;
        if known { raw.echoed(2).await } else { assert!(raw.refused().await.contains("code=401")) }
    }
}

async fn channel(running: &Running, options: &str) -> Channel {
    Channel::connect(&format!("{}?wire=erpc{options}", running.url())).await.unwrap()
}

#[tokio::test]
async fn our_client_calls_our_server() {
    let (running, seen) = start(&[]).await;
    for framing in ["raw", "json", "proto"] {
        for options in ["", "&filter=gzip", "&names=rpc", "&names=full"] {
            let channel = channel(&running, &format!("&framing={framing}{options}")).await;
            for size in [0, 1, 1000, 100_000] {
                let echoed = echo_of(&channel, Codec::Json, size).await.unwrap();
                assert_eq!(echoed, vec![7; size], "{framing} {options}");
            }
        }
    }
    let channel = channel(&running, "&framing=json").await;
    assert_eq!(channel.codec(Codec::Postcard), Codec::Json);
    note_and_fail(&channel, &seen).await;
    let status = echo_of(&channel, Codec::Postcard, 1).await.unwrap_err();
    assert!(status.message().contains("codec postcard is not supported on erpc"), "{status}");
    assert_eq!(sum(&channel).await.err().unwrap().code(), Code::Unimplemented);
}

#[tokio::test]
async fn options_that_are_not_known_are_named() {
    for (options, expected) in [
        ("codec=xml", "json or proto"),
        ("filter=md5", "gzip or none"),
        ("framing=thrift", "json, proto or raw"),
        ("names=odd", "full, path or rpc"),
    ] {
        let url = format!("tcp://127.0.0.1:1?wire=erpc&{options}");
        let status = Channel::connect(&url).await.err().unwrap();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(expected), "{status}");
    }
}

#[switchboard::service(name = "test.News")]
trait News {
    async fn subscribe(&self, cx: &Cx) -> Result<()>;
}

struct Agency;

impl News for Agency {
    async fn subscribe(&self, cx: &Cx) -> Result<()> {
        let pusher = cx.pusher()?;
        pusher.push(Push::new("news/flash", "\"during\"").with_codec(Codec::Json))?;
        tokio::spawn(async move {
            pusher.push(Push::new("news/flash", "after")).unwrap();
        });
        Ok(())
    }
}

#[tokio::test]
async fn server_push_works_in_every_framing() {
    let server = Server::new().add(NewsServer::new(Agency)).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    for framing in ["raw", "json", "proto"] {
        let (url, pushes) =
            (format!("{}?wire=erpc&framing={framing}&filter=gzip", running.url()), Pushes::new());
        let news = NewsClient::new(Channel::builder(&url).pushes(&pushes).connect().await.unwrap());
        soon(news.subscribe()).await.unwrap();
        for expected in
            [Push::new("news/flash", "\"during\"").with_codec(Codec::Json), Push::new("news/flash", "after")]
        {
            assert_eq!(soon(pushes.next()).await, expected, "{framing}");
        }
        // Without a reader, pushes before the second response are dropped.
        let unread = NewsClient::connect(&url).await.unwrap();
        for _ in 0..2 {
            soon(unread.subscribe()).await.unwrap();
        }
    }
}

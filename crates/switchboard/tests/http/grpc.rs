//! gRPC byte by byte: requests that libraries do not send, and the exact responses.

use crate::{
    frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, RST_STREAM, frame, soon},
    service::start,
};
use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use std::io::Write as _;
use switchboard::{Limit, Running, Server};
use tokio::net::TcpStream;

const SAY: &str = "/test.v1.Echo/Say";
const COUNT: &str = "/test.v1.Echo/Count";
const JOIN: &str = "/test.v1.Echo/Join";
const GRPC: &[(&str, &str)] = &[("content-type", "application/grpc")];

/// A response.
#[derive(Debug)]
struct Answer {
    http: StatusCode,
    head: HeaderMap,
    body: Vec<u8>,
    /// The trailers; the headers of a response without a body.
    trailers: HeaderMap,
}

impl Answer {
    fn status(&self) -> &str {
        self.trailers["grpc-status"].to_str().unwrap()
    }

    /// The only message, plain.
    fn text(&self) -> String {
        assert_eq!(self.status(), "0", "{self:?}");
        assert_eq!(self.body[0], 0, "{self:?}");
        let length = u32::from_be_bytes(*self.body[1..].first_chunk().unwrap()) as usize;
        assert_eq!(self.body.len(), 5 + length, "{self:?}");
        // Of a `StringValue`, whose length takes one or two bytes.
        let message = &self.body[5..];
        if message.is_empty() {
            return String::new();
        }
        let skip = if message[1] < 0x80 { 2 } else { 3 };
        String::from_utf8(message[skip..].to_vec()).unwrap()
    }
}

/// One connection of a caller.
struct Caller(h2::client::SendRequest<Bytes>);

impl Caller {
    async fn of(running: &Running) -> Caller {
        let io = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
        let (sender, connection) = h2::client::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Caller(sender)
    }

    /// A call with these parts of a body, each a frame of its own; the last ends the stream.
    async fn call(&self, path: &str, headers: &[(&str, &str)], parts: &[&[u8]]) -> Answer {
        soon(async {
            let mut request = Request::post(format!("http://x{path}"));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut sender = self.0.clone().ready().await.unwrap();
            let (answer, mut body) =
                sender.send_request(request.body(()).unwrap(), parts.is_empty()).unwrap();
            for (at, part) in parts.iter().enumerate() {
                // The server may have answered and given up the rest.
                let _ = body.send_data(Bytes::copy_from_slice(part), at + 1 == parts.len());
            }
            let (head, mut reply) = answer.await.unwrap().into_parts();
            let mut bytes = Vec::new();
            while let Some(Ok(data)) = reply.data().await {
                reply.flow_control().release_capacity(data.len()).unwrap();
                bytes.extend(data);
            }
            let trailers = reply.trailers().await.ok().flatten();
            Answer {
                http: head.status,
                trailers: trailers.unwrap_or_else(|| head.headers.clone()),
                head: head.headers,
                body: bytes,
            }
        })
        .await
    }
}

/// A message in its envelope.
fn envelope(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// A `StringValue` in its envelope.
fn said(text: &str) -> Vec<u8> {
    envelope(0, &[&[0x0a, text.len() as u8], text.as_bytes()].concat())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[tokio::test]
async fn envelopes_that_are_none_are_refused() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    let compressed = [GRPC, &[("grpc-encoding", "gzip")]].concat();
    let identity = [GRPC, &[("grpc-encoding", "identity")]].concat();
    for (what, headers, body, status) in [
        ("no such flag", GRPC, envelope(2, b""), "13"),
        ("a flag without a compression", GRPC, envelope(1, &gzip(b"\x0a\x01x")), "13"),
        ("a flag with no compression", &identity, envelope(1, b"\x0a\x01x"), "13"),
        ("an uncompressed message", &compressed, envelope(1, b"\x0a\x01x"), "13"),
        ("a compressed message that is cut off", &compressed, envelope(1, &gzip(b"\x0a\x01x")[..9]), "13"),
        ("a message that is cut off", GRPC, said("x")[..6].to_vec(), "13"),
        ("an envelope that is cut off", GRPC, b"\0\0".to_vec(), "13"),
        ("no message", GRPC, Vec::new(), "12"),
        ("two messages", GRPC, [said("x"), said("y")].concat(), "12"),
    ] {
        let answer = caller.call(SAY, headers, &[&body]).await;
        assert_eq!((answer.http.as_u16(), answer.status()), (200, status), "{what}: {answer:?}");
    }
    let answer = caller.call(SAY, GRPC, &[]).await;
    assert_eq!(answer.status(), "12", "an end with the headers: {answer:?}");
    for flag in [2, 3, 0x80, 0xff] {
        let body = [said("x"), envelope(flag, b"\x0a\x01y"), said("z")].concat();
        let answer = caller.call(JOIN, &compressed, &[&body]).await;
        assert_eq!(answer.status(), "13", "the flag {flag}: {answer:?}");
    }
    for (what, body) in [
        ("an uncompressed message", [said("x"), envelope(1, b"\x0a\x01y")].concat()),
        ("a message that is cut off", [said("x"), said("y")[..6].to_vec()].concat()),
    ] {
        let answer = caller.call(JOIN, &compressed, &[&body]).await;
        assert_eq!(answer.status(), "13", "{what} in a stream: {answer:?}");
    }
    // gRPC-Web says what gRPC says, in its last frame or in the head; Connect has another status for it.
    for encoding in ["gzip", "deflate", "zstd"] {
        let headers = [("content-type", "application/grpc-web"), ("grpc-encoding", encoding)];
        let answer = caller.call(SAY, &headers, &[&envelope(1, b"\x0a\x01x")]).await;
        let said = [answer.body.clone(), format!("{:?}", answer.head).into_bytes()].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("grpc-status: 13") || said.contains(r#""grpc-status": "13""#), "{said}");
        let headers = [("content-type", "application/proto"), ("content-encoding", encoding)];
        let answer = caller.call(SAY, &headers, &[b"\x0a\x01x"]).await;
        assert_eq!(answer.http, StatusCode::BAD_REQUEST, "{answer:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains("invalid_argument"), "{answer:?}");
    }
}

#[tokio::test]
async fn statuses_are_written_as_the_document_of_grpc_has_it() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    let answer = caller.call(SAY, GRPC, &[&said("fail")]).await;
    // Percent and non-ASCII characters are escaped, in upper case; blanks and all others are not.
    assert_eq!(answer.trailers["grpc-message"], "no such thing: %C3%A9%25");
    assert_eq!((answer.status(), answer.http), ("5", StatusCode::OK));
    let details = answer.trailers["grpc-status-details-bin"].to_str().unwrap();
    let details = base64::engine::general_purpose::STANDARD_NO_PAD.decode(details).expect("without padding");
    // The code of `google.rpc.Status` comes first and is the same; then the text as it is, and one detail.
    assert!(details.starts_with(b"\x08\x05\x12\x12no such thing: \xc3\xa9%\x1a"), "{details:?}");
    assert_eq!(answer.trailers["x-why-bin"], "AP8", "binary metadata has no padding");
    assert_eq!(
        (&answer.head["x-head"], &answer.trailers["x-end"]),
        (&"first".parse().unwrap(), &"bye".parse().unwrap())
    );
}

#[tokio::test]
async fn no_value_begins_or_ends_with_a_space() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    for (what, path) in [("before the first message", SAY), ("after a message", COUNT)] {
        let answer = caller.call(path, GRPC, &[&said("spaces")]).await;
        assert_eq!(answer.trailers["grpc-message"], "%20%20with spaces%20", "{what}");
        assert_eq!(answer.trailers["x-why"], "because", "{what}");
    }
}

/// The frames of the answer to a call, to the end of its stream.
async fn frames_of(
    running: &Running,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Vec<frames::Frame> {
    let mut peer = Http2::open(running, &[]).await;
    let mut head = frames::call(path, "application/grpc");
    for (name, value) in headers {
        head.extend(frames::header(name, value));
    }
    let call = [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, body)].concat();
    peer.send(&call).await.unwrap();
    let mut frames = Vec::new();
    soon(async {
        while frames.last().is_none_or(|last: &frames::Frame| last.flags & END_STREAM == 0) {
            let frame = peer.next().await.unwrap();
            if [DATA, HEADERS, RST_STREAM].contains(&frame.kind) {
                assert_ne!(frame.kind, RST_STREAM, "{path}");
                frames.push(frame);
            }
        }
    })
    .await;
    frames
}

#[tokio::test]
async fn failures_before_the_first_message_are_one_frame() {
    let (_, running) = start(&[(Limit::MessageBytesMax, 100)]).await;
    let rate = switchboard::guard::Rate::per_second(0.001).burst(1);
    let limited = Server::new().add(crate::service::echo()).rate(rate).listen("tcp://127.0.0.1:0");
    let limited = limited.start().await.unwrap();
    frames_of(&limited, SAY, &[], &said("x")).await;
    let (bad_timeout, late) = (("grpc-timeout", "soon"), ("grpc-timeout", "1n"));
    let large = envelope(0, &[0; 200]);
    for (what, server, path, headers, body) in [
        ("an unknown method", &running, "/test.v1.Echo/Nope", &[][..], &said("x")[..]),
        ("an unknown service", &running, "/nope.Nope/Nope", &[], &said("x")),
        ("an unknown health", &running, "/grpc.health.v1.Health/Check", &[], &envelope(0, b"\x0a\x01x")),
        ("a bad timeout", &running, SAY, &[bad_timeout], &said("x")),
        ("a deadline that is over", &running, SAY, &[late], &said("hang")),
        ("an unknown compression", &running, SAY, &[("grpc-encoding", "snappy")], &said("x")),
        ("bad metadata", &running, SAY, &[("x-bin", "!")], &said("x")),
        ("a large message", &running, SAY, &[], &large),
        ("a large message of a stream", &running, JOIN, &[], &large),
        ("a body without a message", &running, SAY, &[], b""),
        ("a message that cannot be decoded", &running, SAY, &[], &envelope(0, b"\xff")),
        ("a handler", &running, SAY, &[], &said("fail")),
        ("a handler's panic", &running, SAY, &[], &said("panic")),
        ("the handler of a stream", &running, COUNT, &[], &said("refuse plainly")),
        ("a guard", &limited, SAY, &[], &said("x")),
        ("a guard of a stream", &limited, COUNT, &[], &said("x")),
    ] {
        let frames = frames_of(server, path, headers, body).await;
        let kinds: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags & END_STREAM)).collect();
        assert_eq!(kinds, [(HEADERS, END_STREAM)], "{what}");
    }
    let frames = frames_of(&running, COUNT, &[], &said("refuse")).await;
    let kinds: Vec<_> = frames.iter().map(|frame| (frame.kind, frame.flags & END_STREAM)).collect();
    assert_eq!(kinds, [(HEADERS, 0), (HEADERS, END_STREAM)], "metadata for the head has one of its own");
    let frames = frames_of(&running, SAY, &[], &said("x")).await;
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds.first(), Some(&HEADERS), "a reply has a head of its own");
    assert_eq!((kinds.last(), kinds.contains(&DATA)), (Some(&HEADERS), true), "{kinds:?}");
}

#[tokio::test]
async fn methods_are_found_by_their_exact_name() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    for path in ["/test.v1.echo/Say", "/test.v1.Echo/say", "/test.v1.Echo/Say/", "//test.v1.Echo/Say", "/Say"]
    {
        let answer = caller.call(path, GRPC, &[&said("x")]).await;
        assert_eq!((answer.http, answer.status()), (StatusCode::OK, "12"), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn messages_come_in_any_pieces() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    let compressed = [GRPC, &[("grpc-encoding", "gzip")]].concat();
    let body = [said("a"), said(""), said("bc")].concat();
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(caller.call(JOIN, GRPC, &bytes).await.text(), "abc");
    assert_eq!(caller.call(JOIN, GRPC, &[&body]).await.text(), "abc");
    assert_eq!(caller.call(JOIN, GRPC, &[&body, b""]).await.text(), "abc", "an empty frame ends it");
    assert_eq!(caller.call(JOIN, GRPC, &[]).await.text(), "", "no messages");
    // Each message says for itself whether it is compressed.
    let mixed = [envelope(1, &gzip(b"\x0a\x01a")), said("b"), envelope(1, &gzip(b"")), envelope(0, b"")];
    assert_eq!(caller.call(JOIN, &compressed, &[&mixed.concat()]).await.text(), "ab");
    // Of protobuf an empty message is one, of JSON it is none.
    assert_eq!(caller.call(SAY, GRPC, &[&envelope(0, b"")]).await.text(), "hello ");
    let json = [("content-type", "application/grpc+json")];
    let answer = caller.call(SAY, &json, &[&envelope(0, b"")]).await;
    assert!(["3", "13"].contains(&answer.status()), "{answer:?}");
}

#[tokio::test]
async fn content_types_come_back_as_they_were() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    for kind in ["application/grpc", "application/grpc+proto"] {
        let answer = caller.call(SAY, &[("content-type", kind)], &[&said("x")]).await;
        assert_eq!(
            (answer.text().as_str(), &answer.head["content-type"]),
            ("hello x", &kind.parse().unwrap())
        );
        let refused = caller.call("/test.v1.Echo/Nope", &[("content-type", kind)], &[&said("x")]).await;
        assert_eq!((refused.status(), &refused.head["content-type"]), ("12", &kind.parse().unwrap()));
    }
    for kind in ["application/grpc;charset=utf-8", "Application/gRPC"] {
        let answer = caller.call(SAY, &[("content-type", kind)], &[&said("x")]).await;
        assert_eq!(answer.text(), "hello x", "{kind}");
    }
    for kind in ["application/grpc+thrift", "application/grpcx"] {
        let answer = caller.call(SAY, &[("content-type", kind)], &[&said("x")]).await;
        assert_eq!((answer.http, answer.status()), (StatusCode::OK, "12"), "{kind}");
    }
}

#[tokio::test]
async fn replies_are_compressed_only_as_the_caller_can_read() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    let large = "x".repeat(2000);
    let input = [&[0x0a, 0xd0, 0x0f][..], large.as_bytes()].concat();
    for (accepted, encoding) in [
        (None, None),
        (Some("identity"), None),
        (Some("snappy"), None),
        (Some("identity , gzip"), Some("gzip")),
        (Some("snappy,deflate"), Some("deflate")),
    ] {
        let mut headers = GRPC.to_vec();
        headers.extend(accepted.map(|accepted| ("grpc-accept-encoding", accepted)));
        let answer = caller.call(SAY, &headers, &[&envelope(0, &input)]).await;
        assert_eq!(answer.status(), "0");
        let named = answer.head.get("grpc-encoding").and_then(|value| value.to_str().ok());
        assert_eq!(named.filter(|named| *named != "identity"), encoding, "{accepted:?}");
        assert_eq!(answer.body[0], u8::from(encoding.is_some()), "{accepted:?}");
    }
    let headers = [GRPC, &[("grpc-encoding", "snappy")]].concat();
    let answer = caller.call(SAY, &headers, &[&envelope(1, &input)]).await;
    assert_eq!(answer.status(), "12");
    let known = answer.head["grpc-accept-encoding"].to_str().unwrap();
    assert!(known.contains("gzip") && known.contains("zstd"), "{known}");
}

#[tokio::test]
async fn timeouts_have_eight_digits_and_may_be_over_at_once() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    for (timeout, status) in [
        ("99999999H", "0"),
        ("100000000n", "13"),
        ("S", "13"),
        ("1", "13"),
        ("1s", "13"),
        ("0S", "4"),
        ("1n", "4"),
    ] {
        let headers = [GRPC, &[("grpc-timeout", timeout)]].concat();
        let input = if status == "4" { "hang" } else { "x" };
        let answer = caller.call(SAY, &headers, &[&said(input)]).await;
        assert_eq!(answer.status(), status, "{timeout}: {answer:?}");
    }
}

#[tokio::test]
async fn metadata_is_what_the_caller_means() {
    let (_, running) = start(&[]).await;
    let caller = Caller::of(&running).await;
    let headers = [
        GRPC,
        &[
            ("te", "trailers"),
            ("user-agent", "a caller"),
            ("grpc-accept-encoding", "gzip"),
            ("grpc-previous-rpc-attempts", "1"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("x-b-bin", "eA==,eXk"),
            ("x-b-bin", "eno"),
        ],
    ]
    .concat();
    let answer = caller.call(SAY, &headers, &[&said("metadata")]).await;
    let text = answer.text();
    let mut lines: Vec<_> = text.lines().collect();
    // Of different names any may come first.
    lines.sort_by_key(|line| line.split('=').next());
    assert_eq!(lines, ["x-a=1", "x-a=2", "x-b-bin=x", "x-b-bin=yy", "x-b-bin=zz"]);
    let wrong = [GRPC, &[("x-b-bin", "!")]].concat();
    let answer = caller.call(SAY, &wrong, &[&said("metadata")]).await;
    assert!(answer.status() != "0", "{answer:?}");
}

#[tokio::test]
async fn callers_get_a_reset_once_they_have_their_reply() {
    let (_, running) = start(&[(Limit::MessageBytesMax, 100)]).await;
    for (what, path, body) in [
        ("an unknown method", "/test.v1.Echo/Nope", &b"\0\0"[..]),
        ("a message over the limit", SAY, &envelope(0, &[0; 200])),
    ] {
        let mut peer = Http2::open(&running, &[]).await;
        let head = frame(HEADERS, END_HEADERS, 1, &frames::call(path, "application/grpc"));
        peer.send(&[head, frame(DATA, 0, 1, body)].concat()).await.unwrap();
        let end = soon(async {
            loop {
                let frame = peer.next().await.unwrap();
                if frame.kind == RST_STREAM {
                    return frame;
                }
            }
        })
        .await;
        assert_eq!(end.payload, [0; 4], "{what}: NO_ERROR");
    }
}

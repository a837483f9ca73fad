//! A wire of an application: served and called like those of this workspace, without a change to them.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod line;

#[path = "../support/mod.rs"]
mod support;

use line::LINE;
use support::{ECHO, FAIL, Probe, memory, raw::soon};
use switchboard::{
    Channel, Code, Codec, Limits, Result, Running, Server,
    codec::serde::{decode, encode},
    wire::{self, WireId, WireSpec},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn start(server: Server, address: &str) -> Running {
    server.add(Probe::default()).listen(address).start().await.unwrap()
}

async fn echo(channel: &Channel) -> Result<Vec<u8>> {
    let codec = channel.codec(Codec::Postcard);
    let call = channel.unary(&ECHO, codec, encode(&vec![1u8, 2], codec), decode::<Vec<u8>>);
    soon(call).await.map(switchboard::Response::into_inner)
}

/// Sends these bytes and returns the response until the server closes the connection; it is reported that nothing
/// follows, unless the bytes are a request of HTTP.
async fn said(running: &Running, text: &str) -> String {
    let mut stream = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    if !text.contains("HTTP/1.1") {
        stream.shutdown().await.unwrap();
    }
    let mut response = String::new();
    // Closing a connection with unread bytes resets it.
    let _ = soon(stream.read_to_string(&mut response)).await;
    response
}

#[tokio::test]
async fn a_channel_uses_the_built_in_wire_that_its_builder_names() {
    let (running, _) = support::start(&[]).await;
    for spec in [&wire::NATIVE, &wire::GRPC, &wire::GRPC_WEB, &wire::CONNECT, &wire::RPCX, &wire::BAIDU_STD] {
        let channel = Channel::builder(&running.url()).wire(spec).connect().await.unwrap();
        let name = soon(channel.call("test.Probe/Block").json::<String>(&())).await.unwrap();
        assert_eq!(*name, spec.name);
    }
}

#[tokio::test]
async fn a_wire_of_an_application_is_detected_served_and_called() {
    let running = start(Server::new().wire(&LINE), "tcp://127.0.0.1:0").await;
    let text = said(&running, "line 7 test.Probe/Echo [1,2]\nline 8 test.Probe/Ecko 0\n").await;
    let (ok, err) = text.split_once('\n').unwrap();
    assert_eq!(ok, "ok 7 [1,2]");
    assert!(err.starts_with("err 8 12 ") && err.contains("test.Probe has Echo, "), "{err}");

    let channel = Channel::builder(&running.url()).wire(&LINE).connect().await.unwrap();
    assert_eq!(echo(&channel).await.unwrap(), [1, 2]);
    let call = channel.unary(&FAIL, Codec::Json, encode(&"x", Codec::Json), decode::<()>);
    assert!(soon(call).await.is_err());
    // Once it is registered, URLs select it, with its options.
    let url = running.url() + "?wire=line&balance=random";
    assert_eq!(echo(&Channel::connect(&url).await.unwrap()).await.unwrap(), [1, 2]);
    let other = Channel::connect(&(running.url() + "?wire=line&prefix=other.")).await.unwrap();
    let status = echo(&other).await.unwrap_err();
    assert!(status.message().contains("other.test.Probe"), "{status}");
    let status = Channel::connect(&(running.url() + "?wire=line&prefix=")).await.unwrap_err();
    assert!(status.message().contains("expected a package"), "{status}");
    // The other wires are still there.
    assert_eq!(echo(&Channel::connect(&running.url()).await.unwrap()).await.unwrap(), [1, 2]);

    let stats = running.stats();
    let echoed = stats.methods.iter().find(|method| method.name == "test.Probe/Echo").unwrap();
    let on_line = echoed.wires.iter().find(|wire| wire.wire == "line").unwrap();
    assert_eq!(on_line.ended[0], 3);
    let protocol = stats.protocols.iter().find(|protocol| protocol.protocol == "line").unwrap();
    assert!(protocol.connections >= 4 && protocol.received > 0 && protocol.sent > 0, "{protocol:?}");
    assert_eq!((stats.unknown_protocol, stats.protocol_errors), (0, 0));
}

#[tokio::test]
async fn limits_of_the_format_are_listed() {
    WireId::register(&LINE).unwrap();
    let table = Limits::default().table();
    let row = table.lines().find(|row| row.starts_with("message_bytes_max/line")).unwrap();
    assert!(row.contains("64KiB") && row.contains("lines of text"), "{row}");
}

#[tokio::test]
async fn a_wire_that_is_not_enabled_is_rejected_before_it_is_parsed() {
    // Registered in the process, but not a wire of this server: its first bytes are unknown.
    WireId::register(&LINE).unwrap();
    let running = start(Server::new(), "tcp://127.0.0.1:0").await;
    assert_eq!(said(&running, "line 7 test.Probe/Echo [1]\n").await, "");
    assert_eq!((running.stats().unknown_protocol, running.stats().disabled_wires), (1, 0));
    // A wire of the server that this listener does not enable.
    let running = start(Server::new().wire(&LINE), "tcp://127.0.0.1:0?wires=native,grpc").await;
    assert_eq!(said(&running, "line 7 test.Probe/Echo [1]\n").await, "");
    let running_2 = start(Server::minimal().wire(&LINE), "tcp://127.0.0.1:0?wires=line").await;
    assert_eq!(said(&running_2, "line 7 test.Probe/Echo [1]\n").await, "ok 7 [1]\n");
    let response = said(&running_2, "POST /test.Probe/Echo HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(
        response.starts_with("HTTP/1.1 501 ") && response.contains("enabled: line (wires)"),
        "{response}"
    );
    assert_eq!(running_2.stats().disabled_wires, 1);
}

#[tokio::test]
async fn pages_of_a_server_need_no_wire_of_http() {
    let server = Server::new().wires(["kiss"]).page("/", "text/plain", "here");
    let running = start(server, "tcp://127.0.0.1:0").await;
    let request = |path| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(said(&running, &request("/")).await.ends_with("here"));
    let call = said(&running, &request("/test.Probe/Echo?connect=v1&encoding=json&message=[1]")).await;
    assert!(!call.starts_with("HTTP/1.1 200 "), "{call}");
}

#[tokio::test]
async fn minimal_servers_have_three_wires() {
    let running = start(Server::minimal(), &memory()).await;
    for (options, code) in [
        ("", None),
        ("?wire=grpc", None),
        ("?wire=connect", None),
        ("?wire=grpc-web", Some(Code::Unimplemented)),
        ("?wire=jsonrpc", Some(Code::Unimplemented)),
        ("?wire=rpcx", Some(Code::Unavailable)),
    ] {
        let outcome = match Channel::connect(&(running.url() + options)).await {
            Ok(channel) => {
                let (codec, is_json_rpc) = (channel.codec(Codec::Postcard), options.contains("jsonrpc"));
                let request =
                    if is_json_rpc { encode(&[vec![1u8]], codec) } else { encode(&vec![1u8], codec) };
                soon(channel.unary(&ECHO, codec, request, decode::<Vec<u8>>)).await.map(drop)
            }
            Err(status) => Err(status),
        };
        assert_eq!(outcome.as_ref().err().map(switchboard::Status::code), code, "{options}: {outcome:?}");
    }
}

#[tokio::test]
async fn wires_that_cannot_be_used_are_errors_of_the_start() {
    static SAME: WireSpec = WireSpec::named("grpc");
    let error = Server::new().add(Probe::default()).wire(&SAME).listen(memory()).start().await.err().unwrap();
    assert!(error.to_string().contains("\"grpc\": the name is in use"), "{error}");
    let error = Channel::builder("tcp://127.0.0.1:1").wire(&SAME).lazy().unwrap_err();
    assert!(error.message().contains("in use"), "{error}");
}

#[tokio::test]
async fn wires_inside_http_are_rejected_before_their_bodies_are_read() {
    let running = start(Server::minimal(), "tcp://127.0.0.1:0").await;
    for head in [
        "POST /rpc HTTP/1.1\r\ncontent-type: application/json\r\n",
        "POST /x HTTP/1.1\r\ncontent-type: application/x-thrift\r\n",
        "POST / HTTP/1.1\r\nx-rpcx-servicepath: test.Probe\r\nx-rpcx-servicemethod: Echo\r\n",
        "GET /_rpcx_ HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    ] {
        let request = format!("{head}host: localhost\r\nconnection: close\r\n\r\n");
        let response = said(&running, &request).await;
        // Every response of JSON-RPC has the status 200.
        let status = if head.contains("json") { "200" } else { "501" };
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {response}");
        assert!(response.contains("enabled: connect, grpc, native (wires)"), "{head}: {response}");
    }
}

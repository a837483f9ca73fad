//! Requests with faults on the dialects of HTTP.

use crate::{Case, MESSAGE_BYTES_MAX, TOKEN, case, ends};
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use std::time::Duration;
use switchboard::Running;
use tokio::net::TcpStream;

const OVER_METHOD: usize = 200;
const OVER_SERVER: usize = MESSAGE_BYTES_MAX as usize + 1000;

pub(crate) fn all() -> Vec<Case> {
    let mut cases = dialects();
    cases.extend(gateways());
    cases
}

/// A request to the path of a method.
fn request(verb: &str, name: &str, query: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    at(verb, &format!("/test.Guarded/{name}{query}"), headers, body)
}

fn at(verb: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn json(len: usize) -> Vec<u8> {
    format!("{{\"s\":\"{}\"}}", "x".repeat(len)).into_bytes()
}

fn envelope(len: usize) -> Vec<u8> {
    [&[0][..], &(len as u32).to_be_bytes(), &vec![b' '; len]].concat()
}

fn dialects() -> Vec<Case> {
    let kinds = [
        ("JSON", "application/json", 10),
        ("JSON over the limit of the method", "application/json", OVER_METHOD),
        ("JSON over the limit of the server", "application/json", OVER_SERVER),
        ("lines", "application/x-ndjson", 10),
        ("lines over the limit of the server", "application/x-ndjson", OVER_SERVER),
        ("proto", "application/proto", 10),
        ("proto over the limit of the method", "application/proto", OVER_METHOD),
        ("proto over the limit of the server", "application/proto", OVER_SERVER),
        ("x-protobuf", "application/x-protobuf", 10),
        ("an unknown content type", "application/x-unknown", 10),
        ("an unknown codec of Connect", "application/connect+unknown", 10),
        ("an unknown codec of gRPC-Web", "application/grpc-web+unknown", 10),
    ];
    let mut cases: Vec<Case> = kinds
        .into_iter()
        .map(|(what, kind, len)| {
            case(what, move |name| {
                request("POST", name, "", &format!("content-type: {kind}\r\n"), &json(len))
            })
        })
        .collect();
    let enveloped = [
        ("Connect streaming", "application/connect+proto", 10),
        ("Connect streaming over the limit of the method", "application/connect+proto", OVER_METHOD),
        ("Connect streaming over the limit of the server", "application/connect+json", OVER_SERVER),
        ("gRPC-Web", "application/grpc-web+proto", 10),
        ("gRPC-Web over the limit of the method", "application/grpc-web+proto", OVER_METHOD),
        ("gRPC-Web over the limit of the server", "application/grpc-web+proto", OVER_SERVER),
    ];
    cases.extend(enveloped.into_iter().map(|(what, kind, len)| {
        case(what, move |name| {
            request("POST", name, "", &format!("content-type: {kind}\r\n"), &envelope(len))
        })
    }));
    let headers = [
        ("a timeout that is none", "content-type: application/proto\r\nconnect-timeout-ms: soon\r\n"),
        ("a timeout that is none, JSON", "content-type: application/json\r\nconnect-timeout-ms: soon\r\n"),
        ("a compression that is none", "content-type: application/proto\r\ncontent-encoding: zip\r\n"),
        ("a compression that is none, JSON", "content-type: application/json\r\ncontent-encoding: zip\r\n"),
        ("gzip that is none", "content-type: application/json\r\ncontent-encoding: gzip\r\n"),
        (
            "a version of Connect that is none",
            "content-type: application/json\r\nconnect-protocol-version: 7\r\n",
        ),
    ];
    cases.extend(
        headers
            .into_iter()
            .map(|(what, headers)| case(what, move |name| request("POST", name, "", headers, b"{}"))),
    );
    for (what, verb, query) in [
        ("GET", "GET", ""),
        ("GET of Connect", "GET", "?connect=v1&encoding=json&message=%7B%7D"),
        ("PUT", "PUT", ""),
        ("DELETE", "DELETE", ""),
        ("PATCH", "PATCH", "?a=b"),
    ] {
        cases.push(case(what, move |name| request(verb, name, query, "x-own: 1\r\n", b"")));
    }
    cases.push(case("a name without its package", |name| {
        at("POST", &format!("/Guarded/{name}"), "content-type: application/json\r\n", b"{}")
    }));
    // Requests that a page of another site can make a browser send are refused for every path.
    for (what, headers) in [
        ("no content type", ""),
        ("a text", "content-type: text/plain\r\n"),
        ("a form", "content-type: application/x-www-form-urlencoded\r\n"),
        ("a page of another site", "content-type: text/plain\r\norigin: http://other.example\r\n"),
    ] {
        cases.push(ends(what, move |name| request("POST", name, "", headers, b"{}")));
    }
    // The text of the refusal is in base64.
    cases.push(ends("gRPC-Web text", |name| {
        request("POST", name, "", "content-type: application/grpc-web-text\r\n", &envelope(OVER_SERVER))
    }));
    cases
}

/// JSON-RPC, rpcx and Thrift on HTTP.
fn gateways() -> Vec<Case> {
    let json_rpc = |name: &str, params: &str| {
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"test.Guarded.{name}\",\"params\":{params}}}"
        );
        at("POST", "/", "content-type: application/json\r\n", text.as_bytes())
    };
    let rpcx = |name: &str, codec: u8, len: usize| {
        let headers = format!(
            "x-rpcx-servicepath: test.Guarded\r\nx-rpcx-servicemethod: {name}\r\nx-rpcx-serializetype: {codec}\r\n"
        );
        at("POST", "/", &headers, &json(len))
    };
    let thrift = |name: &str, len: usize| {
        let name = format!("Guarded:{name}");
        let mut message =
            [&[0x80, 1, 0, 1][..], &(name.len() as u32).to_be_bytes(), name.as_bytes()].concat();
        message.extend(7u32.to_be_bytes());
        message.extend([&[11, 0, 2][..], &(len as u32).to_be_bytes(), &vec![b'x'; len], &[0]].concat());
        at("POST", "/thrift", "content-type: application/x-thrift\r\n", &message)
    };
    vec![
        case("JSON-RPC", move |name| json_rpc(name, "{}")),
        case("JSON-RPC, parameters in order", move |name| json_rpc(name, "[1,2,3]")),
        case("JSON-RPC over the limit of the method", move |name| {
            json_rpc(name, &String::from_utf8(json(OVER_METHOD)).unwrap())
        }),
        case("gateway of rpcx", move |name| rpcx(name, 1, 10)),
        case("gateway of rpcx, codec", move |name| rpcx(name, 99, 10)),
        case("gateway of rpcx over the limit of the method", move |name| rpcx(name, 1, OVER_METHOD)),
        ends("gateway of rpcx over the limit of the server", move |name| rpcx(name, 1, OVER_SERVER)),
        case("Thrift", move |name| thrift(name, 10)),
        case("Thrift over the limit of the method", move |name| thrift(name, OVER_METHOD)),
    ]
}

/// Requests of a known caller, and the reason with which each is refused.
pub(crate) fn known() -> Vec<(Vec<u8>, &'static str)> {
    let headers = |kind: &str| format!("content-type: {kind}\r\nauthorization: {TOKEN}\r\n");
    vec![
        (
            request("POST", "Show", "", &headers("application/json"), &json(OVER_SERVER)),
            "message_bytes_max of the receiver",
        ),
        (request("GET", "Show", "", &headers("application/json"), b""), "405"),
        (request("POST", "Flow", "", &headers("application/proto"), b""), "streams: send one of"),
        (request("POST", "Show", "", &headers("application/x-unknown"), b""), "415"),
        (request("GET", "Shaw/more", "", &headers("application/json"), b""), "nothing is at GET"),
    ]
}

/// Cases of gRPC on HTTP/2: headers and body.
pub(crate) fn grpc() -> Vec<(&'static str, HeaderMap, Bytes)> {
    let headers = |more: &[(&'static str, &'static str)]| {
        let usual = [("content-type", "application/grpc+proto"), ("te", "trailers")];
        let mut headers = HeaderMap::new();
        for (name, value) in usual.iter().chain(more) {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    };
    vec![
        ("whole", headers(&[]), envelope(10).into()),
        ("no message", headers(&[]), Bytes::new()),
        ("two messages", headers(&[]), [envelope(10), envelope(10)].concat().into()),
        ("a message that ends early", headers(&[]), envelope(10)[..9].to_vec().into()),
        ("an unknown codec", headers(&[("content-type", "application/grpc+unknown")]), envelope(10).into()),
        ("JSON", headers(&[("content-type", "application/grpc+json")]), envelope(10).into()),
        ("FlatBuffers", headers(&[("content-type", "application/grpc+flatbuffers")]), envelope(10).into()),
        ("an unknown compression", headers(&[("grpc-encoding", "zip")]), envelope(10).into()),
        (
            "gzip that is none",
            headers(&[("grpc-encoding", "gzip")]),
            [&[1][..], &envelope(10)[1..]].concat().into(),
        ),
        ("a timeout that is none", headers(&[("grpc-timeout", "soon")]), envelope(10).into()),
        ("over the limit of the method", headers(&[]), envelope(OVER_METHOD).into()),
        ("over the limit of the server", headers(&[]), envelope(OVER_SERVER).into()),
    ]
}

/// Returns status, headers, body and trailers of a response as text.
pub(crate) async fn ask_grpc(running: &Running, name: &str, headers: &HeaderMap, body: Bytes) -> String {
    let io = TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let (client, connection) = h2::client::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let uri = format!("http://x/test.Guarded/{name}");
    let mut request = Request::builder().method(Method::POST).uri(uri).body(()).unwrap();
    *request.headers_mut() = headers.clone();
    let exchange = async {
        let (response, mut send) = client.send_request(request, false).unwrap();
        // The server may have reset the stream after its response.
        let _ = send.send_data(body, true);
        let mut response = response.await.unwrap();
        let mut text = format!("{} {:?}", response.status(), sorted(response.headers()));
        let body = response.body_mut();
        while let Some(Ok(data)) = body.data().await {
            text += &format!(" {data:?}");
            let _ = body.flow_control().release_capacity(data.len());
        }
        if let Ok(Some(trailers)) = body.trailers().await {
            text += &format!(" {:?}", sorted(&trailers));
        }
        text
    };
    let text = tokio::time::timeout(Duration::from_secs(20), exchange).await.expect("the server responds");
    connection.abort();
    text
}

fn sorted(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
    lines.sort();
    lines
}

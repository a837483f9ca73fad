//! HTTP/1.1: JSON by POST, Connect, gRPC-Web, and JSON-RPC by POST.

use crate::wire::{Wire, gzip_bomb, gzip_members, json, proto};

const JSON: &str = "content-type: application/json\r\n";

/// Calls that are held have a deadline: while one waits, and bytes of the next have come, hyper does not read, and does
/// not notice that its peer has gone.
const HOLD: &str = "content-type: application/json\r\ngrpc-timeout: 200m\r\nconnect-timeout-ms: 200\r\n";

/// Calls in HTTP/JSON; the cheap ones are of the other dialects.
pub const HTTP1: Wire = Wire {
    name: "http1",
    channel: "tcp://ADDRESS?wire=connect&http=1&codec=json",
    show: |_, padding| post("/test.Target/Show", JSON, json(padding).as_bytes()),
    hold: |_| post("/test.Target/Hold", HOLD, b"{}"),
    unknown: |_| post("/test.Target/Nothing", JSON, b"{}"),
    large_head: |_| {
        let headers = format!("{JSON}x-large: {}\r\n", "v".repeat(12_000));
        post("/test.Target/Show", &headers, json(0).as_bytes())
    },
    cheap,
    wrong,
    bombs,
    ..Wire::PLAIN
};

/// JSON-RPC by POST.
pub const JSON_RPC_POST: Wire = Wire {
    name: "jsonrpc post",
    channel: "tcp://ADDRESS?wire=jsonrpc",
    show: |id, padding| post("/", JSON, rpc("Show", id, &json(padding)).as_bytes()),
    hold: |id| post("/", HOLD, rpc("Hold", id, "{}").as_bytes()),
    unknown: |id| post("/", JSON, rpc("Nothing", id, "{}").as_bytes()),
    large_head: |id| {
        let headers = format!("{JSON}x-large: {}\r\n", "v".repeat(12_000));
        post("/rpc", &headers, rpc("Show", id, &json(0)).as_bytes())
    },
    cheap: || {
        vec![
            ("a notification", post("/", JSON, b"{\"jsonrpc\":\"2.0\",\"method\":\"test.Target.Note\"}")),
            ("no JSON", post("/", JSON, b"{")),
            ("an empty batch", post("/", JSON, b"[]")),
            ("a batch of nothing", post("/", JSON, b"[1,1,1,1,1,1,1,1,1,1]")),
            ("no body", post("/", JSON, b"")),
        ]
    },
    wrong: || {
        vec![
            ("101 entries", post("/", JSON, format!("[{}]", vec!["1"; 101].join(",")).as_bytes())),
            ("deep", post("/", JSON, "[".repeat(100_000).as_bytes())),
            ("a body over message_bytes_max", post("/", JSON, &vec![b' '; 2 << 20])),
        ]
    },
    ..HTTP1
};

/// A gRPC-Web caller beside the same attacks.
pub const GRPC_WEB: Wire = Wire {
    name: "grpc-web",
    channel: "tcp://ADDRESS?wire=grpc-web&http=1",
    show: |_, padding| post("/test.Target/Show", GRPC_WEB_TYPE, &envelope(0, &proto(padding))),
    hold: |_| {
        let headers = format!("{GRPC_WEB_TYPE}grpc-timeout: 200m\r\n");
        post("/test.Target/Hold", &headers, &envelope(0, b""))
    },
    unknown: |_| post("/test.Target/Nothing", GRPC_WEB_TYPE, &envelope(0, b"")),
    large_head: |_| {
        let headers = format!("{GRPC_WEB_TYPE}x-large: {}\r\n", "v".repeat(12_000));
        post("/test.Target/Show", &headers, &envelope(0, &proto(0)))
    },
    bombs: || {
        let headers = format!("{GRPC_WEB_TYPE}grpc-encoding: gzip\r\n");
        [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
            .map(|(name, bomb)| (name, post("/test.Target/Show", &headers, &envelope(1, &bomb))))
            .into()
    },
    ..HTTP1
};

const GRPC_WEB_TYPE: &str = "content-type: application/grpc-web+proto\r\n";

pub fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn rpc(method: &str, id: u32, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"test.Target.{method}","params":{params},"id":{id}}}"#)
}

fn envelope(flags: u8, message: &[u8]) -> Vec<u8> {
    [&[flags][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    vec![
        ("the list of routes", get("/")),
        ("OpenAPI", get("/openapi.json")),
        ("a path that does not exist", get("/nothing/here")),
        ("HEAD", b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()),
        (
            "a question before a call",
            b"OPTIONS /test.Target/Show HTTP/1.1\r\nhost: x\r\norigin: http://y\r\n\
              access-control-request-method: POST\r\n\r\n"
                .to_vec(),
        ),
        ("no content type", post("/test.Target/Show", "", b"")),
        ("Connect", post("/test.Target/Show", "content-type: application/proto\r\n", &proto(0))),
        (
            "gRPC-Web",
            post("/test.Target/Show", "content-type: application/grpc-web+proto\r\n", &envelope(0, &proto(0))),
        ),
        (
            "a body of small chunks",
            format!(
                "POST /test.Target/Show HTTP/1.1\r\nhost: x\r\n{JSON}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
                "1\r\n \r\n".repeat(100)
            )
            .into_bytes(),
        ),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    let head = "POST /test.Target/Show HTTP/1.1\r\nhost: x\r\n";
    let with = |rest: &str| format!("{head}{rest}").into_bytes();
    vec![
        ("a head over metadata_bytes_max", with(&format!("x-a: {}\r\n\r\n", "v".repeat(400_000)))),
        ("a body over message_bytes_max", post("/test.Target/Show", JSON, &vec![b' '; 2 << 20])),
        ("two lengths", with("content-length: 1\r\ncontent-length: 2\r\n\r\nxx")),
        ("a chunk without a size", with("transfer-encoding: chunked\r\n\r\nxyz\r\n")),
        ("no HTTP", b"POST\r\n\r\n".to_vec()),
        ("a long path", format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "p".repeat(20_000)).into_bytes()),
        ("many parameters", {
            let query: String = (0..2000).map(|n| format!("a{n}=1&")).collect();
            format!("GET /test.Target/Show?{query} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()
        }),
    ]
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let headers =
        "content-type: application/proto\r\ncontent-encoding: gzip\r\nconnect-protocol-version: 1\r\n";
    [("gzip", gzip_bomb()), ("empty members of gzip", gzip_members())]
        .map(|(name, bomb)| (name, post("/test.Target/Show", headers, &bomb)))
        .into()
}

//! JSON-RPC on bare TCP.

use crate::wire::{Wire, json};

/// A channel cannot speak it on bare TCP: the neighbour uses WebSockets.
pub const JSON_RPC: Wire = Wire {
    name: "jsonrpc",
    channel: "ws://ADDRESS?wire=jsonrpc",
    show: |id, padding| (request("Show", id, &json(padding)) + "\n").into_bytes(),
    hold: |id| (request("Hold", id, "{}") + "\n").into_bytes(),
    unknown: |id| (request("Nothing", id, "{}") + "\n").into_bytes(),
    large_head: |id| {
        let id = format!("\"{}{id}\"", "i".repeat(1000));
        let params = json(0);
        let method = "test.Target.Show";
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":{id}}}"#).into_bytes()
    },
    cancel: Some(|id| cancel(id).into_bytes()),
    cheap,
    wrong,
    ..Wire::PLAIN
};

pub fn request(method: &str, id: u32, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"test.Target.{method}","params":{params},"id":{id}}}"#)
}

pub fn cancel(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"rpc.cancel","params":{{"id":{id}}}}}"#)
}

fn cheap() -> Vec<(&'static str, Vec<u8>)> {
    texts().into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
}

/// Texts that cost next to nothing.
pub fn texts() -> Vec<(&'static str, String)> {
    vec![
        ("a notification", r#"{"jsonrpc":"2.0","method":"test.Target.Note","params":{}}"#.to_owned()),
        ("a notification without a method", r#"{"jsonrpc":"2.0","method":"no.Such"}"#.to_owned()),
        ("an empty batch", "[]".to_owned()),
        ("a batch of nothing", "[1,1,1,1,1,1,1,1,1,1]".to_owned()),
        ("a number", "7 ".to_owned()),
        ("a cancel of nothing", cancel(7)),
        ("a stream begun and cancelled", request("Feed", 3_000_000, r#"{"s":"x"}"#) + &cancel(3_000_000)),
    ]
}

fn wrong() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("no JSON", b"}{\n".to_vec()),
        ("101 entries", format!("[{}]", vec!["1"; 101].join(",")).into_bytes()),
        ("deep", "[".repeat(100_000).into_bytes()),
        (
            "a long id",
            request("Show", 1, "{}").replace(":1}", &format!(":\"{}\"}}", "i".repeat(5000))).into_bytes(),
        ),
        ("a text over message_bytes_max", format!("[\"{}", "x".repeat(4 << 20)).into_bytes()),
    ]
}

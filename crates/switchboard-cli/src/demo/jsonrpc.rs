//! JSON-RPC: in a POST, in the text messages of a WebSocket, and as lines on bare TCP.

use super::{
    answers::{self, Method, UNARY},
    table::Row,
    texts::Texts,
};
use bytes::Bytes;
use connectrpc::client::{ClientTransport, HttpClient, full_body};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::Value;
use switchboard::{Codec, codec::proto};
use tokio::sync::Mutex;

/// What a connection carries beside that: streams of replies.
const METHODS: [Method; 4] = [Method::Greet, Method::Watch, Method::Query, Method::Message];

/// Calls in each way to `HOST:PORT`.
///
/// # Errors
/// When a connection cannot be opened.
pub(super) async fn rows(address: &str) -> Result<Vec<Row>, String> {
    let post = Caller::Post(Box::new(HttpClient::plaintext()), format!("http://{address}/rpc"));
    let websocket = Caller::Texts(Mutex::new(Texts::websocket(address, "jsonrpc").await?));
    let lines = Caller::Texts(Mutex::new(Texts::lines(address).await?));
    let mut rows = Vec::new();
    for (wire, caller, methods) in [
        ("JSON-RPC, HTTP/1.1", post, &UNARY[..]),
        ("JSON-RPC, WebSocket", websocket, &METHODS[..]),
        ("JSON-RPC, TCP", lines, &METHODS[..]),
    ] {
        for &method in methods {
            rows.push(Row::measure(wire, method, async || caller.answer(method).await).await);
        }
    }
    Ok(rows)
}

enum Caller {
    Post(Box<HttpClient>, String),
    Texts(Mutex<Texts>),
}

impl Caller {
    async fn answer(&self, method: Method) -> Result<String, String> {
        let params = match method {
            Method::Greet => json(&answers::greet_request())?,
            Method::Watch => json(&answers::watch_request())?,
            Method::Query => json(&answers::query_request())?,
            Method::Message => json(&answers::message_request())?,
            Method::Sum | Method::Chat => return Err(format!("{} is not asked here", method.name())),
        };
        let request = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{params},"id":1}}"#, method.name());
        let mut replies = self.send(request).await?;
        if method == Method::Watch {
            let ticks: Result<Vec<_>, _> = replies.iter().map(read).collect();
            return Ok(answers::watch(&ticks?));
        }
        let reply = replies.pop().filter(|_| replies.is_empty());
        let reply = reply.ok_or_else(|| format!("{} replies came before the answer", replies.len()))?;
        Ok(match method {
            Method::Greet => answers::greet(read(&reply)?),
            Method::Query => answers::query(&read(&reply)?),
            _ => answers::message(&read(&reply)?),
        })
    }

    /// The result, or those of a stream.
    async fn send(&self, request: String) -> Result<Vec<Value>, String> {
        match self {
            Caller::Post(client, url) => {
                let post = Request::post(url).header(CONTENT_TYPE, "application/json");
                let post = post.body(full_body(request.into())).map_err(|error| error.to_string())?;
                let response = client.send(post).await.map_err(|error| error.to_string())?;
                let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
                Ok(vec![result_of(parse(&body.to_bytes())?)?])
            }
            Caller::Texts(texts) => {
                let mut texts = texts.lock().await;
                texts.send(&request).await?;
                let mut replies = Vec::new();
                loop {
                    let mut text = parse(texts.next().await?.as_bytes())?;
                    if text["method"] == "rpc.stream" {
                        replies.push(text["params"]["result"].take());
                        continue;
                    }
                    let result = result_of(text)?;
                    if replies.is_empty() || !result.is_null() {
                        replies.push(result);
                    }
                    return Ok(replies);
                }
            }
        }
    }
}

fn result_of(mut answer: Value) -> Result<Value, String> {
    match answer.get("error") {
        Some(error) => Err(error.to_string()),
        None if answer["id"] == 1 => Ok(answer["result"].take()),
        None => Err(format!("an answer to another request: {answer}")),
    }
}

fn parse(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| format!("the answer is no JSON: {error}"))
}

fn json<M>(message: &M) -> Result<String, String>
where
    M: switchboard::codegen::buffa::Message + switchboard::codegen::serde::Serialize,
{
    let bytes = proto::encode(message, Codec::Json).map_err(|status| status.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read<M>(json: &Value) -> Result<M, String>
where
    M: switchboard::codegen::buffa::Message + switchboard::codegen::serde::de::DeserializeOwned,
{
    proto::decode(Codec::Json, Bytes::from(json.to_string())).map_err(|status| status.to_string())
}

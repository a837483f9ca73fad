//! JSON-RPC as lines on plain TCP, without a library: each message is one line.

use super::{
    answers::{self, Method},
    table::Row,
};
use bytes::Bytes;
use serde_json::Value;
use switchboard::{Codec, codec::proto};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::Mutex,
};

/// Methods for a JSON-RPC connection: streams of replies are supported.
const METHODS: [Method; 4] = [Method::Greet, Method::Watch, Method::Query, Method::Message];

/// Longest line that is read.
const LINE_MAX: u64 = 4 << 20;

/// Calls to `HOST:PORT`.
///
/// # Errors
/// When the connection cannot be opened.
pub(super) async fn rows(address: &str) -> Result<Vec<Row>, String> {
    let stream =
        TcpStream::connect(address).await.map_err(|error| format!("connect to {address}: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let lines = Lines(Mutex::new(BufReader::new(stream)));
    let mut rows = Vec::new();
    for method in METHODS {
        rows.push(Row::measure("JSON-RPC, TCP", method, async || lines.answer(method).await).await);
    }
    Ok(rows)
}

/// A connection. Not cancel safe: a call that is dropped leaves its replies on the connection.
struct Lines(Mutex<BufReader<TcpStream>>);

impl Lines {
    async fn answer(&self, method: Method) -> Result<String, String> {
        let params = match method {
            Method::Greet => json(&answers::greet_request())?,
            Method::Watch => json(&answers::watch_request())?,
            Method::Query => json(&answers::query_request())?,
            Method::Message => json(&answers::message_request())?,
            Method::Sum | Method::Chat | Method::Topic | Method::Room => {
                return Err(format!("{} is not called on this wire", method.name()));
            }
        };
        let request = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{params},"id":1}}"#, method.name());
        let mut replies = self.send(request).await?;
        if method == Method::Watch {
            let ticks: Result<Vec<_>, _> = replies.iter().map(read).collect();
            return Ok(answers::watch(&ticks?));
        }
        let reply = replies.pop().filter(|_| replies.is_empty());
        let reply = reply.ok_or_else(|| format!("{} replies came before the result", replies.len()))?;
        Ok(match method {
            Method::Greet => answers::greet(read(&reply)?),
            Method::Query => answers::query(&read(&reply)?),
            _ => answers::message(&read(&reply)?),
        })
    }

    /// Returns the result, or the results of a stream.
    async fn send(&self, request: String) -> Result<Vec<Value>, String> {
        let mut stream = self.0.lock().await;
        stream.write_all(format!("{request}\n").as_bytes()).await.map_err(|error| error.to_string())?;
        let mut replies = Vec::new();
        loop {
            let mut line = String::new();
            if (&mut *stream).take(LINE_MAX).read_line(&mut line).await.map_err(|error| error.to_string())?
                == 0
            {
                return Err("the server closed the connection".to_owned());
            }
            let mut message: Value =
                serde_json::from_str(&line).map_err(|error| format!("the response is not JSON: {error}"))?;
            if message["method"] == "rpc.stream" {
                replies.push(message["params"]["result"].take());
                continue;
            }
            let result = result_of(message)?;
            if replies.is_empty() || !result.is_null() {
                replies.push(result);
            }
            return Ok(replies);
        }
    }
}

fn result_of(mut answer: Value) -> Result<Value, String> {
    match answer.get("error") {
        Some(error) => Err(error.to_string()),
        None if answer["id"] == 1 => Ok(answer["result"].take()),
        None => Err(format!("a response to another request: {answer}")),
    }
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

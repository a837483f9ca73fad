//! JSON-RPC over a POST, over a WebSocket and over bare TCP.

use crate::{
    http::{metadata, post, timeout, written},
    http_json::text,
    spec::{CallSpec, Failure, Outcome},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::net::SocketAddr;
use switchboard::{Code, Kind};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The transport of the texts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Over {
    Post,
    Tcp,
    WebSocket,
}

pub(crate) async fn run(address: SocketAddr, over: Over, spec: &CallSpec) -> Outcome {
    let streams = spec.kind == Kind::ServerStream;
    let method = format!("test.v1.Wires.{}", spec.method);
    let request = json!({"jsonrpc": "2.0", "method": method, "params": spec.messages[0].json(), "id": 7});
    let mut answer = Outcome::default();
    if over == Over::Post {
        let head = format!("content-type: application/json\r\n{}{}", timeout(spec), written(spec));
        let got = post(address, "/rpc", &head, request.to_string().as_bytes()).await;
        if got.status != 200 {
            let message = String::from_utf8(got.body).unwrap();
            answer.failure =
                Some(Failure { code: Some(code_of_http(got.status)), message, ..Failure::default() });
            return answer;
        }
        take(&serde_json::from_slice(&got.body).unwrap(), &mut answer);
        match &mut answer.failure {
            Some(failure) => failure.metadata = metadata(&got.headers, ""),
            None => answer.head = metadata(&got.headers, ""),
        }
        return answer;
    }
    let mut stream = Stream::open(address, over, &written(spec)).await;
    stream.send(&request.to_string()).await;
    while take(&stream.next().await, &mut answer) {}
    if streams && answer.failure.is_none() {
        // A stream ends with an answer of its own.
        assert_eq!(answer.messages.pop().as_deref(), Some(""));
    }
    answer
}

/// JSON-RPC leaves a body that is too large to HTTP.
fn code_of_http(status: u16) -> Code {
    if status == 413 { Code::ResourceExhausted } else { Code::Unknown }
}

/// Adds what a text says; whether more comes.
fn take(value: &Value, answer: &mut Outcome) -> bool {
    if value["method"] == "rpc.stream" {
        answer.messages.push(text(&value["params"]["result"]));
        return true;
    }
    match value.get("error") {
        None => answer.messages.push(text(&value["result"])),
        Some(error) => answer.failure = Some(failure(error)),
    }
    false
}

fn failure(error: &Value) -> Failure {
    let data = &error["data"];
    let code = match data["grpcCode"].as_u64() {
        Some(number) => Code::from_number(number as u16),
        None => switchboard_wire::jsonrpc::code_of(error["code"].as_i64().unwrap() as i32),
    };
    let detail = |detail: &Value| {
        let value = STANDARD.decode(detail["value"].as_str().unwrap()).unwrap();
        (detail["type"].as_str().unwrap().to_owned(), value)
    };
    let mut message = error["message"].as_str().unwrap().to_owned();
    if let Some(why) = data.as_str() {
        message = format!("{message}: {why}");
    }
    let details = data["details"].as_array().into_iter().flatten().map(detail).collect();
    Failure { code: Some(code), message, details, metadata: Vec::new() }
}

/// A connection that carries texts both ways.
struct Stream {
    stream: BufReader<TcpStream>,
    over: Over,
}

impl Stream {
    async fn open(address: SocketAddr, over: Over, headers: &str) -> Stream {
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        if over == Over::WebSocket {
            let head = format!(
                "GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                 sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n{headers}\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            while !answer.ends_with("\r\n\r\n") {
                assert!(stream.read_line(&mut answer).await.unwrap() > 0);
            }
            assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        }
        Stream { stream, over }
    }

    async fn send(&mut self, text: &str) {
        if self.over == Over::WebSocket {
            let mut head = vec![0x81];
            match text.len() {
                short @ ..126 => head.push(0x80 | short as u8),
                medium @ ..=0xFFFF => {
                    head.push(0x80 | 126);
                    head.extend((medium as u16).to_be_bytes());
                }
                long => {
                    head.push(0x80 | 127);
                    head.extend((long as u64).to_be_bytes());
                }
            }
            // A mask of zeroes leaves the text as it is.
            head.extend([0; 4]);
            self.stream.write_all(&head).await.unwrap();
        }
        // A server that refuses a large text need not read it.
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    async fn next(&mut self) -> Value {
        if self.over == Over::Tcp {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            return serde_json::from_str(&line).unwrap();
        }
        let first = self.stream.read_u8().await.unwrap();
        let length = match self.stream.read_u8().await.unwrap() {
            126 => usize::from(self.stream.read_u16().await.unwrap()),
            127 => self.stream.read_u64().await.unwrap() as usize,
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.unwrap();
        if first == 0x88 {
            // The server closes: its reason as an error object.
            let why = String::from_utf8_lossy(&payload[2..]).into_owned();
            let number =
                if payload[..2] == 1009u16.to_be_bytes() { Code::ResourceExhausted } else { Code::Unknown };
            return json!({"error": {"code": 0, "message": why, "data": {"grpcCode": number.number()}}});
        }
        serde_json::from_slice(&payload).unwrap()
    }
}

//! A small HTTP/1.1 server for registries with a documented HTTP API.

use std::{collections::BTreeMap, future::Future, sync::Arc};
use switchboard::web::decode;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

/// A received request.
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    /// Without its query.
    pub(crate) path: String,
    /// The query, and the body if it is a form.
    pub(crate) options: BTreeMap<String, String>,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

impl HttpRequest {
    pub(crate) fn option(&self, name: &str) -> &str {
        self.options.get(name).map_or("", String::as_str)
    }
}

/// The response to send.
pub(crate) enum HttpResponse {
    Whole(u16, String),
    /// With these header lines, each with its line break.
    WithHead(u16, &'static str, String),
    /// Lines as they arrive, until the sender is dropped.
    Lines(mpsc::UnboundedReceiver<String>),
}

/// Serves one request per connection, until it is dropped.
pub(crate) async fn serve<H, F>(listener: TcpListener, handler: H)
where
    H: Fn(HttpRequest) -> F + Send + Sync + 'static,
    F: Future<Output = HttpResponse> + Send,
{
    let handler = Arc::new(handler);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("it listens");
        let handler = handler.clone();
        connections.spawn(async move { converse(stream, &*handler).await });
    }
}

async fn converse<F: Future<Output = HttpResponse>>(
    stream: TcpStream,
    handler: &impl Fn(HttpRequest) -> F,
) -> Option<()> {
    let mut stream = BufStream::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let form = String::from_utf8_lossy(&body);
    let pairs = query.split('&').chain(form.split('&')).filter_map(|pair| pair.split_once('='));
    let options = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
    let response = match handler(HttpRequest { method, path: path.to_owned(), options, headers }).await {
        HttpResponse::Whole(status, body) => HttpResponse::WithHead(status, "", body),
        response => response,
    };
    match response {
        HttpResponse::Whole(..) => unreachable!("replaced above"),
        HttpResponse::WithHead(status, lines, body) => {
            let head = format!("HTTP/1.1 {status} X\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(body.as_bytes()).await.ok()?;
        }
        HttpResponse::Lines(mut lines) => {
            stream.write_all(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n").await.ok()?;
            stream.flush().await.ok()?;
            while let Some(line) = lines.recv().await {
                let chunk = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
                stream.write_all(chunk.as_bytes()).await.ok()?;
                stream.flush().await.ok()?;
            }
            stream.write_all(b"0\r\n\r\n").await.ok()?;
        }
    }
    stream.flush().await.ok()
}

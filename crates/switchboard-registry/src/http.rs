//! Calls to registries that speak HTTP: one request, one connection, an answer of bounded size.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{HeaderMap, Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use switchboard::{Code, Result, Retry, Status};
use tokio::{net::TcpStream, time::timeout};

/// A server of HTTP/1.1 without TLS, as agents on the same machine are.
#[derive(Clone)]
pub(crate) struct Http {
    /// For texts: `consul 127.0.0.1:8500`.
    pub(crate) name: String,
    pub(crate) host: String,
    /// Sent with every request.
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// What came back, with a status that is no error.
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Http {
    /// Sends a request and reads the whole answer within `limit`.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        bytes_max: usize,
        limit: Duration,
    ) -> Result<Answer> {
        let slow = |_| self.failed(&format!("no answer to {path} within {limit:?}"));
        timeout(limit, self.answer(method, path, body, bytes_max)).await.map_err(slow)?
    }

    async fn answer(&self, method: Method, path: &str, body: Vec<u8>, bytes_max: usize) -> Result<Answer> {
        let failed = |error: &dyn std::fmt::Display| self.failed(&format!("{path}: {error}"));
        let stream = TcpStream::connect(&self.host).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| failed(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
            let (head, body) = response.into_parts();
            let body =
                Limited::new(body, bytes_max).collect().await.map_err(|error| failed(&error))?.to_bytes();
            if !head.status.is_success() {
                let text = String::from_utf8_lossy(&body);
                let text: String = text.trim().chars().take(200).collect();
                let text = format!("{}: {path}: {}: {text}", self.name, head.status);
                let code = if head.status == 404 { Code::NotFound } else { Code::Unavailable };
                return Err(Status::new(code, text));
            }
            Ok(Answer { headers: head.headers, body })
        };
        tokio::pin!(exchange, connection);
        // The connection does the work of the exchange; it may end first, when the server closes it after its answer.
        tokio::select! {
            answer = &mut exchange => answer,
            _ = &mut connection => exchange.await,
        }
    }

    fn failed(&self, why: &str) -> Status {
        Status::unavailable(format!("{}: {why}", self.name)).with_retry(Retry::Safe)
    }
}

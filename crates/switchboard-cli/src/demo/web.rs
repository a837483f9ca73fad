//! HTTP/JSON: plain requests to paths, as curl and browsers make them.

use super::{
    answers::{self, Method},
    table::Row,
};
use bytes::Bytes;
use connectrpc::client::{ClientTransport, HttpClient, full_body};
use http::{Request, Uri, header::ACCEPT, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use switchboard::{Codec, codec::proto};

const LINES: [Method; 4] = [Method::Greet, Method::Watch, Method::Sum, Method::Query];

/// Calls over HTTP/1.1 to `url`.
///
/// # Errors
/// When the URL is none.
pub(super) async fn rows(url: &str) -> Result<Vec<Row>, String> {
    let base: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
    let plain = Web { client: HttpClient::plaintext(), base: base.clone(), events: false };
    let events = Web { client: plain.client.clone(), base, events: true };
    let mut rows = Vec::new();
    for method in LINES {
        rows.push(Row::measure("HTTP/JSON, HTTP/1.1", method, async || plain.answer(method).await).await);
    }
    let watch = async || events.answer(Method::Watch).await;
    rows.push(Row::measure("Server-sent events, HTTP/1.1", Method::Watch, watch).await);
    Ok(rows)
}

struct Web {
    client: HttpClient,
    base: Uri,
    /// Asks for streams as events instead of lines.
    events: bool,
}

impl Web {
    async fn answer(&self, method: Method) -> Result<String, String> {
        let name = method.name().replace('.', "/");
        Ok(match method {
            Method::Greet => answers::greet(read(self.get("/v1/greetings/Ada").await?)?),
            Method::Query => answers::query(&read(self.get("/v1/posts").await?)?),
            Method::Sum => {
                let lines: Vec<_> = answers::numbers()
                    .iter()
                    .map(|number| format!("{{\"value\":{}}}\n", number.value))
                    .collect();
                answers::sum(&read(self.post(&format!("/demo.v1.{name}"), lines.concat()).await?)?)
            }
            Method::Watch => {
                let text = self.get("/v1/ticks?count=3").await?;
                let text = String::from_utf8_lossy(&text).into_owned();
                let (before, after) = if self.events { ("data: ", "") } else { ("{\"result\":", "}") };
                // The last event says that there are no more.
                let ticks = text.split("event: end").next().unwrap_or_default().lines();
                let ticks = ticks.filter_map(|line| line.strip_prefix(before)?.strip_suffix(after));
                let ticks = ticks.map(|tick| read(Bytes::copy_from_slice(tick.as_bytes())));
                answers::watch(&ticks.collect::<Result<Vec<_>, _>>()?)
            }
            Method::Chat | Method::Message => return Err(format!("{name} is not asked here")),
        })
    }

    async fn get(&self, path: &str) -> Result<Bytes, String> {
        let accept = if self.events { "text/event-stream" } else { "application/json" };
        self.send(Request::get(self.uri(path)).header(ACCEPT, accept), String::new()).await
    }

    async fn post(&self, path: &str, body: String) -> Result<Bytes, String> {
        self.send(Request::post(self.uri(path)).header(CONTENT_TYPE, "application/json"), body).await
    }

    fn uri(&self, path: &str) -> String {
        format!("{}{path}", self.base.to_string().trim_end_matches('/'))
    }

    async fn send(&self, request: http::request::Builder, body: String) -> Result<Bytes, String> {
        let request = request.body(full_body(body.into())).map_err(|error| error.to_string())?;
        let response = self.client.send(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
        }
        Ok(body)
    }
}

fn read<M>(json: Bytes) -> Result<M, String>
where
    M: switchboard::codegen::buffa::Message + switchboard::codegen::serde::de::DeserializeOwned,
{
    proto::decode(Codec::Json, json).map_err(|status| status.to_string())
}

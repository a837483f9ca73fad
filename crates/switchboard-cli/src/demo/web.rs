//! HTTP/JSON: plain requests to paths, as curl and browsers make them.

use super::{
    answers::{self, Method},
    table::Row,
};
use bytes::Bytes;
use switchboard::{
    Codec,
    codec::proto,
    web::{HttpRequest, Site},
};

const LINES: [Method; 4] = [Method::Greet, Method::Watch, Method::Sum, Method::Query];

/// Calls over HTTP/1.1 to `url`.
///
/// # Errors
/// When the URL is invalid.
pub(super) async fn rows(url: &str) -> Result<Vec<Row>, String> {
    let site = Site::new("the demo", url, None).map_err(|status| status.to_string())?;
    let (plain, events) = (Web { site: site.clone(), events: false }, Web { site, events: true });
    let mut rows = Vec::new();
    for method in LINES {
        rows.push(Row::measure("HTTP/JSON, HTTP/1.1", method, async || plain.answer(method).await).await);
    }
    let watch = async || events.answer(Method::Watch).await;
    rows.push(Row::measure("Server-sent events, HTTP/1.1", Method::Watch, watch).await);
    Ok(rows)
}

struct Web {
    site: Site,
    /// Requests streams as events instead of lines.
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
                // The last event marks the end.
                let ticks = text.split("event: end").next().unwrap_or_default().lines();
                let ticks = ticks.filter_map(|line| line.strip_prefix(before)?.strip_suffix(after));
                let ticks = ticks.map(|tick| read(Bytes::copy_from_slice(tick.as_bytes())));
                answers::watch(&ticks.collect::<Result<Vec<_>, _>>()?)
            }
            Method::Chat | Method::Message | Method::Topic | Method::Room => {
                return Err(format!("{name} is not called on this wire"));
            }
        })
    }

    async fn get(&self, path: &str) -> Result<Bytes, String> {
        let accept = if self.events { "text/event-stream" } else { "application/json" };
        let headers = [("accept", accept.to_owned())];
        self.send(HttpRequest { path, headers: &headers, ..HttpRequest::default() }).await
    }

    async fn post(&self, path: &str, body: String) -> Result<Bytes, String> {
        let headers = [("content-type", "application/json".to_owned())];
        self.send(HttpRequest {
            method: "POST",
            path,
            headers: &headers,
            body: body.as_bytes(),
            ..HttpRequest::default()
        })
        .await
    }

    async fn send(&self, request: HttpRequest<'_>) -> Result<Bytes, String> {
        self.site.call(request).await.map(|answer| answer.body).map_err(|status| status.to_string())
    }
}

fn read<M>(json: Bytes) -> Result<M, String>
where
    M: switchboard::codegen::buffa::Message + switchboard::codegen::serde::de::DeserializeOwned,
{
    proto::decode(Codec::Json, json).map_err(|status| status.to_string())
}

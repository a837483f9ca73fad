//! Consul keys as rpcx's plug-in writes them: each locked by a session, whose end deletes it.

use super::{PAUSE, RESPONSE_TIMEOUT, SHORT_BYTES_MAX, Shared, WAIT};
use crate::layout::{Layout, RpcxLayout};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::{convert::Infallible, sync::Arc, time::Duration};
use switchboard::{
    Result, Status,
    discover::{Backend, BoxFuture, Feed, Instance, Registration},
    web::{HttpRequest, encode},
};
use tokio::time::sleep;

/// The keys below a base path.
pub(super) struct Keys {
    pub(super) shared: Arc<Shared>,
    pub(super) layout: RpcxLayout,
}

/// TTLs of a session that Consul accepts; Consul may take twice as long to end a session.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(86_400);
/// Flags with which Consul clients mark locks.
const FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pair {
    key: String,
    /// In base64; null for an empty value.
    value: Option<String>,
}

#[derive(Deserialize)]
struct Session {
    #[serde(rename = "ID")]
    id: String,
}

impl Keys {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let folder = self.layout.folder(service);
        let path = in_path(&folder);
        let mut index = 0_u64;
        loop {
            let path = format!("{path}?recurse=true&index={index}&wait={}s", WAIT.as_secs());
            let Shared { site, headers } = &*self.shared;
            let (bytes_max, limit) = (feed.answer_bytes_max(), WAIT + RESPONSE_TIMEOUT * 2);
            let request = HttpRequest { path: &path, headers, bytes_max, limit, ..HttpRequest::default() };
            let response = site.exchange(request).await?;
            // Consul sends the index in every response to a query; a proxy that cannot reach Consul does not.
            let new = response.header("x-consul-index").and_then(|new| new.parse::<u64>().ok());
            let new = match (response.status(), new) {
                (404, Some(_)) => {
                    feed.publish([]);
                    index = 0;
                    // A folder without keys cannot be queried with a wait.
                    sleep(PAUSE).await;
                    continue;
                }
                (200, Some(new)) => new,
                (status, _) => {
                    let text = String::from_utf8_lossy(&response.body);
                    let text: String = text.trim().chars().take(200).collect();
                    return Err(Status::unavailable(format!(
                        "{}: expected a list of keys, received status {status}: {text}",
                        site.name()
                    )));
                }
            };
            if new == index {
                sleep(PAUSE).await;
                continue;
            }
            let wrong = |error| Status::unavailable(format!("{} sent an invalid list: {error}", site.name()));
            let pairs: Vec<Pair> = serde_json::from_slice(&response.body).map_err(wrong)?;
            let found = pairs.iter().filter_map(|pair| {
                let name = pair.key.strip_prefix(&folder).filter(|name| self.layout.is_name(name))?;
                let value = STANDARD.decode(pair.value.as_deref().unwrap_or_default()).unwrap_or_default();
                Some(self.layout.decode(service, name, &value, feed.instance_bytes_max()))
            });
            feed.publish(found);
            index = if new < index { 0 } else { new.max(1) };
        }
    }
}

impl Shared {
    async fn send(&self, method: &'static str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let headers = &self.headers;
        let request =
            HttpRequest { method, path, headers, body, bytes_max: SHORT_BYTES_MAX, limit: RESPONSE_TIMEOUT };
        Ok(self.site.call(request).await?.body.to_vec())
    }

    /// Writes a key that is deleted with a session; returns whether the key was free.
    async fn acquire(&self, path: &str, session: &str, value: &[u8]) -> Result<bool> {
        let path = format!("{path}?acquire={session}&flags={FLAGS}");
        Ok(self.send("PUT", &path, value).await?.trim_ascii() == b"true")
    }
}

/// Escapes a key for a path: the slashes stay.
fn in_path(key: &str) -> String {
    let parts: Vec<_> = key.split('/').map(encode).collect();
    format!("/v1/kv/{}", parts.join("/"))
}

impl Backend for Keys {
    fn name(&self) -> &str {
        self.shared.site.name()
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let (path, value) = (in_path(&self.layout.key(instance)?), self.layout.encode(instance)?);
            let ttl = ttl.clamp(*TTL.start(), *TTL.end()).as_millis().div_ceil(1000);
            // Without `LockDelay`, the key could not be locked again for 15 s after its session has ended.
            let body = format!(r#"{{"Behavior":"delete","LockDelay":"0s","TTL":"{ttl}s"}}"#);
            let shared = &self.shared;
            let response = shared.send("PUT", "/v1/session/create", body.as_bytes()).await?;
            let wrong = |error| {
                Status::unavailable(format!("{} did not create a session: {error}", shared.site.name()))
            };
            let session: Session = serde_json::from_slice(&response).map_err(wrong)?;
            let registration = KeyRegistration { shared: shared.clone(), path, session: session.id };
            if !shared.acquire(&registration.path, &registration.session, &value).await? {
                // The key belongs to a session that has not ended yet, for example of this process before its restart.
                shared.send("DELETE", &registration.path, b"").await?;
                if !shared.acquire(&registration.path, &registration.session, &value).await? {
                    let text =
                        format!("{}: {} is locked by another session", shared.site.name(), registration.path);
                    return Err(Status::unavailable(text));
                }
            }
            Ok(Box::new(registration) as Box<dyn Registration>)
        })
    }
}

struct KeyRegistration {
    shared: Arc<Shared>,
    path: String,
    session: String,
}

impl Registration for KeyRegistration {
    /// The session may outlive its key, which other programs can delete.
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.shared.send("PUT", &format!("/v1/session/renew/{}", self.session), b"").await?;
            self.shared.send("GET", &self.path, b"").await.map(drop)
        })
    }

    /// Deletes the key with its session.
    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.shared.send("PUT", &format!("/v1/session/destroy/{}", self.session), b"").await.map(drop)
        })
    }
}

//! Consul by the documented HTTP API of its agents: services with a TTL check, and blocking queries of the healthy
//! ones.

mod keys;

use crate::layout::{RpcxLayout, Style};
use keys::Keys;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
use switchboard::{
    Code, Result, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry, State, escape},
    web::{self, Ask, Site},
};
use tokio::time::sleep;

/// A registry in Consul, usually through the agent of the same machine.
///
/// The instance is a service of Consul with the same name, whose id is both names escaped; what Consul has no place for
/// is in its metadata, with the names of our fields and `tag.NAME` for tags, and each value has at most 512 bytes.
/// Services that others have registered are found too: their address and port, with the scheme `tcp`. An instance whose
/// check is overdue is not seen any more, and Consul forgets it a minute later. TLS to the agent is not spoken.
pub struct Consul {
    discovery: Discovery,
}

impl Consul {
    /// The agent at `HOST:PORT`, with the token for its access rules if there is one. Nothing is sent before it is
    /// used.
    ///
    /// # Errors
    /// `InvalidArgument` for a host that cannot be one.
    pub fn connect(host: &str, token: Option<&str>, options: Options) -> Result<Consul> {
        let shared = Shared::new(host, token)?;
        Ok(Consul { discovery: Discovery::new(Agent { shared }, options) })
    }

    /// The same, with keys as somebody else has them in place of services of Consul, below a prefix. Sessions of Consul
    /// have 10 s at least, and end after up to twice their time.
    ///
    /// # Errors
    /// As [`connect`](Consul::connect).
    pub fn connect_as(
        style: Style,
        host: &str,
        prefix: &str,
        token: Option<&str>,
        options: Options,
    ) -> Result<Consul> {
        if style == Style::Own {
            return Consul::connect(host, token, options);
        }
        let shared = Shared::new(host, token)?;
        let keys = Keys { shared, layout: RpcxLayout::new(prefix.trim_start_matches('/')) };
        Ok(Consul { discovery: Discovery::new(keys, options) })
    }
}

impl Registry for Consul {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

#[derive(Clone)]
struct Agent {
    shared: Arc<Shared>,
}

struct Shared {
    site: Site,
    /// Sent with every request.
    headers: Vec<(&'static str, String)>,
}

impl Shared {
    fn new(host: &str, token: Option<&str>) -> Result<Arc<Shared>> {
        let headers = token.map(|token| ("x-consul-token", token.to_owned())).into_iter().collect();
        let site = Site::new(format!("consul {host}"), &format!("http://{host}"), None)?;
        Ok(Arc::new(Shared { site, headers }))
    }
}

/// How long a query waits for a change; Consul adds up to a sixteenth of it.
const WAIT: Duration = Duration::from_secs(30);

/// Between queries that tell nothing new: a server that does not wait is not asked without end. Changes meanwhile are
/// in the next answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Of a call that does not wait.
const ANSWER: Duration = Duration::from_secs(5);

/// Of an answer that we only take note of.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// What Consul takes for one value of the metadata.
const META_BYTES_MAX: usize = 512;

/// What is registered.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Registration<'a> {
    #[serde(rename = "ID")]
    id: String,
    name: &'a str,
    meta: BTreeMap<String, String>,
    weights: Weights,
    check: Check,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: u32,
    warning: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Check {
    #[serde(rename = "TTL")]
    ttl: String,
    /// The first report has come with the registration.
    status: &'static str,
    deregister_critical_service_after: &'static str,
}

/// What is found.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    node: FoundNode,
    service: FoundService,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FoundNode {
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FoundService {
    #[serde(rename = "ID")]
    id: String,
    service: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    weights: Option<Weights>,
}

impl Agent {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let mut index = 0_u64;
        loop {
            let path = format!(
                "/v1/health/service/{}?passing=true&index={index}&wait={}s",
                in_path(service),
                WAIT.as_secs()
            );
            let Shared { site, headers } = &*self.shared;
            let limit = WAIT + ANSWER * 2;
            let bytes_max = feed.answer_bytes_max();
            let answer = site.call(Ask { path: &path, headers, bytes_max, limit, ..Ask::default() }).await?;
            let new = answer.header("x-consul-index").and_then(|value| value.parse().ok());
            let new: u64 = new.ok_or_else(|| {
                Status::unavailable(format!("{} answers without X-Consul-Index: is it one?", site.name()))
            })?;
            if new == index {
                sleep(PAUSE).await;
            } else {
                let found: Vec<Found> = serde_json::from_slice(&answer.body).map_err(|error| {
                    Status::unavailable(format!("{} answers what is no list: {error}", site.name()))
                })?;
                feed.publish(found.into_iter().map(|found| Ok(found.into())));
            }
            // An index that goes back means that the servers have started anew; below 1 the query would not wait.
            index = if new < index { 0 } else { new.max(1) };
        }
    }

    async fn put(&self, path: &str, body: Vec<u8>) -> Result<()> {
        let Shared { site, headers } = &*self.shared;
        let ask =
            Ask { method: "PUT", path, headers, body: &body, bytes_max: SHORT_BYTES_MAX, limit: ANSWER };
        site.call(ask).await.map(drop)
    }
}

/// Escaped as a part of a path: what stays there has no meaning in one.
fn in_path(name: &str) -> String {
    escape(name)
}

fn meta(instance: &Instance) -> Result<BTreeMap<String, String>> {
    let state = instance.state.to_string();
    let fields = [
        ("address", &instance.address),
        ("group", &instance.group),
        ("id", &instance.id),
        ("state", &state),
        ("version", &instance.version),
        ("zone", &instance.zone),
    ];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.clone()));
    let weight = [("weight".to_owned(), instance.weight.to_string())];
    // Names of Consul's metadata have letters, digits, `-` and `_` alone, so others are in the value.
    let tags = instance.tags.iter().enumerate();
    let tags = tags.map(|(at, (name, value))| (format!("tag_{at}"), format!("{}={value}", escape(name))));
    let meta: BTreeMap<_, _> = fields.chain(weight).chain(tags).collect();
    match meta.iter().find(|(_, value)| value.len() > META_BYTES_MAX) {
        Some((name, value)) => Err(Status::new(
            Code::InvalidArgument,
            format!(
                "{name} of the instance {} has {} bytes, and Consul takes {META_BYTES_MAX}",
                instance.id,
                value.len()
            ),
        )),
        None => Ok(meta),
    }
}

impl From<Found> for Instance {
    fn from(found: Found) -> Instance {
        let Found { node, service } = found;
        let mut meta = service.meta.unwrap_or_default();
        let host = if service.address.is_empty() { node.address } else { service.address };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let address = meta.remove("address").unwrap_or_else(|| format!("tcp://{host}:{}", service.port));
        let mut instance =
            Instance::new(service.service, address).id(meta.remove("id").unwrap_or(service.id));
        let weight = meta.remove("weight").and_then(|weight| weight.parse().ok());
        // Consul's weight is 1 unless somebody sets it; ours is 100.
        let theirs = service.weights.map_or(1, |weights| weights.passing).saturating_mul(100);
        instance.weight = weight.unwrap_or(theirs);
        instance.group = meta.remove("group").unwrap_or_default();
        instance.version = meta.remove("version").unwrap_or_default();
        instance.zone = meta.remove("zone").unwrap_or_default();
        instance.state = match meta.remove("state").as_deref() {
            Some("down") => State::Down,
            Some("draining") => State::Draining,
            _ => State::Up,
        };
        let tags = meta.into_iter().filter(|(name, _)| name.starts_with("tag_"));
        instance.tags = tags
            .filter_map(|(_, tag)| {
                tag.split_once('=').map(|(name, value)| (web::decode(name), value.to_owned()))
            })
            .collect();
        instance
    }
}

impl Backend for Agent {
    fn name(&self) -> &str {
        self.shared.site.name()
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let id = format!("{}:{}", escape(&instance.service), escape(&instance.id));
            let registration = Registration {
                id: id.clone(),
                name: &instance.service,
                meta: meta(instance)?,
                // Consul takes none below 1; ours is in the metadata.
                weights: Weights { passing: instance.weight.max(1), warning: 1 },
                check: Check {
                    ttl: format!("{}ms", ttl.as_millis().max(1)),
                    status: "passing",
                    deregister_critical_service_after: "1m",
                },
            };
            let body = serde_json::to_vec(&registration);
            let body = body.map_err(|error| Status::internal(format!("a registration as json: {error}")))?;
            self.put("/v1/agent/service/register", body).await?;
            Ok(Box::new(Kept { agent: self.clone(), id }) as Box<dyn Held>)
        })
    }
}

struct Kept {
    agent: Agent,
    id: String,
}

impl Held for Kept {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let path = format!("/v1/agent/check/pass/{}", in_path(&format!("service:{}", self.id)));
            self.agent.put(&path, Vec::new()).await
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let path = format!("/v1/agent/service/deregister/{}", in_path(&self.id));
            match self.agent.put(&path, Vec::new()).await {
                Err(error) if error.code() != Code::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }
}

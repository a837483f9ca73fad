//! Consul by the documented HTTP API of its agents: services with a TTL check, and blocking queries for the healthy
//! ones.

mod keys;

use crate::{
    layout::{RpcxLayout, Style},
    owner,
};
use keys::Keys;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};
use switchboard::{
    Code, Result, Status,
    discover::{
        Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry, State, escape,
    },
    web::{self, HttpRequest, Site},
};
use tokio::time::sleep;

/// A registry in Consul, usually through the agent of the same machine.
///
/// The instance is a Consul service with the same name, whose id consists of both names, escaped. Fields that Consul
/// does not have are in its metadata, under the names of our fields, and under `tag.NAME` for tags; each value has at
/// most 512 bytes. Services that other programs registered are found too: their address and port, with the scheme
/// `tcp`. An instance whose check is overdue is not returned any more, and Consul deletes it a minute later. TLS to the
/// agent is not supported.
pub struct Consul {
    discovery: Discovery,
}

impl Consul {
    /// Creates a client of the agent at `HOST:PORT`, with the token for its access rules if there is one. Nothing is
    /// sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid host.
    pub fn connect(host: &str, token: Option<&str>, options: Options) -> Result<Consul> {
        let shared = Shared::new(host, token)?;
        Ok(Consul { discovery: Discovery::new(Agent { shared }, options) })
    }

    /// Creates a client that stores keys in the given layout below a prefix, in place of Consul services. Consul
    /// sessions have a TTL of at least 10 s, and end after up to twice their TTL.
    ///
    /// # Errors
    /// The errors of [`connect`](Consul::connect).
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

/// Time for which a query waits for a change; Consul adds up to a sixteenth of it.
const WAIT: Duration = Duration::from_secs(30);

/// Pause between queries that return no change: limits the query rate if a server responds without waiting. Changes in
/// the meantime are in the next response.
const PAUSE: Duration = Duration::from_secs(1);

/// Time limit of a call that does not wait for a change.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Size limit of a short response.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// Longest metadata value that Consul accepts.
const META_BYTES_MAX: usize = 512;

/// The metadata that names a registration, so that the end of an older one does not end it.
const OWNER: &str = "owner";

/// Body of a registration.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RegistrationBody<'a> {
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
    /// The status is set with the registration, as the first report.
    status: &'static str,
    deregister_critical_service_after: &'static str,
}

/// Element of a query result.
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

/// A service as its agent returns it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Registered {
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
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
            let limit = WAIT + RESPONSE_TIMEOUT * 2;
            let bytes_max = feed.answer_bytes_max();
            let response = site
                .call(HttpRequest { path: &path, headers, bytes_max, limit, ..HttpRequest::default() })
                .await?;
            let new = response.header("x-consul-index").and_then(|value| value.parse().ok());
            let new: u64 = new.ok_or_else(|| {
                Status::unavailable(format!("{} responds without X-Consul-Index: is it Consul?", site.name()))
            })?;
            if new == index {
                sleep(PAUSE).await;
            } else {
                let found: Vec<Found> = serde_json::from_slice(&response.body).map_err(|error| {
                    Status::unavailable(format!("{} sent an invalid list: {error}", site.name()))
                })?;
                feed.publish(found.into_iter().map(|found| Ok(found.into())));
            }
            // An index that decreases means that the servers were restarted; with an index below 1 the query would not
            // wait.
            index = if new < index { 0 } else { new.max(1) };
        }
    }

    async fn put(&self, path: &str, body: Vec<u8>) -> Result<()> {
        let Shared { site, headers } = &*self.shared;
        let request = HttpRequest {
            method: "PUT",
            path,
            headers,
            body: &body,
            bytes_max: SHORT_BYTES_MAX,
            limit: RESPONSE_TIMEOUT,
        };
        site.call(request).await.map(drop)
    }
}

/// Escapes a path segment: the characters that remain have no special meaning in a path.
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
    // Names of Consul metadata have only letters, digits, `-` and `_`, so other names are in the value.
    let tags = instance.tags.iter().enumerate();
    let tags = tags.map(|(at, (name, value))| (format!("tag_{at}"), format!("{}={value}", escape(name))));
    let meta: BTreeMap<_, _> = fields.chain(weight).chain(tags).collect();
    match meta.iter().find(|(_, value)| value.len() > META_BYTES_MAX) {
        Some((name, value)) => Err(Status::new(
            Code::InvalidArgument,
            format!(
                "{name} of the instance {} has {} bytes, and Consul accepts {META_BYTES_MAX}",
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
        // Consul's weight is 1 by default; ours is 100.
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let id = format!("{}:{}", escape(&instance.service), escape(&instance.id));
            let owner = owner::unique();
            let mut meta = meta(instance)?;
            meta.insert(OWNER.to_owned(), owner.clone());
            let registration = RegistrationBody {
                id: id.clone(),
                name: &instance.service,
                meta,
                // Consul accepts no weight below 1; ours is in the metadata.
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
            Ok(Box::new(AgentRegistration { agent: self.clone(), id, owner }) as Box<dyn Registration>)
        })
    }
}

struct AgentRegistration {
    agent: Agent,
    id: String,
    owner: String,
}

impl Registration for AgentRegistration {
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

    /// Agents cannot compare and deregister in one request: a registration between these two requests is lost until its
    /// next renewal.
    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let Shared { site, headers } = &*self.agent.shared;
            let path = format!("/v1/agent/service/{}", in_path(&self.id));
            let request = HttpRequest {
                path: &path,
                headers,
                bytes_max: SHORT_BYTES_MAX,
                limit: RESPONSE_TIMEOUT,
                ..HttpRequest::default()
            };
            let response = match site.call(request).await {
                Err(error) if error.code() == Code::NotFound => return Ok(false),
                response => response?,
            };
            let found: Registered = serde_json::from_slice(&response.body).map_err(|error| {
                Status::unavailable(format!("{} sent an invalid service: {error}", site.name()))
            })?;
            let owner = found.meta.unwrap_or_default().remove(OWNER);
            Ok(owner.is_some_and(|owner| owner != self.owner))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("consul", &["layout", "token"])],
    make: |parsed| {
        let (host, token, style) = (parsed.hosts()?, parsed.take("token"), parsed.style()?);
        Ok(std::sync::Arc::new(crate::Consul::connect_as(
            style,
            host,
            parsed.path,
            token,
            parsed.options()?,
        )?))
    },
};

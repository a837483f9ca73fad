//! Nacos by its open API over HTTP: ephemeral instances with a heartbeat, and a list that is read again and again.

use crate::meta::{self, Meta};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};
use switchboard::{
    Code, Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry, State, escape},
    web::{Ask, Site, encode},
};
use tokio::{sync::Mutex, time::sleep};

/// A registry in Nacos.
///
/// An instance is an ephemeral one of Nacos, told from others by host and port of its address; what Nacos has no place
/// for is in its metadata: `group`, `version` and `zone`, tags by their names, and the rest with names that begin with
/// `switchboard.`. Instances of others are found too, with the scheme `tcp`. Our weight 100 is Nacos's 1; what is not
/// up has the weight 0 there, so that others do not call it. Names of services are [escaped](escape). Nacos deletes
/// whoever is silent for its TTL twice. Nothing tells us of changes: they are seen within [`poll`](Settings::poll).
pub struct Nacos {
    discovery: Discovery,
}

/// Where in Nacos, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The version of the open API: 2 from Nacos 2.0 on, 1 up to Nacos 2.
    pub api: u8,
    /// The cluster of the service that instances are registered in; all are read. `DEFAULT` unless set.
    pub cluster: String,
    /// The group of Nacos, a part of the service's name. `DEFAULT_GROUP` unless set.
    pub group: String,
    /// The id of the namespace; `public` unless set.
    pub namespace: String,
    /// Name and password, where Nacos asks for them.
    pub login: Option<(String, String)>,
    /// How often the list is read; 2 s unless set.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            api: 2,
            cluster: "DEFAULT".to_owned(),
            group: "DEFAULT_GROUP".to_owned(),
            namespace: "public".to_owned(),
            login: None,
            poll: Duration::from_secs(2),
        }
    }
}

impl Nacos {
    /// The server at `HOST:PORT`. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a host that cannot be one, and a version of the API that is not spoken.
    pub fn connect(host: &str, settings: Settings, options: Options) -> Result<Nacos> {
        if !(1..=2).contains(&settings.api) {
            let text = format!("nacos {host}: api={}: versions 1 and 2 are spoken", settings.api);
            return Err(Status::invalid_argument(text));
        }
        let site = Site::new(format!("nacos {host}"), &format!("http://{host}"), None)?;
        let shared = Arc::new(Shared { site, settings, token: Mutex::default() });
        Ok(Nacos { discovery: Discovery::new(Server { shared }, options) })
    }
}

impl Registry for Nacos {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// Of an answer that we only take note of.
const SHORT_BYTES_MAX: usize = 64 << 10;
/// What the servers that Nacos is built on take for the first line of a request.
const QUERY_BYTES_MAX: usize = 7 << 10;
/// To a heartbeat: it was taken, and nobody is known who could have it.
const BEATEN: i64 = 10200;
const UNKNOWN: i64 = 20404;
/// The most that Nacos takes for a weight.
const WEIGHT_MAX: f64 = 10_000.0;

struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    site: Site,
    settings: Settings,
    /// Of the last login, and until when it is good.
    token: Mutex<Option<(String, StdInstant)>>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    ip: String,
    port: u16,
    #[serde(default)]
    weight: f64,
    #[serde(default)]
    metadata: Option<Meta>,
}

impl Shared {
    /// Calls an operation with these parameters, and those that all have.
    async fn call(
        &self,
        method: &'static str,
        operation: &str,
        service: &str,
        more: &[(&str, &str)],
        bytes_max: usize,
    ) -> Result<Value> {
        let Settings { api, group, namespace, .. } = &self.settings;
        let service = escape(service);
        let mut path = format!("/nacos/v{api}/ns/instance{operation}?serviceName={}", encode(&service));
        let common = [("groupName", group.as_str()), ("namespaceId", namespace)];
        for (name, value) in common.iter().chain(more) {
            let _ = write!(path, "&{name}={}", encode(value));
        }
        if path.len() > QUERY_BYTES_MAX {
            let text =
                format!("{}: {} bytes for one instance are more than it takes", self.site.name(), path.len());
            return Err(Status::invalid_argument(text));
        }
        if let Some(token) = self.token().await? {
            let _ = write!(path, "&accessToken={}", encode(&token));
        }
        let ask = Ask { method, path: &path, bytes_max, ..Ask::default() };
        let answer = match self.site.call(ask).await {
            Err(error) if matches!(error.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                // The token may have ended before its time; the next try has a new one.
                *self.token.lock().await = None;
                return Err(error);
            }
            answer => answer?,
        };
        // Version 1 says `ok` where there is nothing else to say.
        if answer.body == "ok" {
            return Ok(Value::Null);
        }
        let unreadable =
            |error| Status::unavailable(format!("{} answers no JSON: {error}", self.site.name()));
        let mut value: Value = serde_json::from_slice(&answer.body).map_err(unreadable)?;
        match value.get_mut("data") {
            Some(data) if *api > 1 => {
                let data = data.take();
                match value.get("code").and_then(Value::as_i64) {
                    Some(0) => Ok(data),
                    _ => Err(Status::unavailable(format!("{}: {value}", self.site.name()))),
                }
            }
            _ => Ok(value),
        }
    }

    /// That of a login, if one is needed.
    async fn token(&self) -> Result<Option<String>> {
        let Some((user, password)) = &self.settings.login else { return Ok(None) };
        let mut token = self.token.lock().await;
        if let Some((token, _)) = token.as_ref().filter(|(_, until)| StdInstant::now() < *until) {
            return Ok(Some(token.clone()));
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Login {
            access_token: String,
            #[serde(default)]
            token_ttl: u64,
        }
        let body = format!("username={}&password={}", encode(user), encode(password));
        let headers = [("content-type", "application/x-www-form-urlencoded".to_owned())];
        let ask = Ask {
            method: "POST",
            path: "/nacos/v1/auth/login",
            headers: &headers,
            body: body.as_bytes(),
            ..Ask::default()
        };
        let answer = self.site.call(ask).await?;
        let unreadable = |error| Status::unavailable(format!("{}: login: {error}", self.site.name()));
        let login: Login = serde_json::from_slice(&answer.body).map_err(unreadable)?;
        // Renewed after four fifths of its time.
        let until = StdInstant::now() + Duration::from_secs(login.token_ttl.min(86_400) * 4 / 5);
        *token = Some((login.access_token.clone(), until));
        Ok(Some(login.access_token))
    }
}

impl Server {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let shared = &self.shared;
        let bytes_max = feed.answer_bytes_max();
        loop {
            let found = shared.call("GET", "/list", service, &[("healthyOnly", "true")], bytes_max).await?;
            let wrong =
                |error| Status::unavailable(format!("{} answers no list: {error}", shared.site.name()));
            let list: List = serde_json::from_value(found).map_err(wrong)?;
            feed.publish(list.hosts.into_iter().map(|host| Ok(host.instance(service))));
            sleep(shared.settings.poll).await;
        }
    }
}

impl Host {
    fn instance(self, service: &str) -> Instance {
        let implied = format!("tcp://{}:{}", meta::in_url(&self.ip), self.port);
        // 100 is our usual one.
        let weight = (self.weight.clamp(0.0, WEIGHT_MAX) * 100.0).round() as u32;
        meta::read(service, implied, weight, self.metadata.unwrap_or_default())
    }
}

impl Backend for Server {
    fn name(&self) -> &str {
        self.shared.site.name()
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let (host, port) = meta::place(&instance.address)?;
            let mut meta = meta::write(instance, &format!("tcp://{}:{port}", meta::in_url(&host)))?;
            let mut weight = (f64::from(instance.weight) / 100.0).min(WEIGHT_MAX);
            if instance.state != State::Up {
                meta::write_weight(&mut meta, instance.weight);
                weight = 0.0;
            }
            let ttl = ttl.as_millis().max(1);
            for (name, time) in [
                ("preserved.heart.beat.interval", ttl / 3),
                ("preserved.heart.beat.timeout", ttl),
                ("preserved.ip.delete.timeout", ttl * 2),
            ] {
                meta.insert(name.to_owned(), time.to_string());
            }
            let kept = Kept {
                shared: self.shared.clone(),
                service: instance.service.clone(),
                host,
                port,
                weight,
                metadata: json!(meta),
            };
            let (metadata, weight) = (kept.metadata.to_string(), weight.to_string());
            let more = [
                ("metadata", metadata.as_str()),
                ("weight", &weight),
                ("enabled", "true"),
                ("healthy", "true"),
            ];
            kept.call("POST", "", &more).await?;
            Ok(Box::new(kept) as Box<dyn Held>)
        })
    }
}

struct Kept {
    shared: Arc<Shared>,
    service: String,
    host: String,
    port: u16,
    weight: f64,
    metadata: Value,
}

impl Kept {
    async fn call(&self, method: &'static str, operation: &str, more: &[(&str, &str)]) -> Result<Value> {
        let port = self.port.to_string();
        let mut all = vec![
            ("ip", self.host.as_str()),
            ("port", &port),
            ("clusterName", &self.shared.settings.cluster),
            ("ephemeral", "true"),
        ];
        all.extend_from_slice(more);
        self.shared.call(method, operation, &self.service, &all, SHORT_BYTES_MAX).await
    }
}

impl Held for Kept {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let Settings { cluster, group, .. } = &self.shared.settings;
            let beat = json!({
                "cluster": cluster, "ip": self.host, "port": self.port, "weight": self.weight,
                "metadata": self.metadata, "scheduled": true, "ephemeral": true,
                "serviceName": format!("{group}@@{}", escape(&self.service)),
            });
            let answer = self.call("PUT", "/beat", &[("beat", &beat.to_string())]).await?;
            let name = self.shared.site.name();
            match answer.get("code").and_then(Value::as_i64) {
                Some(BEATEN) | None => Ok(()),
                Some(UNKNOWN) => Err(Status::not_found(format!("{name} has forgotten the instance"))),
                Some(code) => Err(Status::unavailable(format!("{name}: code {code} to a heartbeat"))
                    .with_retry(Retry::Safe)),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.call("DELETE", "", &[]).await.map(drop) })
    }
}

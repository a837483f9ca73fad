//! Nacos by its open API over HTTP: ephemeral instances with a heartbeat, and a list that is polled.

use crate::{
    meta::{self, Meta},
    owner,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};
use switchboard::{
    Code, Limits, Result, Retry, Status,
    discover::{
        Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry, State, escape,
    },
    web::{HttpRequest, Site, encode},
};
use switchboard_core::clock;
use tokio::{sync::Mutex, time::sleep};

/// A registry in Nacos.
///
/// An instance is an ephemeral Nacos instance, identified by host and port of its address. Fields that Nacos does not
/// have are in its metadata: `group`, `version` and `zone`, tags by their names, and the rest with names that begin
/// with `switchboard.`. Instances of other programs are found too, with the scheme `tcp`. Our weight 100 is Nacos's 1.
/// An instance that is not up has the weight 0 in Nacos, so that other programs do not call it. Names of services are
/// [escaped](escape). Nacos deletes an instance that sends no heartbeat for twice its TTL. Nacos does not send
/// notifications of changes: they are seen within [`poll`](Settings::poll).
pub struct Nacos {
    discovery: Discovery,
}

/// Location of the instances in Nacos, and parameters of its API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Version of the open API: 2 from Nacos 2.0 on, 1 up to Nacos 2.
    pub api: u8,
    /// Cluster of the service in which instances are registered; all clusters are read. Default `DEFAULT`.
    pub cluster: String,
    /// Nacos group, a part of the service's name. Default `DEFAULT_GROUP`.
    pub group: String,
    /// Id of the namespace. Default `public`.
    pub namespace: String,
    /// Name and password, if Nacos requires them.
    pub login: Option<(String, String)>,
    /// Interval between readings of the list. Default 2 s.
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
    /// Creates a client of the server at `HOST:PORT`. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid host, and for an unsupported version of the API.
    pub fn connect(host: &str, settings: Settings, options: Options) -> Result<Nacos> {
        if !(1..=2).contains(&settings.api) {
            let text = format!("nacos {host}: api={}: versions 1 and 2 are supported", settings.api);
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

/// Size limit of a short response.
const SHORT_BYTES_MAX: usize = 64 << 10;
/// Longest request line that the HTTP servers of Nacos accept.
const QUERY_BYTES_MAX: usize = 7 << 10;
/// Code of the response to a heartbeat that was accepted.
const BEATEN: i64 = 10200;
const UNKNOWN: i64 = 20404;
const BEAT: &str = "/beat";
/// The metadata that identifies a registration, so that the end of an older one does not end it.
const OWNER: &str = "switchboard.owner";
/// Responses for an instance that Nacos does not have: of version 1, and of version 2 by its code.
const NONE: [&str; 2] = ["no ips found", "21003"];
/// Largest weight that Nacos accepts.
const WEIGHT_MAX: f64 = 10_000.0;

struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    site: Site,
    settings: Settings,
    /// Token of the last login, and its expiry.
    token: Mutex<Option<(String, StdInstant)>>,
}

#[derive(Deserialize)]
struct List {
    /// Nacos writes an empty list for a service without instances: a response without the field is not a list.
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
    /// Calls an operation with these parameters, and those of all operations.
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
            let text = format!(
                "{}: {} bytes for one instance exceed the limit of a request",
                self.site.name(),
                path.len()
            );
            return Err(Status::invalid_argument(text));
        }
        if let Some(token) = self.token().await? {
            let _ = write!(path, "&accessToken={}", encode(&token));
        }
        let request = HttpRequest { method, path: &path, bytes_max, ..HttpRequest::default() };
        let response = match self.site.call(request).await {
            Err(error) if matches!(error.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                // The token may have expired early; the next call gets a new one.
                *self.token.lock().await = None;
                return Err(error);
            }
            response => response?,
        };
        // Version 1 responds with `ok` if there is no data.
        if response.body == "ok" {
            return Ok(Value::Null);
        }
        let unreadable =
            |error| Status::unavailable(format!("{} sent invalid JSON: {error}", self.site.name()));
        let mut value: Value = serde_json::from_slice(&response.body).map_err(unreadable)?;
        if *api == 1 {
            return Ok(value);
        }
        match (value.get("code").and_then(Value::as_i64), value.get_mut("data")) {
            (Some(0), Some(data)) => Ok(data.take()),
            // Responses to heartbeats are not wrapped, and have their own codes.
            (_, None) if operation == BEAT => Ok(value),
            _ => Err(Status::unavailable(format!("{}: {value}", self.site.name()))),
        }
    }

    /// Returns the token of a login, if a login is needed.
    async fn token(&self) -> Result<Option<String>> {
        let Some((user, password)) = &self.settings.login else { return Ok(None) };
        let mut token = self.token.lock().await;
        if let Some((token, _)) = token.as_ref().filter(|(_, until)| clock::now() < *until) {
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
        let request = HttpRequest {
            method: "POST",
            path: "/nacos/v1/auth/login",
            headers: &headers,
            body: body.as_bytes(),
            ..HttpRequest::default()
        };
        let response = self.site.call(request).await?;
        let unreadable = |error| Status::unavailable(format!("{}: login: {error}", self.site.name()));
        let login: Login = serde_json::from_slice(&response.body).map_err(unreadable)?;
        // Renewed after four fifths of its lifetime.
        let until = clock::now() + Duration::from_secs(login.token_ttl.min(86_400) * 4 / 5);
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
                |error| Status::unavailable(format!("{} sent an invalid list: {error}", shared.site.name()));
            let list: List = serde_json::from_value(found).map_err(wrong)?;
            feed.publish(list.hosts.into_iter().map(|host| Ok(host.instance(service))));
            sleep(shared.settings.poll).await;
        }
    }
}

impl Host {
    fn instance(self, service: &str) -> Instance {
        let implied = format!("tcp://{}:{}", meta::in_url(&self.ip), self.port);
        // Our default weight is 100.
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
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
            let owner = owner::unique();
            meta.insert(OWNER.to_owned(), owner.clone());
            let registration = NacosRegistration {
                shared: self.shared.clone(),
                service: instance.service.clone(),
                host,
                port,
                weight,
                metadata: json!(meta),
                owner,
            };
            let (metadata, weight) = (registration.metadata.to_string(), weight.to_string());
            let more = [
                ("metadata", metadata.as_str()),
                ("weight", &weight),
                ("enabled", "true"),
                ("healthy", "true"),
            ];
            registration.call("POST", "", &more).await?;
            Ok(Box::new(registration) as Box<dyn Registration>)
        })
    }
}

struct NacosRegistration {
    shared: Arc<Shared>,
    service: String,
    host: String,
    port: u16,
    weight: f64,
    metadata: Value,
    owner: String,
}

impl NacosRegistration {
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

impl Registration for NacosRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let Settings { cluster, group, .. } = &self.shared.settings;
            let beat = json!({
                "cluster": cluster, "ip": self.host, "port": self.port, "weight": self.weight,
                "metadata": self.metadata, "scheduled": true, "ephemeral": true,
                "serviceName": format!("{group}@@{}", escape(&self.service)),
            });
            let response = self.call("PUT", BEAT, &[("beat", &beat.to_string())]).await?;
            let name = self.shared.site.name();
            match response.get("code").and_then(Value::as_i64) {
                Some(BEATEN) | None => Ok(()),
                Some(UNKNOWN) => {
                    Err(Status::not_found(format!("{name} does not have the instance any more")))
                }
                Some(code) => {
                    Err(Status::unavailable(format!("{name}: code {code} in response to a heartbeat"))
                        .with_retry(Retry::Safe))
                }
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.call("DELETE", "", &[]).await.map(drop) })
    }

    /// Nacos cannot compare and delete in one request: a registration between these two requests is lost until its next
    /// heartbeat.
    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let found = match self.call("GET", "", &[]).await {
                Err(error) if error.code() == Code::NotFound => return Ok(false),
                // For a missing instance the response has status 500, or a code.
                Err(error) if NONE.iter().any(|text| error.message().contains(text)) => return Ok(false),
                found => found?,
            };
            let owner =
                found.get("metadata").and_then(|metadata| metadata.get(OWNER)).and_then(Value::as_str);
            Ok(owner.is_some_and(|owner| owner != self.owner))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("nacos", &["api", "cluster", "group", "poll"])],
    make: |parsed| {
        let mut settings = Settings::default();
        if !parsed.path.is_empty() {
            parsed.path.clone_into(&mut settings.namespace);
        }
        for (name, place) in [("cluster", &mut settings.cluster), ("group", &mut settings.group)] {
            if let Some(value) = parsed.take(name) {
                value.clone_into(place);
            }
        }
        if let Some(api) = parsed.take("api") {
            settings.api = api.parse().map_err(|_| crate::address::wrong(parsed.url, "api is 1 or 2"))?;
        }
        if let Some(poll) = parsed.take("poll") {
            let bad = || crate::address::wrong(parsed.url, "poll: expected a number with ms, s, min or h");
            let parsed_poll = Limits::parse_time(poll).ok().filter(|poll| !poll.is_zero());
            settings.poll = parsed_poll.ok_or_else(bad)?;
        }
        let host = match parsed.hosts()?.rsplit_once('@') {
            None => parsed.hosts,
            Some((login, host)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                let decode = switchboard::web::decode;
                settings.login = Some((decode(user), decode(password)));
                host
            }
        };
        Ok(std::sync::Arc::new(crate::Nacos::connect(host, settings, parsed.options()?)?))
    },
};

//! Kubernetes: the EndpointSlices of a service, listed, and watched from the version of the list on.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use switchboard::{
    Code, Result, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry, State},
    web::{HttpRequest, ResponseLines, Site, encode},
};
use tokio::time::{Instant, sleep, timeout};

/// Kubernetes services, by the API `discovery.k8s.io/v1`.
///
/// An endpoint is an instance: up while it is `ready`, draining while it is `terminating`, otherwise down; `zone` is
/// its zone, `pod` and `node` are tags. Kubernetes tracks its pods itself, so registrations are not needed. The service
/// account needs `list` and `watch` for `endpointslices` in the namespace.
pub struct Kubernetes {
    discovery: Discovery,
}

/// Which services are read, and how the API is called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Kubernetes service that serves every requested service; without it, the requested name decides:
    /// `demo.Greeter` is `demo-greeter`.
    pub service: Option<String>,
    /// The namespace; by default that of the service account.
    pub namespace: Option<String>,
    /// The name of the port, if the service has several; by default the first.
    pub port: Option<String>,
    /// Scheme of the addresses: `tcp` or `tls`.
    pub scheme: String,
    /// Folder with `token`, `ca.crt` and `namespace` of the service account. The token is sent only over `https`.
    pub account: PathBuf,
    /// Sends the token over `http` too, to an API at a loopback address: for tests. Off by default.
    pub plaintext_token_on_loopback: bool,
}

/// Folder in which Kubernetes mounts the service account of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Default for Settings {
    fn default() -> Self {
        Settings {
            service: None,
            namespace: None,
            port: None,
            scheme: "tcp".to_owned(),
            account: ACCOUNT.into(),
            plaintext_token_on_loopback: false,
        }
    }
}

impl Kubernetes {
    /// Creates a client of the API of the cluster in which this program runs, from its environment and the service
    /// account of its pod.
    ///
    /// # Errors
    /// `InvalidArgument` outside a cluster, and for invalid files of the service account.
    pub fn in_cluster(settings: Settings, options: Options) -> Result<Kubernetes> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                Status::invalid_argument(format!(
                    "kubernetes: {name} is not set outside a pod: name the API, kubernetes://HOST:PORT/…"
                ))
            })
        };
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        Kubernetes::connect(&format!("https://{host}:{port}"), settings, options)
    }

    /// Creates a client of the API at this URL: `https`, or `http` for `kubectl proxy`, which needs no service account:
    /// over `http` no token is sent.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed URL, invalid files of the service account, and
    /// [`plaintext_token_on_loopback`](Settings::plaintext_token_on_loopback) for another host.
    pub fn connect(url: &str, settings: Settings, options: Options) -> Result<Kubernetes> {
        let ca = settings.account.join("ca.crt");
        let name = format!("kubernetes {}", url.split_once("://").map_or(url, |(_, host)| host));
        let site = Site::new(name, url, ca.exists().then_some(ca.as_path()))?;
        let is_secure = url.starts_with("https://");
        if !is_secure && settings.plaintext_token_on_loopback && !is_loopback(url) {
            return Err(Status::invalid_argument(format!(
                "{}: a token is sent over http only to a loopback address; use https",
                site.name()
            )));
        }
        let sends_token = is_secure || settings.plaintext_token_on_loopback;
        let namespace = match settings.namespace.clone() {
            Some(namespace) => namespace,
            None => read(&settings.account.join("namespace"))?,
        };
        Ok(Kubernetes {
            discovery: Discovery::new(EndpointSlices { site, settings, namespace, sends_token }, options),
        })
    }
}

impl Registry for Kubernetes {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// EndpointSlices of one response; a slice has at most 1000 endpoints.
const PAGE_SLICES: usize = 100;
/// The server ends a watch after this time; the client then continues from the same version.
const WATCH_TIME: Duration = Duration::from_secs(240);
/// Time after its end at which a silent watch is aborted.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// A watch that ends sooner counts as failed.
const WATCH_TIME_MIN: Duration = Duration::from_secs(1);
/// Changes within this time are published together.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Bytes of one slice with the most endpoints and long names.
const SLICE_BYTES_MAX: usize = 4 << 20;

struct EndpointSlices {
    site: Site,
    settings: Settings,
    namespace: String,
    sends_token: bool,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    /// Go writes `null` for an empty list; a response without the field is not a list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Slice>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: serde_json::Value,
}

#[derive(Deserialize)]
struct Slice {
    metadata: SliceMetadata,
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    node_name: Option<String>,
    target_ref: Option<Target>,
    zone: Option<String>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    port: Option<u16>,
}

impl EndpointSlices {
    async fn list_and_watch(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let (mut known, mut version) = (BTreeMap::new(), String::new());
        self.list(service, feed, &mut known, &mut version).await?;
        self.publish(service, feed, &known);
        loop {
            let began = Instant::now();
            let mut events = self.events(service, &version).await?;
            // The server ends each watch after its time; that is not an error. A connection that is silent for longer
            // is lost.
            let silent = |_| Status::unavailable(format!("{} is silent", self.site.name()));
            while let Some(first) =
                timeout(WATCH_TIME + SILENCE_MAX, events.line()).await.map_err(silent)??
            {
                let gathered = sleep(GATHER_TIME);
                tokio::pin!(gathered);
                let mut next = Some(first);
                while let Some(line) = next.take() {
                    self.apply(&line, feed, &mut known, &mut version)?;
                    tokio::select! {
                        biased;
                        () = &mut gathered => {}
                        more = events.line() => next = more?,
                    }
                }
                self.publish(service, feed, &known);
            }
            if began.elapsed() < WATCH_TIME_MIN {
                return Err(Status::unavailable(format!("{} ends each watch at once", self.site.name())));
            }
        }
    }

    /// Reads all slices in pages, and returns their version.
    async fn list(
        &self,
        service: &str,
        feed: &Feed,
        known: &mut BTreeMap<String, Slice>,
        version: &mut String,
    ) -> Result<()> {
        let mut next = String::new();
        loop {
            let mut path = format!("{}&limit={PAGE_SLICES}", self.path(service));
            if !next.is_empty() {
                path.push_str(&format!("&continue={}", encode(&next)));
            }
            let headers = self.headers()?;
            let bytes_max = PAGE_SLICES * SLICE_BYTES_MAX / 8;
            let response = self
                .site
                .call(HttpRequest { path: &path, headers: &headers, bytes_max, ..HttpRequest::default() })
                .await?;
            let wrong =
                |error| Status::unavailable(format!("{} sent an invalid list: {error}", self.site.name()));
            let list: List = serde_json::from_slice(&response.body).map_err(wrong)?;
            for slice in list.items.unwrap_or_default() {
                known.insert(slice.metadata.name.clone(), slice);
            }
            self.check(known, feed)?;
            *version = list.metadata.resource_version;
            next = list.metadata.next;
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    async fn events(&self, service: &str, version: &str) -> Result<ResponseLines> {
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.path(service),
            WATCH_TIME.as_secs(),
            encode(version)
        );
        let headers = self.headers()?;
        let request = HttpRequest {
            path: &path,
            headers: &headers,
            bytes_max: SLICE_BYTES_MAX,
            ..HttpRequest::default()
        };
        self.site.stream(request).await
    }

    /// Applies one event of a watch.
    fn apply(
        &self,
        line: &[u8],
        feed: &Feed,
        known: &mut BTreeMap<String, Slice>,
        version: &mut String,
    ) -> Result<()> {
        let name = self.site.name();
        let wrong = |error| Status::unavailable(format!("{name} sent an invalid event: {error}"));
        let Event { r#type, object } = serde_json::from_slice(line).map_err(wrong)?;
        if r#type == "ERROR" {
            // Usually 410: the changes since that version are not stored any more. The list is read again.
            return Err(Status::new(Code::Unavailable, format!("{name} ended the watch: {object}")));
        }
        let slice: Slice = serde_json::from_value(object).map_err(wrong)?;
        slice.metadata.resource_version.clone_into(version);
        match r#type.as_str() {
            "ADDED" | "MODIFIED" => {
                known.insert(slice.metadata.name.clone(), slice);
                self.check(known, feed)?;
            }
            "DELETED" => drop(known.remove(&slice.metadata.name)),
            // `BOOKMARK`: only the current version.
            _ => {}
        }
        Ok(())
    }

    /// Checks the limit of instances.
    fn check(&self, known: &BTreeMap<String, Slice>, feed: &Feed) -> Result<()> {
        let max = feed.instances_max();
        let endpoints =
            known.values().map(|slice| slice.endpoints.as_ref().map_or(1, |all| all.len().max(1)));
        if endpoints.sum::<usize>() > max {
            let text = format!("{}: more endpoints than instances_max {max}", self.site.name());
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    fn publish(&self, service: &str, feed: &Feed, known: &BTreeMap<String, Slice>) {
        let found = known.values().flat_map(|slice| {
            let port = slice.port(self.settings.port.as_deref());
            let endpoints = slice.endpoints.iter().flatten();
            endpoints.filter_map(move |endpoint| endpoint.instance(service, &self.settings.scheme, port?))
        });
        // While an endpoint moves between slices it is in both; an endpoint that is up in one of them is up.
        let mut all = BTreeMap::<String, Instance>::new();
        for instance in found {
            match all.get(&instance.id) {
                Some(known) if rank(known) >= rank(&instance) => {}
                _ => drop(all.insert(instance.id.clone(), instance)),
            }
        }
        feed.publish(all.into_values().map(Ok));
    }

    fn path(&self, service: &str) -> String {
        let name = self.settings.service.clone().unwrap_or_else(|| label(service));
        let selector = encode(&format!("kubernetes.io/service-name={name}"));
        let namespace = encode(&self.namespace);
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}")
    }

    /// The token is read each time, since Kubernetes writes a new one before the old one expires.
    fn headers(&self) -> Result<Vec<(&'static str, String)>> {
        let path = self.settings.account.join("token");
        let mut headers = vec![("accept", "application/json".to_owned())];
        if self.sends_token && path.exists() {
            headers.push(("authorization", format!("Bearer {}", read(&path)?)));
        }
        Ok(headers)
    }
}

/// Returns whether a URL of `http` has a loopback address; host names are not accepted, because DNS decides where they
/// lead.
fn is_loopback(url: &str) -> bool {
    let authority = url.trim_start_matches("http://").split(['/', '?']).next().unwrap_or_default();
    let host = authority.parse::<SocketAddr>().map(|address| address.ip());
    host.or_else(|_| authority.parse()).is_ok_and(|host| host.is_loopback())
}

/// Reads a file of the service account.
fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    let text =
        text.map_err(|error| Status::invalid_argument(format!("kubernetes: {}: {error}", path.display())))?;
    Ok(text.trim().to_owned())
}

/// Converts a name to the form that Kubernetes accepts: `demo.Greeter` is `demo-greeter`.
fn label(service: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    service.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

fn rank(instance: &Instance) -> u8 {
    match instance.state {
        State::Up => 2,
        State::Draining => 1,
        _ => 0,
    }
}

impl Slice {
    fn port(&self, wanted: Option<&str>) -> Option<u16> {
        let mut ports = self.ports.iter().flatten();
        let port = ports.find(|port| wanted.is_none_or(|wanted| port.name.as_deref() == Some(wanted)))?;
        port.port
    }
}

impl Endpoint {
    fn instance(&self, service: &str, scheme: &str, port: u16) -> Option<Instance> {
        // All addresses of an endpoint lead to the same pod; clients should use the first.
        let host = self.addresses.first()?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let state = match (self.conditions.ready, self.conditions.terminating) {
            (_, Some(true)) => State::Draining,
            // A missing condition means ready.
            (Some(true) | None, _) => State::Up,
            (Some(false), _) => State::Down,
        };
        let mut instance = Instance::new(service, format!("{scheme}://{host}:{port}")).state(state);
        instance.zone = self.zone.clone().unwrap_or_default();
        let pod = self.target_ref.as_ref().and_then(|target| target.name.clone());
        let tags = [("node", self.node_name.clone()), ("pod", pod)];
        instance.tags =
            tags.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Some(instance)
    }
}

impl Backend for EndpointSlices {
    fn name(&self) -> &str {
        self.site.name()
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.list_and_watch(service, feed))
    }

    fn may_lose_registrations(&self) -> bool {
        false
    }

    fn register<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async {
            let text =
                format!("{} does not support registrations: Kubernetes tracks its pods", self.site.name());
            Err(Status::unimplemented(text))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("kubernetes", &["account", "http", "namespace", "port", "scheme"])],
    make: |parsed| {
        let mut settings = Settings::default();
        let text = |value: Option<&str>| value.filter(|value| !value.is_empty()).map(str::to_owned);
        settings.service = text(Some(parsed.path));
        settings.namespace = text(parsed.take("namespace"));
        settings.port = text(parsed.take("port"));
        if let Some(scheme) = parsed.take("scheme") {
            scheme.clone_into(&mut settings.scheme);
        }
        if let Some(folder) = parsed.take("account") {
            settings.account = folder.into();
        }
        let scheme = if parsed.take("http") == Some("on") { "http" } else { "https" };
        let (hosts, options) = (parsed.hosts, parsed.options()?);
        Ok(std::sync::Arc::new(match hosts {
            "" => crate::Kubernetes::in_cluster(settings, options)?,
            host => crate::Kubernetes::connect(&format!("{scheme}://{host}"), settings, options)?,
        }))
    },
};

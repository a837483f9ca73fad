//! Kubernetes: the EndpointSlices of a service, listed, and watched from the version of the list on.

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    time::Duration,
};
use switchboard::{
    Code, Result, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry, State},
    web::{Ask, Site, Streamed, encode},
};
use tokio::time::{Instant, sleep, timeout};

/// Services of Kubernetes, by the API `discovery.k8s.io/v1`.
///
/// An endpoint is an instance: up while it is `ready`, draining while it is `terminating`, else down; `zone` is its
/// zone, `pod` and `node` are tags. Kubernetes knows who is there, so nobody registers. The account needs `list` and
/// `watch` for `endpointslices` in the namespace.
pub struct Kubernetes {
    discovery: Discovery,
}

/// Which services, and how Kubernetes is spoken to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service of Kubernetes that serves all that is asked for; without, the name that is asked for decides:
    /// `demo.Greeter` is `demo-greeter`.
    pub service: Option<String>,
    /// The namespace; without, that of the account.
    pub namespace: Option<String>,
    /// The name of the port, where the service has several; the first without.
    pub port: Option<String>,
    /// What addresses begin with: `tcp` or `tls`.
    pub scheme: String,
    /// Where `token`, `ca.crt` and `namespace` of the account are.
    pub account: PathBuf,
}

/// Where Kubernetes puts the account of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Default for Settings {
    fn default() -> Self {
        Settings {
            service: None,
            namespace: None,
            port: None,
            scheme: "tcp".to_owned(),
            account: ACCOUNT.into(),
        }
    }
}

impl Kubernetes {
    /// The API of the cluster that this program runs in, by its environment and the account of its pod.
    ///
    /// # Errors
    /// `InvalidArgument` outside a cluster, and for files of the account that cannot be used.
    pub fn in_cluster(settings: Settings, options: Options) -> Result<Kubernetes> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                Status::invalid_argument(format!(
                    "kubernetes: {name} is not set, so this is no pod: name the API, kubernetes://HOST:PORT/…"
                ))
            })
        };
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        Kubernetes::connect(&format!("https://{host}:{port}"), settings, options)
    }

    /// The API at this URL: `https`, or `http` for `kubectl proxy`, which needs no account.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong URL, and files of the account that cannot be used.
    pub fn connect(url: &str, settings: Settings, options: Options) -> Result<Kubernetes> {
        let ca = settings.account.join("ca.crt");
        let name = format!("kubernetes {}", url.split_once("://").map_or(url, |(_, host)| host));
        let site = Site::new(name, url, ca.exists().then_some(ca.as_path()))?;
        let namespace = match settings.namespace.clone() {
            Some(namespace) => namespace,
            None => read(&settings.account.join("namespace"))?,
        };
        Ok(Kubernetes { discovery: Discovery::new(Slices { site, settings, namespace }, options) })
    }
}

impl Registry for Kubernetes {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// Slices of one answer; a slice has at most 1000 endpoints.
const PAGE: usize = 100;
/// A watch is ended by the server after this time, and begun anew from where it was.
const WATCH: Duration = Duration::from_secs(240);
/// After which a watch that should have ended is given up.
const SILENCE: Duration = Duration::from_secs(20);
/// A watch that ends sooner than this was no watch.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Changes that come together are published together.
const GATHER: Duration = Duration::from_millis(20);
/// One slice, of the most endpoints with long names.
const SLICE_BYTES_MAX: usize = 4 << 20;

struct Slices {
    site: Site,
    settings: Settings,
    namespace: String,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    /// Go writes `null` for none.
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

impl Slices {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let (mut known, mut version) = (BTreeMap::new(), String::new());
        self.list(service, feed, &mut known, &mut version).await?;
        self.publish(service, feed, &known);
        loop {
            let began = Instant::now();
            let mut events = self.events(service, &version).await?;
            // The server ends each watch after its time: that is no error. A connection that is silent for longer is
            // lost.
            let silent = |_| Status::unavailable(format!("{} is silent", self.site.name()));
            while let Some(first) = timeout(WATCH + SILENCE, events.line()).await.map_err(silent)?? {
                let gathered = sleep(GATHER);
                tokio::pin!(gathered);
                let mut next = Some(first);
                while let Some(line) = next.take() {
                    self.take(&line, feed, &mut known, &mut version)?;
                    tokio::select! {
                        biased;
                        () = &mut gathered => {}
                        more = events.line() => next = more?,
                    }
                }
                self.publish(service, feed, &known);
            }
            if began.elapsed() < AT_ONCE {
                return Err(Status::unavailable(format!("{} ends watches at once", self.site.name())));
            }
        }
    }

    /// Reads all slices in pages, and as of which version they are.
    async fn list(
        &self,
        service: &str,
        feed: &Feed,
        known: &mut BTreeMap<String, Slice>,
        version: &mut String,
    ) -> Result<()> {
        let mut next = String::new();
        loop {
            let mut path = format!("{}&limit={PAGE}", self.path(service));
            if !next.is_empty() {
                path.push_str(&format!("&continue={}", encode(&next)));
            }
            let headers = self.headers()?;
            let bytes_max = PAGE * SLICE_BYTES_MAX / 8;
            let answer =
                self.site.call(Ask { path: &path, headers: &headers, bytes_max, ..Ask::default() }).await?;
            let wrong = |error| Status::unavailable(format!("{} answers no list: {error}", self.site.name()));
            let list: List = serde_json::from_slice(&answer.body).map_err(wrong)?;
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

    async fn events(&self, service: &str, version: &str) -> Result<Streamed> {
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.path(service),
            WATCH.as_secs(),
            encode(version)
        );
        let headers = self.headers()?;
        let ask = Ask { path: &path, headers: &headers, bytes_max: SLICE_BYTES_MAX, ..Ask::default() };
        self.site.stream(ask).await
    }

    /// Takes one event of a watch.
    fn take(
        &self,
        line: &[u8],
        feed: &Feed,
        known: &mut BTreeMap<String, Slice>,
        version: &mut String,
    ) -> Result<()> {
        let name = self.site.name();
        let wrong = |error| Status::unavailable(format!("{name} sends no event: {error}"));
        let Event { r#type, object } = serde_json::from_slice(line).map_err(wrong)?;
        if r#type == "ERROR" {
            // Most often 410: what has changed since that version is forgotten. The list is read anew.
            return Err(Status::new(Code::Unavailable, format!("{name} has ended the watch: {object}")));
        }
        let slice: Slice = serde_json::from_value(object).map_err(wrong)?;
        slice.metadata.resource_version.clone_into(version);
        match r#type.as_str() {
            "ADDED" | "MODIFIED" => {
                known.insert(slice.metadata.name.clone(), slice);
                self.check(known, feed)?;
            }
            "DELETED" => drop(known.remove(&slice.metadata.name)),
            // `BOOKMARK`: only how far we are.
            _ => {}
        }
        Ok(())
    }

    /// Whether so much may be held.
    fn check(&self, known: &BTreeMap<String, Slice>, feed: &Feed) -> Result<()> {
        let max = feed.instances_max();
        let endpoints =
            known.values().map(|slice| slice.endpoints.as_ref().map_or(1, |all| all.len().max(1)));
        if endpoints.sum::<usize>() > max {
            let text = format!("{}: there are more endpoints than instances_max {max}", self.site.name());
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
        // While an endpoint moves between slices it is in both; who is up in one of them is up.
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

    /// The token is read each time, since Kubernetes writes a new one before the old one ends.
    fn headers(&self) -> Result<Vec<(&'static str, String)>> {
        let path = self.settings.account.join("token");
        let mut headers = vec![("accept", "application/json".to_owned())];
        if path.exists() {
            headers.push(("authorization", format!("Bearer {}", read(&path)?)));
        }
        Ok(headers)
    }
}

/// A file of the account.
fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    let text =
        text.map_err(|error| Status::invalid_argument(format!("kubernetes: {}: {error}", path.display())))?;
    Ok(text.trim().to_owned())
}

/// A name as Kubernetes takes them: `demo.Greeter` is `demo-greeter`.
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
        // All addresses of an endpoint lead to the same; clients are to use the first.
        let host = self.addresses.first()?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let state = match (self.conditions.ready, self.conditions.terminating) {
            (_, Some(true)) => State::Draining,
            // Not known means that it is.
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

impl Backend for Slices {
    fn name(&self) -> &str {
        self.site.name()
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn forgets(&self) -> bool {
        false
    }

    fn hold<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async {
            let text = format!("{} takes no registrations: it knows its pods", self.site.name());
            Err(Status::unimplemented(text))
        })
    }
}

//! EndpointSlices as the Kubernetes API is documented: a list in pages, and a watch from its version on.
//!
//! No cluster runs here; the server below responds as the documentation of the API says. Only Kubernetes registers
//! endpoints, so the suite of registries does not apply.
#![cfg(feature = "kubernetes")]
#![allow(clippy::unwrap_used)]

mod suite;

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use suite::{
    Folder,
    http::{HttpRequest, HttpResponse, serve},
};
use switchboard::{
    Code,
    discover::{Registry, State},
};
use switchboard_registry::{Kubernetes, kubernetes::Settings};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

/// The API server: slices by name, and its watchers.
#[derive(Default)]
struct Cluster(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    slices: BTreeMap<String, Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<String>>,
    watched_from: Vec<String>,
    lists: usize,
}

fn slice(name: &str, endpoints: &[Value]) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": "demo-greeter"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [
            {"name": "metrics", "port": 9090, "protocol": "TCP"},
            {"name": "rpc", "port": 8080, "protocol": "TCP"},
        ],
    })
}

fn endpoint(address: &str, ready: bool, terminating: bool) -> Value {
    json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready || terminating, "terminating": terminating},
        "nodeName": "node-1", "zone": "eu-1a", "targetRef": {"kind": "Pod", "name": format!("pod-{address}")},
    })
}

impl Cluster {
    /// Changes a slice, or deletes it.
    fn set(&self, name: &str, slice: Option<Value>) {
        let mut inner = self.0.lock().unwrap();
        inner.version += 1;
        let version = inner.version.to_string();
        let (kind, mut object) = match slice {
            Some(slice) => (if inner.slices.contains_key(name) { "MODIFIED" } else { "ADDED" }, slice),
            None => ("DELETED", inner.slices[name].clone()),
        };
        object["metadata"]["resourceVersion"] = json!(version);
        match kind {
            "DELETED" => drop(inner.slices.remove(name)),
            _ => drop(inner.slices.insert(name.to_owned(), object.clone())),
        }
        self.notify(&mut inner, kind, &object);
    }

    fn notify(&self, inner: &mut Inner, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object}).to_string();
        inner.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }

    fn respond(&self, request: &HttpRequest) -> HttpResponse {
        let status = |code: u16, why: &str| {
            HttpResponse::Whole(code, json!({"kind": "Status", "code": code, "message": why}).to_string())
        };
        if request.headers.get("authorization").map(String::as_str) != Some("Bearer the-token") {
            return status(401, "Unauthorized");
        }
        assert_eq!(request.path, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices");
        if request.option("labelSelector") != "kubernetes.io/service-name=demo-greeter" {
            return HttpResponse::Whole(
                200,
                json!({"metadata": {"resourceVersion": "1"}, "items": null}).to_string(),
            );
        }
        let mut inner = self.0.lock().unwrap();
        if request.option("watch") == "1" {
            assert_eq!(request.option("allowWatchBookmarks"), "true");
            inner.watched_from.push(request.option("resourceVersion").to_owned());
            let (sender, receiver) = mpsc::unbounded_channel();
            // The changes since that version.
            let from: u64 = request.option("resourceVersion").parse().unwrap();
            for slice in inner.slices.values() {
                let version = slice["metadata"]["resourceVersion"].as_str().unwrap();
                if version.parse::<u64>().unwrap() > from {
                    sender.send(json!({"type": "MODIFIED", "object": slice}).to_string()).unwrap();
                }
            }
            inner.watchers.push(sender);
            return HttpResponse::Lines(receiver);
        }
        inner.lists += 1;
        // One slice per page.
        let at: usize = request.option("continue").parse().unwrap_or(0);
        let items: Vec<_> = inner.slices.values().skip(at).take(1).cloned().collect();
        let next = if at + 1 < inner.slices.len() { (at + 1).to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": inner.version.to_string(), "continue": next});
        let kind = json!({"kind": "EndpointSliceList", "metadata": metadata, "items": items});
        HttpResponse::Whole(200, kind.to_string())
    }
}

struct Local {
    cluster: Arc<Cluster>,
    host: String,
    server: JoinSet<()>,
    account: Folder,
}

impl Local {
    async fn new() -> Local {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let account = Folder::new();
        std::fs::write(account.0.join("token"), "the-token\n").unwrap();
        std::fs::write(account.0.join("namespace"), "shop").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let mut local = Local { cluster: Arc::default(), host, server: JoinSet::new(), account };
        local.serve(listener);
        local
    }

    fn serve(&mut self, listener: TcpListener) {
        let cluster = self.cluster.clone();
        self.server.spawn(serve(listener, move |request| {
            let response = cluster.respond(&request);
            async move { response }
        }));
    }

    fn connect(&self) -> Kubernetes {
        let settings = Settings { plaintext_token_on_loopback: true, ..self.settings() };
        Kubernetes::connect(&format!("http://{}", self.host), settings, suite::options()).unwrap()
    }

    fn settings(&self) -> Settings {
        Settings { port: Some("rpc".to_owned()), account: self.account.0.clone(), ..Settings::default() }
    }
}

const ONE: &str = "tcp://10.0.0.1:8080";
const TWO: &str = "tcp://10.0.0.2:8080";
const THREE: &str = "tcp://10.0.0.3:8080";

#[tokio::test]
async fn slices_are_listed_in_pages_and_watched() {
    let local = Local::new().await;
    local.cluster.set("a", Some(slice("a", &[endpoint("10.0.0.1", true, false)])));
    local.cluster.set("b", Some(slice("b", &[endpoint("10.0.0.2", true, false)])));
    let registry = local.connect();
    let mut watch = registry.watch("demo.Greeter");
    suite::until(&mut watch, &format!("{ONE} {TWO}")).await;
    let latest = watch.latest();
    let found = &latest.instances[0];
    assert_eq!(
        (found.zone.as_str(), found.tags["node"].as_str(), found.tags["pod"].as_str()),
        ("eu-1a", "node-1", "pod-10.0.0.1")
    );

    // One event per change; an ending endpoint is draining first, and one in two slices is returned once.
    local
        .cluster
        .set("b", Some(slice("b", &[endpoint("10.0.0.2", false, true), endpoint("10.0.0.3", true, false)])));
    suite::until(&mut watch, &format!("{ONE} {TWO} {THREE}")).await;
    suite::until_is(&mut watch, |watch| watch.latest().find(TWO).unwrap().state == State::Draining).await;
    local.cluster.set("c", Some(slice("c", &[endpoint("10.0.0.1", false, false)])));
    local.cluster.set("b", Some(slice("b", &[endpoint("10.0.0.3", true, false)])));
    suite::until(&mut watch, &format!("{ONE} {THREE}")).await;
    assert_eq!(watch.latest().find(ONE).unwrap().state, State::Up);

    let empty = registry.watch("other").changed().await;
    assert!(empty.instances.is_empty());
    let refused = registry.register(suite::instance("demo.Greeter", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn watches_continue_from_their_version_and_restart_when_it_expires() {
    let mut local = Local::new().await;
    local.cluster.set("a", Some(slice("a", &[endpoint("10.0.0.1", true, false)])));
    let registry = local.connect();
    let mut watch = registry.watch("demo.Greeter");
    suite::until(&mut watch, ONE).await;
    let watching = |local: &Local| !local.cluster.0.lock().unwrap().watchers.is_empty();
    suite::until_is(&mut watch, |_| watching(&local)).await;

    // A bookmark moves the version, and the server discards older changes.
    {
        let mut inner = local.cluster.0.lock().unwrap();
        inner.version = 70;
        local.cluster.notify(&mut inner, "BOOKMARK", &json!({"metadata": {"resourceVersion": "70"}}));
        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
        local.cluster.notify(&mut inner, "ERROR", &gone);
    }
    suite::until_is(&mut watch, |_| local.cluster.0.lock().unwrap().lists > 1).await;
    local
        .cluster
        .set("a", Some(slice("a", &[endpoint("10.0.0.1", true, false), endpoint("10.0.0.2", true, false)])));
    suite::until(&mut watch, &format!("{ONE} {TWO}")).await;

    // The API is down: the snapshot stays. After its restart, changes in the meantime are seen.
    local.server.shutdown().await;
    local.cluster.0.lock().unwrap().watchers.clear();
    suite::until_is(&mut watch, |watch| watch.state().error.is_some()).await;
    assert_eq!(suite::ids(&watch), format!("{ONE} {TWO}"));
    local.cluster.set("b", Some(slice("b", &[endpoint("10.0.0.3", true, false)])));
    let listener = TcpListener::bind(&local.host).await.expect("the port is free again");
    local.serve(listener);
    suite::until(&mut watch, &format!("{ONE} {TWO} {THREE}")).await;
    assert!(watch.state().error.is_none());
}

#[tokio::test]
async fn a_token_is_read_again_and_its_refusal_is_reported() {
    let local = Local::new().await;
    local.cluster.set("a", Some(slice("a", &[endpoint("10.0.0.1", true, false)])));
    std::fs::write(local.account.0.join("token"), "an old one").unwrap();
    let registry = local.connect();
    let mut watch = registry.watch("demo.Greeter");
    suite::until_is(&mut watch, |watch| {
        watch.state().error.is_some_and(|error| error.code() == Code::Unauthenticated)
    })
    .await;
    std::fs::write(local.account.0.join("token"), "the-token").unwrap();
    suite::until(&mut watch, ONE).await;
}

#[tokio::test]
async fn a_token_does_not_go_over_plain_http() {
    let local = Local::new().await;
    local.cluster.set("a", Some(slice("a", &[endpoint("10.0.0.1", true, false)])));
    let url = format!("http://{}", local.host);
    let registry = Kubernetes::connect(&url, local.settings(), suite::options()).unwrap();
    let mut watch = registry.watch("demo.Greeter");
    suite::until_is(&mut watch, |watch| {
        watch.state().error.is_some_and(|error| error.code() == Code::Unauthenticated)
    })
    .await;
    let settings = Settings { plaintext_token_on_loopback: true, ..local.settings() };
    for elsewhere in ["http://10.0.0.1:80", "http://localhost:80", "http://127.0.0.1@10.0.0.1"] {
        let refused = Kubernetes::connect(elsewhere, settings.clone(), suite::options()).err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument, "{elsewhere}: {refused}");
    }
}

#[tokio::test]
async fn invalid_settings_are_errors() {
    let folder = Folder::new();
    let address = format!("kubernetes://127.0.0.1:1/?http=on&account={}", folder.0.display());
    let error = switchboard_registry::connect(&address).err().unwrap();
    assert!(error.message().contains("namespace"), "{error}");
    let registry = switchboard_registry::connect(&format!("{address}&namespace=shop&port=rpc")).unwrap();
    assert_eq!(registry.name(), "kubernetes 127.0.0.1:1");
    let error = switchboard_registry::connect("kubernetes:///greeter").err().unwrap();
    assert!(error.message().contains("KUBERNETES_SERVICE_HOST"), "{error}");
}

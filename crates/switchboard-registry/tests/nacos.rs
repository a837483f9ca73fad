//! Nacos as its open API is documented, in the suite of all registries.
//!
//! No Nacos runs here: Debian has no package. The server below responds to our calls as the documentation of
//! `/ns/instance`, its heartbeat and its list says, for both versions of the API. Behaviour of Nacos beyond that is not
//! tested.
#![cfg(feature = "nacos")]
#![allow(clippy::unwrap_used)]

mod suite;

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use suite::{
    Members, Rig,
    http::{HttpRequest, HttpResponse, serve},
};
use switchboard::discover::{Options, Registry, State};
use switchboard_registry::{Nacos, nacos::Settings};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

/// The instances of the documented server: service with its group, then host, port and cluster.
#[derive(Default)]
struct Catalog(Mutex<BTreeMap<(String, String), Entry>>);

struct Entry {
    ip: String,
    port: u16,
    weight: f64,
    metadata: Value,
    beaten: Instant,
}

impl Entry {
    fn time(&self, name: &str, usual: u64) -> Duration {
        let set = self.metadata[name].as_str().and_then(|time| time.parse().ok());
        Duration::from_millis(set.unwrap_or(usual))
    }

    fn is_healthy(&self) -> bool {
        self.beaten.elapsed() < self.time("preserved.heart.beat.timeout", 15_000)
    }
}

impl Catalog {
    fn respond(&self, request: &HttpRequest) -> HttpResponse {
        let ok = |body: String| HttpResponse::Whole(200, body);
        if request.path == "/nacos/v1/auth/login" {
            assert_eq!((request.method.as_str(), request.option("username")), ("POST", "ada"));
            return match request.option("password") {
                "p&w" => {
                    ok(json!({"accessToken": "t k", "tokenTtl": 18000, "globalAdmin": false}).to_string())
                }
                _ => HttpResponse::Whole(403, "unknown user!".to_owned()),
            };
        }
        if request.option("namespaceId") == "locked" && request.option("accessToken") != "t k" {
            return HttpResponse::Whole(403, "authorization failed!".to_owned());
        }
        let (version, operation) = request.path.strip_prefix("/nacos/v").unwrap().split_at(1);
        let wrapped = |data: Value| match version {
            "1" => ok(data.as_str().map_or_else(|| data.to_string(), str::to_owned)),
            _ => ok(json!({"code": 0, "message": "success", "data": data}).to_string()),
        };
        let service = format!("{}@@{}", request.option("groupName"), request.option("serviceName"));
        let cluster = request.option("clusterName");
        let key = (service.clone(), format!("{}#{}#{cluster}", request.option("ip"), request.option("port")));
        let mut entries = self.0.lock().unwrap();
        entries.retain(|_, entry| entry.beaten.elapsed() < entry.time("preserved.ip.delete.timeout", 30_000));
        match (request.method.as_str(), operation) {
            ("POST", "/ns/instance") => {
                assert_eq!((request.option("ephemeral"), request.option("enabled")), ("true", "true"));
                let metadata = match request.option("metadata") {
                    "" => json!({}),
                    text => serde_json::from_str(text).unwrap(),
                };
                let entry = Entry {
                    ip: request.option("ip").to_owned(),
                    port: request.option("port").parse().unwrap(),
                    weight: request.option("weight").parse().unwrap_or(1.0),
                    metadata,
                    beaten: Instant::now(),
                };
                entries.insert(key, entry);
                wrapped(json!("ok"))
            }
            ("DELETE", "/ns/instance") => {
                entries.remove(&key);
                wrapped(json!("ok"))
            }
            ("GET", "/ns/instance") => match entries.get(&key) {
                Some(entry) => wrapped(json!({
                    "service": service, "ip": entry.ip, "port": entry.port, "clusterName": cluster,
                    "weight": entry.weight, "healthy": entry.is_healthy(), "metadata": entry.metadata,
                })),
                None if version == "1" => HttpResponse::Whole(
                    500,
                    "caused: no ips found for cluster DEFAULT in service;".to_owned(),
                ),
                None => HttpResponse::Whole(
                    404,
                    json!({"code": 21003, "message": "resource not found", "data": null}).to_string(),
                ),
            },
            ("PUT", "/ns/instance/beat") => {
                let beat: Value = serde_json::from_str(request.option("beat")).unwrap();
                assert_eq!(beat["serviceName"], json!(service));
                let code = match entries.get_mut(&key) {
                    Some(entry) => {
                        entry.beaten = Instant::now();
                        10200
                    }
                    None => 20404,
                };
                // This operation is not wrapped in either version.
                ok(json!({"clientBeatInterval": 5000, "code": code, "lightBeatEnabled": true}).to_string())
            }
            ("GET", "/ns/instance/list") => {
                assert_eq!(request.option("healthyOnly"), "true");
                let named =
                    entries.iter().filter(|((name, _), entry)| *name == service && entry.is_healthy());
                let hosts = named.map(|((_, place), entry)| {
                    json!({
                        "instanceId": format!("{place}#{service}"), "ip": entry.ip, "port": entry.port,
                        "weight": entry.weight, "healthy": true, "enabled": true, "ephemeral": true,
                        "clusterName": "DEFAULT", "serviceName": service, "metadata": entry.metadata,
                        "ipDeleteTimeout": 30000, "instanceHeartBeatInterval": 5000,
                    })
                });
                let hosts: Vec<_> = hosts.collect();
                wrapped(json!({
                    "name": service, "groupName": request.option("groupName"), "clusters": "",
                    "cacheMillis": 10000, "hosts": hosts, "lastRefTime": 0, "checksum": "", "allIPs": false,
                    "valid": true,
                }))
            }
            other => panic!("undocumented call: {other:?}"),
        }
    }
}

struct Local {
    catalog: Arc<Catalog>,
    host: String,
    server: JoinSet<()>,
    members: Members,
    api: u8,
}

impl Local {
    async fn new(api: u8) -> Local {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let mut local =
            Local { catalog: Arc::default(), host, server: JoinSet::new(), members: Members::new(), api };
        local.serve(listener);
        local
    }

    fn serve(&mut self, listener: TcpListener) {
        let catalog = self.catalog.clone();
        self.server.spawn(serve(listener, move |request| {
            let response = catalog.respond(&request);
            async move { response }
        }));
    }
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        let settings = Settings { api: self.api, poll: Duration::from_millis(50), ..Settings::default() };
        Arc::new(Nacos::connect(&self.host, settings, options).expect("a good address"))
    }

    async fn stop(&mut self) {
        self.server.shutdown().await;
    }

    async fn start(&mut self) {
        let listener = TcpListener::bind(&self.host).await.expect("the port is free again");
        self.serve(listener);
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite_with_version_2() {
    suite::run(&mut Local::new(2).await).await;
}

#[tokio::test]
async fn suite_with_version_1() {
    suite::run(&mut Local::new(1).await).await;
}

#[tokio::test]
async fn foreign_instances_are_found_and_draining_ones_get_no_weight() {
    let local = Local::new(2).await;
    let registry = local.connect(suite::options());
    let entry = Entry {
        ip: "10.0.0.9".to_owned(),
        port: 8080,
        weight: 0.5,
        metadata: json!({"version": "3", "disk": "fast", "preserved.register.source": "SPRING_CLOUD"}),
        beaten: Instant::now(),
    };
    let key = ("DEFAULT_GROUP@@web".to_owned(), "10.0.0.9#8080#DEFAULT".to_owned());
    local.catalog.0.lock().unwrap().insert(key, entry);
    let mut watch = registry.watch("web");
    suite::until(&mut watch, "tcp://10.0.0.9:8080").await;
    let latest = watch.latest();
    let found = &latest.instances[0];
    assert_eq!((found.weight, found.version.as_str(), found.state), (50, "3", State::Up));
    assert_eq!(
        found.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        ["disk=fast"]
    );

    let draining = suite::instance("shop", 1).weight(70).state(State::Draining);
    let _lease = registry.register(draining.clone()).await.unwrap();
    let weights: Vec<f64> = local.catalog.0.lock().unwrap().values().map(|entry| entry.weight).collect();
    assert_eq!(weights, [0.0, 0.5]);
    let mut watch = registry.watch("shop");
    suite::until(&mut watch, "1").await;
    assert_eq!(watch.latest().instances, [draining]);
    let nowhere =
        registry.register(switchboard::discover::Instance::new("shop", "unix:/a")).await.unwrap_err();
    assert!(nowhere.message().contains("no host and port"), "{nowhere}");
}

#[tokio::test]
async fn logins_return_a_token_and_errors_contain_no_password() {
    let local = Local::new(2).await;
    let address = |password: &str| format!("nacos://ada:{password}@{}/locked?poll=50ms", local.host);
    let registry = switchboard_registry::connect(&address("p%26w")).unwrap();
    let lease = registry.register(suite::instance("s", 1)).await.unwrap();
    suite::until(&mut registry.watch("s"), "1").await;
    lease.end().await.unwrap();
    let refused = switchboard_registry::connect(&address("secret")).unwrap();
    let refused = refused.register(suite::instance("s", 1)).await.unwrap_err();
    assert!(refused.message().contains("403") && !refused.message().contains("secret"), "{refused}");
    let wrong =
        switchboard_registry::connect(&format!("nacos://ada:secret@{}/?api=3", local.host)).err().unwrap();
    assert!(wrong.message().contains("versions 1 and 2") && !wrong.message().contains("secret"), "{wrong}");
}

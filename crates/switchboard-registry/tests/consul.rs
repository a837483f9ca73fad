//! Consul as its HTTP API is documented, in the suite of all registries.
//!
//! No Consul runs here: its module cannot be installed from source by name, and Debian has no package. The server
//! below answers the calls that we make as the documentation of `/agent/service`, `/agent/check`, `/health/service` and
//! of blocking queries says; what Consul itself does beyond that is not tested.
#![cfg(feature = "consul")]
#![allow(clippy::unwrap_used)]

mod suite;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use suite::{Members, Rig};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Server, Service, ServiceInfo,
    discover::{Instance, Options, Registry, State},
};
use switchboard_registry::Consul;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// The catalog of the documented agent: it lives as long as the test, as Consul's does on its disk.
#[derive(Default)]
struct Catalog {
    services: Mutex<BTreeMap<String, Entry>>,
    /// Keys: value in plain text, and the session that locks it.
    keys: Mutex<BTreeMap<String, (String, String)>>,
    sessions: Mutex<Vec<String>>,
    index: watch::Sender<u64>,
}

struct Entry {
    service: Value,
    ttl: Duration,
    until: Instant,
}

impl Catalog {
    fn change(&self) {
        self.index.send_modify(|index| *index += 1);
    }

    /// Answers one request with a status, an index and a body.
    async fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, u64, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if let Some(key) = path.strip_prefix("/v1/kv/") {
            return self.answer_key(method, &unescape(key), query, body).await;
        }
        let parts: Vec<String> = path.trim_start_matches('/').split('/').map(unescape).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (method, parts.as_slice()) {
            ("PUT", ["v1", "agent", "service", "register"]) => {
                let service: Value = serde_json::from_slice(body).expect("JSON");
                let ttl =
                    service["Check"]["TTL"].as_str().and_then(|ttl| ttl.strip_suffix("ms")?.parse().ok());
                let ttl = Duration::from_millis(ttl.expect("a duration as Go writes it"));
                assert_eq!(service["Check"]["Status"], "passing");
                let id = service["ID"].as_str().expect("an id").to_owned();
                let entry = Entry { service, ttl, until: Instant::now() + ttl };
                self.services.lock().unwrap().insert(id, entry);
                self.change();
                (200, 0, String::new())
            }
            ("PUT", ["v1", "agent", "service", "deregister", id]) => {
                let known = self.services.lock().unwrap().remove(*id);
                self.change();
                (if known.is_some() { 200 } else { 404 }, 0, String::new())
            }
            ("PUT", ["v1", "agent", "check", "pass", check]) => {
                let id = check.strip_prefix("service:").expect("the check of a service");
                let mut services = self.services.lock().unwrap();
                let Some(entry) = services.get_mut(id) else {
                    return (404, 0, format!("Unknown check ID {check:?}"));
                };
                let was_critical = entry.until <= Instant::now();
                entry.until = Instant::now() + entry.ttl;
                drop(services);
                if was_critical {
                    self.change();
                }
                (200, 0, String::new())
            }
            ("GET", ["v1", "health", "service", name]) => {
                let option = |name: &str| {
                    let value = query.split('&').find_map(|option| option.strip_prefix(name));
                    value.expect("the option").to_owned()
                };
                assert_eq!(option("passing="), "true");
                let known: u64 = option("index=").parse().expect("a number");
                assert_eq!(option("wait="), "30s");
                let mut index = self.index.subscribe();
                let _ = timeout(Duration::from_secs(30), index.wait_for(|index| *index > known)).await;
                let index = *index.borrow();
                let services = self.services.lock().unwrap();
                let passing = services.values().filter(|entry| entry.until > Instant::now());
                let named = passing.filter(|entry| entry.service["Name"] == **name);
                let found = named.map(|entry| {
                    let service = &entry.service;
                    json!({
                        "Node": {"Node": "n", "Address": "10.0.0.9", "Datacenter": "dc1"},
                        "Service": {
                            "ID": service["ID"], "Service": service["Name"],
                            "Address": service["Address"].as_str().unwrap_or(""),
                            "Port": service["Port"].as_u64().unwrap_or(0), "Tags": [], "Meta": service["Meta"],
                            "Weights": {"Passing": 1, "Warning": 1}, "ModifyIndex": index,
                        },
                        "Checks": [],
                    })
                });
                (200, index, Value::Array(found.collect()).to_string())
            }
            ("PUT", ["v1", "session", "create"]) => {
                let session: Value = serde_json::from_slice(body).expect("JSON");
                assert_eq!((&session["Behavior"], &session["LockDelay"]), (&json!("delete"), &json!("0s")));
                let seconds: u64 =
                    session["TTL"].as_str().unwrap().strip_suffix('s').unwrap().parse().unwrap();
                assert!((10..=86_400).contains(&seconds));
                let mut sessions = self.sessions.lock().unwrap();
                let id = format!("session-{}", sessions.len());
                sessions.push(id.clone());
                (200, 0, json!({"ID": id}).to_string())
            }
            ("PUT", ["v1", "session", "renew", id]) => {
                let known = self.sessions.lock().unwrap().iter().any(|known| known == id);
                (if known { 200 } else { 404 }, 0, "[]".to_owned())
            }
            ("PUT", ["v1", "session", "destroy", id]) => {
                self.end(id);
                (200, 0, "true".to_owned())
            }
            other => panic!("no documented call: {other:?}"),
        }
    }

    /// Ends a session, with all that it locks.
    fn end(&self, id: &str) {
        self.sessions.lock().unwrap().retain(|known| known != id);
        self.keys.lock().unwrap().retain(|_, (_, session)| session != id);
        self.change();
    }

    async fn answer_key(&self, method: &str, key: &str, query: &str, body: &[u8]) -> (u16, u64, String) {
        let option = |name: &str| query.split('&').find_map(|option| option.strip_prefix(name));
        match method {
            "PUT" => {
                let session = option("acquire=").expect("a session").to_owned();
                assert_eq!(option("flags="), Some("3304740253564472344"));
                let mut keys = self.keys.lock().unwrap();
                let free = keys.get(key).is_none_or(|(_, holder)| *holder == session);
                if free {
                    keys.insert(key.to_owned(), (String::from_utf8(body.to_vec()).unwrap(), session));
                    drop(keys);
                    self.change();
                }
                (200, 0, free.to_string())
            }
            "DELETE" => {
                self.keys.lock().unwrap().remove(key);
                self.change();
                (200, 0, "true".to_owned())
            }
            _ => {
                if option("recurse=").is_some() {
                    let known: u64 = option("index=").unwrap().parse().unwrap();
                    let empty = !self.keys.lock().unwrap().keys().any(|name| name.starts_with(key));
                    if !empty {
                        let mut index = self.index.subscribe();
                        let _ =
                            timeout(Duration::from_secs(30), index.wait_for(|index| *index > known)).await;
                    }
                }
                let index = *self.index.borrow();
                let keys = self.keys.lock().unwrap();
                let found = keys.iter().filter(|(name, _)| name.starts_with(key));
                let found: Vec<_> = found
                    .map(|(name, (value, session))| {
                        let value = (!value.is_empty()).then(|| STANDARD.encode(value));
                        json!({"Key": name, "Value": value, "Session": session, "Flags": 0, "ModifyIndex": index})
                    })
                    .collect();
                if found.is_empty() {
                    (404, index, String::new())
                } else {
                    (200, index, Value::Array(found).to_string())
                }
            }
        }
    }
}

fn unescape(part: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), part.as_bytes());
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

async fn serve(catalog: Arc<Catalog>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let overdue = async {
        // Consul looks at its TTL checks by timers; the index moves when one turns critical.
        let mut critical = 0;
        loop {
            sleep(Duration::from_millis(20)).await;
            let now = Instant::now();
            let is = catalog.services.lock().unwrap().values().filter(|entry| entry.until <= now).count();
            if std::mem::replace(&mut critical, is) != is {
                catalog.change();
            }
        }
    };
    let accept = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(converse(catalog.clone(), stream));
        }
    };
    tokio::select! {
        () = overdue => {}
        () = accept => {}
    }
}

/// One request and its answer.
async fn converse(catalog: Arc<Catalog>, stream: TcpStream) -> Option<()> {
    let mut stream = BufStream::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (status, index, body) = catalog.answer(&method, &path, &body).await;
    let head =
        format!("HTTP/1.1 {status} X\r\nX-Consul-Index: {index}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

struct Local {
    catalog: Arc<Catalog>,
    host: String,
    server: JoinSet<()>,
    members: Members,
}

impl Local {
    async fn new() -> Local {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let catalog = Arc::new(Catalog { index: watch::Sender::new(1), ..Catalog::default() });
        let mut server = JoinSet::new();
        server.spawn(serve(catalog.clone(), listener));
        Local { catalog, host, server, members: Members::new() }
    }
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        Arc::new(Consul::connect(&self.host, None, options).expect("a good address"))
    }

    async fn stop(&mut self) {
        self.server.shutdown().await;
    }

    async fn start(&mut self) {
        let listener = TcpListener::bind(&self.host).await.expect("the port is free again");
        self.server.spawn(serve(self.catalog.clone(), listener));
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite() {
    suite::run(&mut Local::new().await).await;
}

#[tokio::test]
async fn what_others_registered_is_found_and_what_does_not_fit_is_refused() {
    let local = Local::new().await;
    let registry = local.connect(suite::options());
    let service = json!({
        "ID": "web-1", "Name": "web", "Address": "", "Port": 8080,
        "Check": {"TTL": "60000ms", "Status": "passing"},
    });
    local.catalog.answer("PUT", "/v1/agent/service/register", service.to_string().as_bytes()).await;
    let mut watch = registry.watch("web");
    suite::until(&mut watch, "web-1").await;
    let latest = watch.latest();
    let found = &latest.instances[0];
    assert_eq!((found.address.as_str(), found.weight, found.state), ("tcp://10.0.0.9:8080", 100, State::Up));
    let long = suite::instance("web", 1).tag("t", "x".repeat(600));
    let refused = registry.register(long).await.unwrap_err();
    assert!(refused.message().contains("Consul takes 512"), "{refused}");
}

#[tokio::test]
async fn keys_of_rpcx_are_read_and_written() {
    let local = Local::new().await;
    let url =
        format!("consul://{}/rpcx_test?layout=rpcx&confirm_after=0s&ttl=1s&retry_max=200ms", local.host);
    let registry = switchboard_registry::connect(&url).unwrap();
    let mut watch = registry.watch("Arith");
    assert!(watch.changed().await.instances.is_empty());
    let set = |key: &str, value: &str| {
        local.catalog.keys.lock().unwrap().insert(key.to_owned(), (value.to_owned(), "theirs".to_owned()));
        local.catalog.change();
    };
    set("rpcx_test/Arith", "Arith");
    set("rpcx_test/Arith/tcp@10.0.0.7:8972", "group=g&calls=1.00");
    set("rpcx_test/Arithmetic/tcp@10.0.0.8:8972", "");
    let theirs = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("g");
    suite::until_is(&mut watch, |watch| watch.latest().instances == [theirs.clone()]).await;

    // A key that another session still holds is taken over.
    set("rpcx_test/Arith/tcp@10.0.0.9:80", "");
    let ours = Instance::new("Arith", "tcp://10.0.0.9:80?wire=rpcx").zone("z");
    let lease = registry.register(ours).await.unwrap();
    let written =
        |local: &Local| local.catalog.keys.lock().unwrap().get("rpcx_test/Arith/tcp@10.0.0.9:80").cloned();
    assert_eq!(written(&local), Some(("zone=z".to_owned(), "session-0".to_owned())));
    suite::until_is(&mut watch, |watch| watch.latest().instances.len() == 2).await;
    // The session ends: the next renewal makes another.
    local.catalog.end("session-0");
    suite::until_is(&mut watch, |_| written(&local).is_some()).await;
    lease.end().await.unwrap();
    suite::until(&mut watch, "tcp://10.0.0.7:8972?wire=rpcx").await;
}

static ECHO: ServiceInfo =
    ServiceInfo { name: "consul.Echo", methods: &[MethodInfo::new("Echo", Kind::Unary)], descriptor: &[] };
static CALL: ClientMethod = ClientMethod { service: &ECHO, index: 0, path: "consul.Echo/Echo" };

struct Echo;

impl Service for Echo {
    fn info(&self) -> &'static ServiceInfo {
        &ECHO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (message, cx) = call.into_one()?;
        Ok(Reply::one(message, cx))
    }
}

#[tokio::test]
async fn instances_on_each_network_of_rpcx_are_called() {
    let local = Local::new().await;
    let server = Server::new().add(Echo).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let at = server.url().replace("tcp://", "");
    for network in ["tcp", "http", "ws"] {
        let key = format!("rpcx_test/by-{network}/{network}@{at}");
        local.catalog.keys.lock().unwrap().insert(key, (String::new(), "theirs".to_owned()));
        local.catalog.change();
        let registry =
            switchboard_registry::connect(&format!("consul://{}/rpcx_test?layout=rpcx", local.host));
        let channel = Channel::fleet(registry.unwrap(), &format!("by-{network}")).connect().await.unwrap();
        let call = channel.unary(&CALL, Codec::Json, Ok(b"[1]".to_vec()), |_, reply| Ok(reply));
        assert_eq!(call.await.unwrap()[..], *b"[1]", "{network}");
    }
}

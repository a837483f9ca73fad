//! A real Consul, in the suite of all registries.
#![cfg(feature = "consul")]

mod suite;

use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};
use suite::{
    Rig,
    local::{Local, Program},
    process::named,
    rpcx,
};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Server, Service, ServiceInfo,
    discover::{Instance, Options, Registry, State},
};
use switchboard_registry::{Consul, layout::Style};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::sleep,
};

struct Installed;

impl Program for Installed {
    const TTL: Duration = Duration::from_secs(1);

    fn command(folder: &Path, [port, _]: [u16; 2]) -> Option<Command> {
        let mut command = Command::new(named("SWITCHBOARD_CONSUL")?);
        // Servers talk to each other at fixed ports, so each has a different address.
        let [high, low] = port.to_be_bytes();
        command.args(["agent", "-dev", "-bind", &format!("127.1.{high}.{low}"), "-client", "127.0.0.1"]);
        command.args(["-http-port", &port.to_string(), "-dns-port", "-1", "-grpc-port", "-1"]);
        command.args(["-serf-wan-port", "-1"]).current_dir(folder);
        Some(command)
    }

    /// A session needs the node and its check in the catalog, where Consul adds them once it has a leader.
    async fn ready(port: u16) {
        let checks = || request(port, "GET", "/v1/health/state/any", "");
        while !checks().await.is_ok_and(|checks| checks.contains("serfHealth")) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn connect(style: Style, port: u16, options: Options) -> Arc<dyn Registry> {
        let host = format!("127.0.0.1:{port}");
        Arc::new(Consul::connect_as(style, &host, "rpcx_test", None, options).expect("a good address"))
    }
}

/// Calls the agent as any client would, and returns the response.
async fn call(port: u16, method: &str, path: &str, body: &str) -> String {
    request(port, method, path, body).await.unwrap_or_else(|refused| panic!("{method} {path}: {refused}"))
}

/// Returns the response of the agent, or its error.
async fn request(port: u16, method: &str, path: &str, body: &str) -> std::result::Result<String, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Consul takes connections");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await.expect("Consul reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("Consul responses");
    let (head, body) = response.split_once("\r\n\r\n").expect("an response has a head");
    if head.starts_with("HTTP/1.0 200") { Ok(body.to_owned()) } else { Err(format!("{head} {body}")) }
}

#[tokio::test]
async fn suite() {
    let Some(mut local) = Local::<Installed>::of(Style::Own).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn foreign_registrations_are_found_and_long_values_are_refused() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let registry = local.connect(suite::options());
    let mut watch = registry.watch("web");
    assert_eq!(watch.changed().await.instances, []);
    let service = json!({"ID": "web-1", "Name": "web", "Address": "10.0.0.9", "Port": 8080}).to_string();
    call(local.port(), "PUT", "/v1/agent/service/register", &service).await;
    suite::until(&mut watch, "web-1").await;
    let latest = watch.latest();
    let found = &latest.instances[0];
    assert_eq!((found.address.as_str(), found.weight, found.state), ("tcp://10.0.0.9:8080", 100, State::Up));
    let long = suite::instance("web", 1).tag("t", "x".repeat(600));
    let refused = registry.register(long).await.unwrap_err();
    assert!(refused.message().contains("Consul accepts 512"), "{refused}");
}

#[tokio::test]
async fn locked_rpcx_keys_are_taken_over_and_deleted_ones_are_restored() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let port = local.port();
    let url = format!("consul://127.0.0.1:{port}/rpcx_test?layout=rpcx&confirm_after=0s&ttl=1s");
    let registry = switchboard_registry::connect(&url).unwrap();
    let mut watch = registry.watch("Arith");
    assert_eq!(watch.changed().await.instances, []);
    let key = "/v1/kv/rpcx_test/Arith/tcp@10.0.0.9:80";
    let theirs = session_of(&call(port, "PUT", "/v1/session/create", r#"{"LockDelay": "0s"}"#).await);
    assert_eq!(call(port, "PUT", &format!("{key}?acquire={theirs}"), "group=g").await.trim(), "true");
    let group = |group| Instance::new("Arith", "tcp://10.0.0.9:80?wire=rpcx").group(group);
    suite::until_is(&mut watch, |watch| watch.latest().instances == [group("g")]).await;

    let lease = registry.register(group("h")).await.unwrap();
    suite::until_is(&mut watch, |watch| watch.latest().instances == [group("h")]).await;
    // Its session ends: the next renewal creates another.
    let held: Value = serde_json::from_str(&call(port, "GET", key, "").await).unwrap();
    let first = held[0]["Session"].as_str().expect("it is locked").to_owned();
    assert_ne!(first, theirs);
    call(port, "PUT", &format!("/v1/session/destroy/{first}"), "").await;
    suite::until(&mut watch, "").await;
    suite::until_is(&mut watch, |watch| watch.latest().instances == [group("h")]).await;
    lease.end().await.unwrap();
    suite::until(&mut watch, "").await;
}

fn session_of(response: &str) -> String {
    let response: Value = serde_json::from_str(response).expect("JSON");
    response["ID"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn plug_ins_of_rpcx_find_our_servers_and_we_find_theirs() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let place = format!("127.0.0.1:{}", local.port());
    let Some(plugins) = rpcx::Plugins::of("consul", &place) else { return };
    // They omit the slash of `/rpcx_test`. Sessions of 10 s, the shortest, end after up to 20 s.
    let url = format!("consul://{place}/rpcx_test?layout=rpcx&ttl=1s&confirm_after=0s");
    rpcx::both_ways(&plugins, "/rpcx_test", &url, async || {}).await;
    rpcx::their_crash(&plugins, "rpcx_test", &url).await;
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
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let server = Server::new().add(Echo).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let at = server.url().replace("tcp://", "");
    let url = format!("consul://127.0.0.1:{}/rpcx_test?layout=rpcx", local.port());
    for network in ["tcp", "http", "ws"] {
        let session = session_of(&call(local.port(), "PUT", "/v1/session/create", "{}").await);
        let path = format!("/v1/kv/rpcx_test/by-{network}/{network}@{at}?acquire={session}");
        call(local.port(), "PUT", &path, "").await;
        let registry = switchboard_registry::connect(&url).unwrap();
        let channel = Channel::fleet(registry, &format!("by-{network}")).connect().await.unwrap();
        let call = channel.unary(&CALL, Codec::Json, Ok(b"[1]".to_vec()), |_, reply| Ok(reply));
        assert_eq!(call.await.unwrap()[..], *b"[1]", "{network}");
    }
}

//! mDNS over the loopback interface: each registry has separate sockets, as processes have.
#![cfg(feature = "mdns")]
#![allow(clippy::unwrap_used)]

mod suite;

use std::{
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    process::Command,
    sync::Arc,
    time::Duration,
};
use suite::{Members, Rig, rpcx};
use switchboard::discover::{Instance, Options, Registry, State};
use switchboard_registry::Mdns;

struct Local {
    group: SocketAddrV4,
    members: Members,
}

impl Local {
    /// Uses a group that no other test has: its last bytes are those of a free port.
    fn new() -> Local {
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let [high, low] = port.to_be_bytes();
        Local { group: SocketAddrV4::new(Ipv4Addr::new(239, 255, high, low), port), members: Members::new() }
    }
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        Arc::new(Mdns::connect(self.group, Ipv4Addr::LOCALHOST, options).expect("a group"))
    }

    async fn stop(&mut self) {
        unreachable!("there is no server");
    }

    async fn start(&mut self) {
        unreachable!("there is no server");
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite() {
    suite::run_serverless(&mut Local::new()).await;
}

#[tokio::test]
async fn registries_of_a_process_hear_each_other_and_long_instances_are_refused() {
    let local = Local::new();
    let address = format!("mdns://{}?interface=127.0.0.1&ttl=1s", local.group);
    let registry = switchboard_registry::connect(&address).unwrap();
    let lease = registry.register(suite::instance("s", 1)).await.unwrap();
    let mut watch = local.connect(suite::options()).watch("s");
    suite::until(&mut watch, "1").await;
    // A newer registration of the same instance replaces it; the end of the older one does not end the newer one.
    let newer = registry.register(suite::instance("s", 1).weight(7)).await.unwrap();
    suite::until_is(&mut watch, |watch| watch.latest().find("1").is_some_and(|found| found.weight == 7))
        .await;
    lease.end().await.unwrap();
    let mut late = local.connect(suite::options().confirm_after(Duration::ZERO)).watch("s");
    suite::until(&mut late, "1").await;
    newer.end().await.unwrap();
    suite::until(&mut late, "").await;
    let long = Instance::new("s", "tcp://127.0.0.1:1").tag("t", "x".repeat(2000));
    let refused = registry.register(long).await.unwrap_err();
    assert!(refused.message().contains("instance_bytes_max 1100"), "{refused}");
}

#[tokio::test]
async fn layout_of_rpcx_has_the_fields_of_our_layout() {
    let local = Local::new();
    let address = format!("mdns://{}?interface=127.0.0.1&ttl=1s&layout=rpcx", local.group);
    let registry = switchboard_registry::connect(&address).unwrap();
    let mut watch = switchboard_registry::connect(&address).unwrap().watch("Arith");
    let one = Instance::new("Arith", "tcp://10.0.0.7:80?wire=rpcx").zone("z");
    let lease = registry.register(one.clone()).await.unwrap();
    let other = registry.register(Instance::new("Other", "tcp://10.0.0.7:80?wire=rpcx")).await.unwrap();
    suite::until_is(&mut watch, |watch| watch.latest().instances == [one.clone()]).await;
    lease.replace(one.clone().weight(300)).await.unwrap();
    suite::until_is(&mut watch, |watch| watch.latest().instances == [one.clone().weight(300)]).await;
    lease.end().await.unwrap();
    suite::until(&mut watch, "").await;
    other.end().await.unwrap();
    let long = Instance::new("Arith", "tcp://10.0.0.7:80").tag("t", "x".repeat(200));
    let refused = registry.register(long).await.unwrap_err();
    assert!(refused.message().contains("room for 255"), "{refused}");
}

/// Set in the network namespace that a test has created.
const INSIDE: &str = "SWITCHBOARD_MDNS_INSIDE";

/// Creates a shell with `script`, in a network namespace with one interface that is not loopback.
fn network(script: &str) -> Command {
    let made = "ip link set lo up && ip link add one type veth peer name other && \
        ip addr add 10.9.0.1/24 dev one && ip link set one up && ip link set other up && \
        ip route add 224.0.0.0/4 dev one";
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--net", "sh", "-c", &format!("{made} && {script}")]);
    unshare
}

/// rpcx's library supports only one group, and no loopback interface: the test runs again in a separate network
/// namespace.
#[tokio::test]
async fn plug_ins_of_rpcx_find_our_servers_and_we_find_theirs() {
    let Some(plugins) = rpcx::Plugins::of("mdns", "") else { return };
    if std::env::var_os(INSIDE).is_none() {
        if !network("exit").status().is_ok_and(|status| status.success()) {
            return eprintln!("SKIPPED: unshare and ip cannot create a network here, or are not installed");
        }
        let test = "plug_ins_of_rpcx_find_our_servers_and_we_find_theirs";
        let mut again = network(&format!("exec \"$0\" --exact {test} --nocapture"));
        assert!(again.arg(std::env::current_exe().unwrap()).env(INSIDE, "1").status().unwrap().success());
        return;
    }
    let registry = switchboard_registry::connect("mdns:?layout=rpcx&ttl=2s&confirm_after=1s").unwrap();
    let mut watch = registry.watch("Arith");
    let server = plugins.register("", "Arith", "tcp@10.0.0.7:8972", "group=g&weight=2").await;
    let theirs = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("g").weight(200);
    suite::until_is(&mut watch, |watch| watch.latest().instances == [theirs.clone()]).await;
    let mut discovery = plugins.discover("", "Arith");
    discovery.until("tcp@10.0.0.7:8972?group=g&weight=2").await;

    let ours = Instance::new("Arith", "tcp://10.0.0.9:80?wire=rpcx").zone("z");
    let lease = registry.register(ours.clone()).await.unwrap();
    discovery.until("tcp@10.0.0.7:8972?group=g&weight=2 tcp@10.0.0.9:80?zone=z").await;
    lease.replace(ours.state(State::Draining)).await.unwrap();
    let inactive = "tcp@10.0.0.9:80?state=inactive&switchboard.state=draining&zone=z";
    discovery.until(&format!("tcp@10.0.0.7:8972?group=g&weight=2 {inactive}")).await;
    lease.end().await.unwrap();
    server.end().await;
    suite::until(&mut watch, "").await;
    discovery.until("").await;
}

#[tokio::test]
async fn invalid_addresses_are_errors() {
    for (address, part) in [
        ("mdns://127.0.0.1:80", "not a multicast group"),
        ("mdns://here", "not ADDRESS:PORT"),
        ("mdns:?interface=lo", "not an IPv4 address"),
        ("mdns:?layout=odd", "write layout=rpcx"),
    ] {
        let error = switchboard_registry::connect(address).err().unwrap();
        assert!(error.message().contains(part), "{error}");
    }
}

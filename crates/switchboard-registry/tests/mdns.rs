//! mDNS over the loopback interface: each registry has sockets of its own, as processes have.
#![cfg(feature = "mdns")]
#![allow(clippy::unwrap_used)]

mod suite;

use std::{
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    sync::Arc,
    time::Duration,
};
use suite::{Members, Rig};
use switchboard::discover::{Instance, Options, Registry};
use switchboard_registry::Mdns;

struct Local {
    group: SocketAddrV4,
    members: Members,
}

impl Local {
    /// A group that no other test has: its last bytes are those of a port that is free.
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
    // A newer registration of the same instance takes its place; the end of the older one does not end it.
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
async fn layout_of_rpcx_has_what_ours_has() {
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

#[tokio::test]
async fn addresses_that_cannot_be_are_told() {
    for (address, part) in [
        ("mdns://127.0.0.1:80", "no group of multicast"),
        ("mdns://here", "not ADDRESS:PORT"),
        ("mdns:?interface=lo", "by its IPv4 address"),
        ("mdns:?layout=odd", "there is rpcx"),
    ] {
        let error = switchboard_registry::connect(address).err().unwrap();
        assert!(error.message().contains(part), "{error}");
    }
}

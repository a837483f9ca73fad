//! DNS with a real server, dnsmasq. Records cannot express all that the suite of registries requires.
#![cfg(feature = "dns")]

mod suite;

use suite::process::{Server, find, free_port};
use switchboard::{
    Code,
    discover::{Registry, SnapshotSource},
};
use switchboard_registry::Dns;
use tokio::process::Command;

/// Returns the server with these records at this port.
fn command(port: u16, records: &[&str]) -> Option<Command> {
    let mut command = Command::new(find(&["dnsmasq"], "dnsmasq-base")?);
    command.args([
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--bind-interfaces",
        "--user=",
        "--pid-file=",
    ]);
    command.args(["--conf-file=/dev/null", "--listen-address=127.0.0.1", "--local-ttl=1", "--local=/test/"]);
    command.arg(format!("--port={port}")).args(records);
    Some(command)
}

async fn served(records: &[&str]) -> Option<(u16, Server)> {
    find(&["dnsmasq"], "dnsmasq-base")?;
    loop {
        let port = free_port();
        if let Some(server) = Server::start(&mut command(port, records)?, port).await {
            return Some((port, server));
        }
    }
}

#[tokio::test]
async fn addresses_come_and_go_with_their_records() {
    let records = ["--host-record=greeter.test,10.0.0.1,fd00::1", "--host-record=greeter.test,10.0.0.2"];
    let Some((port, server)) = served(&records).await else { return };
    let at = format!("127.0.0.1:{port}");
    let dns = Dns::connect("greeter.test:80", Some(&at), "tcp", suite::options()).unwrap();
    let mut watch = dns.watch("demo.Greeter");
    suite::until(&mut watch, "tcp://10.0.0.1:80 tcp://10.0.0.2:80").await;
    server.kill().await;
    suite::until_is(&mut watch, |watch| watch.state().error.is_some()).await;
    assert_eq!(suite::ids(&watch), "tcp://10.0.0.1:80 tcp://10.0.0.2:80", "the last good snapshot stays");
    let records = ["--host-record=greeter.test,10.0.0.2", "--host-record=greeter.test,10.0.0.3"];
    let _server = Server::start_again(|| command(port, &records).expect("it was found before"), port).await;
    suite::until(&mut watch, "tcp://10.0.0.2:80 tcp://10.0.0.3:80").await;
    assert!(watch.state().error.is_none());
}

#[tokio::test]
async fn srv_records_have_ports_and_weights() {
    let records = [
        "--srv-host=_greeter._tcp.test,a.test,81,1,7",
        "--srv-host=_greeter._tcp.test,b.test,82,1,9",
        "--srv-host=_greeter._tcp.test,c.test,83,2,9",
    ];
    let Some((port, _server)) = served(&records).await else { return };
    let at = format!("127.0.0.1:{port}");
    let dns = Dns::connect("_greeter._tcp.test", Some(&at), "tls", suite::options()).unwrap();
    let mut watch = dns.watch("demo.Greeter");
    suite::until(&mut watch, "tls://a.test:81 tls://b.test:82").await;
    let weights: Vec<_> = watch.latest().instances.iter().map(|instance| instance.weight).collect();
    assert_eq!(weights, [7, 9]);
}

#[tokio::test]
async fn a_name_without_records_has_no_instances() {
    let Some((port, _server)) = served(&[]).await else { return };
    let at = format!("127.0.0.1:{port}");
    let dns = Dns::connect("missing.test:80", Some(&at), "tcp", suite::options()).unwrap();
    let mut watch = dns.watch("demo.Greeter");
    assert!(watch.changed().await.instances.is_empty());
    assert_eq!(watch.state().source, SnapshotSource::Registry);
    let refused = dns.register(suite::instance("demo.Greeter", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn invalid_names_are_errors() {
    for (name, server, part) in [
        ("greeter", None, "HOST:PORT"),
        ("greeter:x", None, "HOST:PORT"),
        ("greeter:80", Some("localhost"), "not IP:PORT"),
    ] {
        let error = Dns::connect(name, server, "tcp", suite::options()).err().expect(name);
        assert!(error.message().contains(part), "{error}");
    }
}

//! A real etcd, in the suite of all registries.
#![cfg(feature = "etcd")]

mod suite;

use std::{path::Path, sync::Arc, time::Duration};
use suite::{
    Rig,
    local::{Local, Program},
    process::find,
    rpcx,
};
use switchboard::discover::{Options, Registry};
use switchboard_registry::{Etcd, layout::Style};
use tokio::process::Command;

struct Installed;

impl Program for Installed {
    const TTL: Duration = Duration::from_secs(2);

    fn command(folder: &Path, [port, peer_port]: [u16; 2]) -> Option<Command> {
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let mut command = Command::new(find(&["etcd"], "etcd-server")?);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--data-dir"]).arg(folder);
        Some(command)
    }

    fn connect(style: Style, port: u16, options: Options) -> Arc<dyn Registry> {
        let url = format!("tcp://127.0.0.1:{port}");
        Arc::new(Etcd::connect_as(style, &url, "", options).expect("a good address"))
    }
}

#[tokio::test]
async fn suite() {
    let Some(mut local) = Local::<Installed>::of(Style::Own).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn more_than_a_page_arrives_and_prefixes_keep_fleets_apart() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let registry = local.connect(suite::options());
    let mut leases = Vec::new();
    for at in 0..300 {
        leases.push(registry.register(suite::instance("a", at)).await.unwrap());
    }
    let mut watch = local.connect(suite::options()).watch("a");
    suite::until_is(&mut watch, |watch| watch.latest().instances.len() == 300).await;
    let url = format!("tcp://127.0.0.1:{}", local.port());
    let mut other = Etcd::connect(&url, "other", suite::options()).unwrap().watch("a");
    assert!(other.changed().await.instances.is_empty());
}

#[tokio::test]
async fn suite_with_the_layout_of_rpcx() {
    let Some(mut local) = Local::<Installed>::of(Style::Rpcx).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn plug_ins_of_rpcx_find_our_servers_and_we_find_theirs() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let Some(plugins) = rpcx::Plugins::of("etcd", &format!("127.0.0.1:{}", local.port())) else { return };
    // Most rpcx programs write it with a leading slash.
    for base in ["/rpcx_test", "rpcx_test"] {
        let url = format!("etcd://127.0.0.1:{}/{base}?layout=rpcx&ttl=2s&confirm_after=0s", local.port());
        rpcx::both_ways(&plugins, base, &url, async || {}).await;
    }
}

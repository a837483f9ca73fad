//! A real ZooKeeper, in the suite of all registries.
#![cfg(feature = "zookeeper")]

mod suite;

use std::{path::Path, sync::Arc, time::Duration};
use suite::{
    local::{Local, Program},
    process::find,
    rpcx,
};
use switchboard::discover::{Options, Registry};
use switchboard_registry::{ZooKeeper, layout::Style};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::{sleep, timeout},
};

struct Installed;

impl Program for Installed {
    const TTL: Duration = Duration::from_secs(2);

    fn command(folder: &Path, [port, _]: [u16; 2]) -> Option<Command> {
        find(&["zookeeper.jar"], "zookeeper")?;
        let java = find(&["java"], "default-jre-headless")?;
        let settings = folder.join("zoo.cfg");
        let text = format!(
            "tickTime=200\nclientPortAddress=127.0.0.1\nclientPort={port}\ndataDir={}\nadmin.enableServer=false\n\
             4lw.commands.whitelist=mntr\n",
            folder.display()
        );
        std::fs::write(&settings, text).expect("the folder is there");
        let mut command = Command::new(java);
        // Debian's launcher wants files below /etc; the class is all that it starts.
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/zookeeper.jar"]);
        // Otherwise each session and each change waits for the disk, hundreds of them in this suite. The tests kill a
        // process and not the machine.
        command.arg("-Dzookeeper.forceSync=no");
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&settings);
        Some(command)
    }

    fn connect(style: Style, port: u16, options: Options) -> Arc<dyn Registry> {
        Arc::new(ZooKeeper::connect_as(style, &format!("127.0.0.1:{port}"), "", options))
    }
}

#[tokio::test]
async fn suite() {
    let Some(mut local) = Local::<Installed>::of(Style::Own).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn suite_with_the_layout_of_rpcx() {
    let Some(mut local) = Local::<Installed>::of(Style::Rpcx).await else { return };
    suite::run(&mut local).await;
}

/// Waits until the server has another watch besides ours, which counts twice. rpcx clients read a folder before they
/// watch it, and miss changes in between.
async fn watched(port: u16) {
    let both = timeout(Duration::from_secs(30), async {
        loop {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it takes connections");
            stream.write_all(b"mntr").await.expect("it reads");
            let mut numbers = String::new();
            stream.read_to_string(&mut numbers).await.expect("it responses");
            let watches = numbers.lines().find_map(|line| line.strip_prefix("zk_watch_count\t"));
            if watches.expect("it counts them").parse::<u32>().expect("a number") > 2 {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    both.await.expect("the plug-in watches the folder");
}

#[tokio::test]
async fn plug_ins_of_rpcx_find_our_servers_and_we_find_theirs() {
    for base in ["/rpcx_test", "rpcx_test"] {
        let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
        let place = format!("127.0.0.1:{}", local.port());
        let Some(plugins) = rpcx::Plugins::of("zookeeper", &place) else { return };
        let url = format!("zookeeper://{place}/{base}?layout=rpcx&ttl=2s&confirm_after=0s");
        rpcx::both_ways(&plugins, base, &url, async || watched(local.port()).await).await;
        rpcx::their_crash(&plugins, base, &url).await;
    }
}

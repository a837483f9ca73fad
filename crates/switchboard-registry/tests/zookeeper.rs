//! A real ZooKeeper, in the suite of all registries.
#![cfg(feature = "zookeeper")]

mod suite;

use std::{path::Path, sync::Arc, time::Duration};
use suite::{
    local::{Local, Program},
    process::find,
};
use switchboard::discover::{Options, Registry};
use switchboard_registry::{ZooKeeper, layout::Style};
use tokio::process::Command;

struct Installed;

impl Program for Installed {
    const TTL: Duration = Duration::from_secs(2);

    fn command(folder: &Path, [port, _]: [u16; 2]) -> Option<Command> {
        find(&["zookeeper.jar"], "zookeeper")?;
        let java = find(&["java"], "default-jre-headless")?;
        let settings = folder.join("zoo.cfg");
        let text = format!(
            "tickTime=200\nclientPortAddress=127.0.0.1\nclientPort={port}\ndataDir={}\nadmin.enableServer=false\n",
            folder.display()
        );
        std::fs::write(&settings, text).expect("the folder is there");
        let mut command = Command::new(java);
        // Debian's launcher wants files below /etc; the class is all that it starts.
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/zookeeper.jar"]);
        // Each session and each change waits for the disk otherwise, hundreds of them in this suite, and what is killed
        // here is a process and not the machine.
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

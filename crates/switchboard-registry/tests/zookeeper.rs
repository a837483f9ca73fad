//! A real ZooKeeper, in the suite of all registries.
#![cfg(feature = "zookeeper")]

mod suite;

use std::{sync::Arc, time::Duration};
use suite::{
    Folder, Members, Rig,
    process::{Server, find, free_port},
};
use switchboard::discover::{Options, Registry};
use switchboard_registry::{ZooKeeper, layout::Style};
use tokio::process::Command;

struct Local {
    folder: Folder,
    port: u16,
    server: Option<Server>,
    members: Members,
    style: Style,
}

impl Local {
    async fn of(style: Style) -> Option<Local> {
        find(&["zookeeper.jar"], "zookeeper")?;
        loop {
            let (folder, port) = (Folder::new(), free_port());
            let mut local = Local { folder, port, server: None, members: Members::new(), style };
            local.server = local.serve().await;
            if local.server.is_some() {
                return Some(local);
            }
        }
    }

    async fn serve(&self) -> Option<Server> {
        let java = find(&["java"], "default-jre-headless")?;
        let settings = self.folder.0.join("zoo.cfg");
        let text = format!(
            "tickTime=200\nclientPortAddress=127.0.0.1\nclientPort={}\ndataDir={}\nadmin.enableServer=false\n",
            self.port,
            self.folder.0.display()
        );
        std::fs::write(&settings, text).expect("the folder is there");
        let mut command = Command::new(java);
        // Debian's launcher wants files below /etc; the class is all that it starts.
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "/usr/share/java/zookeeper.jar"]);
        // Each session and each change waits for the disk otherwise, hundreds of them in this suite, and what is killed
        // here is a process and not the machine.
        command.arg("-Dzookeeper.forceSync=no");
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(&settings);
        Server::start(&mut command, self.port).await
    }
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        Arc::new(ZooKeeper::connect_as(self.style, &format!("127.0.0.1:{}", self.port), "", options))
    }

    async fn stop(&mut self) {
        self.server.take().expect("it runs").kill().await;
    }

    async fn start(&mut self) {
        self.server = Some(self.serve().await.expect("the port is free again"));
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite() {
    let Some(mut local) = Local::of(Style::Own).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn suite_with_the_layout_of_rpcx() {
    let Some(mut local) = Local::of(Style::Rpcx).await else { return };
    suite::run(&mut local).await;
}

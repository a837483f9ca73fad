//! A real Redis, in the suite of all registries.
#![cfg(feature = "redis")]

mod suite;

use std::{sync::Arc, time::Duration};
use suite::{
    Folder, Members, Rig,
    process::{Server, find, free_port},
};
use switchboard::discover::{Options, Registry};
use switchboard_registry::Redis;
use tokio::process::Command;

struct Local {
    folder: Folder,
    port: u16,
    server: Option<Server>,
    members: Members,
}

impl Local {
    async fn new() -> Option<Local> {
        find(&["redis-server"], "redis-server")?;
        loop {
            let (folder, port) = (Folder::new(), free_port());
            let mut local = Local { folder, port, server: None, members: Members::new() };
            local.server = local.serve().await;
            if local.server.is_some() {
                return Some(local);
            }
        }
    }

    async fn serve(&self) -> Option<Server> {
        let program = find(&["redis-server"], "redis-server")?;
        let mut command = Command::new(program);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no", "--dir"]).arg(&self.folder.0);
        Server::start(&mut command, self.port).await
    }
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        let url = format!("redis://127.0.0.1:{}/3", self.port);
        Arc::new(Redis::connect(&url, "", options).expect("a good address"))
    }

    async fn stop(&mut self) {
        self.server.take().expect("it runs").kill().await;
    }

    async fn start(&mut self) {
        self.server = Some(self.serve().await.expect("the port is free again"));
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
    let Some(mut local) = Local::new().await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn prefixes_keep_fleets_apart_and_passwords_are_not_told() {
    let Some(local) = Local::new().await else { return };
    let url = format!("redis://127.0.0.1:{}", local.port);
    let (one, two) =
        (Redis::connect(&url, "one", suite::options()), Redis::connect(&url, "two", suite::options()));
    let _lease = one.unwrap().register(suite::instance("a", 1)).await.unwrap();
    let mut watch = two.unwrap().watch("a");
    assert!(watch.changed().await.instances.is_empty());
    let secret = Redis::connect("redis://ada:secret@127.0.0.1:1/0", "", suite::options()).unwrap();
    assert_eq!(secret.name(), "redis 127.0.0.1:1");
    let wrong = Redis::connect("redis://", "", suite::options()).err().expect("no host");
    assert!(wrong.message().contains("the address"), "{wrong}");
}

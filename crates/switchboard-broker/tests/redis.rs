//! A real Redis, in the suite of all engines.
#![cfg(feature = "redis")]

mod suite;

use std::{path::PathBuf, sync::Arc};
use suite::{
    Engine, HISTORY, Path, broker_suite,
    forwarder::{Forwarder, Target},
    process::{Server, find},
};
use switchboard_broker::{Redis, redis::Options};
use switchboard_message::broker::Broker;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::Command,
};

/// A server on a socket of a folder of its own: there is no port that others could take.
struct Installed {
    program: PathBuf,
    folder: Folder,
    server: Option<Server>,
    disturbed: Forwarder,
    undisturbed: Forwarder,
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Installed {
    fn socket(&self) -> PathBuf {
        self.folder.0.join("redis.sock")
    }

    async fn run(&mut self) {
        let (socket, folder) = (self.socket(), &self.folder.0);
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(&self.program);
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(folder);
        let server =
            Server::start(&mut command, || async { send(&socket, "PING").await == Some("+PONG".into()) });
        self.server = Some(server.await);
    }
}

/// Sends a command; returns the first line of the response.
async fn send(socket: &PathBuf, command: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    response.lines().next().map(ToOwned::to_owned)
}

fn connect(port: u16) -> Arc<dyn Broker> {
    let url = format!("redis://127.0.0.1:{port}/");
    Arc::new(Redis::connect(&url, Options::new().history(HISTORY as usize)).expect("a good address"))
}

impl Engine for Installed {
    async fn start() -> Option<Installed> {
        let program = find("SWITCHBOARD_REDIS", "redis-server", "apt-get install redis-server")?;
        let number = fastrand::u64(..);
        let folder = std::env::temp_dir().join(format!("swb-redis-{number:x}"));
        std::fs::create_dir(&folder).expect("a folder");
        let target = Target::Unix(folder.join("redis.sock"));
        let (disturbed, undisturbed) =
            (Forwarder::start(target.clone()).await, Forwarder::start(target).await);
        let mut engine = Installed { program, folder: Folder(folder), server: None, disturbed, undisturbed };
        engine.run().await;
        Some(engine)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        connect(self.disturbed.port)
    }

    fn undisturbed(&self) -> Arc<dyn Broker> {
        connect(self.undisturbed.port)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn set(&self, path: Path) {
        self.disturbed.set(path);
    }

    async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill().await;
        }
    }

    async fn restart(&mut self) {
        self.run().await;
    }

    async fn erase(&self) {
        assert_eq!(send(&self.socket(), "FLUSHALL").await.as_deref(), Some("+OK"));
    }
}

broker_suite!(Installed);

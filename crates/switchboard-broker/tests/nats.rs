//! A real nats-server with JetStream, in the suite of all engines.
#![cfg(feature = "nats")]

mod suite;

use std::{path::PathBuf, sync::Arc};
use suite::{
    Engine, HISTORY, Path, broker_suite,
    forwarder::{Forwarder, Target},
    process::{Server, find},
};
use switchboard_broker::{Nats, nats::Options};
use switchboard_message::broker::Broker;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
};

/// A server on a port that it chooses itself.
struct Installed {
    program: PathBuf,
    folder: Folder,
    server: Option<Server>,
    port: u16,
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
    async fn run(&mut self) {
        let ports = self.folder.0.join("ports");
        let _ = std::fs::remove_dir_all(&ports);
        std::fs::create_dir(&ports).expect("a folder");
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]).arg(self.folder.0.join("store"));
        command.arg("--ports_file_dir").arg(&ports);
        let server = Server::start(&mut command, || async {
            let Some(port) = port(&ports) else { return false };
            // JetStream responds as soon as it has read its files.
            request(port, "$JS.API.INFO", "").await.is_some_and(|response| response.contains("\"streams\""))
        });
        self.server = Some(server.await);
        self.port = port(&ports).expect("it was there");
        self.disturbed.retarget(Target::Tcp(self.port));
        self.undisturbed.retarget(Target::Tcp(self.port));
    }
}

/// Reads the port from the file that the server writes: `{"nats":["nats://127.0.0.1:PORT"]}`.
fn port(folder: &PathBuf) -> Option<u16> {
    let file = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).next()?;
    let text = std::fs::read_to_string(file.path()).ok()?;
    let digits = text.split("127.0.0.1:").nth(1)?;
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Sends a request as any client would; returns the response.
async fn request(port: u16, subject: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let length = body.len();
    let text = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB reply 1\r\n\
         PUB {subject} reply {length}\r\n{body}\r\nPING\r\n"
    );
    stream.write_all(text.as_bytes()).await.ok()?;
    let (mut response, mut bytes) = (String::new(), vec![0; 4096]);
    loop {
        let length = stream.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        response += &String::from_utf8_lossy(&bytes[..length]);
        let message = response.split("MSG reply").nth(1);
        if let Some(message) = message.filter(|message| message.matches("\r\n").count() >= 2) {
            return Some(message.to_owned());
        }
    }
}

fn connect(port: u16) -> Arc<dyn Broker> {
    let url = format!("nats://127.0.0.1:{port}");
    Arc::new(Nats::connect(&url, Options::new().history(HISTORY as usize)).expect("a good address"))
}

impl Engine for Installed {
    async fn start() -> Option<Installed> {
        let install = "go install github.com/nats-io/nats-server/v2@v2.12.2, or apt-get install nats-server";
        let program = find("SWITCHBOARD_NATS_SERVER", "nats-server", install)?;
        let folder = std::env::temp_dir().join(format!("swb-nats-{:x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).expect("a folder");
        let (disturbed, undisturbed) =
            (Forwarder::start(Target::Tcp(0)).await, Forwarder::start(Target::Tcp(0)).await);
        let folder = Folder(folder);
        let mut engine = Installed { program, folder, server: None, port: 0, disturbed, undisturbed };
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
        let response = request(self.port, "$JS.API.STREAM.DELETE.swb", "").await.expect("a response");
        assert!(response.contains("\"success\":true"), "{response}");
    }
}

broker_suite!(Installed);

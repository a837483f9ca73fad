//! The processes: this program again, with its role in its arguments.

use super::{Work, WorkServer};
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::Duration,
};
use switchboard::{Result, Running, Server, Status, discover::Instance};
use switchboard_registry::EmbeddedServer;

/// The role of a process.
#[derive(Clone)]
pub(crate) enum Role {
    Registry,
    Server { name: &'static str, registry: String },
}

/// A process of the cluster; it ends with this one, whatever becomes of that.
pub(crate) struct Node {
    role: Role,
    /// None while it is dead.
    child: Option<Child>,
    url: String,
}

impl Node {
    /// Starts it on a free port.
    pub(crate) fn start(role: Role) -> Result<Node> {
        let mut node = Node { role, child: None, url: "tcp://127.0.0.1:0".to_owned() };
        node.revive()?;
        Ok(node)
    }

    /// Starts it again where it was.
    pub(crate) fn revive(&mut self) -> Result<()> {
        let failed =
            |error: std::io::Error| Status::unavailable(format!("a process could not start: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        match &self.role {
            Role::Registry => command.args(["node", "registry", &self.url]),
            Role::Server { name, registry } => command.args(["node", "server", &self.url, name, registry]),
        };
        // Ctrl-C is for this process, which ends the others in good order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        self.child = Some(child);
        if line.is_empty() {
            self.kill();
            return Err(Status::unavailable(format!("the process at {} has ended at once", self.url)));
        }
        line.trim().clone_into(&mut self.url);
        Ok(())
    }

    /// SIGKILL: no good-bye to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it if it lives, else starts it again.
    pub(crate) fn toggle(&mut self) -> Result<()> {
        if self.pid().is_some() {
            self.kill();
            return Ok(());
        }
        self.revive()
    }

    /// Requests a graceful stop.
    pub(crate) fn request_stop(&mut self) {
        drop(self.child.as_mut().and_then(|child| child.stdin.take()));
    }

    /// Ends it in good order.
    pub(crate) fn stop(&mut self) {
        self.request_stop();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Returns the process id; `None` once the process has ended.
    pub(crate) fn pid(&mut self) -> Option<u32> {
        let child = self.child.as_mut()?;
        if matches!(child.try_wait(), Ok(Some(_))) {
            self.child = None;
            return None;
        }
        Some(child.id())
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Is the registry until standard input ends.
pub(crate) async fn run_registry(address: &str) -> Result<()> {
    let running = Server::new().add(EmbeddedServer::new()).listen(address).start().await?;
    until_input_ends(running).await;
    Ok(())
}

/// Is a server until standard input ends.
pub(crate) async fn run_server(address: &str, name: &str, registry: &str) -> Result<()> {
    let registry = switchboard_registry::connect(&registry.replace("tcp", "switchboard"))?;
    let server = Server::new()
        .add(WorkServer::new(Worker { name: name.to_owned() }))
        .register(registry, Instance::default())
        .registration_notice(Duration::from_millis(200));
    until_input_ends(server.listen(address).start().await?).await;
    Ok(())
}

/// Says where it listens, and serves as long as the process lives that started this one.
async fn until_input_ends(running: Running) {
    println!("{}", running.url());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    // An input that cannot be read has ended as well.
    let _ = ended.await;
    running.drain(Duration::from_secs(5)).await;
}

struct Worker {
    name: String,
}

impl Work for Worker {
    async fn work(&self) -> Result<String> {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(self.name.clone())
    }
}

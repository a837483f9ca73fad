//! A cluster on one machine: `cargo run -p examples --bin cluster`.
//!
//! Starts a registry and three servers, each a process of its own, and calls them. Every second it prints a line:
//! calls, errors, the 99th percentile, the share of each server. Type `a`, `b` or `c` and Enter to kill a server, or
//! use `kill -9` with its process id, and watch the others take over; the same letter starts it again. `r` does this
//! with the registry, which changes nothing for the calls. Ctrl-C ends all.
//!
//! `--once` does as much without a person, and fails if a call did.

mod callers;
mod dashboard;
mod nodes;
mod once;

use callers::Callers;
use nodes::{Node, Role};
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard::{Channel, Result, Runtime, discover::Registry};
use tokio::time::sleep;

/// The names of the servers.
const SERVERS: [&str; 3] = ["a", "b", "c"];
/// The service that callers look up in the registry.
const SERVICE: &str = "cluster.Work";
/// Time that the first registration may take.
const REGISTRATION_MAX: Duration = Duration::from_secs(30);

/// The service of each server; its method is idempotent, so that calls of a server that dies are sent to
/// another.
#[switchboard::service(name = "cluster.Work")]
trait Work {
    /// Works for a moment; returns the name of who did it.
    #[switchboard(idempotent)]
    async fn work(&self) -> Result<String>;
}

/// The processes, and the way to them.
struct Cluster {
    registry: Node,
    servers: Vec<Node>,
    channel: Channel,
}

impl Cluster {
    async fn start() -> Result<Cluster> {
        let registry = Node::start(Role::Registry)?;
        let servers = SERVERS.map(|name| Node::start(Role::Server { name, registry: registry.url() }));
        let servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
        let found: Arc<dyn Registry> =
            switchboard_registry::connect(&registry.url().replace("tcp", "switchboard"))?;
        let began = Instant::now();
        // A server serves before the registry has its registration.
        let channel = loop {
            match Channel::fleet(found.clone(), SERVICE).connect().await {
                Err(_) if began.elapsed() < REGISTRATION_MAX => sleep(Duration::from_millis(20)).await,
                connected => break connected?,
            }
        };
        Ok(Cluster { registry, servers, channel })
    }

    /// Ends all processes in good order, the servers at the same time.
    fn stop(&mut self) {
        self.servers.iter_mut().for_each(Node::request_stop);
        self.servers.iter_mut().for_each(Node::stop);
        self.registry.stop();
    }

    /// The node with this letter.
    fn node(&mut self, letter: &str) -> Option<&mut Node> {
        match letter {
            "r" => Some(&mut self.registry),
            name => SERVERS.iter().position(|server| *server == name).map(|at| &mut self.servers[at]),
        }
    }

    /// How callers see a server: `up`, `connecting`, `down`, or `gone` from the registry.
    fn state(&self, at: usize) -> &'static str {
        let url = self.servers[at].url();
        let endpoints = self.channel.endpoints();
        endpoints.iter().find(|endpoint| endpoint.address == url).map_or("gone", |endpoint| endpoint.state)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // A thread for each process is plenty.
    let outcome = Runtime::new().workers(1).run(async move {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["node", "registry", address] => nodes::run_registry(address).await,
            ["node", "server", address, name, registry] => nodes::run_server(address, name, registry).await,
            ["--once"] => {
                let cluster = Cluster::start().await?;
                let callers = Callers::start(&cluster.channel);
                once::run(cluster, &callers).await
            }
            [] => {
                let cluster = Cluster::start().await?;
                let callers = Callers::start(&cluster.channel);
                dashboard::run(cluster, &callers).await
            }
            _ => Err(switchboard::Status::invalid_argument("the only option is --once")),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}

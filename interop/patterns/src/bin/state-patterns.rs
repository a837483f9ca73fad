//! `state-patterns PATTERN [ARGUMENT…]`: a pattern as a process, which the cases in `python` drive.
//!
//! Prints `ready` and its endpoints, then reads a command from each line of the standard input, and prints a line for
//! each.
//!
//! | pattern, arguments | endpoints | commands |
//! | --- | --- | --- |
//! | `clone-server` | of snapshots, updates, and the collector | `set KEY VALUE`, `ttl KEY VALUE`, `get KEY` |
//! | `clone-client`, the three endpoints, subtree | | the same, and `delete KEY` |
//! | `last-value-cache` | for publishers, for subscribers | `topics` |
//! | `binary-star`, `primary` or `backup` | of its states | `connect ENDPOINT`, `state`, `admit` |
//! | `queue`, `forwarder`, `streamer` | frontend, backend | |
//!
//! An error prints `error` and its text. The end of the input ends the process.

use std::time::Duration;
use switchboard_pattern::{
    binary_star::BinaryStar,
    clone::{CloneClient, CloneEndpoints, CloneServer},
    devices::{Device, DeviceBuilder},
    last_value_cache::LastValueCache,
};
use tokio::io::{AsyncBufReadExt, BufReader, Stdin};

type Error = Box<dyn std::error::Error>;

const ANY: &str = "tcp://127.0.0.1:0";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["clone-server"] => clone_server().await,
        ["clone-client", snapshot, updates, collector, ref subtree @ ..] => {
            let endpoints = CloneEndpoints::new(snapshot, updates, collector);
            clone_client(endpoints, subtree.first().copied().unwrap_or_default()).await
        }
        ["last-value-cache"] => last_value_cache().await,
        ["binary-star", role] => binary_star(role).await,
        ["queue"] => device(Device::queue()).await,
        ["forwarder"] => device(Device::forwarder()).await,
        ["streamer"] => device(Device::streamer()).await,
        _ => Err("usage: state-patterns PATTERN [ARGUMENT…]".into()),
    }
}

/// Reads commands, one per line.
struct Commands(tokio::io::Lines<BufReader<Stdin>>);

impl Commands {
    fn new() -> Commands {
        Commands(BufReader::new(tokio::io::stdin()).lines())
    }

    /// Returns the words of the next command; `None` at the end of the input.
    async fn next(&mut self) -> Result<Option<Vec<String>>, Error> {
        let line = self.0.next_line().await?;
        Ok(line.map(|line| line.split_whitespace().map(str::to_owned).collect()))
    }
}

fn print(result: Result<String, impl std::fmt::Display>) {
    match result {
        Ok(line) => println!("{line}"),
        Err(error) => println!("error {error}"),
    }
}

fn unknown(words: &[&str]) -> String {
    format!("error command {words:?} is unknown")
}

async fn clone_server() -> Result<(), Error> {
    let server = CloneServer::builder().bind(ANY)?.heartbeat(Duration::from_millis(100)).start().await?;
    let at = server.endpoints();
    println!("ready {} {} {}", at.snapshot, at.updates, at.collector);
    let mut commands = Commands::new();
    while let Some(words) = commands.next().await? {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["set", key, value] => {
                print(server.set(key, value.to_owned(), None).map(|number| format!("set {number}")));
            }
            ["ttl", key, value] => {
                let ttl = Some(Duration::from_secs(1));
                print(server.set(key, value.to_owned(), ttl).map(|number| format!("set {number}")));
            }
            ["get", key] => println!("{}", shown(server.get(key).as_deref())),
            _ => println!("{}", unknown(&words)),
        }
    }
    Ok(())
}

async fn clone_client(endpoints: CloneEndpoints, subtree: &str) -> Result<(), Error> {
    let client = CloneClient::builder().server_at(endpoints).subtree(subtree).connect().await?;
    println!("ready");
    let mut commands = Commands::new();
    while let Some(words) = commands.next().await? {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let set = match words[..] {
            ["set", key, value] => client.set(key, value.to_owned()).await,
            ["ttl", key, value] => client.set_for(key, value.to_owned(), Duration::from_secs(1)).await,
            ["delete", key] => client.delete(key).await,
            ["get", key] => {
                println!("{}", shown(client.get(key).as_deref()));
                continue;
            }
            _ => {
                println!("{}", unknown(&words));
                continue;
            }
        };
        print(set.map(|number| format!("set {number}")));
    }
    Ok(())
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("value {}", String::from_utf8_lossy(value)))
}

async fn last_value_cache() -> Result<(), Error> {
    let cache = LastValueCache::builder().bind_publishers(ANY).bind_subscribers(ANY).start().await?;
    println!("ready {} {}", cache.publishers()[0], cache.subscribers()[0]);
    let mut commands = Commands::new();
    while let Some(words) = commands.next().await? {
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["topics"] => println!("topics {}", cache.stats().topics),
            ref words => println!("{}", unknown(words)),
        }
    }
    Ok(())
}

async fn binary_star(role: &str) -> Result<(), Error> {
    let builder = if role == "primary" { BinaryStar::primary() } else { BinaryStar::backup() };
    let heartbeat = Duration::from_millis(100);
    let node = builder.bind(ANY).heartbeat(heartbeat).failover_after(Duration::from_secs(2)).start().await?;
    println!("ready {}", node.endpoints()[0]);
    let mut commands = Commands::new();
    while let Some(words) = commands.next().await? {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["connect", endpoint] => print(node.connect(endpoint).await.map(|()| "connected".to_owned())),
            ["state"] => println!("state {}", node.state().number()),
            ["admit"] => print(node.admit().map(|()| "admitted".to_owned())),
            _ => println!("{}", unknown(&words)),
        }
    }
    Ok(())
}

async fn device(builder: DeviceBuilder) -> Result<(), Error> {
    let device = builder.bind_frontend(ANY).bind_backend(ANY).start().await?;
    println!("ready {} {}", device.frontends()[0], device.backends()[0]);
    let mut commands = Commands::new();
    while commands.next().await?.is_some() {}
    Ok(())
}

//! The `switchboard` binary, as a library: so it is compiled while the framework under it is still being optimised,
//! for which the compiler lets binaries wait.

mod announce;
mod bench;
mod call;
mod config;
#[cfg(test)]
mod counting;
mod demo;
mod log;
mod proxy;
mod replay;
mod serve;
mod services;
mod serving;
mod tls;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A remote procedure call framework: every caller, one port.
#[derive(Debug, Parser)]
#[command(name = "switchboard", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the demo services and call them over every wire.
    Demo(demo::DemoArgs),
    /// Serve the demo services.
    Serve(Box<serve::ServeArgs>),
    /// Check and explain the settings of `serve` and `proxy`.
    Config(config::ConfigArgs),
    /// Call a service of any server: by gRPC, gRPC-Web, Connect, JSON-RPC or the native wire, in WebSockets too; by
    /// rpcx, baidu_std, eRPC, kiss-rpc or Thrift.
    Call(Box<call::CallArgs>),
    /// Send calls to a server that another one has dumped.
    Replay(replay::ReplayArgs),
    /// Stand in front of servers of any wire, and hand calls of any wire on to them.
    Proxy(Box<proxy::ProxyArgs>),
    /// Measure throughput, latency and memory on this machine.
    Bench(bench::BenchArgs),
    /// Serve the bare loop that `bench --floor` measures.
    #[command(hide = true)]
    BenchFloorServer(bench::ServerArgs),
    /// Serve what `bench overload` calls.
    #[command(hide = true)]
    BenchOverloadServer(bench::OverloadServerArgs),
    /// Serve or call what `bench compare` measures.
    #[command(hide = true)]
    BenchPeer(bench::PeerArgs),
    /// Serve what `bench` calls.
    #[command(hide = true)]
    BenchServer(bench::ServerArgs),
}

/// Runs the command that the command line names.
///
/// The process leaves with 0 when all went well, 1 when something failed, 2 when the command line is not understood;
/// `call` with more.
pub fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(*args),
        Command::Config(args) => config::run(args),
        Command::Call(args) => return call::run(*args),
        Command::Replay(args) => replay::run(args),
        Command::Proxy(args) => proxy::run(*args),
        Command::Bench(args) => bench::run(&args),
        Command::BenchFloorServer(args) => bench::serve_floor(&args),
        Command::BenchOverloadServer(args) => bench::serve_overload(&args),
        Command::BenchPeer(args) => bench::run_peer(&args),
        Command::BenchServer(args) => bench::serve(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("switchboard: {error}");
            ExitCode::FAILURE
        }
    }
}

//! The `switchboard` binary as a library, so that the compiler can compile it while it still optimises the framework;
//! it does not do so for binaries.

// Public for `bench/compare`, which measures other frameworks with the same load.
#[doc(hidden)]
pub mod bench;
mod bus;
mod call;
mod config;
mod demo;
mod log;
mod near;
mod proxy;
mod push;
mod registration;
mod replay;
mod serve;
#[doc(hidden)]
pub mod services;
mod serving;
#[doc(hidden)]
pub mod terminal;
mod tls;
mod wires;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// A remote procedure call framework: every caller, one port.
#[derive(Debug, Parser)]
#[command(name = "switchboard", version)]
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
    /// Check and explain the settings of `serve`, `proxy` and `push serve`.
    Config(config::ConfigArgs),
    /// Call a service of any server: by gRPC, gRPC-Web, Connect, JSON-RPC or the native wire, in WebSockets too; by
    /// rpcx, baidu_std, eRPC, kiss-rpc or Thrift.
    Call(Box<call::CallArgs>),
    /// Publish and subscribe to topics of a server, and send and receive jobs and requests.
    Bus(bus::BusArgs),
    /// Serve devices as a push gateway, push to them, and watch rooms.
    Push(Box<push::PushArgs>),
    /// Send calls to a server that another one has dumped.
    Replay(replay::ReplayArgs),
    /// Forward calls of any wire to servers of any wire.
    Proxy(Box<proxy::ProxyArgs>),
    /// Measure throughput, latency and memory on this machine.
    Bench(bench::BenchArgs),
    /// Run one side of a workload of `bench bus`.
    #[command(hide = true)]
    BenchBusPeer(bench::bus::peer::PeerArgs),
    /// Serve the bare loop that `bench --floor` measures.
    #[command(hide = true)]
    BenchFloorServer(bench::ServerArgs),
    /// Serve the services of `bench overload`.
    #[command(hide = true)]
    BenchOverloadServer(bench::OverloadServerArgs),
    /// Serve the services of `bench`.
    #[command(hide = true)]
    BenchServer(bench::ServerArgs),
}

/// Runs the command that the command line names.
///
/// The exit code is 0 on success, 1 when something failed, 2 for an invalid command line; `call`, `bus` and
/// `push` have more.
pub fn run() -> ExitCode {
    let outcome = match parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(*args),
        Command::Config(args) => config::run(args),
        Command::Call(args) => return call::run(*args),
        Command::Bus(args) => return bus::run(args),
        Command::Push(args) => return push::run(*args),
        Command::Replay(args) => replay::run(args),
        Command::Proxy(args) => proxy::run(*args),
        Command::Bench(args) => bench::run(&args),
        Command::BenchBusPeer(args) => bench::bus::peer::run(&args),
        Command::BenchFloorServer(args) => bench::serve_floor(&args),
        Command::BenchOverloadServer(args) => bench::serve_overload(&args),
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

/// Reads the command line; help is as wide as the terminal, and has no line broken elsewhere.
fn parse() -> Cli {
    // To the parser a width of 0 is one without a bound.
    let columns = terminal::Terminal::stdout().columns().unwrap_or_default();
    let mut command = Cli::command().term_width(columns);
    let read = command.try_get_matches_from_mut(std::env::args_os());
    let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
    read.unwrap_or_else(|error| error.format(&mut command).exit())
}

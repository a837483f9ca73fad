//! One side of a workload, in a process of its own: the program that `bench bus` starts twice.
//!
//! Programs of rivals have the same command line and output, see `bench/peers/README.md`.

mod acked;
mod fan_out;
mod idle;
mod pipeline;
mod publish;
mod requests;
mod subscribers;
mod tally;

use super::{
    options::{Load, Mode},
    stamp::Stamp,
};
use crate::bench::{options::seconds, process};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::{io, thread};
use tally::Tally;

/// Arguments of one side.
#[derive(Clone, Debug, Args)]
pub struct PeerArgs {
    #[arg(value_enum)]
    side: Side,
    #[arg(value_enum)]
    mode: Mode,
    /// Where the side connects; without it the side binds a free port.
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    endpoint: String,
    #[arg(long)]
    bytes: u32,
    #[arg(long)]
    peers: u32,
    #[arg(long, value_parser = seconds)]
    warm_up: f64,
    #[arg(long, value_parser = seconds)]
    seconds: f64,
    /// The last peer never receives; for `acked`, without acknowledgements; for `fan-out`, the bare loop.
    #[arg(long)]
    stalled: bool,
    /// For `acked`: the publisher stops at a line of its standard input, and the receiver prints each entry before it
    /// acknowledges it.
    #[arg(long)]
    killed: bool,
}

/// The sides of a workload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Side {
    /// Both sides are in the process.
    Alone,
    Bind,
    Connect,
}

impl Side {
    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Bind => "bind",
            Self::Connect => "connect",
        }
    }
}

/// Result of a side: the last line of the measuring one, and of the other one when its standard input ends.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Reading {
    pub(crate) messages: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) lost: u64,
    pub(crate) duplicates: u64,
    pub(crate) dropped: u64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
}

impl Reading {
    fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("numbers only"));
    }
}

/// Returns the command line of a side.
pub(super) fn command_line(side: Side, load: &Load, endpoint: Option<&str>) -> Vec<String> {
    let mut words: Vec<String> = [side.name(), load.mode.name()].map(str::to_owned).into();
    words.extend(endpoint.iter().flat_map(|endpoint| ["--endpoint", endpoint].map(str::to_owned)));
    for (name, value) in [("--bytes", load.bytes), ("--peers", load.peers)] {
        words.extend([name.to_owned(), value.to_string()]);
    }
    for (name, value) in [("--warm-up", load.warm_up), ("--seconds", load.seconds)] {
        words.extend([name.to_owned(), value.to_string()]);
    }
    words.extend(load.stalled.then(|| "--stalled".to_owned()));
    words
}

/// Runs one side.
///
/// # Errors
/// When the workload has no such side, or a socket fails.
pub fn run(args: &PeerArgs) -> Result<(), String> {
    let args = args.clone();
    ::switchboard::Runtime::new().workers(1).run(async move {
        let measured = match (args.mode, args.side) {
            (Mode::PushPull | Mode::Curve, Side::Bind) => pipeline::pull(&args).await,
            (Mode::PushPull | Mode::Curve, Side::Connect) => pipeline::push(&args).await,
            (Mode::Stalled, Side::Bind) => pipeline::push_bound(&args).await,
            (Mode::Stalled, Side::Connect) => pipeline::pull_connected(&args).await,
            (Mode::Publish, Side::Alone) => return topics(publish::publish(&args).await),
            (Mode::FanOut, Side::Bind) if args.stalled => {
                return fan_out::send(&args).map(|_| ()).map_err(|error| error.to_string());
            }
            (Mode::FanOut, Side::Bind) => return topics(fan_out::publish(&args).await),
            (Mode::FanOut, Side::Connect) => return topics(fan_out::receive(&args).await),
            (Mode::Acked, Side::Bind) if args.killed => {
                return topics(acked::publish_until_stopped(&args).await);
            }
            (Mode::Acked, Side::Connect) if args.killed => return topics(acked::print_received(&args).await),
            (Mode::Acked, Side::Bind) => return topics(acked::publish(&args).await),
            (Mode::Acked, Side::Connect) => return topics(acked::receive(&args).await),
            (Mode::Inproc, Side::Alone) => pipeline::inproc(&args).await,
            (Mode::ReqRep, Side::Bind) => requests::reply(&args).await,
            (Mode::ReqRep, Side::Connect) => requests::request(&args).await,
            (Mode::Router | Mode::Idle, Side::Bind) => requests::route(&args).await,
            (Mode::Router, Side::Connect) => requests::deal(&args).await,
            (Mode::PubSub, Side::Bind) => subscribers::publish(&args).await,
            (Mode::PubSub, Side::Connect) => subscribers::subscribe(&args).await,
            (Mode::Idle, Side::Connect) => idle::connect(&args).await,
            (mode, side) => {
                return Err(format!("workload {} has no side {:?}", mode.name(), side.name()));
            }
        };
        measured.map_err(|error| error.to_string())?.print();
        wait_for_end();
        Ok(())
    })
}

/// Prints the result of a workload of topics.
fn topics(measured: ::switchboard::Result<Reading>) -> Result<(), String> {
    measured.map_err(|status| status.to_string())?.print();
    wait_for_end();
    Ok(())
}

/// Creates a message with a stamp. A new one each time, as an application makes it.
fn message(sender: u32, number: u64, bytes: u32) -> Bytes {
    let mut message = vec![0; bytes as usize];
    Stamp::new(sender, number).write(&mut message);
    Bytes::from(message)
}

/// Waits with all sockets open until the other side has reported what it dropped: messages for a peer that closes would
/// be among them.
fn wait_for_end() {
    // An error ends the input too.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
}

/// Ends this process when its standard input ends, and prints the number of messages that it dropped.
fn end_with_input(dropped: impl Fn() -> u64 + Send + 'static) {
    thread::spawn(move || {
        // An error ends the input too.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        Reading { dropped: dropped(), ..Reading::default() }.print();
        std::process::exit(0);
    });
}

/// Starts a task of a socket; an error ends the process.
fn spawn(task: impl Future<Output = switchboard_socket::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = task.await {
            eprintln!("{error}");
            std::process::exit(1);
        }
    });
}

/// Prints the endpoint of a side that binds.
fn report(endpoints: &[switchboard_socket::Endpoint]) {
    if let Some(endpoint) = endpoints.first() {
        process::report_address(endpoint);
    }
}

//! The command line of `switchboard bench bus`, and the workloads that it defines.

use crate::bench::options::seconds;
use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;
use std::path::PathBuf;

/// `switchboard bench bus`.
#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    /// The workload.
    #[arg(value_enum)]
    pub(super) mode: Mode,
    /// Bytes of a message; a list measures each [default: by the workload]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(BYTES_MIN as i64..=64_000_000))]
    pub(super) bytes: Vec<u32>,
    /// Sockets on the side that has several: senders, subscribers or clients; a list measures each
    /// [default: by the workload]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(1..=25_000))]
    pub(super) peers: Vec<u32>,
    /// Kill the receiver so many times, after the measurements, and count lost and repeated entries; acked only.
    #[arg(long, default_value_t = KILLS, value_parser = value_parser!(u32).range(0..=1_000))]
    pub(super) kills: u32,
    #[command(flatten)]
    pub(super) times: Times,
    /// Measure these in turn with Switchboard; `cargo xtask peers` builds them.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    pub(super) rival: Vec<RivalName>,
    /// Measure the bare loop of `send` in turn and print the ratio to it; fan-out only.
    #[arg(long)]
    pub(super) floor: bool,
    /// Write results as JSON, an array with an object for each workload; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Duration of the measurements.
#[derive(Clone, Debug, Args)]
pub struct Times {
    /// Seconds of each measurement, after the warm-up.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds of warm-up.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Number of measurements of each; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=100))]
    pub rounds: u32,
}

/// Kills of the receiver of `acked`.
const KILLS: u32 = 50;

/// Smallest message: it holds a `Stamp`.
pub const BYTES_MIN: u32 = super::stamp::STAMP_BYTES as u32;

/// A workload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// PUSH to PULL over TCP, from one or more senders.
    PushPull,
    /// PUSH to PULL between two threads of a process.
    Inproc,
    /// REQ to REP over TCP, one request at a time.
    ReqRep,
    /// PUB to many SUB over TCP; the publisher waits for slow subscribers.
    PubSub,
    /// DEALER to ROUTER and back over TCP, 100 requests outstanding per client.
    Router,
    /// PUSH to PULL over TCP with CURVE.
    Curve,
    /// A group of a topic with acknowledgements, beside the same group without.
    Acked,
    /// PUSH to several PULL of which one never receives, beside the others alone.
    Stalled,
    /// Memory of the process of a ROUTER per connected peer that is idle.
    Idle,
    /// A topic of a server to many SUB peers over TCP, each entry written on its own.
    FanOut,
    /// Publishing to a topic of the process with one subscriber.
    Publish,
}

impl Mode {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PushPull => "push-pull",
            Self::Inproc => "inproc",
            Self::ReqRep => "req-rep",
            Self::PubSub => "pub-sub",
            Self::Router => "router",
            Self::Curve => "curve",
            Self::Acked => "acked",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
            Self::FanOut => "fan-out",
            Self::Publish => "publish",
        }
    }

    /// Returns the default size of a message in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::ReqRep => 100,
            Self::PubSub => 256,
            Self::FanOut => 128,
            Self::Curve => 1024,
            _ => 64,
        }
    }

    /// Returns the default number of peers.
    pub fn peers(self) -> u32 {
        match self {
            Self::PubSub | Self::Router => 64,
            Self::Stalled => 8,
            Self::Idle => 10_000,
            Self::FanOut => 1_000,
            _ => 1,
        }
    }

    /// Returns the number of senders and of receivers.
    pub fn ends(self, peers: u32) -> (u32, u32) {
        match self {
            Self::PubSub | Self::Stalled | Self::FanOut => (1, peers),
            _ => (peers, 1),
        }
    }

    /// Returns true if the side that binds measures, in place of the side that connects.
    pub fn bound_side_measures(self) -> bool {
        matches!(self, Self::PushPull | Self::Curve)
    }

    /// Returns true if one process has both sides.
    pub fn is_alone(self) -> bool {
        matches!(self, Self::Inproc | Self::Publish)
    }

    /// Returns true if the program of this library has the workload too.
    pub fn has_rival(self, name: &str) -> bool {
        match self {
            Self::Acked | Self::FanOut | Self::Publish => false,
            Self::Curve => name == RivalName::Libzmq.name(),
            _ => true,
        }
    }
}

/// A library to compare with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum RivalName {
    /// The C++ library of ZeroMQ.
    Libzmq,
    /// omq-tokio, in Rust.
    Omq,
    /// rzmq, in Rust.
    Rzmq,
}

impl RivalName {
    /// Returns the name of its folder in `bench/peers`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Libzmq => "libzmq",
            Self::Omq => "omq",
            Self::Rzmq => "rzmq",
        }
    }
}

/// One workload with its parameters.
#[derive(Clone, Debug)]
pub struct Load {
    pub mode: Mode,
    pub bytes: u32,
    pub peers: u32,
    pub warm_up: f64,
    pub seconds: f64,
    /// The last peer never receives; for `acked`, the group does not acknowledge.
    pub stalled: bool,
    /// Number of times that the receiver of `acked` is killed, after the measurements.
    pub kills: u32,
    /// Measure the bare loop of `fan-out` in turn.
    pub floor: bool,
}

impl BusArgs {
    /// Returns the workloads in the order of the report.
    pub(super) fn loads(&self) -> Vec<Load> {
        let or = |list: &[u32], default: u32| if list.is_empty() { vec![default] } else { list.to_vec() };
        let (bytes, peers) = (or(&self.bytes, self.mode.bytes()), or(&self.peers, self.mode.peers()));
        let pairs = bytes.iter().flat_map(|&bytes| peers.iter().map(move |&peers| (bytes, peers)));
        let kills = if self.mode == Mode::Acked { self.kills } else { 0 };
        let load = |(bytes, peers)| Load {
            kills,
            floor: self.floor,
            ..Load::new(self.mode, bytes, peers, &self.times)
        };
        pairs.map(load).collect()
    }
}

impl Load {
    /// Creates a workload; the last peer of `stalled` never receives.
    pub fn new(mode: Mode, bytes: u32, peers: u32, times: &Times) -> Self {
        let stalled = mode == Mode::Stalled;
        let kills = if mode == Mode::Acked { KILLS } else { 0 };
        Self {
            mode,
            bytes,
            peers,
            warm_up: times.warm_up,
            seconds: times.seconds,
            stalled,
            kills,
            floor: mode == Mode::FanOut,
        }
    }
}

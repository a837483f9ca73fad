//! The command line of `switchboard bench`, and the runs that it defines.

use super::{
    bus::options::BusArgs,
    engine::{Shape, Until},
    overload::OverloadArgs,
    wire::Wire,
    worker,
};
use clap::{Args, Subcommand, value_parser};
use std::{path::PathBuf, time::Duration};

/// `switchboard bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Send more calls than a server can handle, with and without an adaptive limit, and alongside a greedy tenant.
    Overload(OverloadArgs),
    /// Measure sockets and topics, in turn with other libraries of ZeroMQ's protocol.
    Bus(BusArgs),
    #[command(flatten)]
    Alone(Kind),
}

#[derive(Debug, Subcommand)]
pub(super) enum Kind {
    /// Echo a payload: every combination of --callers and --bytes.
    Echo {
        #[command(flatten)]
        load: LoadArgs,
        /// Payload bytes; a list measures each.
        #[arg(long, default_value = "100", value_delimiter = ',', value_parser = bytes())]
        bytes: Vec<u64>,
        #[command(flatten)]
        timed: TimedArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Call with a protobuf message of 581 bytes and 40 fields, decoded and encoded on both sides.
    ///
    /// The floor echoes as many bytes without decoding them.
    Message {
        #[command(flatten)]
        load: LoadArgs,
        #[command(flatten)]
        timed: TimedArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Echo payloads from 10 B to 10 MB with one caller.
    Sizes {
        /// Payload bytes; a list measures each.
        #[arg(long, default_value = "10,100,1000,10000,100000,1000000,10000000", value_delimiter = ',', value_parser = bytes())]
        bytes: Vec<u64>,
        #[command(flatten)]
        timed: TimedArgs,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Make many calls on one connection: one by one, and with 1000 outstanding.
    Connection {
        /// Calls of each measurement.
        #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..=1_000_000_000))]
        calls: u64,
        /// Payload bytes; a list measures each.
        #[arg(long, default_value = "100", value_delimiter = ',', value_parser = bytes())]
        bytes: Vec<u64>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Open connections, make one call on each, hold them, and report the server's memory for each.
    Idle {
        /// Connections to hold; limited by the ports of one client address.
        #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..=25_000))]
        connections: u32,
        #[command(flatten)]
        common: CommonArgs,
    },
}

/// The concurrency of the load.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Callers with one request outstanding each, up to 100000; a list measures each
    /// [default: 100; for `message` 100,1000,5000]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(1..=100_000))]
    callers: Vec<u32>,
    /// Connections in total, shared by the callers [default: one for each core]
    #[arg(long, value_parser = value_parser!(u32).range(1..=25_000))]
    connections: Option<u32>,
    /// Open loop: this many calls a second at constant intervals, latency counted from when each was due.
    #[arg(long, conflicts_with = "requests", value_parser = value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
}

#[derive(Debug, Args)]
pub struct TimedArgs {
    /// Seconds of each measurement, after half a second of warm-up.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Measure this many requests instead of a time.
    #[arg(long, conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
}

#[derive(Debug, Args)]
pub struct CommonArgs {
    /// Measure the bare loop in turn and print the ratio to it.
    #[arg(long)]
    pub floor: bool,
    /// Measure the same server with all guards of a production server in turn, and print the ratio: deadline, token,
    /// rate, adaptive limit, fair queue, access log. Callers send their token to both.
    #[arg(long, conflicts_with = "target")]
    pub chain: bool,
    /// Measure the same calls on the native wire in turn and print the ratio to it.
    #[arg(long)]
    pub native: bool,
    /// Measure this often and take medians [default: 3 with --floor, --chain or --native, 1 without]
    #[arg(long, value_parser = value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Wire of the calls; the server accepts all of them on one port.
    #[arg(long, value_enum, default_value_t = Wire::NATIVE)]
    wire: Wire,
    /// Call the server at URL instead of starting one, or the servers of the registry at URL.
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// Write results as JSON, an array with an object for each run; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of the servers that `bench` starts.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Threads that serve.
    #[arg(long, default_value_t = worker::cores() as u32, value_parser = value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Guard the services with the default chain.
    #[arg(long)]
    pub chain: bool,
}

/// One line of the report.
#[derive(Clone, Debug)]
pub struct Run {
    /// The subcommand.
    pub name: &'static str,
    pub call: Call,
    pub wire: Wire,
    pub shape: Shape,
    /// Callers authenticate.
    pub token: bool,
}

/// The method that is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// Echo of this many bytes.
    Echo(usize),
    /// The benchmark message.
    Message,
    /// Echo of this many bytes once on each connection, which then stays open.
    Idle(usize),
}

/// Encoded size of the benchmark message.
pub const MESSAGE_BYTES: usize = 581;

impl Call {
    /// Bytes of the payload, each way.
    pub fn bytes(self) -> usize {
        match self {
            Self::Echo(bytes) | Self::Idle(bytes) => bytes,
            Self::Message => MESSAGE_BYTES,
        }
    }
}

impl Run {
    /// Returns the same run on the native wire.
    pub fn on_native(&self) -> Self {
        Self { wire: Wire::NATIVE, ..self.clone() }
    }

    /// Returns the name of this run for people.
    pub fn label(&self) -> String {
        let bytes = size(self.call.bytes());
        let label = match (self.name, self.call, self.shape.callers) {
            (_, Call::Idle(_), _) => format!("{} idle connections", self.shape.connections()),
            ("connection", _, 1) => format!("one by one, {bytes}"),
            ("connection", _, callers) => format!("{callers} outstanding, {bytes}"),
            (_, _, callers) => {
                let plural = if callers == 1 { "" } else { "s" };
                let rate = self.shape.rate.map_or(String::new(), |rate| format!(", {rate}/s due"));
                format!("{callers} caller{plural}, {bytes}{rate}")
            }
        };
        match self.wire {
            Wire::NATIVE => label,
            wire => format!("{label}, {}", wire.name()),
        }
    }
}

impl Kind {
    pub(super) fn common(&self) -> &CommonArgs {
        match self {
            Self::Echo { common, .. }
            | Self::Message { common, .. }
            | Self::Sizes { common, .. }
            | Self::Connection { common, .. }
            | Self::Idle { common, .. } => common,
        }
    }

    /// The runs in the order of the report.
    pub(super) fn runs(&self) -> Vec<Run> {
        let CommonArgs { wire, chain: token, .. } = *self.common();
        match self {
            Self::Echo { load, bytes, timed, .. } => {
                let combinations = load.callers_or(&[100]).into_iter();
                combinations
                    .flat_map(|callers| bytes.iter().map(move |&bytes| (callers, Call::Echo(bytes as usize))))
                    .map(|(callers, call)| Run {
                        name: "echo",
                        call,
                        wire,
                        shape: load.shape(callers, timed),
                        token,
                    })
                    .collect()
            }
            Self::Message { load, timed, .. } => load
                .callers_or(&[100, 1000, 5000])
                .into_iter()
                .map(|callers| Run {
                    name: "message",
                    call: Call::Message,
                    wire,
                    shape: load.shape(callers, timed),
                    token,
                })
                .collect(),
            Self::Sizes { bytes, timed, .. } => bytes
                .iter()
                .map(|&bytes| Run {
                    name: "sizes",
                    call: Call::Echo(bytes as usize),
                    wire,
                    shape: shape(1, Some(1), timed.until()),
                    token,
                })
                .collect(),
            Self::Connection { calls, bytes, .. } => bytes
                .iter()
                .flat_map(|&bytes| [1, 1000].map(|callers| (bytes, callers)))
                .map(|(bytes, callers)| Run {
                    name: "connection",
                    call: Call::Echo(bytes as usize),
                    wire,
                    shape: shape(callers, Some(1), Until::Calls(*calls)),
                    token,
                })
                .collect(),
            Self::Idle { connections, .. } => {
                let count = *connections as usize;
                let shape = shape(count, Some(count), Until::Calls(count as u64));
                vec![Run { name: "idle", call: Call::Idle(100), wire, shape, token }]
            }
        }
    }
}

impl LoadArgs {
    fn callers_or(&self, default: &[u32]) -> Vec<u32> {
        if self.callers.is_empty() { default.to_vec() } else { self.callers.clone() }
    }

    fn shape(&self, callers: u32, timed: &TimedArgs) -> Shape {
        let connections = self.connections.map(|count| count.min(callers) as usize);
        Shape { rate: self.rate, ..shape(callers as usize, connections, timed.until()) }
    }
}

impl TimedArgs {
    fn until(&self) -> Until {
        match self.requests {
            Some(requests) => Until::Calls(requests),
            None => Until::Elapsed(Duration::from_secs_f64(self.seconds)),
        }
    }
}

impl CommonArgs {
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.floor || self.chain || self.native { 3 } else { 1 })
    }
}

/// Caches, branch predictors and buffers are warm after this.
const WARM_UP: Duration = Duration::from_millis(500);

fn shape(callers: usize, connections: Option<usize>, until: Until) -> Shape {
    Shape { callers, connections, until, rate: None, warm_up: WARM_UP }
}

fn bytes() -> clap::builder::RangedU64ValueParser<u64> {
    value_parser!(u64).range(0..=64_000_000)
}

/// Parses seconds of a measurement.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{seconds} is not in 0.05..=3600"))
    }
}

/// `bytes` as people write it.
pub fn size(bytes: usize) -> String {
    match bytes {
        1_000_000.. => format!("{} MB", bytes as f64 / 1e6),
        1_000.. => format!("{} kB", bytes as f64 / 1e3),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<Kind, String> {
        Line::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()))
            .map(|line| match line.bench.what {
                What::Alone(kind) => kind,
                What::Bus(_) | What::Overload(_) => panic!("not of this test"),
            })
            .map_err(|error| error.to_string())
    }

    fn labels(line: &str) -> Vec<String> {
        parse(line).unwrap().runs().iter().map(Run::label).collect()
    }

    #[test]
    fn lists_make_a_run_for_each_combination() {
        let runs = labels("echo --callers 1,100 --bytes 10,1000");
        assert_eq!(runs, ["1 caller, 10 B", "1 caller, 1 kB", "100 callers, 10 B", "100 callers, 1 kB"]);
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        assert_eq!(labels("echo"), ["100 callers, 100 B"]);
        assert_eq!(labels("message"), ["100 callers, 581 B", "1000 callers, 581 B", "5000 callers, 581 B"]);
        assert_eq!(labels("sizes").len(), 7);
        assert_eq!(labels("sizes")[6], "1 caller, 10 MB");
        assert_eq!(labels("connection"), ["one by one, 100 B", "1000 outstanding, 100 B"]);
        assert_eq!(labels("echo --rate 50"), ["100 callers, 100 B, 50/s due"]);
        assert_eq!(labels("idle"), ["1000 idle connections"]);
        assert_eq!(labels("echo --wire grpc-web"), ["100 callers, 100 B, grpc-web"]);
        assert_eq!(labels("echo --wire jsonrpc"), ["100 callers, 100 B, jsonrpc"]);
        assert_eq!(labels("echo --wire baidu_std"), ["100 callers, 100 B, baidu_std"]);
    }

    #[test]
    fn errors_of_unknown_wires_list_the_names_and_suggest_a_near_one() {
        let error = parse("echo --wire baidu").unwrap_err();
        assert!(error.contains("baidu_std, connect, erpc, grpc, grpc-web, grpc-web-text, hulu, "), "{error}");
        assert!(error.contains("a similar value exists: 'baidu_std'"), "{error}");
        assert!(parse("overload --wire rpx").unwrap_err().contains("a similar value exists: 'rpcx'"));
    }

    #[test]
    fn rounds_default_to_three_with_something_to_compare_with() {
        assert_eq!(parse("echo --chain").unwrap().common().rounds(), 3);
        assert_eq!(parse("echo --wire rpcx --native").unwrap().common().rounds(), 3);
        assert_eq!(parse("echo").unwrap().common().rounds(), 1);
        assert_eq!(parse("echo --floor").unwrap().common().rounds(), 3);
        assert_eq!(parse("echo --floor --rounds 5").unwrap().common().rounds(), 5);
    }

    #[test]
    fn errors_for_flags_out_of_range_name_the_allowed_range() {
        for (line, allowed) in [
            ("echo --callers 0", "1..=100000"),
            ("echo --callers 5,100001", "1..=100000"),
            ("echo --bytes 64000001", "0..=64000000"),
            ("echo --seconds 0", "0.05..=3600"),
            ("echo --seconds nan", "0.05..=3600"),
            ("echo --rate 0", "1..=10000000"),
            ("idle --connections 25001", "1..=25000"),
            ("connection --calls 0", "1..=1000000000"),
            ("sizes --rounds 0", "1..=100"),
            ("sizes --requests 0", "1..=1000000000"),
            ("echo --requests 5 --rate 5", "cannot be used with"),
            ("message --requests 5 --seconds 5", "cannot be used with"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(allowed), "{line}: {error}");
        }
    }

    #[test]
    fn connections_are_no_more_than_callers() {
        let runs = parse("echo --callers 2,50 --connections 10").unwrap().runs();
        assert_eq!(runs.iter().map(|run| run.shape.connections()).collect::<Vec<_>>(), [2, 10]);
    }
}

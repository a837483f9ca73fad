//! The results of one run, for the table, the JSON and the page.

use super::{
    engine::Until,
    machine::Machine,
    measure::{Measured, median},
    options::Run,
};
use serde::Serialize;

/// Name of Switchboard with the default chain.
pub(super) const CHAINED: &str = "behind the chain";
/// Name of Switchboard on its native wire, in a comparison with another wire.
pub(super) const NATIVE: &str = "native wire";

/// The rounds of the subjects for comparison; empty if not requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside<'a> {
    pub(super) floor: &'a [Measured],
    pub(super) chain: &'a [Measured],
    pub(super) native: &'a [Measured],
}

/// One run of the report. Field names are those of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    pub(super) name: &'static str,
    /// The run in words.
    pub(super) label: String,
    pub(super) callers: usize,
    /// Payload bytes, each way.
    pub(super) bytes: usize,
    pub(super) connections: usize,
    /// Seconds of one round; null if a number of calls was requested.
    pub(super) seconds: Option<f64>,
    /// Calls of one round; null if a time was requested.
    pub(super) calls: Option<u64>,
    /// Arrivals a second of an open loop.
    pub(super) rate: Option<u64>,
    /// Switchboard's numbers.
    #[serde(flatten)]
    pub(super) ours: Side,
    /// Requests a second over those of the floor; for idle connections, memory over that of the floor.
    pub(super) floor_ratio: Option<f64>,
    pub(super) floor: Option<Side>,
    /// Requests per second with the default chain over those without it.
    pub(super) chain_ratio: Option<f64>,
    pub(super) chain: Option<Side>,
    /// Requests per second over those of the same calls on the native wire.
    pub(super) native_ratio: Option<f64>,
    pub(super) native: Option<Side>,
    pub(super) machine: Machine,
}

/// Numbers of one subject: medians over the rounds, except that counts are sums and `max_us` is the maximum.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Side {
    pub(super) requests: u64,
    pub(super) requests_per_s: f64,
    /// Payload megabytes a second, each way.
    pub(super) mb_per_s: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Open loop: arrivals without a reply by the end.
    pub(super) missed: u64,
    /// Idle connections: resident memory of the server for each.
    pub(super) bytes_per_connection: Option<f64>,
    /// Resident memory of the server after its first ten replies to a worker, in bytes.
    pub(super) server_rss_after_10: Option<u64>,
    /// Resident memory of the server at the end of the run, all connections still open.
    pub(super) server_rss_end: Option<u64>,
    /// Requests a second of each round.
    pub(super) rounds: Vec<f64>,
    /// Latency in microseconds at each of [`QUANTILES`].
    #[serde(skip)]
    pub(super) curve: Vec<f64>,
}

/// Points of the latency curves: evenly spaced on a scale of nines.
pub(super) const QUANTILES: [f64; 16] =
    [0.0, 0.25, 0.5, 0.68, 0.8, 0.9, 0.937, 0.96, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999];

impl Record {
    /// The record of `run` from the rounds of all subjects.
    pub(super) fn new(run: &Run, ours: &[Measured], beside: Beside<'_>, machine: &Machine) -> Self {
        let bytes = run.call.bytes();
        let ours = Side::new(ours, bytes);
        let side = |rounds: &[Measured]| (!rounds.is_empty()).then(|| Side::new(rounds, bytes));
        let (floor, chain, native) = (side(beside.floor), side(beside.chain), side(beside.native));
        let (seconds, calls) = match run.shape.until {
            Until::Elapsed(time) => (Some(time.as_secs_f64()), None),
            Until::Calls(calls) => (None, Some(calls)),
        };
        Self {
            name: run.name,
            label: run.label(),
            callers: run.shape.callers,
            bytes,
            connections: run.shape.connections(),
            seconds,
            calls,
            rate: run.shape.rate,
            floor_ratio: floor.as_ref().and_then(|floor| ours.ratio(floor)),
            chain_ratio: chain.as_ref().and_then(|chain| chain.ratio(&ours)),
            native_ratio: native.as_ref().and_then(|native| ours.ratio(native)),
            ours,
            floor,
            chain,
            native,
            machine: machine.clone(),
        }
    }

    /// The sides with their names, in the order of the report.
    pub(super) fn sides(&self) -> impl Iterator<Item = (&'static str, &Side)> {
        let floor = self.floor.as_ref().map(|floor| ("floor", floor));
        let chain = self.chain.as_ref().map(|chain| (CHAINED, chain));
        let native = self.native.as_ref().map(|native| (NATIVE, native));
        [("switchboard", &self.ours)].into_iter().chain(floor).chain(chain).chain(native)
    }
}

impl Side {
    fn new(rounds: &[Measured], bytes: usize) -> Self {
        let middle = |value: &dyn Fn(&Measured) -> f64| round(median(rounds.iter().map(value)));
        let at = |quantile: f64| middle(&|round| round.latency_us(quantile));
        let requests_per_s = middle(&Measured::requests_per_s);
        let memory: Vec<f64> = rounds.iter().filter_map(|round| round.bytes_per_connection).collect();
        let rss = |which: &dyn Fn((u64, u64)) -> u64| {
            let noted: Vec<_> = rounds.iter().filter_map(|round| round.server_rss).collect();
            let middle = || median(noted.iter().map(|&both| which(both) as f64)) as u64;
            (!noted.is_empty()).then(middle)
        };
        Self {
            requests: rounds.iter().map(|round| round.requests).sum(),
            requests_per_s,
            mb_per_s: round(requests_per_s * bytes as f64 / 1e6),
            mean_us: middle(&Measured::mean_us),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: rounds.iter().map(Measured::max_us).fold(0.0, f64::max),
            errors: rounds.iter().map(|round| round.errors).sum(),
            first_error: rounds.iter().find_map(|round| round.first_error.clone()),
            missed: rounds.iter().map(|round| round.missed).sum(),
            bytes_per_connection: (!memory.is_empty()).then(|| round(median(memory))),
            server_rss_after_10: rss(&|(after_10, _)| after_10),
            server_rss_end: rss(&|(_, end)| end),
            rounds: rounds.iter().map(|one| round(one.requests_per_s())).collect(),
            curve: QUANTILES.map(at).to_vec(),
        }
    }

    /// Returns the ratio of this side to the `other`: of memory if it was measured, else of throughput.
    fn ratio(&self, other: &Self) -> Option<f64> {
        let (mine, theirs) = self
            .bytes_per_connection
            .zip(other.bytes_per_connection)
            .unwrap_or((self.requests_per_s, other.requests_per_s));
        (theirs > 0.0).then(|| mine / theirs)
    }
}

/// Rounds to three decimals, the precision of a measurement.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::{engine::Shape, options::Call, wire::Wire};
    use std::time::Duration;

    /// A round of `requests` calls of `us` microseconds in a second.
    fn round_of(requests: u64, us: u64) -> Measured {
        let mut measured = Measured::new();
        (0..requests).for_each(|_| measured.record(Duration::from_micros(us)));
        measured.elapsed = Duration::from_secs(1);
        measured
    }

    /// A record of an echo, with Switchboard at half the floor's speed.
    pub(in crate::bench) fn example(floor: bool) -> Record {
        let shape = Shape {
            callers: 100,
            connections: Some(2),
            until: Until::Elapsed(Duration::from_secs(1)),
            rate: None,
            warm_up: Duration::ZERO,
        };
        let run = Run { name: "echo", call: Call::Echo(1000), wire: Wire::NATIVE, shape, token: false };
        let ours = [round_of(900, 20), round_of(1000, 30), round_of(5000, 40)];
        let floor =
            if floor { vec![round_of(2000, 10), round_of(1, 15), round_of(3000, 11)] } else { Vec::new() };
        Record::new(&run, &ours, Beside { floor: &floor, ..Beside::default() }, &Machine::here())
    }

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let record = example(true);
        assert_eq!(record.ours.requests_per_s, 1000.0);
        assert_eq!(record.ours.mb_per_s, 1.0);
        assert_eq!(record.ours.requests, 6900);
        assert_eq!(record.ours.p50_us.round(), 30.0);
        assert_eq!(record.floor_ratio, Some(0.5));
        assert_eq!(example(false).floor_ratio, None);
    }

    #[test]
    fn memory_is_compared_when_it_was_measured() {
        let side = |memory| Side { bytes_per_connection: memory, requests_per_s: 10.0, ..Side::default() };
        assert_eq!(side(Some(300.0)).ratio(&side(Some(200.0))), Some(1.5));
        assert_eq!(side(Some(300.0)).ratio(&side(None)), Some(1.0));
        assert_eq!(side(None).ratio(&Side::default()), None);
    }
}

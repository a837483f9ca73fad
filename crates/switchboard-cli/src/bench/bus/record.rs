//! Results of a workload: medians of its rounds, and ratios to the other programs that ran in turn.

use super::{kills::Kills, options::Load, pair::Round};
use crate::bench::machine::Machine;
use serde::{Deserialize, Serialize};

/// Results of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    pub name: &'static str,
    pub bytes: u32,
    pub senders: u32,
    pub receivers: u32,
    #[serde(flatten)]
    pub ours: Side,
    /// Messages per second, divided by those of the first of `others`; `null` without one.
    pub ratio: Option<f64>,
    pub others: Vec<Other>,
    /// Number of times that the receiver was killed after the measurements, the entries of that time, and those that
    /// arrived again without the mark of a repeated delivery. Lost and repeated ones are in the counts of all rounds.
    pub kills: u32,
    pub killed_entries: u64,
    pub unmarked: u64,
    pub rounds: u32,
    pub seconds: f64,
    pub machine: Machine,
}

/// Medians of one program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Side {
    pub messages_per_s: f64,
    /// Slowest and fastest round.
    pub messages_per_s_min: f64,
    pub messages_per_s_max: f64,
    /// Messages per second of processor time of both sides.
    pub messages_per_cpu_s: f64,
    /// Messages per second of processor time of the side that needs more of it.
    pub messages_per_core_s: f64,
    pub cpu_us_per_message: f64,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
    /// Memory of the process that has the peers.
    pub bytes_per_peer: Option<f64>,
    /// Counts of all rounds.
    pub lost: u64,
    pub duplicates: u64,
    pub dropped: u64,
}

/// A program that ran in turn with Switchboard. Ratios are medians of the ratios of each round.
#[derive(Clone, Debug, Serialize)]
pub struct Other {
    pub name: String,
    pub version: String,
    #[serde(flatten)]
    pub side: Side,
    /// Messages per second of Switchboard, divided by those of this program; the least and the most of a round.
    pub ratio: f64,
    pub ratio_min: f64,
    pub ratio_max: f64,
    /// Messages per second of processor time of the busier side of Switchboard, divided by those of this program: the
    /// ratio of a machine without other work, which does not depend on the share of a core that each program got.
    pub core_ratio: f64,
    /// Processor time per message, p50, p99 and memory per peer of Switchboard, divided by those of this program.
    pub cpu_ratio: f64,
    pub p50_ratio: Option<f64>,
    pub p99_ratio: Option<f64>,
    pub bytes_per_peer_ratio: Option<f64>,
}

impl Record {
    pub(super) fn new(load: &Load, ours: &[Round], others: Vec<Other>, machine: &Machine) -> Self {
        let (senders, receivers) = load.mode.ends(load.peers);
        Self {
            name: load.mode.name(),
            bytes: load.bytes,
            senders,
            receivers,
            ours: Side::new(ours),
            ratio: others.first().map(|other| other.ratio),
            others,
            kills: 0,
            killed_entries: 0,
            unmarked: 0,
            rounds: ours.len() as u32,
            seconds: load.seconds,
            machine: machine.clone(),
        }
    }

    /// Adds the result of the kills of the receiver.
    pub(super) fn with_kills(mut self, count: u32, kills: Option<Kills>) -> Self {
        if let Some(Kills { entries, lost, duplicates, unmarked }) = kills {
            (self.kills, self.killed_entries, self.unmarked) = (count, entries, unmarked);
            self.ours.lost += lost;
            self.ours.duplicates += duplicates;
        }
        self
    }
}

impl Side {
    fn new(rounds: &[Round]) -> Self {
        let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
        let optional = |value: fn(&Round) -> Option<f64>| median_of(rounds.iter().filter_map(value));
        let rates = of(Round::messages_per_s);
        Self {
            messages_per_s_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            messages_per_s_max: rates.iter().copied().fold(0.0, f64::max),
            messages_per_s: median(rates),
            messages_per_cpu_s: median(of(|round| match round.cpu_us_per_message() {
                cpu if cpu > 0.0 => 1e6 / cpu,
                _ => 0.0,
            })),
            messages_per_core_s: median(of(Round::messages_per_core_s)),
            cpu_us_per_message: median(of(Round::cpu_us_per_message)),
            p50_us: optional(|round| round.reading.p50_us),
            p99_us: optional(|round| round.reading.p99_us),
            p999_us: optional(|round| round.reading.p999_us),
            bytes_per_peer: optional(|round| round.bytes_per_peer),
            lost: rounds.iter().map(|round| round.reading.lost).sum(),
            duplicates: rounds.iter().map(|round| round.reading.duplicates).sum(),
            dropped: rounds.iter().map(|round| round.reading.dropped).sum(),
        }
    }
}

impl Other {
    pub(super) fn new(name: String, version: String, ours: &[Round], theirs: &[Round]) -> Self {
        let ratios = |value: fn(&Round) -> Option<f64>| {
            let pairs =
                ours.iter().zip(theirs).filter_map(move |(our, their)| Some((value(our)?, value(their)?)));
            pairs.filter(|(_, their)| *their > 0.0).map(|(our, their)| our / their).collect::<Vec<_>>()
        };
        let rates = ratios(|round| Some(round.messages_per_s()));
        Self {
            name,
            version,
            side: Side::new(theirs),
            ratio_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_max: rates.iter().copied().fold(0.0, f64::max),
            ratio: median(rates),
            core_ratio: median(ratios(|round| Some(round.messages_per_core_s()))),
            cpu_ratio: median(ratios(|round| Some(round.cpu_us_per_message()))),
            p50_ratio: median_of(ratios(|round| round.reading.p50_us)),
            p99_ratio: median_of(ratios(|round| round.reading.p99_us)),
            bytes_per_peer_ratio: median_of(ratios(|round| round.bytes_per_peer)),
        }
    }
}

fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| median(values))
}

/// Returns the middle value, the mean of the two middle ones for an even number, and 0 for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bus::peer::Reading;
    use std::time::Duration;

    fn round(messages: u64, cpu_ms: u64) -> Round {
        let reading = Reading { messages, elapsed_s: 1.0, lost: 1, p50_us: Some(2.0), ..Reading::default() };
        Round { reading, processor: [Duration::from_millis(cpu_ms); 2], bytes_per_peer: None }
    }

    #[test]
    fn ratios_are_those_of_rounds_that_ran_in_turn() {
        // The machine was ten times as slow in the second round.
        let (ours, theirs) =
            ([round(1000, 1), round(90, 1), round(1100, 1)], [round(500, 1), round(50, 1), round(600, 1)]);
        let other = Other::new("x".to_owned(), "1".to_owned(), &ours, &theirs);
        assert!((other.ratio - 1100.0 / 600.0).abs() < 1e-9, "{other:?}");
        assert_eq!((other.ratio_min, other.ratio_max), (1.8, 2.0));
        assert_eq!((other.p50_ratio, other.bytes_per_peer_ratio), (Some(1.0), None));
        let side = Side::new(&ours);
        assert_eq!((side.messages_per_s, side.messages_per_s_min, side.lost), (1000.0, 90.0, 3));
        assert_eq!(median(vec![1.0, 4.0]), 2.5);
    }
}

//! The performance goals of Switchboard as data, and their results for each cell.
//!
//! A rule compares one number of Switchboard with that of some rivals, or with another of its own. A comparison that is
//! impossible because a rival is missing is reported as open; it does not count as met.

use super::{
    cell::{Cell, Preset},
    result::{Numbers, Results},
    subject::{OURS, Subject, TOKIO, plain},
};
use serde::Serialize;

/// One goal.
struct Rule {
    /// The name of the subject whose numbers are compared.
    of: &'static str,
    preset: Preset,
    /// The last part of the cells' ids; empty for all cells.
    cells: &'static [&'static str],
    metric: Metric,
    against: Against,
    /// Required factor.
    factor: f64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Metric {
    Throughput,
    P99,
    Cpu,
    PeakMemory,
}

#[derive(Clone, Copy, Debug)]
enum Against {
    /// The best of the rivals of these names.
    Best(&'static [&'static str]),
    /// The best of all rivals except these.
    AllBut(&'static [&'static str]),
    /// The best of all rivals written in this language.
    Language(&'static str),
    /// The best of all rivals except those with a runtime on each thread: those that run on a multi-thread runtime, or
    /// on threads of their library.
    Threads,
    /// Switchboard's own median latency.
    OwnMedian,
    /// Switchboard on its native wire.
    Native,
}

/// The result of a rule for one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub(super) cell: String,
    pub(super) label: String,
    /// The subject whose numbers are compared with the goal.
    pub(super) subject: String,
    /// The compared quantity.
    pub(super) metric: &'static str,
    /// The best of the compared rivals; the required names when none was measured.
    pub(super) rival: String,
    /// The required factor; `measured` is the actual one.
    pub(super) wanted: f64,
    pub(super) measured: Option<f64>,
    pub(super) ours: Option<f64>,
    pub(super) theirs: Option<f64>,
    /// Rivals of the rule that were not measured here.
    pub(super) without: Vec<&'static str>,
    pub(super) met: Option<bool>,
}

/// Frameworks whose unit of work is the call, as in Switchboard.
const CALLS: &[&str] =
    &["grpc-go", "gRPC C++", "tonic", "rpcx", "erpc", "Thrift Go", "Thrift C++", "libzmq REQ/REP"];
const MESSAGES: &[&str] = &["rpcx", "erpc", "grpc-go", "tonic", "gRPC C++"];
const RPCX: &[&str] = &["rpcx"];
const TARPC: &[&str] = &["tarpc"];
const CAPNP: &[&str] = &["capnp"];
const DEALER: &[&str] = &["libzmq DEALER/ROUTER"];
const ZMQ: &[&str] = &["libzmq"];
const TONIC: &[&str] = &["tonic"];
const ALL: Against = Against::AllBut(&[]);

const fn rule(
    preset: Preset,
    cells: &'static [&'static str],
    metric: Metric,
    against: Against,
    factor: f64,
) -> Rule {
    Rule { of: OURS, preset, cells, metric, against, factor }
}

/// The throughput rule for Switchboard under a plain tokio runtime.
const fn under_tokio(preset: Preset) -> Rule {
    Rule { of: TOKIO, ..rule(preset, &[], Metric::Throughput, Against::Threads, 1.0) }
}

/// The throughput of Switchboard on the wire of another framework.
const fn on_wire(of: &'static str, against: Against, factor: f64) -> Rule {
    Rule { of, ..rule(Preset::Wires, &[], Metric::Throughput, against, factor) }
}

use Metric::{Cpu, P99, PeakMemory, Throughput};

const RULES: &[Rule] = &[
    rule(Preset::Callers, &["1"], Throughput, Against::Best(CALLS), 5.0),
    rule(Preset::Callers, &["5", "10", "100"], Throughput, Against::Best(CALLS), 8.0),
    rule(Preset::Callers, &["100"], Throughput, Against::Best(TARPC), 3.0),
    rule(Preset::Callers, &["100"], Throughput, Against::Best(CAPNP), 8.0),
    rule(Preset::Sizes, &[], Throughput, ALL, 1.0),
    rule(Preset::Sizes, &["10", "1000", "10000"], Throughput, ALL, 2.0),
    rule(Preset::Message, &[], Throughput, Against::Best(MESSAGES), 8.0),
    rule(Preset::Message, &[], Throughput, Against::Best(TARPC), 2.5),
    rule(Preset::Message, &[], Throughput, Against::Best(DEALER), 1.5),
    rule(Preset::Message, &[], P99, ALL, 1.0),
    rule(Preset::Message, &["5000"], P99, Against::OwnMedian, 1.0 / 3.0),
    rule(Preset::Message, &["5000"], PeakMemory, Against::Language("Go"), 1.0),
    rule(Preset::Connection, &["one-by-one"], Throughput, ALL, 5.0),
    rule(Preset::Connection, &["pipelined"], Throughput, Against::Best(ZMQ), 1.5),
    rule(Preset::Connection, &["pipelined"], Throughput, Against::Best(TARPC), 5.0),
    rule(Preset::Connection, &["pipelined"], Throughput, Against::AllBut(&["libzmq", "tarpc"]), 10.0),
    rule(Preset::Connection, &["stream"], Throughput, Against::Best(TONIC), 1.0),
    rule(Preset::All, &[], Cpu, ALL, 1.0),
    under_tokio(Preset::Callers),
    under_tokio(Preset::Message),
    on_wire("rpcx client, switchboard server", Against::Best(RPCX), 1.3),
    on_wire("switchboard client, rpcx server", Against::Best(RPCX), 1.3),
    on_wire("switchboard on rpcx", Against::Native, 0.7),
    on_wire("switchboard on baidu_std", Against::Native, 0.7),
    on_wire("switchboard on thrift", Against::Native, 0.7),
];

/// Returns the results of every rule for every cell that it applies to.
pub(super) fn judge(results: &[Results<'_>]) -> Vec<Verdict> {
    let with_numbers = results.iter().filter(|results| results.cell.preset != Preset::Codecs);
    with_numbers
        .flat_map(|results| {
            RULES.iter().filter(|rule| rule.is_about(results.cell)).map(move |rule| rule.judge(results))
        })
        .collect()
}

impl Rule {
    fn is_about(&self, cell: &Cell) -> bool {
        let last = cell.id.rsplit('/').next().unwrap_or_default();
        (self.preset == Preset::All || self.preset == cell.preset)
            && (self.cells.is_empty() || self.cells.contains(&last))
    }

    fn judge(&self, results: &Results<'_>) -> Verdict {
        let numbers = results.of(self.of);
        let ours = numbers.map(|numbers| self.metric.of(numbers));
        let is_lower_better = self.metric != Throughput;
        let better = |one: f64, other: f64| if is_lower_better { one < other } else { one > other };
        let mut best: Option<(&str, f64)> = None;
        for (subject, numbers) in results.rivals().filter(|(subject, _)| self.against.includes(subject)) {
            let value = self.metric.of(numbers);
            if best.is_none_or(|(_, best)| better(value, best)) {
                best = Some((&subject.name, value));
            }
        }
        match (self.against, numbers, results.of(OURS)) {
            (Against::OwnMedian, Some(numbers), _) => best = Some(("its own median", numbers.p50_us)),
            (Against::Native, _, Some(native)) => best = Some(("its native wire", self.metric.of(native))),
            _ => {}
        }
        let theirs = best.map(|(_, value)| value);
        let measured = ours
            .zip(theirs)
            .map(|(ours, theirs)| if is_lower_better { theirs / ours } else { ours / theirs });
        let measured = measured.filter(|ratio| ratio.is_finite());
        let met = measured.map(|ratio| if self.factor == 1.0 { ratio > 1.0 } else { ratio >= self.factor });
        let without = self.against.names().iter().copied();
        Verdict {
            cell: results.cell.id.clone(),
            label: results.cell.label.clone(),
            subject: self.of.to_owned(),
            metric: self.metric.name(),
            rival: best.map_or_else(|| self.against.in_words(), |(name, _)| name.to_owned()),
            wanted: self.factor,
            measured,
            ours,
            theirs,
            without: without.filter(|name| !results.rivals().any(|(subject, _)| is(subject, name))).collect(),
            met,
        }
    }
}

impl Against {
    fn includes(self, subject: &Subject) -> bool {
        match self {
            Self::Best(names) => names.iter().any(|name| is(subject, name)),
            Self::AllBut(names) => !names.iter().any(|name| is(subject, name)),
            Self::Language(language) => subject.language == language,
            Self::OwnMedian | Self::Native => false,
            Self::Threads => !subject.is_per_core,
        }
    }

    /// The rivals that must be measured for the rule to be tested in full.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Best(names) => names,
            _ => &[],
        }
    }

    fn in_words(self) -> String {
        match self {
            Self::Best(names) => names.join(", "),
            Self::AllBut(_) => "every rival".to_owned(),
            Self::Language(language) => format!("rivals in {language}"),
            Self::OwnMedian => "its own median".to_owned(),
            Self::Native => "its native wire".to_owned(),
            Self::Threads => "rivals without a runtime on each thread".to_owned(),
        }
    }
}

/// Returns whether `subject` is the rival of this name, or a variant of it.
fn is(subject: &Subject, name: &str) -> bool {
    plain(&subject.name).contains(&plain(name))
}

impl Metric {
    fn of(self, numbers: &Numbers) -> f64 {
        match self {
            Self::Throughput => numbers.requests_per_s,
            Self::P99 => numbers.p99_us,
            Self::Cpu => numbers.cpu_us,
            Self::PeakMemory => numbers.peak_bytes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Throughput => "requests/s",
            Self::P99 => "p99",
            Self::Cpu => "CPU per call",
            Self::PeakMemory => "peak memory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn find<'a>(verdicts: &'a [Verdict], cell: &str, metric: &str, rival: &str) -> &'a Verdict {
        let found = |one: &&Verdict| one.cell == cell && one.metric == metric && one.rival == rival;
        verdicts.iter().find(found).unwrap_or_else(|| panic!("{cell} {metric} {rival}: {verdicts:#?}"))
    }

    #[test]
    fn ratios_are_those_to_the_best_rival_of_the_rule() {
        let raw =
            fake::raw(&[("grpc-go", 10.0, 9.0), ("tonic", 20.0, 3.0), ("tarpc", 50.0, 2.0)], 100.0, 1.0);
        let verdicts = judge(&crate::result::results(&raw));
        let calls = find(&verdicts, "callers/1", "requests/s", "tonic");
        assert_eq!((calls.wanted, calls.measured, calls.met), (5.0, Some(5.0), Some(true)));
        assert_eq!(calls.without.len(), 6);
        assert!(!calls.without.contains(&"tonic") && calls.without.contains(&"Thrift C++"));
        let more = find(&verdicts, "callers/100", "requests/s", "tonic");
        assert_eq!((more.wanted, more.met), (8.0, Some(false)));
        assert_eq!(find(&verdicts, "callers/100", "requests/s", "tarpc").met, Some(false));
        let open = find(&verdicts, "callers/100", "requests/s", "capnp");
        assert_eq!((open.measured, open.met), (None, None));
    }

    #[test]
    fn of_latency_and_cpu_less_is_better() {
        let raw = fake::raw(&[("grpc-go", 10.0, 9.0), ("tonic", 20.0, 3.0)], 100.0, 4.0);
        let verdicts = judge(&crate::result::results(&raw));
        let p99 = find(&verdicts, "message/100", "p99", "tonic");
        assert_eq!((p99.measured, p99.met), (Some(0.75), Some(false)));
        let own = find(&verdicts, "message/5000", "p99", "its own median");
        assert!((own.measured.unwrap() - 0.5).abs() < 1e-9 && own.met == Some(true), "{own:?}");
        assert!(verdicts.iter().filter(|one| one.metric == "CPU per call").count() >= 18);
        assert_eq!(find(&verdicts, "message/5000", "peak memory", "grpc-go").met, Some(true));
    }

    #[test]
    fn under_a_plain_runtime_it_is_held_against_those_that_have_no_runtime_on_each_thread() {
        // There Switchboard is a third as fast; tarpc runs on a runtime a core.
        let raw = fake::raw(&[("grpc-go", 10.0, 9.0), ("tarpc", 90.0, 2.0)], 150.0, 1.0);
        let verdicts = judge(&crate::result::results(&raw));
        let of = |cell: &str| -> Vec<&Verdict> {
            verdicts.iter().filter(|one| one.cell == cell && one.subject == TOKIO).collect()
        };
        for cell in ["callers/1", "message/5000"] {
            let [one] = of(cell)[..] else { panic!("{cell}: {verdicts:#?}") };
            assert_eq!((one.rival.as_str(), one.measured, one.met), ("grpc-go", Some(5.0), Some(true)));
        }
        assert!(of("sizes/10").is_empty() && verdicts.iter().any(|one| one.subject == OURS));
    }

    #[test]
    fn the_wires_of_others_are_held_against_those_others_and_against_the_native_wire() {
        let raw = fake::raw(&[("rpcx", 10.0, 9.0), ("tonic", 90.0, 2.0)], 20.0, 1.0);
        let verdicts = judge(&crate::result::results(&raw));
        let of = |subject: &str| {
            let one = verdicts.iter().find(|one| one.subject == subject && one.cell == "wires/100").unwrap();
            (one.rival.as_str(), one.measured, one.met)
        };
        assert_eq!(of("switchboard on rpcx"), ("its native wire", Some(0.8), Some(true)));
        assert_eq!(of("rpcx client, switchboard server"), ("rpcx", Some(1.0), Some(false)));
        assert_eq!(of("switchboard on thrift"), ("its native wire", None, None));
    }

    #[test]
    fn names_of_rivals_need_not_be_spelled_alike() {
        let raw =
            fake::raw(&[("gRPC C++ (callback)", 10.0, 1.0), ("Apache Thrift (Go)", 30.0, 1.0)], 240.0, 1.0);
        let verdicts = judge(&crate::result::results(&raw));
        assert_eq!(find(&verdicts, "callers/5", "requests/s", "Apache Thrift (Go)").measured, Some(8.0));
        assert_eq!(find(&verdicts, "message/100", "requests/s", "gRPC C++ (callback)").measured, Some(24.0));
    }
}

//! Medians over the rounds, for tables, charts and verdicts.

use super::{
    cell::Cell,
    raw::{Outcome, Raw},
    subject::{Kind, Subject},
    trial::{CodecCost, Trial},
};
use serde::Serialize;
use switchboard_cli::bench::measure::median;

/// The results of one cell.
#[derive(Debug)]
pub(super) struct Results<'a> {
    pub(super) cell: &'a Cell,
    /// Subjects with numbers, the fastest first, then those without.
    pub(super) lines: Vec<Line<'a>>,
}

/// The results of one subject in one cell.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) subject: &'a Subject,
    pub(super) numbers: Option<Numbers>,
    pub(super) codecs: Vec<CodecCost>,
    /// The reason why there are no numbers, or not of all rounds.
    pub(super) failed: Option<&'a str>,
}

/// Medians of the rounds; latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Numbers {
    pub(super) requests_per_s: f64,
    /// The slowest and the fastest round.
    pub(super) spread: (f64, f64),
    pub(super) mb_per_s: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    /// Minimum of all rounds.
    pub(super) min_us: f64,
    pub(super) max_us: f64,
    /// CPU time of client and server together, per call.
    pub(super) cpu_us: f64,
    pub(super) peak_bytes: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

/// The results of every cell of the plan.
pub(super) fn results(raw: &Raw) -> Vec<Results<'_>> {
    raw.plan.cells.iter().map(|cell| Results::new(raw, cell)).collect()
}

impl<'a> Results<'a> {
    fn new(raw: &'a Raw, cell: &'a Cell) -> Self {
        let able = raw.plan.subjects.iter().filter(|subject| cell.is_for(subject));
        let mut lines: Vec<Line<'a>> = able.map(|subject| Line::of(raw, cell, subject)).collect();
        lines.sort_by(|one, other| other.requests_per_s().total_cmp(&one.requests_per_s()));
        Self { cell, lines }
    }

    /// Returns the numbers of the subject with this name.
    pub(super) fn of(&self, name: &str) -> Option<&Numbers> {
        self.lines.iter().find(|line| line.subject.name == name)?.numbers.as_ref()
    }

    /// Returns the rivals with numbers, the fastest first.
    pub(super) fn rivals(&self) -> impl Iterator<Item = (&'a Subject, &Numbers)> {
        let rivals = self.lines.iter().filter(|line| line.subject.kind == Kind::Rival);
        rivals.filter_map(|line| Some((line.subject, line.numbers.as_ref()?)))
    }
}

impl<'a> Line<'a> {
    fn of(raw: &'a Raw, cell: &Cell, subject: &'a Subject) -> Self {
        let (mut trials, mut rounds, mut failed) = (Vec::new(), Vec::new(), None);
        for row in raw.rows.iter().filter(|row| row.cell == cell.id && row.subject == subject.name) {
            match &row.outcome {
                Outcome::Measured(trial) => trials.push(trial),
                Outcome::Codecs(costs) => rounds.push(&costs[..]),
                Outcome::Failed(why) => failed = Some(why.as_str()),
            }
        }
        let numbers = (!trials.is_empty()).then(|| Numbers::of(&trials, cell.bytes));
        Self { subject, numbers, codecs: medians(&rounds), failed }
    }

    fn requests_per_s(&self) -> f64 {
        self.numbers.as_ref().map_or(0.0, |numbers| numbers.requests_per_s)
    }
}

impl Numbers {
    fn of(trials: &[&Trial], bytes: u64) -> Self {
        let middle = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        let all = |of: fn(&Trial) -> f64| trials.iter().map(move |trial| of(trial));
        let requests_per_s = middle(Trial::requests_per_s);
        let rates = all(Trial::requests_per_s);
        Self {
            requests_per_s,
            spread: rates.fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(rate), high.max(rate))),
            mb_per_s: requests_per_s * bytes as f64 / 1e6,
            mean_us: middle(|trial| trial.answer.mean_us),
            p50_us: middle(|trial| trial.answer.p50_us),
            p90_us: middle(|trial| trial.answer.p90_us),
            p99_us: middle(|trial| trial.answer.p99_us),
            p999_us: middle(|trial| trial.answer.p999_us),
            min_us: all(|trial| trial.answer.min_us).fold(f64::INFINITY, f64::min),
            max_us: all(|trial| trial.answer.max_us).fold(0.0, f64::max),
            cpu_us: middle(Trial::cpu_us),
            peak_bytes: middle(|trial| trial.server_peak_bytes as f64),
            errors: trials.iter().map(|trial| trial.answer.errors).sum(),
            first_error: trials.iter().find_map(|trial| trial.answer.first_error.clone()),
        }
    }
}

/// Returns the medians of the rounds for each codec.
fn medians(rounds: &[&[CodecCost]]) -> Vec<CodecCost> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let middle = |name: &str, of: fn(&CodecCost) -> f64| {
        median(rounds.iter().flat_map(|round| round.iter()).filter(|cost| cost.name == name).map(of))
    };
    let mut costs = first.to_vec();
    for cost in &mut costs {
        cost.encode_ns = middle(&cost.name, |cost| cost.encode_ns);
        cost.decode_ns = middle(&cost.name, |cost| cost.decode_ns);
    }
    costs
}

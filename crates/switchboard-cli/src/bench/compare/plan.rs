//! What is measured, in which order, and how long it takes.
//!
//! Cell by cell, and within a cell round by round: every subject once in each round, in an order that is shuffled, so
//! that what disturbs the machine for a while disturbs them all, and none always runs after the same other.

use super::{
    cell::{self, Cell},
    options::CompareArgs,
    subject::{Absent, Found, Subject},
    trial::Times,
};
use crate::bench::{machine::Machine, peer::Call};
use serde::{Deserialize, Serialize};

/// Everything that decides what the measurements of one file mean; those of another plan are not mixed in.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Plan {
    pub(super) presets: Vec<String>,
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) warm_up: f64,
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) cells: Vec<Cell>,
    pub(super) subjects: Vec<Subject>,
    pub(super) absent: Vec<Absent>,
}

/// One measurement to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) cell: &'a Cell,
    pub(super) round: u32,
    pub(super) subject: &'a Subject,
}

/// Caches, connections and just-in-time optimisations are warm after this.
const WARM_UP: f64 = 0.5;

/// What starting and ending the processes of a measurement takes, about.
const OVERHEAD: f64 = 0.35;

/// What measuring the codecs of a subject takes, about.
const CODECS: f64 = 3.0;

/// A comparison is to be done in this time unless somebody asks for more.
const BUDGET: f64 = 50.0 * 60.0;

const SECONDS_MIN: f64 = 0.5;
const SECONDS_MAX: f64 = 3.0;

impl Plan {
    pub(super) fn new(args: &CompareArgs, found: Found, machine: &Machine) -> Self {
        let mut plan = Self {
            presets: args.preset.iter().map(|preset| preset.name().to_owned()).collect(),
            rounds: args.rounds,
            seconds: 0.0,
            warm_up: WARM_UP,
            cpu: machine.cpu.clone(),
            cores: machine.cores,
            kernel: machine.kernel.clone(),
            cells: cell::cells(&args.preset),
            subjects: found.subjects,
            absent: found.absent,
        };
        plan.seconds = args.seconds.unwrap_or_else(|| plan.fitting_seconds());
        plan
    }

    /// Seconds for each measurement with which all of them fit into the [`BUDGET`].
    fn fitting_seconds(&self) -> f64 {
        let (timed, codecs) = self.counts();
        let each = (BUDGET - codecs as f64 * CODECS) / timed.max(1) as f64;
        let seconds = (each - self.warm_up - OVERHEAD).clamp(SECONDS_MIN, SECONDS_MAX);
        (seconds * 10.0).floor() / 10.0
    }

    /// How many measurements by time there are, and how many of codecs.
    fn counts(&self) -> (usize, usize) {
        let steps = self.steps();
        let codecs = steps.iter().filter(|step| step.cell.call == Call::Codecs).count();
        (steps.len() - codecs, codecs)
    }

    /// How long `step` takes, about.
    pub(super) fn seconds_of(&self, step: Step<'_>) -> f64 {
        if step.cell.call == Call::Codecs { CODECS } else { self.seconds + self.warm_up + OVERHEAD }
    }

    pub(super) fn times(&self) -> Times {
        Times { warm_up: self.warm_up, seconds: self.seconds }
    }

    /// All measurements in their order, which is the same each time it is asked for.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for (at, cell) in self.cells.iter().enumerate() {
            for round in 1..=self.rounds {
                let able = self.subjects.iter().filter(|subject| cell.is_for(&subject.calls, &subject.modes));
                let mut able: Vec<_> = able.collect();
                shuffle(&mut able, (at as u64) << 32 | u64::from(round));
                steps.extend(able.into_iter().map(|subject| Step { cell, round, subject }));
            }
        }
        steps
    }

    /// What two plans differ in, in words.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let names = |subjects: &[Subject]| {
            subjects.iter().map(|one| format!("{} {}", one.name, one.version)).collect::<Vec<_>>().join(", ")
        };
        let presets = |plan: &Self| plan.presets.join(",");
        let number = |number: f64| number.to_string();
        [
            ("--preset", presets(self), presets(other)),
            ("--rounds", self.rounds.to_string(), other.rounds.to_string()),
            ("--rivals", names(&self.subjects), names(&other.subjects)),
            ("--seconds", number(self.seconds), number(other.seconds)),
            (
                "the machine",
                format!("{}, {} cores", self.cpu, self.cores),
                format!("{}, {} cores", other.cpu, other.cores),
            ),
            ("the kernel", self.kernel.clone(), other.kernel.clone()),
        ]
        .into_iter()
        .find(|(_, mine, theirs)| mine != theirs)
        .map(|(what, mine, theirs)| format!("{what} is {mine} there and {theirs} here"))
        .or_else(|| (self.cells != other.cells).then(|| "the cells of the presets differ".to_owned()))
    }
}

/// Fisher and Yates, with numbers that follow from `seed` (splitmix64).
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        items.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
}

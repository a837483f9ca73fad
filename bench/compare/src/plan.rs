//! The measurements, their order, and their duration.
//!
//! Cell by cell, and within a cell round by round: every subject once in each round, in shuffled order, so that
//! temporary disturbances of the machine affect all subjects, and no subject always runs after the same other one.

use super::{
    cell::{self, Cell, Preset},
    options::CompareArgs,
    subject::{Absent, Found, Subject},
    trial::Times,
};
use crate::peer::Call;
use serde::{Deserialize, Serialize};
use switchboard_cli::bench::machine::Machine;

/// The parameters of all measurements of one file; those of another plan are not added to it.
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

/// Approximate seconds for starting and ending the processes of a measurement.
const OVERHEAD: f64 = 0.35;

/// Approximate seconds for measuring the codecs of a subject.
const CODECS: f64 = 3.0;

/// Default duration of a comparison in seconds.
const BUDGET: f64 = 50.0 * 60.0;

/// Fewer rounds give no meaningful median.
const ROUNDS: u32 = 3;

const SECONDS_MIN: f64 = 0.5;
const SECONDS_MAX: f64 = 3.0;

impl Plan {
    pub(super) fn new(args: &CompareArgs, found: Found, machine: &Machine) -> Self {
        let presets = if args.preset.is_empty() { &[Preset::All][..] } else { &args.preset };
        let cells = cell::cells(presets);
        let mut subjects = found.subjects;
        subjects.retain(|subject| cells.iter().any(|cell| cell.is_for(subject)));
        let mut plan = Self {
            presets: presets.iter().map(|preset| preset.name().to_owned()).collect(),
            rounds: args.rounds.unwrap_or(ROUNDS),
            seconds: 0.0,
            warm_up: WARM_UP,
            cpu: machine.cpu.clone(),
            cores: machine.cores,
            kernel: machine.kernel.clone(),
            cells,
            subjects,
            absent: found.absent,
        };
        plan.seconds = args.seconds.unwrap_or_else(|| plan.fitting_seconds());
        // A short measurement gets a short warm-up.
        plan.warm_up = plan.warm_up.min(plan.seconds);
        plan
    }

    /// Returns the seconds of each measurement with which all of them fit into the [`BUDGET`].
    fn fitting_seconds(&self) -> f64 {
        let (timed, codecs) = self.counts();
        let each = (BUDGET - codecs as f64 * CODECS) / timed.max(1) as f64;
        let seconds = (each - self.warm_up - OVERHEAD).clamp(SECONDS_MIN, SECONDS_MAX);
        (seconds * 10.0).floor() / 10.0
    }

    /// Returns the number of timed measurements, and of codec measurements.
    fn counts(&self) -> (usize, usize) {
        let steps = self.steps();
        let codecs = steps.iter().filter(|step| step.cell.call == Call::Codecs).count();
        (steps.len() - codecs, codecs)
    }

    /// Returns the approximate duration of `step`.
    pub(super) fn seconds_of(&self, step: Step<'_>) -> f64 {
        if step.cell.call == Call::Codecs { CODECS } else { self.seconds + self.warm_up + OVERHEAD }
    }

    pub(super) fn times(&self) -> Times {
        Times { warm_up: self.warm_up, seconds: self.seconds }
    }

    /// Returns all measurements in their order, which is the same for every call.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        for (at, cell) in self.cells.iter().enumerate() {
            for round in 1..=self.rounds {
                let able = self.subjects.iter().filter(|subject| cell.is_for(subject));
                let mut able: Vec<_> = able.collect();
                shuffle(&mut able, (at as u64) << 32 | u64::from(round));
                steps.extend(able.into_iter().map(|subject| Step { cell, round, subject }));
            }
        }
        steps
    }

    /// Adds the command lines of this machine to the subjects of a plan from a file.
    ///
    /// # Errors
    /// When a subject is missing here, or has another version.
    pub(super) fn equip(&mut self, here: &[Subject]) -> Result<(), String> {
        for subject in &mut self.subjects {
            let twin = here.iter().find(|one| (&one.name, &one.version) == (&subject.name, &subject.version));
            let twin = twin.ok_or_else(|| format!("{} {} is not here", subject.name, subject.version))?;
            subject.server.clone_from(&twin.server);
            subject.client.clone_from(&twin.client);
        }
        Ok(())
    }

    /// Returns the first given flag that differs from this plan, as text.
    pub(super) fn contradiction(&self, args: &CompareArgs, machine: &Machine) -> Option<String> {
        let presets: Vec<&str> = args.preset.iter().map(|preset| preset.name()).collect();
        let there = |what: &str, value: &dyn std::fmt::Display| Some(format!("{what} is {value} there"));
        if !presets.is_empty() && presets != self.presets {
            return there("--preset", &self.presets.join(","));
        }
        if args.rounds.is_some_and(|rounds| rounds != self.rounds) {
            return there("--rounds", &self.rounds);
        }
        if args.seconds.is_some_and(|seconds| seconds != self.seconds) {
            return there("--seconds", &self.seconds);
        }
        if (&machine.cpu, machine.cores) != (&self.cpu, self.cores) {
            return there("the machine", &format!("{}, {} cores,", self.cpu, self.cores));
        }
        None
    }

    /// Returns the first difference between two plans, as text.
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

/// Shuffles by Fisher and Yates, with pseudo-random numbers from `seed` (splitmix64).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn every_subject_is_measured_once_in_each_round_in_changing_order() {
        let plan = fake::raw(&[("a", 1.0, 1.0), ("b", 1.0, 1.0), ("c", 1.0, 1.0)], 1.0, 1.0).plan;
        let order = |cell: &str, round| -> Vec<&str> {
            let steps = plan.steps();
            let own = steps.iter().filter(|step| step.cell.id == cell && step.round == round);
            own.map(|step| step.subject.name.as_str()).collect()
        };
        let mut orders = Vec::new();
        for cell in ["callers/1", "callers/5", "message/100"] {
            for round in 1..=3 {
                let mut names = order(cell, round);
                orders.push(names.clone());
                names.sort_unstable();
                assert_eq!(names, ["a", "b", "c", "floor", "switchboard", "switchboard, tokio runtime"]);
            }
        }
        orders.sort();
        orders.dedup();
        assert!(orders.len() >= 7, "{orders:?}");
        // Rounds are not mixed, and a second call returns the same order.
        let rounds: Vec<u32> = plan.steps().iter().take(18).map(|step| step.round).collect();
        assert!(rounds.is_sorted(), "{rounds:?}");
        assert_eq!(order("callers/1", 2), order("callers/1", 2));
    }

    #[test]
    fn seconds_follow_from_how_much_there_is_to_do() {
        let mut plan = fake::raw(&[("a", 1.0, 1.0)], 1.0, 1.0).plan;
        assert_eq!(plan.fitting_seconds(), SECONDS_MAX);
        let rival = plan.subjects[3].clone();
        plan.subjects.resize(17, rival);
        let seconds = plan.fitting_seconds();
        assert!((SECONDS_MIN..SECONDS_MAX).contains(&seconds), "{seconds}");
        plan.seconds = seconds;
        let total: f64 = plan.steps().into_iter().map(|step| plan.seconds_of(step)).sum();
        assert!(total <= BUDGET && total > BUDGET * 0.9, "{total}");
        plan.rounds = 100;
        assert_eq!(plan.fitting_seconds(), SECONDS_MIN);
    }
}

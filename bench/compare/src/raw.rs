//! Every measurement as JSON: written during the run, and read to resume an interrupted one.

use super::{
    judge::{self, Verdict},
    plan::{Plan, Step},
    result::{self, Numbers},
    trial::{CodecCost, Trial},
};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// The file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Raw {
    /// The command line of the first start.
    pub(super) command: String,
    /// UTC, of the first start.
    pub(super) started: String,
    /// Version of this program.
    pub(super) version: String,
    pub(super) plan: Plan,
    pub(super) rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) cell: String,
    pub(super) subject: String,
    pub(super) round: u32,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Measured(Trial),
    Codecs(Vec<CodecCost>),
    /// The reason why there is no result.
    Failed(String),
}

/// A subject that fails this often in a cell is not tried there again.
const FAILURES_MAX: usize = 2;

impl Raw {
    /// Reads the run in `file`, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read or contains something else.
    pub(super) fn read(file: &Path) -> Result<Option<Self>, String> {
        match fs::read_to_string(file) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
                format!("{} contains no run of `bench-compare`: {error}: name another file", file.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", file.display())),
        }
    }

    /// Writes the run to `file`, completely or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, file: &Path) -> Result<(), String> {
        write(self, file)
    }

    /// Writes the run to `file` with the derived results: medians, and their comparison with the goals.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write).
    pub(super) fn write_complete(&self, file: &Path) -> Result<(), String> {
        #[derive(Serialize)]
        struct Complete<'a> {
            #[serde(flatten)]
            raw: &'a Raw,
            medians: Vec<Median<'a>>,
            verdicts: Vec<Verdict>,
        }
        let results = result::results(self);
        let verdicts = judge::judge(&results);
        let medians = results.iter().flat_map(|results| {
            let lines = results.lines.iter();
            let cell = results.cell.id.as_str();
            lines.filter_map(move |line| {
                Some(Median { cell, subject: &line.subject.name, numbers: line.numbers.as_ref()? })
            })
        });
        write(&Complete { raw: self, medians: medians.collect(), verdicts }, file)
    }

    /// Removes failed measurements, so that they are missing.
    pub(super) fn forget_failures(&mut self) {
        self.rows.retain(|row| !matches!(row.outcome, Outcome::Failed(_)));
    }

    /// Returns the steps of the plan that are not done yet.
    pub(super) fn missing(&self) -> Vec<Step<'_>> {
        self.plan.steps().into_iter().filter(|&step| !self.is_settled(step)).collect()
    }

    /// Returns whether `step` was made, or has failed too often.
    pub(super) fn is_settled(&self, step: Step<'_>) -> bool {
        let mut failures = 0;
        for row in self.rows.iter().filter(|row| row.cell == step.cell.id && row.subject == step.subject.name)
        {
            failures += usize::from(matches!(row.outcome, Outcome::Failed(_)));
            if row.round == step.round || failures >= FAILURES_MAX {
                return true;
            }
        }
        false
    }
}

#[derive(Serialize)]
struct Median<'a> {
    cell: &'a str,
    subject: &'a str,
    #[serde(flatten)]
    numbers: &'a Numbers,
}

fn write(content: &impl Serialize, file: &Path) -> Result<(), String> {
    let mut text =
        serde_json::to_string_pretty(content).expect("there are no maps with keys that are not text");
    text.push('\n');
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, file))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

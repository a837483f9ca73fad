//! `switchboard bench compare`: Switchboard and its rivals on the same machine, in turn, judged and drawn.
//!
//! [`options`] and [`subject`] say who is compared, [`cell`] what is measured, [`plan`] in which order and how long.
//! Each [`trial`] runs the processes of one subject ([`child`]); what it finds goes to [`raw`], from which an
//! interrupted run goes on. [`result`] makes medians, [`judge`] holds them against the bar, and [`text`] and [`page`]
//! show them.

mod cell;
mod child;
mod manifest;
mod options;
mod plan;
mod progress;
mod raw;
mod result;
mod subject;
mod text;
mod trial;

pub(super) use options::CompareArgs;

use super::{machine::Machine, peer::Call, process};
use plan::{Plan, Step};
use progress::Progress;
use raw::{Outcome, Raw, Row};

/// Open files of a client with 5000 callers, one connection each in the worst case, and as many of its server.
const FILES: u64 = 12_000;

/// Compares as `args` say.
///
/// # Errors
/// When a name is not known, a file cannot be read or written, or Switchboard itself fails. Rivals that fail are
/// named in the report.
pub(super) fn run(args: &CompareArgs) -> Result<(), String> {
    let machine = Machine::here();
    process::allow_open_files(FILES)?;
    let plan = Plan::new(args, args.found()?, &machine);
    let mut raw = begin(args, plan, machine)?;
    measure(&mut raw, args)?;
    super::print(&text::render(&raw))?;
    let own_failures: Vec<String> = text::own_failures(&raw);
    if own_failures.is_empty() { Ok(()) } else { Err(own_failures.join("; ")) }
}

/// A new run, or the one to go on with.
fn begin(args: &CompareArgs, plan: Plan, machine: Machine) -> Result<Raw, String> {
    let file = args.file();
    let found = Raw::read(file)?;
    if args.resume.is_some() && found.is_none() {
        return Err(format!("--resume {}: no such file", file.display()));
    }
    let Some(mut found) = found else {
        return Ok(Raw {
            command: super::command_line(),
            started: machine.date,
            version: machine.version.to_owned(),
            plan,
            rows: Vec::new(),
        });
    };
    if let Some(difference) = found.plan.difference(&plan) {
        return Err(format!(
            "{} holds another run: {difference}; give the same flags to go on with it, or --json FILE for a new one",
            file.display()
        ));
    }
    // Paths of programs are not kept in the file.
    found.plan = plan;
    let missing = found.missing().len();
    if missing == 0 && args.resume.is_none() {
        return Err(format!(
            "{file} holds a complete run: give --json FILE for a new one, or --resume {file} to report it again",
            file = file.display()
        ));
    }
    eprintln!(
        "{} of {} measurements are in {}",
        found.rows.len(),
        found.rows.len() + missing,
        file.display()
    );
    Ok(found)
}

/// Makes the measurements that are missing.
fn measure(raw: &mut Raw, args: &CompareArgs) -> Result<(), String> {
    let plan = raw.plan.clone();
    let mut missing: Vec<Step<'_>> = plan.steps();
    missing.retain(|&step| !raw.is_settled(step));
    let mut progress = Progress::start(&plan, &missing);
    for (at, &step) in missing.iter().enumerate() {
        if raw.is_settled(step) {
            progress.skip(step);
            continue;
        }
        progress.show(step);
        let outcome = if step.cell.call == Call::Codecs {
            trial::codecs(step.subject).map(Outcome::Codecs)
        } else {
            trial::run(step.subject, step.cell, plan.times()).map(Outcome::Measured)
        };
        raw.rows.push(Row {
            cell: step.cell.id.clone(),
            subject: step.subject.name.clone(),
            round: step.round,
            outcome: outcome.unwrap_or_else(Outcome::Failed),
        });
        progress.done(step);
        let ends_round =
            missing.get(at + 1).is_none_or(|next| (next.round, &next.cell.id) != (step.round, &step.cell.id));
        if ends_round {
            raw.write(args.file())?;
        }
    }
    Ok(())
}

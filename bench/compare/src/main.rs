//! `bench-compare`: measures Switchboard and its rivals on the same machine, in turn, and reports the results.
//!
//! [`options`] and [`subject`] define the subjects, [`cell`] the measurements, [`plan`] their order and duration. Each
//! [`trial`] runs the processes of one subject ([`child`]); its result goes to [`raw`], from which an interrupted run
//! is resumed. [`result`] computes medians, [`judge`] compares them with the goals, and [`text`] and [`page`] print
//! them. [`messaging`] measures sockets and topics, with the workloads of `switchboard bench bus`.
//! [`peer`] makes Switchboard one program among others; its load generator is that of `switchboard bench`.

mod cards;
mod cell;
mod child;
#[cfg(test)]
mod counting;
mod facts;
#[cfg(test)]
mod fake;
mod host;
mod interrupt;
mod judge;
mod manifest;
mod messaging;
mod options;
mod page;
mod peer;
mod plan;
mod progress;
mod raw;
mod result;
mod resume;
mod subject;
mod summary;
mod tables;
mod text;
mod trial;
mod verdicts;

use clap::{Parser, Subcommand};
use interrupt::Interrupt;
use options::CompareArgs;
use peer::{Call, PeerArgs};
use plan::Step;
use progress::Progress;
use raw::{Outcome, Raw, Row};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use switchboard_cli::{
    bench::{self, machine::Machine, process},
    terminal::Terminal,
};

/// The allocator of the binary `switchboard`.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare Switchboard with other RPC frameworks on this machine: `cargo xtask peers` builds them.
#[derive(Debug, Parser)]
#[command(name = "bench-compare", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    compare: CompareArgs,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serve or call as one of the subjects.
    #[command(hide = true)]
    Peer(PeerArgs),
    /// Run one side of a workload of the preset `messaging`.
    #[command(hide = true)]
    BusPeer(bench::bus::peer::PeerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.role {
        Some(Role::Peer(args)) => peer::run(args),
        Some(Role::BusPeer(args)) => bench::bus::peer::run(args),
        None if cli.compare.preset.contains(&cell::Preset::Messaging) => messaging::run(&cli.compare),
        None => run(&cli.compare),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Open files of a client with 5000 callers, one connection each in the worst case, and as many of its server.
const FILES: u64 = 12_000;

/// Runs the comparison.
///
/// # Errors
/// When a name is unknown, a file cannot be read or written, or Switchboard itself fails. Rivals that fail are named in
/// the report.
fn run(args: &CompareArgs) -> Result<(), String> {
    let machine = Machine::here();
    process::allow_open_files(FILES)?;
    let mut raw = resume::begin(args, args.found()?, machine)?;
    measure(&mut raw, args, &Interrupt::watch()?)?;
    raw.write_complete(args.file())?;
    if let Some(file) = &args.html {
        bench::write(file, &page::render(&raw))?;
    }
    bench::print(&text::render(&raw, Terminal::stdout()))?;
    let own_failures: Vec<String> = text::own_failures(&raw);
    if own_failures.is_empty() { Ok(()) } else { Err(own_failures.join("; ")) }
}

/// Limits the loss after an unexpected end; writing a megabyte more often would cost time.
const WRITE_INTERVAL: Duration = Duration::from_secs(15);

/// Makes the measurements that are missing.
fn measure(raw: &mut Raw, args: &CompareArgs, interrupt: &Interrupt) -> Result<(), String> {
    let plan = raw.plan.clone();
    let mut missing: Vec<Step<'_>> = plan.steps();
    missing.retain(|&step| !raw.is_settled(step));
    let mut progress = Progress::start(&plan, &missing);
    let mut written = Instant::now();
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
        // Ctrl-C on a terminal also reaches the processes of the measurement: their failure is ignored.
        if interrupt.is_requested() && outcome.is_err() {
            break;
        }
        raw.rows.push(Row {
            cell: step.cell.id.clone(),
            subject: step.subject.name.clone(),
            round: step.round,
            outcome: outcome.unwrap_or_else(Outcome::Failed),
        });
        progress.done(step);
        let ends_round =
            missing.get(at + 1).is_none_or(|next| (next.round, &next.cell.id) != (step.round, &step.cell.id));
        if ends_round || written.elapsed() > WRITE_INTERVAL {
            raw.write(args.file())?;
            written = Instant::now();
        }
        if interrupt.is_requested() {
            break;
        }
    }
    drop(progress);
    if !interrupt.is_requested() {
        return Ok(());
    }
    raw.write(args.file())?;
    Err(format!(
        "interrupted; {} measurements are in {}: the same command goes on with the {} that are missing",
        raw.rows.len(),
        args.file().display(),
        raw.missing().len()
    ))
}

//! `switchboard bench`: throughput, latency and memory, compared with the bare loop that is their upper bound.
//!
//! [`options`] convert the command line to runs. Each run is measured in rounds, alternating with the floor if
//! requested, against a separate server process ([`process`], [`subject`]). The load comes from [`engine`] on
//! [`worker`]s; `record`s of the results go to `report`, `json` and `html`. `bench/compare` of the workspace
//! measures rivals with the same load; the modules that it needs are public.

mod alarm;
pub mod bus;
pub mod callers;
mod chart;
pub mod engine;
pub mod floor;
pub mod html;
mod idle;
mod json;
mod json_rpc;
pub mod load;
pub mod machine;
pub mod measure;
mod memory;
pub mod options;
mod overload;
pub mod plot;
pub mod process;
mod progress;
mod record;
pub mod report;
pub mod subject;
pub mod switchboard;
pub mod thrift;
pub mod wire;
pub mod worker;

pub(crate) use options::{BenchArgs, ServerArgs};
pub(crate) use overload::{OverloadServerArgs, serve as serve_overload};

use crate::terminal::Terminal;
use machine::Machine;
use measure::Measured;
use options::{CommonArgs, Kind, Run, What};
use progress::Progress;
use record::{Beside, Record};
use std::{
    fs,
    io::Write,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};
use subject::Subject;

/// Runs the requested measurements and reports them.
///
/// # Errors
/// When a server does not start or cannot be reached, a file cannot be written, or calls failed; the report comes
/// first.
pub(crate) fn run(args: &BenchArgs) -> Result<(), String> {
    match &args.what {
        What::Alone(kind) => run_alone(kind),
        What::Bus(args) => bus::run(args),
        What::Overload(args) => overload::run(args, &command_line(PROGRAM)),
    }
}

/// Measures Switchboard, and the subjects for comparison if requested.
fn run_alone(kind: &Kind) -> Result<(), String> {
    let common = kind.common();
    let machine = Machine::here();
    let runs = kind.runs();
    let files = runs.iter().map(|run| run.shape.connections()).max().unwrap_or_default() as u64 + SPARE_FILES;
    process::allow_open_files(files)?;
    let records = runs
        .iter()
        .enumerate()
        .map(|(at, run)| {
            measure(run, common, &format!("{} of {}: {}", at + 1, runs.len(), run.label()), &machine)
        })
        .collect::<Result<Vec<_>, _>>()?;

    let to_stdout = common.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = common.json.as_deref().filter(|_| !to_stdout) {
        write(path, &json::render(&records))?;
    }
    if let Some(path) = &common.html {
        write(path, &html::render(&records, &command_line(PROGRAM)))?;
    }
    // Standard output is either for programs or for people, never for both.
    print(&if to_stdout { json::render(&records) } else { report::render(&records, Terminal::stdout()) })?;
    match records.iter().flat_map(Record::sides).map(|(_, side)| side.errors).sum::<u64>() {
        0 => Ok(()),
        errors => Err(format!("{errors} calls failed: see the report for the first error of each run")),
    }
}

/// Serves the floor on a free port, whose address is the first line of standard output.
///
/// # Errors
/// When it cannot listen or accept.
pub(crate) fn serve_floor(args: &ServerArgs) -> Result<(), String> {
    listen_floor(Ipv4Addr::LOCALHOST.into(), args.workers as usize)
}

/// Serves the floor on a free port of `host`.
pub fn listen_floor(host: IpAddr, workers: usize) -> Result<(), String> {
    let listener = process::listen(host)?;
    let address =
        listener.local_addr().map_err(|error| format!("cannot read the listener's address: {error}"))?;
    process::report_address(address);
    process::end_with_parent();
    floor::serve(&listener, workers).map(|never| match never {})
}

/// Serves the services of `bench` on a free port, whose address is the first line of standard output.
///
/// # Errors
/// When it cannot listen or accept.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), String> {
    switchboard::serve(args)
}

/// The name of the binary in reports.
const PROGRAM: &str = "switchboard";

/// Open files besides the connections: libraries, pipes, pollers.
const SPARE_FILES: u64 = 200;

/// Measures one run in rounds: Switchboard and the subjects for comparison in turn, so that disturbances of the machine
/// affect all of them.
fn measure(run: &Run, common: &CommonArgs, title: &str, machine: &Machine) -> Result<Record, String> {
    let (mut ours, mut floor, mut chained, mut native) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=common.rounds() {
        let title = format!("{title}, round {round} of {}", common.rounds());
        ours.push(once(run, Subject::Switchboard, common.target.as_deref(), &title)?);
        if common.floor {
            floor.push(once(run, Subject::Floor, None, &title)?);
        }
        if common.chain {
            chained.push(once(run, Subject::Chained, None, &title)?);
        }
        if common.native {
            let (run, title) = (run.on_native(), format!("{title}, native wire"));
            native.push(once(&run, Subject::Switchboard, common.target.as_deref(), &title)?);
        }
    }
    Ok(Record::new(run, &ours, Beside { floor: &floor, chain: &chained, native: &native }, machine))
}

/// Measures one round of one subject, against `target` or a separate server process.
fn once(run: &Run, subject: Subject, target: Option<&str>, title: &str) -> Result<Measured, String> {
    let server = if target.is_some() { None } else { Some(subject.start()?) };
    let address = target.or_else(|| server.as_ref().map(process::Server::address)).unwrap_or_default();
    let progress = Progress::start(format!("{title}, {}", subject.name()), run);
    subject.measure(address, server.as_ref(), run, &progress.done)
}

/// Returns the command line of this process, with `program` instead of its path.
pub fn command_line(program: &str) -> String {
    let words = std::env::args().skip(1);
    [program.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Writes a report to a file.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Writes a report to standard output.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write to standard output: {error}"))
}

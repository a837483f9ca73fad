//! `switchboard bench`: throughput, latency and memory, beside the bare loop that is their upper bound.
//!
//! [`options`] turn the command line into runs; each run is measured in rounds, in turn with the floor if that is
//! asked for, against a server process of its own ([`process`], [`subject`]). The load comes from [`engine`] on
//! [`worker`]s; [`record`]s of the results go to [`report`], [`json`] and [`html`]. [`compare`] does the same with
//! rivals, for which [`peer`] makes Switchboard one program among others.

mod callers;
mod chart;
mod compare;
mod engine;
mod floor;
mod html;
mod idle;
mod json;
mod json_rpc;
mod load;
mod machine;
mod measure;
mod memory;
mod options;
mod overload;
mod peer;
mod plot;
mod process;
mod progress;
mod record;
mod report;
mod subject;
mod switchboard;
mod thrift;
mod worker;

pub(crate) use options::{BenchArgs, ServerArgs};
pub(crate) use overload::{OverloadServerArgs, serve as serve_overload};
pub(crate) use peer::{PeerArgs, run as run_peer};

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

/// Measures what `args` ask for and reports it.
///
/// # Errors
/// When a server does not start or cannot be reached, a file cannot be written, or calls failed; the report comes
/// first.
pub(crate) fn run(args: &BenchArgs) -> Result<(), String> {
    match &args.what {
        What::Alone(kind) => run_alone(kind),
        What::Compare(args) => compare::run(args),
        What::Overload(args) => overload::run(args, &command_line()),
    }
}

/// Measures Switchboard, and what it is compared with if asked for.
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
        write(path, &html::render(&records, &command_line()))?;
    }
    // Standard output is either for programs or for people, never for both.
    print(&if to_stdout { json::render(&records) } else { report::render(&records) })?;
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

/// The same on a free port of `host`.
fn listen_floor(host: IpAddr, workers: usize) -> Result<(), String> {
    let listener = process::listen(host)?;
    let address = listener.local_addr().map_err(|error| format!("cannot tell the own address: {error}"))?;
    process::announce(address);
    process::end_with_parent();
    floor::serve(&listener, workers).map(|never| match never {})
}

/// Serves what `bench` calls on a free port, whose address is the first line of standard output.
///
/// # Errors
/// When it cannot listen or accept.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), String> {
    switchboard::serve(args)
}

/// Open files beside the connections: libraries, pipes, pollers.
const SPARE_FILES: u64 = 200;

/// Measures one run in rounds: Switchboard and what it is compared with in turn, so that what disturbs the machine
/// disturbs all of them.
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

/// Measures one round of one subject, against `target` or a server process of its own.
fn once(run: &Run, subject: Subject, target: Option<&str>, title: &str) -> Result<Measured, String> {
    let server = if target.is_some() { None } else { Some(subject.start()?) };
    let address = target.or_else(|| server.as_ref().map(process::Server::address)).unwrap_or_default();
    let progress = Progress::start(format!("{title}, {}", subject.name()), run);
    subject.measure(address, server.as_ref(), run, &progress.done)
}

/// The command line that this process was started with, the path of the program left out.
fn command_line() -> String {
    let words = std::env::args().skip(1);
    ["switchboard".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write to standard output: {error}"))
}

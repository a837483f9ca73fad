//! The preset `messaging`: the workloads of `switchboard bench bus` beside libraries of ZeroMQ's protocol, with
//! the goals.
//!
//! [`goals`] has the workloads and what they must reach, [`verdict`] compares, [`page`] draws.

mod goals;
mod page;
mod verdict;

use crate::options::CompareArgs;
use goals::Workload;
use std::path::Path;
use switchboard_cli::{
    bench::{
        self,
        bus::{
            self,
            options::{Load, Mode, RivalName, Times},
            record::Record,
            rival::Program,
        },
        machine::Machine,
    },
    terminal::Terminal,
};

/// Seconds of each measurement, and its warm-up.
const SECONDS: f64 = 10.0;
const WARM_UP: f64 = 2.0;
const ROUNDS: u32 = 5;

/// A workload and its result, or the reason why there is none.
#[derive(Debug)]
pub(crate) struct Measurement {
    workload: Workload,
    result: Result<Record, String>,
}

/// Measures all workloads and reports them.
///
/// # Errors
/// When other presets are requested too, a rival is unknown, a file cannot be written, or a workload of Switchboard
/// fails; the report comes first.
pub(crate) fn run(args: &CompareArgs) -> Result<(), String> {
    if args.preset.len() > 1 || args.resume.is_some() {
        return Err("--preset messaging runs alone and is not resumed: leave out the others".to_owned());
    }
    let seconds = args.seconds.unwrap_or(SECONDS);
    let times = Times { seconds, warm_up: WARM_UP.min(seconds), rounds: args.rounds.unwrap_or(ROUNDS) };
    let ours = Program::ours(&["bus-peer"])?;
    let (rivals, absent) = rivals(&args.rivals)?;
    let mut measurements = Vec::new();
    for workload in goals::all() {
        let load = Load::new(workload.mode, workload.bytes, workload.peers, &times);
        // The goal of `idle` is a number of bytes. Of 10,000 sockets, libzmq has more descriptors than a usual limit
        // allows, omq opens 100 in a second, and rzmq opens 2,000 in more than a minute.
        let is_compared = workload.mode != Mode::Idle;
        let has = |rival: &&Program| is_compared && workload.mode.has_rival(&rival.name);
        let rivals: Vec<Program> = rivals.iter().filter(has).cloned().collect();
        let result = match workload.elsewhere {
            Some(reason) => Err(reason.to_owned()),
            None => measure(&load, &ours, rivals, &times),
        };
        measurements.push(Measurement { workload, result });
        write_json(args.file(), &measurements)?;
    }
    if let Some(file) = &args.html {
        bench::write(file, &page::render(&measurements, &absent, &Machine::here(), &times))?;
    }
    bench::print(&page::text(&measurements, &absent, Terminal::stdout()))
}

/// Measures a workload with all rivals; one that fails is left out and named.
fn measure(load: &Load, ours: &Program, mut rivals: Vec<Program>, times: &Times) -> Result<Record, String> {
    loop {
        match bus::measure(load, ours, &rivals, times) {
            Err(error) => {
                let failed = rivals.iter().position(|rival| error.starts_with(&format!("{} ", rival.name)));
                let Some(failed) = failed else { return Err(error) };
                eprintln!("{error}");
                rivals.remove(failed);
            }
            record => return record,
        }
    }
}

/// Returns the programs of the rivals, and the reasons of those that are missing.
fn rivals(wanted: &[String]) -> Result<(Vec<Program>, Vec<String>), String> {
    let known = [RivalName::Libzmq, RivalName::Omq, RivalName::Rzmq];
    if let Some(name) = wanted.iter().find(|name| !known.iter().any(|known| known.name() == *name)) {
        let known = known.map(RivalName::name).join("; ");
        return Err(format!("unknown rival {name:?} of --preset messaging; available: {known}"));
    }
    let is_wanted = |name: &RivalName| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name.name());
    let (mut programs, mut absent) = (Vec::new(), Vec::new());
    for name in known.into_iter().filter(is_wanted) {
        match Program::rival(name) {
            Ok(program) => programs.push(program),
            Err(reason) => absent.push(reason),
        }
    }
    Ok((programs, absent))
}

fn write_json(file: &Path, measurements: &[Measurement]) -> Result<(), String> {
    let records: Vec<&Record> =
        measurements.iter().filter_map(|measurement| measurement.result.as_ref().ok()).collect();
    let json = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())?;
    bench::write(file, &(json + "\n"))
}

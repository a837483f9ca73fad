//! `switchboard bench bus`: throughput, delay and memory of sockets and topics, in turn with other libraries.
//!
//! [`options`] define the workloads. `pair` starts the two sides of one (`peer`, or the program of a `rival`) as
//! processes on a core each and reads their costs; [`record`] has the medians and ratios of all rounds.

mod kills;
pub mod options;
mod pair;
pub mod peer;
mod process;
pub mod record;
mod report;
pub mod rival;
mod stamp;

use super::{machine::Machine, print, process::allow_open_files, write};
use crate::terminal::Terminal;
use options::{BusArgs, Load, Mode, Times};
use pair::Round;
use record::{Other, Record};
use rival::Program;
use std::path::Path;

/// Name of the hidden subcommand for one side.
pub(crate) const PEER_COMMAND: &str = "bench-bus-peer";

/// Open files besides the connections.
const SPARE_FILES: u64 = 200;

/// Runs the requested workloads and reports them.
///
/// # Errors
/// When a workload or a rival is not available, a side fails, or a file cannot be written.
pub(crate) fn run(args: &BusArgs) -> Result<(), String> {
    let ours = Program::ours(&[PEER_COMMAND])?;
    let rivals = args.rival.iter().map(|&name| Program::rival(name)).collect::<Result<Vec<_>, _>>()?;
    let mut records = Vec::new();
    for load in args.loads() {
        records.push(measure(&load, &ours, &rivals, &args.times)?);
    }
    let json = serde_json::to_string_pretty(&records).expect("records have no maps") + "\n";
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = args.json.as_deref().filter(|_| !to_stdout) {
        write(path, &json)?;
    }
    print(&if to_stdout { json } else { report::render(&records, Terminal::stdout()) })
}

/// Measures a workload: every program once in each round.
///
/// # Errors
/// When the workload is not available, or a side fails.
pub fn measure(load: &Load, ours: &Program, rivals: &[Program], times: &Times) -> Result<Record, String> {
    check(load, rivals)?;
    allow_open_files(u64::from(load.peers) + SPARE_FILES)?;
    let mut own: Vec<Round> = Vec::new();
    let mut others: Vec<Vec<Round>> = vec![Vec::new(); rivals.len()];
    let mut reference = Vec::new();
    for round in 1..=times.rounds {
        eprintln!(
            "{}, {} peers, {} B: round {round} of {}",
            load.mode.name(),
            load.peers,
            load.bytes,
            times.rounds
        );
        own.push(pair::measure(ours, load)?);
        if load.mode == Mode::Stalled {
            let without = Load { peers: load.peers - 1, stalled: false, ..load.clone() };
            reference.push(pair::measure(ours, &without)?);
        }
        if load.mode == Mode::Curve {
            reference.push(pair::measure(ours, &Load { mode: Mode::PushPull, ..load.clone() })?);
        }
        if load.mode == Mode::Acked || load.floor {
            reference.push(pair::measure(ours, &Load { stalled: true, ..load.clone() })?);
        }
        for (rival, rounds) in rivals.iter().zip(&mut others) {
            rounds.push(pair::measure(rival, load)?);
        }
    }
    let mut compared = Vec::new();
    if !reference.is_empty() {
        let name = match load.mode {
            Mode::Acked => "unacknowledged".to_owned(),
            Mode::Curve => "without CURVE".to_owned(),
            Mode::FanOut => "floor".to_owned(),
            _ => format!("{} peers, none stalled", load.peers - 1),
        };
        compared.push(Other::new(name, ours.version.clone(), &own, &reference));
    }
    for (rival, rounds) in rivals.iter().zip(&others) {
        compared.push(Other::new(rival.name.clone(), rival.version.clone(), &own, rounds));
    }
    let kills = if load.kills > 0 { Some(kills::measure(ours, load)?) } else { None };
    Ok(Record::new(load, &own, compared, &Machine::here()).with_kills(load.kills, kills))
}

fn check(load: &Load, rivals: &[Program]) -> Result<(), String> {
    let name = load.mode.name();
    if load.floor && load.mode != Mode::FanOut {
        return Err(format!("workload {name} has no floor: leave out --floor"));
    }
    if let Some(rival) = rivals.iter().find(|rival| !load.mode.has_rival(&rival.name)) {
        return Err(format!("{} has no workload {name}: leave it out of --rival", rival.name));
    }
    if load.mode == Mode::Stalled && load.peers < 2 {
        return Err("workload stalled needs at least 2 peers (--peers)".to_owned());
    }
    Ok(())
}

//! One round of a workload: starts both sides, each on a core of its own, and reads what they cost.

use super::{
    options::{Load, Mode},
    peer::{self, Reading, Side},
    process::PeerProcess,
    rival::Program,
};
use std::time::{Duration, Instant};

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) reading: Reading,
    /// Processor time of each side in the measured time: of the side that measures, and of the other.
    pub(super) processor: [Duration; 2],
    pub(super) bytes_per_peer: Option<f64>,
}

impl Round {
    pub(super) fn messages_per_s(&self) -> f64 {
        // `idle` has no rate.
        if self.reading.elapsed_s > 0.0 { self.reading.messages as f64 / self.reading.elapsed_s } else { 0.0 }
    }

    pub(super) fn cpu_us_per_message(&self) -> f64 {
        let both = self.processor[0] + self.processor[1];
        both.as_secs_f64() * 1e6 / (self.reading.messages as f64).max(1.0)
    }

    /// Messages per second of processor time of the side that needs more of it: the rate of two cores without other
    /// work, if no side waits.
    pub(super) fn messages_per_core_s(&self) -> f64 {
        let busier = self.processor[0].max(self.processor[1]);
        if busier.is_zero() { 0.0 } else { self.reading.messages as f64 / busier.as_secs_f64() }
    }
}

/// Time to start, to connect all peers, and to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time to connect all peers of `idle`.
const CONNECT_ALL: Duration = Duration::from_secs(600);
/// Time in which the side that does not measure reports what it dropped.
const LAST_LINE: Duration = Duration::from_secs(2);
/// Cores of the two sides.
const BOUND_CORE: Option<usize> = Some(0);
const CONNECTED_CORE: Option<usize> = Some(1);

/// Measures one round of `program` on both sides.
///
/// # Errors
/// When a side does not start, ends early, or prints nothing for two minutes.
pub(super) fn measure(program: &Program, load: &Load) -> Result<Round, String> {
    if load.mode.is_alone() {
        let arguments = peer::command_line(Side::Alone, load, None);
        // Two threads, which share the cores.
        let mut alone = PeerProcess::start(program, &arguments, None)?;
        return measured(&mut alone, None, load);
    }
    let arguments = peer::command_line(Side::Bind, load, None);
    let mut bound = PeerProcess::start(program, &arguments, BOUND_CORE)?;
    let endpoint = bound.line_after("listening on ", PATIENCE)?;
    let arguments = peer::command_line(Side::Connect, load, Some(&endpoint));
    let mut connected = PeerProcess::start(program, &arguments, CONNECTED_CORE)?;
    match load.mode {
        Mode::Idle => idle(&mut bound, &mut connected, load.peers),
        mode if mode.bound_side_measures() => measured(&mut bound, Some(&mut connected), load),
        _ => measured(&mut connected, Some(&mut bound), load),
    }
}

/// Reads the lines of the measuring side, and the processor time of both at the first and the last.
fn measured(
    measuring: &mut PeerProcess,
    mut other: Option<&mut PeerProcess>,
    load: &Load,
) -> Result<Round, String> {
    let processor = |measuring: &PeerProcess, other: Option<&PeerProcess>| {
        let other = other.map_or(Ok(Duration::ZERO), PeerProcess::processor_time)?;
        Ok::<_, String>([measuring.processor_time()?, other])
    };
    measuring.line_after("begin", PATIENCE + Duration::from_secs_f64(load.warm_up))?;
    let (start, before) = (Instant::now(), processor(measuring, other.as_deref())?);
    // Before the end of the measured time: later the senders may stand still.
    std::thread::sleep(Duration::from_secs_f64(load.seconds * READ_AT));
    let (span, after) = (start.elapsed(), processor(measuring, other.as_deref())?);
    let line = measuring.line(PATIENCE + Duration::from_secs_f64(load.seconds))?;
    let mut reading = read(&line)?;
    let last = other.as_mut().and_then(|other| other.end(LAST_LINE));
    reading.dropped += last.and_then(|line| read(&line).ok()).unwrap_or_default().dropped;
    let whole = reading.elapsed_s / span.as_secs_f64();
    let processor = [0, 1].map(|side| after[side].saturating_sub(before[side]).mul_f64(whole));
    Ok(Round { reading, processor, bytes_per_peer: None })
}

/// Part of the measured time after which the processor time is read.
const READ_AT: f64 = 0.97;

/// Reads the memory of the bound side with one peer and with all.
fn idle(bound: &mut PeerProcess, connected: &mut PeerProcess, peers: u32) -> Result<Round, String> {
    connected.line_after("begin", PATIENCE)?;
    let before = bound.resident_bytes()?;
    connected.go_on()?;
    let reading = read(&connected.line(CONNECT_ALL)?)?;
    let after = bound.resident_bytes()?;
    let bytes = (after as f64 - before as f64) / f64::from(peers.saturating_sub(1).max(1));
    Ok(Round { reading, bytes_per_peer: Some(bytes), ..Round::default() })
}

fn read(line: &str) -> Result<Reading, String> {
    serde_json::from_str(line).map_err(|error| format!("cannot read the result {line:?}: {error}"))
}

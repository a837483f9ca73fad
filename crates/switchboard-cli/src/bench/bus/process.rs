//! A process of one side of a workload: on one core, with its lines, its processor time and its memory.

use super::rival::Program;
use crate::bench::{memory, worker};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

/// A started side, killed when dropped.
#[derive(Debug)]
pub(super) struct PeerProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// For errors.
    name: String,
}

impl PeerProcess {
    /// Starts a side on one core, or on all.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub(super) fn start(
        program: &Program,
        arguments: &[String],
        core: Option<usize>,
    ) -> Result<Self, String> {
        let name = format!("{} {}", program.name, arguments.first().map_or("", String::as_str));
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = match core {
            Some(core) => on_core(core, || command.spawn()),
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|error| format!("cannot start {name}: {error}"))?;
        let output = child.stdout.take().expect("stdout is piped");
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The measurement has ended if nothing receives.
                let _ = send.send(line);
            }
        });
        Ok(Self { input: child.stdin.take(), child, lines, name })
    }

    /// Returns the next line.
    ///
    /// # Errors
    /// When there is none within the time.
    pub(super) fn line(&mut self, limit: Duration) -> Result<String, String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => format!("{} printed nothing for {limit:?}", self.name),
            mpsc::RecvTimeoutError::Disconnected => format!("{} ended early: see above", self.name),
        })
    }

    /// Returns the next line, which must begin with `start`, without it.
    ///
    /// # Errors
    /// When there is none within the time, or it begins otherwise.
    pub(super) fn line_after(&mut self, start: &str, limit: Duration) -> Result<String, String> {
        let line = self.line(limit)?;
        let rest = line.strip_prefix(start).map(str::to_owned);
        rest.ok_or_else(|| format!("{}: {line:?} does not begin with {start:?}", self.name))
    }

    /// Lets a side that waits continue.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn go_on(&mut self) -> Result<(), String> {
        let written = self.input.as_mut().map_or(Ok(()), |input| input.write_all(b"\n"));
        written.map_err(|error| format!("{}: {error}", self.name))
    }

    /// Ends a side that does not measure; returns its last line, if it prints one.
    pub(super) fn end(&mut self, limit: Duration) -> Option<String> {
        self.input = None;
        self.lines.recv_timeout(limit).ok()
    }

    /// Kills the process, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
    }

    /// Returns the processor time so far, of all threads.
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the process has ended.
    pub(super) fn processor_time(&self) -> Result<Duration, String> {
        let file = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let ticks = ticks(&text).ok_or_else(|| format!("{file} has no processor time"))?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Returns the resident memory in bytes.
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the process has ended.
    pub(super) fn resident_bytes(&self) -> Result<u64, String> {
        memory::resident_bytes(format!("/proc/{}/smaps_rollup", self.child.id()).as_ref())
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads user and system time from `/proc/PID/stat`: fields 14 and 15, after the name in parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Runs `start` with this thread on one core, which a process that it starts inherits. With a single core, or where the
/// system has no affinity, it runs anywhere.
fn on_core<T>(core: usize, start: impl FnOnce() -> T) -> T {
    let Ok(allowed) = sched_getaffinity(None) else { return start() };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)).collect();
    if worker::cores() < 2 {
        return start();
    }
    let mut one = CpuSet::new();
    one.set(cores[core % cores.len()]);
    // A system that refuses leaves the process where it is.
    let _ = sched_setaffinity(None, &one);
    let started = start();
    let _ = sched_setaffinity(None, &allowed);
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_after_a_name_with_spaces() {
        let text = "1 (a b) c) S 1 1 1 0 -1 4194560 1 2 3 4 70 8 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(text), Some(78));
        assert_eq!(ticks("1 (a) S 1"), None);
    }
}

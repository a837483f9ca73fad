//! Runs server and callers under valgrind and reads its counts.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::process::Failure;

/// Names of the counted costs, in the order of [`Costs`].
pub(super) const METRICS: [&str; 4] = ["instructions", "system calls", "clock readings", "allocations"];

/// A number for each of [`METRICS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs(pub(super) [f64; METRICS.len()]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
    /// A workload inside one process.
    Process,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Process => "process",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Client, Self::Server, Self::Process].into_iter().find(|side| side.name() == name)
    }
}

/// Costs of the sides of a workload.
pub(super) type SideCosts = Vec<(Side, Costs)>;

/// The calls of the short and of the long run: both take about a second.
const CALLS: [u32; 2] = [1000, 4000];

/// `gates`, and what counts it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) valgrind: PathBuf,
    pub(super) path: PathBuf,
}

impl Program {
    /// Counts the costs of a call of `workload`, inside one process or between two.
    ///
    /// # Errors
    /// When a process fails, or valgrind's log is not as expected.
    pub(super) fn cost(&self, workload: &str, in_process: bool) -> Result<SideCosts, Failure> {
        let count = if in_process { Self::count_process } else { Self::count };
        let [short, long] = CALLS;
        let (less, more) = (count(self, workload, short)?, count(self, workload, long)?);
        let calls = f64::from(long - short);
        let each = |((side, less), (_, more)): ((Side, Costs), (Side, Costs))| {
            (side, Costs(std::array::from_fn(|at| ((more.0[at] - less.0[at]) / calls).max(0.0))))
        };
        Ok(less.into_iter().zip(more).map(each).collect())
    }

    /// Counts the costs of one run of `calls` calls inside one process.
    fn count_process(&self, workload: &str, calls: u32) -> Result<SideCosts, Failure> {
        let process = Counted::start(self, &["call", workload, &calls.to_string()])?.finish()?;
        Ok(vec![(Side::Process, process)])
    }

    /// Counts the costs of one run of `calls` calls.
    fn count(&self, workload: &str, calls: u32) -> Result<SideCosts, Failure> {
        let mut server = Counted::start(self, &["serve", workload])?;
        let mut address = String::new();
        server.output.read_line(&mut address).map_err(|error| Failure::new(format!("gates: {error}")))?;
        let address = address.trim().trim_start_matches("listening on ");
        let calls = calls.to_string();
        let client = Counted::start(self, &["call", workload, &calls, address])?.finish();
        // The failure of the client is reported, since that of the server is a consequence.
        Ok(vec![(Side::Client, client?), (Side::Server, server.finish()?)])
    }
}

/// A process under valgrind; killed when dropped.
struct Counted {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Counted {
    fn start(program: &Program, arguments: &[&str]) -> Result<Self, Failure> {
        let log = program.path.with_file_name(format!("{}-{}.log", arguments[0], std::process::id()));
        let mut child = Command::new(&program.valgrind)
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-syscalls=yes"])
            .arg(format!("--log-file={}", log.display()))
            .arg(&program.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format!("valgrind could not be started: {error}")))?;
        let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
        Ok(Self { child, output, log })
    }

    /// Lets a server end, waits, and reads the counts.
    fn finish(mut self) -> Result<Costs, Failure> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        let read = self.output.read_to_string(&mut said).map_err(|error| error.to_string());
        let status = self.child.wait().map_err(|error| Failure::new(format!("gates: {error}")))?;
        if !status.success() {
            return Err(Failure::new(format!("gates under valgrind: {status}: see above")));
        }
        let log = read_log(&self.log)?;
        read.and_then(|_| counts(&said, &log)).map_err(Failure::new)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Both fail only when the process has ended, and the log is only missing when it never began.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

fn read_log(log: &Path) -> Result<String, Failure> {
    fs::read_to_string(log).map_err(|error| Failure::new(format!("{}: {error}", log.display())))
}

/// Reads the last line of the program and valgrind's log, which has a line for each system call. The clock is read by a
/// system call there, elsewhere without: it has a count of its own.
fn counts(said: &str, log: &str) -> Result<Costs, String> {
    let allocations = said.lines().rev().find_map(|line| line.strip_prefix("allocations "));
    let allocations = allocations.ok_or_else(|| format!("gates did not print its allocations: {said:?}"))?;
    let collected = log.lines().rev().find_map(|line| line.split_once("Collected : "));
    let (_, instructions) = collected.ok_or("valgrind did not print the number of instructions")?;
    // Calls that block have a second line when they return, with dots in place of the name.
    let system_calls = log.lines().filter(|line| line.starts_with("SYSCALL[") && !line.contains(") ... ["));
    let (clock, others): (Vec<_>, Vec<_>) = system_calls.partition(|line| line.contains("clock_gettime"));
    if others.is_empty() {
        return Err("valgrind traced no system calls".to_owned());
    }
    let number = |text: &str| text.trim().parse::<f64>().map_err(|error| format!("{text}: {error}"));
    Ok(Costs([number(instructions)?, others.len() as f64, clock.len() as f64, number(allocations)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_log() {
        let log = "==1== Callgrind\n\
            SYSCALL[7,1](228) sys_clock_gettime( 1, 0x1ffeffb2b0 )[sync] --> Success(0x0) \n\
            SYSCALL[7,1](232) sys_epoll_wait ( 4, 0x40360e0, 1024, 0 ) --> [async] ... \n\
            SYSCALL[7,1](232) ... [async] --> Success(0x0) \n\
            SYSCALL[7,1](20) sys_writev ( 9, 0x1, 1 ) --> [async] ... \n\
            ==1== Collected : 3532\n";
        let costs = counts("listening on x\nallocations 12\n", log).unwrap();
        assert_eq!(costs, Costs([3532.0, 2.0, 1.0, 12.0]));
        assert!(counts("", log).unwrap_err().contains("allocations"));
        assert!(counts("allocations 1", "").unwrap_err().contains("valgrind"));
    }
}

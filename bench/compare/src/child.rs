//! Server and client processes of a subject, and their resource usage: CPU seconds and peak memory.
//!
//! The usage of a client that has ended is read before the process is reaped, while the system still has it.

use rustix::{
    param::clock_ticks_per_second,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// A started process, killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// A server ends when this does.
    _input: Option<ChildStdin>,
    lines: Receiver<String>,
    complaint: Receiver<String>,
}

/// Time limit for a server to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The text that a server prints before its address.
const LISTENING: &str = "listening on ";

impl Process {
    /// Starts `words` with `more` arguments.
    ///
    /// # Errors
    /// When there is no such program.
    pub(super) fn start(words: &[String], more: &[String]) -> Result<Self, String> {
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", words[0]))?;
        let output = child.stdout.take().expect("stdout is piped");
        let errors = child.stderr.take().expect("stderr is piped");
        // Both are read continuously, so that no process blocks on its output.
        let (line, lines) = mpsc::sync_channel(LINES_MAX);
        thread::spawn(move || {
            for text in BufReader::new(output).lines() {
                let Ok(text) = text else { return };
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        let (said, complaint) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut text = Vec::new();
            let mut errors = BufReader::new(errors);
            let _ = errors.by_ref().take(COMPLAINT_BYTES_MAX).read_to_end(&mut text);
            let _ = said.send(String::from_utf8_lossy(&text).trim().to_owned());
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
        });
        Ok(Self { _input: child.stdin.take(), child, lines, complaint })
    }

    /// Returns the address in the first line of a server.
    ///
    /// # Errors
    /// When it ends or prints something else; with what it wrote to standard error.
    pub(super) fn address(&mut self) -> Result<String, String> {
        let line = self.lines.recv_timeout(START_LIMIT);
        match line.as_deref().map(|line| line.strip_prefix(LISTENING)) {
            Ok(Some(address)) => Ok(address.trim().to_owned()),
            Ok(None) => Err(format!("the first line of the server was {:?}", line.unwrap_or_default())),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the server did not listen within {} seconds", START_LIMIT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the server did not start: {}", self.complaint()))
            }
        }
    }

    /// Waits for a client to end by `deadline`; returns its last line and its CPU seconds.
    ///
    /// # Errors
    /// When it fails or is not done by then.
    pub(super) fn finish(mut self, deadline: Instant) -> Result<(String, f64), String> {
        let mut last = None;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => last = Some(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err("the client did not end in time".to_owned()),
            }
        }
        let id = Pid::from_child(&self.child);
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            .map_err(|error| format!("cannot wait for the client: {error}"))?;
        let cpu_s = self.cpu_s()?;
        let status = self.child.wait().map_err(|error| format!("cannot wait for the client: {error}"))?;
        if !status.success() {
            return Err(match self.complaint() {
                text if text.is_empty() => format!("the client failed: {status}"),
                text => text,
            });
        }
        last.map(|line| (line, cpu_s)).ok_or_else(|| "the client printed nothing".to_owned())
    }

    /// Returns the CPU seconds of all its threads so far.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(super) fn cpu_s(&self) -> Result<f64, String> {
        let ticks = cpu_ticks(&self.proc_file("stat")?).ok_or("no CPU time in /proc")?;
        Ok(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// Returns its peak memory in bytes.
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the process has ended.
    pub(super) fn peak_bytes(&self) -> Result<u64, String> {
        peak_bytes(&self.proc_file("status")?)
            .ok_or_else(|| "no peak memory in /proc: the server has ended".to_owned())
    }

    fn proc_file(&self, file: &str) -> Result<String, String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))
    }

    /// Returns the last line of its standard error, once that has ended.
    fn complaint(&self) -> String {
        let text = self.complaint.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        // The last line has the reason; lines above it have the context.
        let text = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        text.chars().take(300).collect()
    }
}

/// A process that prints more than this at once blocks; by the contract it prints one line.
const LINES_MAX: usize = 1000;
const COMPLAINT_BYTES_MAX: u64 = 16 << 10;

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time in the `stat` of a process. Its second field, the name, may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The high-water mark in the `status` of a process.
fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(&["sh".to_owned(), "-c".to_owned(), script.to_owned()], &[]).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn counts_are_read_from_proc() {
        let stat = "77 (a (b) c) S 1 77 77 0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(peak_bytes("VmPeak:\t 1 kB\nVmHWM:\t    2048 kB\n"), Some(2048 * 1024));
        assert_eq!(peak_bytes("Name: x\n"), None);
    }

    #[test]
    fn a_server_says_where_it_listens() {
        let mut server = shell("echo listening on 127.0.0.1:7; cat");
        assert_eq!(server.address().unwrap(), "127.0.0.1:7");
        assert!(server.peak_bytes().unwrap() > 0);
        assert!(server.cpu_s().unwrap() >= 0.0);
        let error = shell("echo first >&2; echo no port >&2; exit 1").address().unwrap_err();
        assert_eq!(error, "the server did not start: no port");
    }

    #[test]
    fn a_client_is_counted_after_its_end() {
        let (line, cpu_s) = shell("echo a; echo b; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
            .finish(soon())
            .unwrap();
        assert_eq!(line, "b");
        assert!(cpu_s > 0.0);
        assert_eq!(shell("echo why >&2; exit 3").finish(soon()).unwrap_err(), "why");
        assert!(shell("exit 3").finish(soon()).unwrap_err().contains("failed"));
        assert_eq!(
            shell("exec sleep 60").finish(Instant::now()).unwrap_err(),
            "the client did not end in time"
        );
    }
}

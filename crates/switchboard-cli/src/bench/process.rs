//! Server processes: each measurement has a separate one, which ends with the benchmark, however that ends.

use super::memory;
use std::{
    env,
    io::{self, BufRead, BufReader, Read},
    net::{IpAddr, TcpListener},
    path::PathBuf,
    process::{self, Child, ChildStdout, Command, Stdio},
    thread,
};

/// The text that a server prints before its address, in the first line of its standard output.
const LISTENING: &str = "listening on ";

/// A server process, killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    /// Kept so that later output of the server does not fail.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts this program again with `args` and waits for its address.
    ///
    /// # Errors
    /// When it cannot be started or ends without printing an address.
    pub fn start(args: &[&str]) -> Result<Self, String> {
        Self::start_with(args, Stdio::inherit())
    }

    /// Starts a server as [`start`](Self::start) does, and discards its log.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_silent(args: &[&str]) -> Result<Self, String> {
        Self::start_with(args, Stdio::null())
    }

    fn start_with(args: &[&str], log: Stdio) -> Result<Self, String> {
        let name = args.first().copied().unwrap_or_default();
        let mut child = env::current_exe()
            .and_then(|program| {
                // The server ends when its standard input does: see `end_with_parent`.
                let mut command = Command::new(program);
                command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()
            })
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let output = child.stdout.take().expect("stdout is piped");
        let mut server = Self { child, address: String::new(), _output: BufReader::new(output) };
        let mut line = String::new();
        server._output.read_line(&mut line).map_err(|error| format!("cannot read from {name}: {error}"))?;
        match line.trim_end().strip_prefix(LISTENING) {
            Some(address) => address.clone_into(&mut server.address),
            None => return Err(format!("{name} did not start: its first line was {line:?}")),
        }
        Ok(server)
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns its resident memory in bytes.
    ///
    /// # Errors
    /// When `/proc` cannot be read, as when the process has ended.
    pub fn resident_bytes(&self) -> Result<u64, String> {
        memory::resident_bytes(&self.rollup())
    }

    /// Returns the file with its memory. The roll-up counts pages when it is read; the other files lag behind by up to
    /// 64 pages per thread.
    pub fn rollup(&self) -> PathBuf {
        format!("/proc/{}/smaps_rollup", self.child.id()).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Listens on a free port of `host`; called in a server.
///
/// # Errors
/// When no port is free.
pub fn listen(host: IpAddr) -> Result<TcpListener, String> {
    TcpListener::bind((host, 0)).map_err(|error| format!("cannot listen on {host}: {error}"))
}

/// Prints the address for the benchmark; called in a server.
pub fn report_address(address: impl std::fmt::Display) {
    println!("{LISTENING}{address}");
}

/// Ends this process when the benchmark that started it has ended, even if killed; called in a server.
pub fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        process::exit(0);
    });
}

/// Raises the limit of open files of this process, and of servers it starts, to `files` if allowed.
///
/// # Errors
/// When the hard limit is lower; the text says how to raise it.
pub fn allow_open_files(files: u64) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < files) {
        return Err(format!(
            "{files} open files are needed and {} allowed: raise the hard limit with ulimit -Hn {files}",
            limit.maximum.unwrap_or_default()
        ));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum: limit.maximum })
        .map_err(|error| format!("cannot raise the limit of open files to {files}: {error}"))
}

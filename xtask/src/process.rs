//! Where the workspace is, and how its commands are started.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The checkout that this run is about.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
}

impl Workspace {
    /// The workspace whose `cargo xtask` started this process.
    pub(crate) fn of_this_run() -> Self {
        // Read at run time: checkouts that share a target folder share this binary too.
        let root = std::env::var_os("CARGO_MANIFEST_DIR")
            .and_then(|manifest| Path::new(&manifest).parent().map(Path::to_path_buf))
            .unwrap_or_else(|| PathBuf::from("."));
        Self { root }
    }

    /// Runs cargo in the root of the workspace and shows its output.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result<(), Failure> {
        run(self.cargo_command().args(arguments))
    }

    /// A cargo command without arguments, for those that need more than [`Workspace::cargo`] offers.
    pub(crate) fn cargo_command(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command
    }

    /// Where cargo puts what it builds: the folder that this very binary came from.
    pub(crate) fn built(&self) -> Result<PathBuf, Failure> {
        let itself = std::env::current_exe().map_err(|error| Failure::new(format!("own path: {error}")))?;
        Ok(itself.parent().unwrap_or(&self.root).to_path_buf())
    }
}

/// Why a command or a check did not succeed, for people.
#[derive(Debug, Clone)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Runs a command to its end with the output of this process; anything but exit code 0 is a failure.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.stdin(Stdio::null()).status().map_err(|error| cannot_start(&shown, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{shown}`: {status}"))) }
}

/// Like [`run`], but hands each line of its standard error over.
pub(crate) fn run_watching(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(&shown, &error))?;
    if let Some(errors) = child.stderr.take() {
        for text in BufReader::new(errors).lines().map_while(Result::ok) {
            line(&text);
        }
    }
    let status = child.wait().map_err(|error| Failure::new(format!("`{shown}`: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{shown}`: {status}"))) }
}

/// Runs a command to its end and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| cannot_start(&shown, &error))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("`{shown}`: {}: {}", output.status, cause.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`run`], but ends the command and fails when it has not ended by itself within `limit`.
pub(crate) fn run_within(limit: Duration, command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    let mut child = command.stdin(Stdio::null()).spawn().map_err(|error| cannot_start(&shown, &error))?;
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Failure::new(format!("`{shown}`: {status}"))),
            Ok(None) if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                end(&mut child);
                return Err(Failure::new(format!("`{shown}`: still running after {limit:?}")));
            }
            Err(error) => return Err(Failure::new(format!("`{shown}`: {error}"))),
        }
    }
}

/// Returns whether a program of this name can be started from here.
pub(crate) fn is_in_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns whether this run must not accept skipped steps.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Time limit for a server to begin to listen.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A server that runs beside a check; it ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// The port of the loopback interface that it said it listens on.
    pub(crate) port: String,
}

impl Server {
    /// Starts a server that prints where it listens as its first line, with the port at the end.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Failure> {
        let shown = shown(command);
        println!("$ {shown} &");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| cannot_start(&shown, &error))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // A server that cannot start ends, and the line stays empty.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let port = line.trim().rsplit(':').next().unwrap_or_default().to_owned();
        let server = Self { child, port };
        match server.port.parse::<u16>() {
            Ok(_) => Ok(server),
            Err(_) => Err(Failure::new(format!("`{shown}` did not say where it listens: {line:?}"))),
        }
    }

    /// Starts a server that listens on this port and may not say so; returns once it accepts connections.
    pub(crate) fn start_at(port: &str, command: &mut Command) -> Result<Self, Failure> {
        let shown = shown(command);
        println!("$ {shown} &");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| cannot_start(&shown, &error))?;
        let mut server = Self { child, port: port.to_owned() };
        let started = Instant::now();
        loop {
            let is_listening = TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();
            if is_listening {
                // A program that cannot bind the port, because another one listens there, ends soon.
                std::thread::sleep(Duration::from_millis(100));
            }
            // Another process may have taken the port: then that one listens, and this one has ended.
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(Failure::new(format!("`{shown}` has ended: {status}")));
            }
            if is_listening {
                return Ok(server);
            }
            if started.elapsed() > START_LIMIT {
                return Err(Failure::new(format!("`{shown}` does not listen after {START_LIMIT:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a program that cannot choose its port, on one that is free; on another one if it ends, because another
    /// process has taken the port meanwhile.
    pub(crate) fn start_on_free_port(command: impl Fn(&str) -> Command) -> Result<Self, Failure> {
        let start = || {
            let port = free_port()?;
            Self::start_at(&port, &mut command(&port))
        };
        let again = |first: Failure| {
            start().map_err(|second| Failure::new(format!("{second}; before that: {first}")))
        };
        start().or_else(again).or_else(again)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Returns a port that is free now; another process may take it before it is bound.
pub(crate) fn free_port() -> Result<String, Failure> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port().to_string())
        .map_err(|error| Failure::new(format!("no free port: {error}")))
}

fn end(child: &mut Child) {
    // Both fail only when the process has just ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn cannot_start(shown: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{shown}` could not be started: {error}"))
}

/// The command line as a person would type it: the program without its folder.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_become_failures() {
        assert!(run(&mut Command::new("true")).is_ok());
        let failure = run(&mut Command::new("false")).unwrap_err();
        assert!(failure.to_string().contains("`false`"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(failure.to_string().contains("no-such-program"), "{failure}");
        assert!(!is_in_path("no-such-program"));
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let limit = Duration::from_millis(50);
        let failure = run_within(limit, Command::new("sleep").arg("600")).unwrap_err();
        assert!(failure.to_string().contains("still running"), "{failure}");
    }
}

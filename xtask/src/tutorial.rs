//! Follows a page of the documentation as a reader would: saves its files, runs its commands and compares the output.
//!
//! As far as cargo can see, the folder of the session is outside the workspace, so that a new crate is built as that of
//! a user: with its own features and profile. The folder stays between runs, with all that was built.

mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::interop;
use crate::process::{self, Failure, Server};
use crate::steps::Run;
use page::Step;

/// The page, from the root of the workspace.
const PAGE: &str = "docs/start.md";

/// Commands that a reader runs and the test does not, each with the reason.
const LEFT_OUT: &[(&str, &str)] =
    &[("cargo install ", "the binary of this workspace is built already, and first in the path")];

/// The command that starts the reader's server, which then runs beside the commands after it.
const SERVER: &str = "cargo run";

/// The checkout on the page, beside the new crate; the test replaces it by the workspace.
const CHECKOUT: &str = "../switchboard/";

/// Ports on the page; the test replaces them by free ones. The server listens at the first.
const PORTS: [&str; 2] = ["8080", "9090"];

/// The terminal of the reader.
struct Session<'a> {
    run: &'a Run<'a>,
    /// The folder of the test, for the new crate and its products.
    root: PathBuf,
    /// The folder of the terminal.
    folder: PathBuf,
    /// Folder of the binary `switchboard`.
    binaries: PathBuf,
    ports: [String; 2],
    server: Option<Server>,
}

/// Follows the page in a new folder.
pub(crate) fn follow(run: &Run<'_>) -> Result<(), Failure> {
    let path = run.workspace.root.join(PAGE);
    let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
    let steps = page::steps(&text).map_err(|message| Failure::new(format!("{PAGE}: {message}")))?;
    let mut session = Session::new(run)?;
    for step in &steps {
        session.take(step)?;
    }
    Ok(())
}

impl<'a> Session<'a> {
    fn new(run: &'a Run<'a>) -> Result<Self, Failure> {
        let binary = interop::server_command(run)?;
        let root = run.workspace.built()?.with_file_name("tutorial");
        let crates = root.join("crates");
        let _ = fs::remove_dir_all(&crates);
        fs::create_dir_all(&crates).map_err(|error| failed(&crates, &error))?;
        // Without it, cargo would take a new crate into this workspace, where the folder is inside it.
        let boundary = crates.join("Cargo.toml");
        fs::write(&boundary, "[workspace]\nexclude = [\"greeter\"]\n")
            .map_err(|error| failed(&boundary, &error))?;
        let binaries = binary.parent().map(Path::to_path_buf).unwrap_or_default();
        let ports = [process::free_port()?, process::free_port()?];
        Ok(Self { run, folder: crates, root, binaries, ports, server: None })
    }

    fn take(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::File { path, text } => {
                let path = self.folder.join(path);
                let folder = path.parent().unwrap_or(&self.folder);
                fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
                fs::write(&path, self.here(text)).map_err(|error| failed(&path, &error))?;
                if path.ends_with("Cargo.toml") { self.with_tested_versions() } else { Ok(()) }
            }
            Step::Command { line, command, output } => self
                .command(&self.here(command), output.as_deref().map(|output| self.here(output)))
                .map_err(|failure| Failure::new(format!("{PAGE}:{line}: {failure}"))),
        }
    }

    fn command(&mut self, command: &str, expected: Option<String>) -> Result<(), Failure> {
        if let Some((_, reason)) = LEFT_OUT.iter().find(|(start, _)| command.starts_with(start)) {
            println!("$ {command}    (left out: {reason})");
            return Ok(());
        }
        if let Some(folder) = command.strip_prefix("cd ") {
            self.folder = self.folder.join(folder);
            return Ok(());
        }
        if command == SERVER {
            return self.serve();
        }
        println!("$ {command}");
        let is_cargo = command.starts_with("cargo ");
        let errors = if is_cargo { Stdio::inherit() } else { Stdio::piped() };
        let output = self
            .shell(command)
            .stderr(errors)
            .output()
            .map_err(|error| Failure::new(format!("`{command}` could not be started: {error}")))?;
        let both = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8_lossy(&both);
        print!("{shown}");
        if !output.status.success() {
            return Err(Failure::new(format!("`{command}`: {}: {}", output.status, shown.trim())));
        }
        match expected {
            Some(expected) if !page::is_like(&shown, &expected) => Err(Failure::new(format!(
                "`{command}` prints\n{shown}\nand the page says\n{expected}\n(`…` is any text)"
            ))),
            _ => Ok(()),
        }
    }

    /// Builds the crate and starts its program in place of the one before.
    fn serve(&mut self) -> Result<(), Failure> {
        self.server = None;
        process::run(self.shell("cargo build").stderr(Stdio::inherit()))?;
        let name = self.folder.file_name().unwrap_or_default();
        let program = self.target().join("debug").join(name);
        self.server = Some(Server::start_at(&self.ports[0], &mut Command::new(program))?);
        Ok(())
    }

    /// The crate gets the versions that this workspace is tested with, and needs no network for them. Cargo removes
    /// those that it does not need yet, so new dependencies need the whole list again.
    fn with_tested_versions(&self) -> Result<(), Failure> {
        let lock = self.folder.join("Cargo.lock");
        fs::copy(self.run.workspace.root.join("Cargo.lock"), &lock).map_err(|error| failed(&lock, &error))?;
        Ok(())
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let mut path = self.binaries.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        shell.args(["-c", command]).current_dir(&self.folder).stdin(Stdio::null());
        // Lines of source are a third of the time and most of the space of such a build.
        shell.env("PATH", path).env("CARGO_TARGET_DIR", self.target()).env("CARGO_PROFILE_DEV_DEBUG", "0");
        shell
    }

    fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// A text of the page with the paths and ports of this run.
    fn here(&self, text: &str) -> String {
        let text = text.replace(CHECKOUT, &format!("{}/", self.run.workspace.root.display()));
        PORTS.iter().zip(&self.ports).fold(text, |text, (port, free)| text.replace(port, free))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

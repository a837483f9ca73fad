//! Runs foreign clients against the real binary.
//!
//! The cases are Python programs in `interop/python`, since the first foreign peer is Python's gRPC library;
//! they start the server themselves, on a free port, and end it.

use std::path::PathBuf;
use std::process::Command;

use crate::peers::Peer;
use crate::process::{self, Failure};
use crate::steps::{Outcome, Run};

/// A group of cases that needs the same peers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Suite {
    Grpc,
    Grpcurl,
    Http,
    Native,
    Tls,
}

impl Suite {
    /// Test modules in `interop/python`.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Grpc => &["test_demo", "test_drain"],
            Self::Grpcurl => &["test_grpcurl"],
            Self::Http => &["test_http", "test_sniff"],
            Self::Native => &["test_native"],
            Self::Tls => &["test_tls"],
        }
    }

    /// What is needed besides Python.
    fn peer(self) -> Option<Peer> {
        match self {
            Self::Grpc | Self::Native => None,
            Self::Grpcurl | Self::Tls => Some(Peer::Grpcurl),
            Self::Http => Some(Peer::Curl),
        }
    }
}

/// Runs the cases of the suite; skips them when a peer is missing.
pub(crate) fn run(run: &Run<'_>, suite: Suite) -> Outcome {
    let python = match run.peers.path(Peer::Python) {
        Ok(python) => python,
        Err(failure) => return Outcome::Skipped(failure.to_string()),
    };
    let peer = match suite.peer().map(|peer| run.peers.path(peer)).transpose() {
        Ok(peer) => peer,
        Err(failure) => return Outcome::Skipped(failure.to_string()),
    };
    let server = match server_command(run) {
        Ok(server) => server,
        Err(failure) => return Outcome::Failed(failure.to_string()),
    };

    let mut command = Command::new(python);
    command
        .args(["-B", "-m", "unittest", "--verbose"])
        .args(suite.modules())
        .current_dir(run.workspace.root.join("interop/python"))
        .env("SWITCHBOARD_BIN", server);
    if let Some(peer) = peer {
        command.env("SWITCHBOARD_PEER", peer);
    }
    process::run(&mut command).into()
}

/// The command that the tests start: that of the environment, or the binary of this workspace, freshly built.
fn server_command(run: &Run<'_>) -> Result<PathBuf, Failure> {
    if let Some(command) = std::env::var_os("SWITCHBOARD_BIN").filter(|command| !command.is_empty()) {
        return Ok(command.into());
    }
    run.workspace.cargo(&["build", "--package", "switchboard-cli", "--bin", "switchboard"])?;
    Ok(run.workspace.built()?.join("switchboard"))
}

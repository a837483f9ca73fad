//! Runs foreign clients against the real binary.
//!
//! The cases are Python programs in `interop/python`, since the first foreign peer is Python's gRPC library;
//! they start the server themselves, on a free port, and end it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::peers::Peer;
use crate::process::{self, Failure};
use crate::steps::{Outcome, Run};
use crate::suites;

/// The JavaScript cases take seconds.
const JS_LIMIT: Duration = Duration::from_secs(120);

/// A group of cases that needs the same peers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Suite {
    /// Metrics of the admin listener, read by the library of Prometheus.
    Admin,
    /// `switchboard call` against a server of grpcio.
    Call,
    /// The page of the demo.
    Browser,
    /// Our client against a server of grpcio.
    Client,
    Evans,
    Grpc,
    Grpcui,
    Grpcurl,
    Http,
    JsonRpc,
    Native,
    /// `switchboard proxy` between programs of others.
    Proxy,
    Tls,
    WebSocket,
}

impl Suite {
    /// Test modules in `interop/python`.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Admin => &["test_admin"],
            Self::Call => &["test_call"],
            Self::Browser => &["test_browser"],
            Self::Client => &["test_client"],
            Self::Grpc => &["test_channelz", "test_demo", "test_drain"],
            Self::Evans => &["test_evans"],
            Self::Grpcui => &["test_grpcui"],
            Self::Grpcurl => &["test_grpcurl"],
            Self::Http => &["test_http", "test_rest", "test_sniff"],
            Self::JsonRpc => &["test_jsonrpc"],
            Self::Native => &["test_native"],
            Self::Proxy => &["test_proxy"],
            Self::Tls => &["test_tls"],
            Self::WebSocket => &["test_websocket"],
        }
    }

    /// Returns the peer that the suite needs besides Python.
    fn peer(self) -> Option<Peer> {
        match self {
            Self::Admin | Self::Call | Self::Client | Self::Grpc | Self::Native => None,
            Self::Browser => Some(Peer::Chromium),
            Self::Evans => Some(Peer::Evans),
            Self::Grpcui => Some(Peer::Grpcui),
            Self::Grpcurl | Self::Proxy | Self::Tls => Some(Peer::Grpcurl),
            Self::Http => Some(Peer::Curl),
            Self::JsonRpc | Self::WebSocket => Some(Peer::Node),
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
    // What the cases start: our server, or our client.
    let own = match suite {
        Suite::Client => suites::built_of(run, "conformance-client", "interop-client"),
        _ => server_command(run),
    };
    let own = match own {
        Ok(own) => own,
        Err(failure) => return Outcome::Failed(failure.to_string()),
    };

    let mut command = Command::new(python);
    command
        // The fork handlers of grpcio can wait for its threads without end, while a test starts a server.
        .env("GRPC_ENABLE_FORK_SUPPORT", "0")
        .args(["-B", "-m", "unittest", "--verbose"])
        .args(suite.modules())
        .current_dir(run.workspace.root.join("interop/python"));
    match suite {
        Suite::Client => command.env("SWITCHBOARD_PEER", own),
        _ => command.env("SWITCHBOARD_BIN", own),
    };
    if let Some(peer) = peer {
        command.env("SWITCHBOARD_PEER", peer);
    }
    if let Suite::Proxy = suite {
        match run.peers.path(Peer::Rpcx) {
            Ok(rpcx) => command.env("RPCX_PEER", rpcx),
            Err(failure) => return Outcome::Skipped(failure.to_string()),
        };
    }
    let folder = match temporary(run, suite) {
        Ok(folder) => folder,
        Err(failure) => return Outcome::Failed(failure.to_string()),
    };
    // A browser has sockets in its temporary folder, whose paths must be short.
    if !matches!(suite, Suite::Browser) {
        command.env("TMPDIR", &folder);
    }
    let outcome = process::run(&mut command).into();
    let _ = std::fs::remove_dir_all(folder);
    outcome
}

/// An empty folder for what the cases put into temporary ones: a process that is killed leaves it behind.
fn temporary(run: &Run<'_>, suite: Suite) -> Result<PathBuf, Failure> {
    let folder = run.workspace.built()?.join("interop-tmp").join(suite.modules()[0]);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

/// Runs the JavaScript cases: the clients of Node programs.
pub(crate) fn run_js(run: &Run<'_>) -> Outcome {
    let folder = match run.peers.path(Peer::Node) {
        Ok(folder) => folder,
        Err(failure) => return Outcome::Skipped(failure.to_string()),
    };
    js(run, &folder).into()
}

fn js(run: &Run<'_>, packages: &Path) -> Result<(), Failure> {
    let server = server_command(run)?;
    let sources = run.workspace.root.join("interop/js");
    let link = sources.join("node_modules");
    // A link, because Node resolves packages from where the importing file lies.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(packages.join("node_modules"), &link)
        .map_err(|error| Failure::new(format!("{}: {error}", link.display())))?;
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=spec"]).current_dir(&sources).env("SWITCHBOARD_BIN", server);
    process::run_within(JS_LIMIT, &mut command)
}

/// The command that the tests start: that of the environment, or the binary of this workspace, freshly built.
pub(crate) fn server_command(run: &Run<'_>) -> Result<PathBuf, Failure> {
    if let Some(command) = std::env::var_os("SWITCHBOARD_BIN").filter(|command| !command.is_empty()) {
        return Ok(command.into());
    }
    run.workspace.cargo(&["build", "--package", "switchboard-cli", "--bin", "switchboard"])?;
    Ok(run.workspace.built()?.join("switchboard"))
}

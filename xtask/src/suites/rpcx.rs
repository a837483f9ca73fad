//! rpcx in both directions, over each network that it has in common with us.

use super::{CASE_LIMIT, built_of};
use crate::interop::server_command;
use crate::process::{self, Failure, Server};
use crate::steps::Run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every case with each network.
pub(super) fn check(run: &Run<'_>, peer: &Path) -> Result<(), Failure> {
    let own = built_of(run, "interop-rpcx", "interop-rpcx")?;
    let (ours, theirs) = (Socket::new("ours"), Socket::new("theirs"));

    let certificate = Folder::new()?;
    let secure = |program: &Path| {
        let mut command = Command::new(program);
        command.env("RPCX_PEER_TLS", &certificate.0);
        command
    };
    process::run(Command::new(peer).arg("certificate").arg(&certificate.0))?;

    let server =
        Server::start(Command::new(&own).args(["serve", "tcp://127.0.0.1:0", &ours.named("unix:")]))?;
    let networks = ["tcp", "http", "ws"].map(|network| format!("{network}@127.0.0.1:{}", server.port));
    let mut command = Command::new(peer);
    command.arg("client").args(networks).arg(ours.named("unix@"));
    process::run_within(CASE_LIMIT, &mut command)?;
    drop(server);

    let folder = certificate.0.display();
    let tls = format!("tls://127.0.0.1:0?cert={folder}/cert.pem&key={folder}/key.pem");
    let server = Server::start(Command::new(&own).args(["serve", &tls]))?;
    let networks = ["tcp", "http", "wss"].map(|network| format!("tls+{network}@127.0.0.1:{}", server.port));
    process::run_within(CASE_LIMIT, secure(peer).arg("client").args(networks))?;
    drop(server);

    // The last address is the one whose port is read.
    let addresses = [&theirs.named("unix@"), "tcp@127.0.0.1:0"];
    let server = Server::start(Command::new(peer).arg("server").args(addresses))?;
    let tcp = format!("tcp://127.0.0.1:{}", server.port);
    process::run_within(CASE_LIMIT, Command::new(&own).args(["call", &tcp, &theirs.named("unix:")]))?;
    by_hand(run, &tcp)?;
    drop(server);
    let ca = format!("?ca={folder}/cert.pem");
    for (network, scheme, options) in [
        ("http", "tcp", "?network=http"),
        ("ws", "ws", ""),
        ("tls+tcp", "tls", &*ca),
        ("tls+wss", "wss", &*ca),
    ] {
        let server = Server::start(secure(peer).args(["server", &format!("{network}@127.0.0.1:0")]))?;
        let url = format!("{scheme}://127.0.0.1:{}", server.port);
        let with_options = format!("{url}{options}");
        process::run_within(CASE_LIMIT, Command::new(&own).args(["call", &with_options]))?;
        if network == "ws" {
            by_hand(run, &url)?;
        }
    }
    Ok(())
}

/// A folder of its own, until it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        let folder = std::env::temp_dir().join(format!("rpcx-{}-tls", std::process::id()));
        let failed = |error| Failure::new(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is in the system's folder for such files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the commands of the documentation against the server at `url`.
fn by_hand(run: &Run<'_>, url: &str) -> Result<(), Failure> {
    let program = server_command(run)?;
    let proto = run.workspace.root.join("interop/rpcx/proto/echo.proto");
    let call = |arguments: &[&str]| {
        let command = &mut Command::new(&program);
        process::output(command.args(["call", url, "--wire", "rpcx", "--compact"]).args(arguments))
    };
    let shout = ["interop.v1.Echo/Shout", "--proto", &proto.display().to_string(), "-d", r#"{"text":"hi"}"#];
    for (arguments, expected) in [
        (&["Arith/Mul", "--raw", "unary", "-d", r#"{"A":6,"B":7}"#][..], "{\"C\":42}\n"),
        (&["Arith/Note", "--raw", "unary", "-d", "{}", "--oneway"], ""),
        (&shout, "{\"text\":\"HI\"}\n"),
    ] {
        let answer = call(arguments)?;
        if answer != expected {
            return Err(Failure::new(format!("{arguments:?}: {answer:?} and not {expected:?}")));
        }
    }
    match call(&["Arith/Div", "--raw", "unary", "-d", r#"{"A":1,"B":0}"#]) {
        Err(failure) if failure.to_string().contains("divide by zero") => Ok(()),
        other => Err(Failure::new(format!("a division by zero: {other:?}"))),
    }
}

/// Where a Unix socket is; their paths must be short, hence the system's folder.
struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Socket {
        Socket(std::env::temp_dir().join(format!("rpcx-{}-{name}.sock", std::process::id())))
    }

    fn named(&self, scheme: &str) -> String {
        format!("{scheme}{}", self.0.display())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A server that ends in order has removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

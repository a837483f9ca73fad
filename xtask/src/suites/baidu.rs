//! baidu_std between our programs and those of `interop/baidu/java` and `interop/baidu/brpc-java`, and its streams with
//! those of `interop/baidu/python`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::built_of;
use crate::process::{self, Failure, Server};
use crate::steps::Run;

/// All cases take some seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the cases of both clients; `java` is the folder of the compiled programs and their libraries.
pub(super) fn check(run: &Run<'_>, java: &Path) -> Result<(), Failure> {
    let server = Server::start(&mut Command::new(built_of(run, "interop-baidu", "baidu-server")?))?;
    process::run_within(LIMIT, program(java, "peer.Client").arg(&server.port))?;
    drop(server);
    let client = built_of(run, "interop-baidu", "baidu-client")?;
    let server = Server::start(&mut program(java, "peer.Server"))?;
    process::run_within(LIMIT, Command::new(client).arg(format!("127.0.0.1:{}", server.port)))
}

/// The same with programs that speak more protocols.
pub(super) fn check_brpc_java(run: &Run<'_>, java: &Path) -> Result<(), Failure> {
    for wire in ["baidu_std"] {
        let server = Server::start(&mut Command::new(built_of(run, "interop-baidu", "baidu-server")?))?;
        process::run_within(LIMIT, brpc_java(java, "peer.Client").args([&server.port, wire]))?;
        drop(server);
        let client = built_of(run, "interop-baidu", "baidu-client")?;
        let server = Server::start(&mut brpc_java(java, "peer.Server"))?;
        let address = format!("127.0.0.1:{}", server.port);
        process::run_within(LIMIT, Command::new(client).args([&address, "brpc-java", wire]))?;
    }
    Ok(())
}

/// Runs the cases of both clients of streams; the Python programs need nothing but Python.
pub(super) fn check_streams(run: &Run<'_>) -> Result<(), Failure> {
    let python = |role: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(run.workspace.root.join("interop/baidu/python/streams.py")).arg(role);
        command
    };
    let server = Server::start(&mut Command::new(built_of(run, "interop-baidu", "baidu-server")?))?;
    process::run_within(LIMIT, python("client").arg(&server.port))?;
    drop(server);
    let client = built_of(run, "interop-baidu", "baidu-client")?;
    let server = Server::start(&mut python("server"))?;
    process::run_within(LIMIT, Command::new(client).args([&format!("127.0.0.1:{}", server.port), "streams"]))
}

/// Its proxies are made by a library that is older than modules.
fn brpc_java(java: &Path, name: &str) -> Command {
    let mut command = program(java, name);
    command.env("JDK_JAVA_OPTIONS", "--add-opens=java.base/java.lang=ALL-UNNAMED");
    command
}

fn program(java: &Path, name: &str) -> Command {
    let mut command = Command::new("java");
    let path = format!("{}:{}", java.join("classes").display(), java.join("lib/*").display());
    command.args(["-cp", &path, name]);
    command
}

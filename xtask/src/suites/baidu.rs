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

/// Wires that brpc-java speaks.
const WIRES: [&str; 3] = ["baidu_std", "hulu", "sofa"];

/// Runs the cases of both clients; `java` is the folder of the compiled programs and their libraries.
pub(super) fn check(run: &Run<'_>, java: &Path) -> Result<(), Failure> {
    both_ways(run, &mut program(java, "peer.Client"), &mut program(java, "peer.Server"), &[], &[])
}

/// Runs the checks with the programs of brpc-java, which speak more protocols.
pub(super) fn check_brpc_java(run: &Run<'_>, java: &Path) -> Result<(), Failure> {
    WIRES.iter().try_for_each(|wire| {
        let (mut client, mut server) = (brpc_java(java, "peer.Client"), brpc_java(java, "peer.Server"));
        both_ways(run, &mut client, &mut server, &[wire], &["brpc-java", wire])
    })
}

/// Runs the cases of both clients of streams; the Python programs need nothing but Python.
pub(super) fn check_streams(run: &Run<'_>) -> Result<(), Failure> {
    let python = |role: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(run.workspace.root.join("interop/baidu/python/streams.py")).arg(role);
        command
    };
    both_ways(run, &mut python("client"), &mut python("server"), &[], &["streams"])
}

/// Their client calls our server, then our client calls theirs; behind port or address come arguments of their own.
fn both_ways(
    run: &Run<'_>,
    client: &mut Command,
    server: &mut Command,
    theirs: &[&str],
    ours: &[&str],
) -> Result<(), Failure> {
    let our_server = Server::start(&mut Command::new(built_of(run, "interop-baidu", "baidu-server")?))?;
    process::run_within(LIMIT, client.arg(&our_server.port).args(theirs))?;
    drop(our_server);
    let mut our_client = Command::new(built_of(run, "interop-baidu", "baidu-client")?);
    let server = Server::start(server)?;
    process::run_within(LIMIT, our_client.arg(format!("127.0.0.1:{}", server.port)).args(ours))
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

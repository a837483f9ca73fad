//! Tools that people point at a server: `buf curl`, and ghz, which makes load.

use std::path::Path;
use std::process::Command;

use crate::interop::server_command;
use crate::process::{self, Failure, Server};
use crate::steps::Run;

/// Calls that ghz makes, and how many at once.
const CALLS: &str = "2000";
const CALLERS: &str = "20";

/// One call in each dialect of `buf curl`, with the schema by reflection.
pub(super) fn buf_curl(run: &Run<'_>, buf: &Path) -> Result<(), Failure> {
    let server = start(run)?;
    for protocol in ["connect", "grpc", "grpcweb"] {
        for (method, sent, expected) in [
            ("demo.v1.Greeter/Greet", r#"{"name":"Ada"}"#, r#""text":"hello Ada""#),
            ("demo.v1.Greeter/Watch", r#"{"count":3}"#, r#""n":2"#),
            ("demo.v1.Greeter/Sum", r#"{"value":"2"}{"value":"40"}"#, r#""sum":"42""#),
            ("demo.v1.Greeter/Chat", r#"{"text":"one"}"#, r#""text":"ONE""#),
        ] {
            let mut command = Command::new(buf);
            command.args(["curl", "--http2-prior-knowledge", "--protocol", protocol, "--data", sent]);
            let answer = process::output(command.arg(format!("http://127.0.0.1:{}/{method}", server.port)))?;
            let answer: String =
                answer.split_whitespace().collect::<Vec<_>>().join(" ").replace("\": ", "\":");
            println!("buf curl --protocol {protocol} {method}: {answer}");
            if !answer.contains(expected) {
                return Err(Failure::new(format!("{protocol} {method}: {answer} has no {expected}")));
            }
        }
    }
    Ok(())
}

/// Many calls at once, all of which must succeed.
pub(super) fn ghz(run: &Run<'_>, ghz: &Path) -> Result<(), Failure> {
    let server = start(run)?;
    let mut command = Command::new(ghz);
    command.args(["--insecure", "--call", "demo.v1.Greeter/Greet", "--data", r#"{"name":"Ada"}"#]);
    command.args(["--total", CALLS, "--concurrency", CALLERS, "--format", "json"]);
    let report = process::output(command.arg(format!("127.0.0.1:{}", server.port)))?;
    let counted = report.split_once("\"statusCodeDistribution\"").map_or("", |(_, rest)| rest);
    let counted: String =
        counted.split('}').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().concat();
    println!("ghz: calls by status{counted}}}");
    if counted == format!(":{{\"OK\":{CALLS}") {
        return Ok(());
    }
    Err(Failure::new(format!("not all of {CALLS} calls were answered with OK: {counted}")))
}

fn start(run: &Run<'_>) -> Result<Server, Failure> {
    let mut command = Command::new(server_command(run)?);
    Server::start(command.args(["serve", "--listen", "127.0.0.1:0"]))
}

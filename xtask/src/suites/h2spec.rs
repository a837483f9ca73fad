//! h2spec against our server and, where that fails, against grpc-go. No server passes every case: some
//! require a response to frames that a server may ignore. So a case that fails here has to fail with grpc-go,
//! the peer of most callers, in the same run. Only the sections that failed are compared: with grpc-go the
//! whole suite takes more than a minute.

use std::path::Path;
use std::process::Command;

use super::built;
use crate::peers::Peer;
use crate::process::{self, Failure, Server};
use crate::steps::Run;

/// An existing method, so that requests are answered in full.
const PATH: &str = "/grpc.testing.TestService/EmptyCall";

/// How often a case may fail before it has.
const TRIES: usize = 5;

/// A case, with the section of the specification that it checks.
#[derive(Debug, PartialEq, Eq)]
struct Case {
    section: String,
    name: String,
}

/// Runs the suite and compares.
pub(super) fn check(run: &Run<'_>, h2spec: &Path) -> Result<(), Failure> {
    let server = Server::start(&mut Command::new(built(run, "interop-server")?))?;
    let (mut ours, count) = failures(run, h2spec, &server.port, &[])?;
    if count == 0 {
        return Err(Failure::new("h2spec reported no case at all"));
    }
    println!("{} of {count} cases", count - ours.len());
    if ours.is_empty() {
        return Ok(());
    }

    // An error that arrives after the response to its request finds no stream any more. The order is a race
    // of h2spec with the server, so only cases that fail in each run have failed.
    for _ in 1..TRIES {
        let (again, _) = failures(run, h2spec, &server.port, &sections(&ours))?;
        ours.retain(|case| again.contains(case));
        if ours.is_empty() {
            return Ok(());
        }
    }
    drop(server);

    let program = run.peers.path(Peer::GrpcGoServer)?;
    let peer = Server::start_on_free_port(|port| {
        let mut command = Command::new(&program);
        command.arg(format!("-port={port}"));
        command
    })?;
    let (theirs, _) = failures(run, h2spec, &peer.port, &sections(&ours))?;
    for case in &ours {
        let also = if theirs.contains(case) { "as with grpc-go" } else { "NOT with grpc-go" };
        println!("failed {also}: {}: {}", case.section, case.name);
    }
    let worse = ours.iter().filter(|case| !theirs.contains(case)).count();
    if worse == 0 { Ok(()) } else { Err(Failure::new(format!("{worse} cases fail that grpc-go passes"))) }
}

/// The sections that these cases are of.
fn sections(cases: &[Case]) -> Vec<&str> {
    let mut sections: Vec<&str> = cases.iter().map(|case| case.section.as_str()).collect();
    sections.dedup();
    sections
}

/// The cases that failed, and how many there were.
fn failures(
    run: &Run<'_>,
    h2spec: &Path,
    port: &str,
    sections: &[&str],
) -> Result<(Vec<Case>, usize), Failure> {
    let report = run.workspace.built()?.join(format!("h2spec-{port}.xml"));
    let mut command = Command::new(h2spec);
    command.args(["--host", "127.0.0.1", "--port", port, "--path", PATH, "--timeout", "3"]);
    command.arg("--junit-report").arg(&report).args(sections);
    // It says by its exit code that a case failed, which is not yet a failure here.
    let _ = process::output(&mut command);
    let text = std::fs::read_to_string(&report)
        .map_err(|error| Failure::new(format!("h2spec wrote no report: {}: {error}", report.display())))?;
    // A report of an earlier run must not be taken for one of this.
    let _ = std::fs::remove_file(&report);
    Ok(read(&text))
}

/// Reads the report, whose elements begin on lines of their own.
fn read(report: &str) -> (Vec<Case>, usize) {
    let (mut failed, mut count, mut last) = (Vec::new(), 0, "");
    for line in report.lines().map(str::trim) {
        if line.starts_with("<testcase ") {
            count += 1;
            last = line;
        }
        if line.starts_with("<failure") || line.starts_with("<error") {
            failed.push(Case { section: attribute(last, "package"), name: attribute(last, "classname") });
        }
    }
    (failed, count)
}

fn attribute(element: &str, name: &str) -> String {
    let value = element.split_once(&format!(" {name}=\"")).map_or("", |(_, rest)| rest);
    value.split('"').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = r#"
            <testsuite name="3.5. Preface" package="http2/3.5" id="3.5" tests="2">
              <testcase package="http2/3.5" classname="Sends one" time="0.1"></testcase>
              <testcase package="http2/3.5" classname="Sends other" time="0.1">
                <error>Connection closed
            Error: EOF</error>
              </testcase>
            </testsuite>"#;
        let (failed, count) = read(report);
        assert_eq!(count, 2);
        assert_eq!(failed, [Case { section: "http2/3.5".into(), name: "Sends other".into() }]);
    }
}

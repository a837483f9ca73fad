//! Every wire at once on one port for a minute: our clients, and those of others in between.

use crate::peers::Peer;
use crate::process::{self, Failure};
use crate::steps::{Outcome, Run};

/// How long all of them call.
const SECONDS: &str = "60";

/// In seconds; some programs make thousands of calls in one run, on a machine that has much else to do.
const PROGRAM_LIMIT: &str = "120";

/// Requests of curl and grpcurl with the expected responses.
const CURL: &str = r#"test "$("$0" -sSf -H content-type:application/json -d '{"n":7}' $1)" = '{"n":7}'"#;
const GRPCURL: &str = concat!(
    r#"answer=$("$0" -plaintext -import-path "$1" -proto mirror.proto -format text -d 'number: 7' $2 test.Mirror/Show)"#,
    r#"; test "$answer" = 'number: 7'"#
);

/// Skipped if a foreign client is missing, after the others have called.
pub(super) fn check(run: &Run<'_>) -> Outcome {
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for program in programs(run) {
        match program {
            Ok(words) => {
                lines.push([vec!["timeout".into(), PROGRAM_LIMIT.into()], words].concat().join("\t"));
            }
            Err(failure) => missing.push(failure.to_string()),
        }
    }
    let mut command = run.workspace.cargo_command();
    // Built as in the step `test`, which does not take that long.
    command.args(["test", "--workspace", "--test", "every_wire", "--", "--nocapture"]);
    command.env("EVERY_WIRE_SECONDS", SECONDS).env("EVERY_WIRE_PROGRAMS", lines.join("\n"));
    match process::run(&mut command) {
        Ok(()) if !missing.is_empty() => Outcome::Skipped(missing.join("; ")),
        ended => ended.into(),
    }
}

/// Programs that call `test.Mirror/Show`, which answers with what it gets.
fn programs(run: &Run<'_>) -> [Result<Vec<String>, Failure>; 9] {
    let interop = run.workspace.root.join("interop");
    let with = |peer, words: &dyn Fn(&str) -> Vec<String>| {
        run.peers.path(peer).map(|path| words(&path.display().to_string()))
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let go = |peer, address| with(peer, &|program| words(&[program, "mirror", address]));
    let python = |peer, script| {
        let script = interop.join(script).display().to_string();
        with(peer, &|python| words(&[python, "-B", &script, "PORT"]))
    };
    let protos = interop.join("python").display().to_string();
    [
        go(Peer::Rpcx, "tcp@ADDRESS"),
        go(Peer::Rpcx, "http@ADDRESS"),
        go(Peer::Erpc, "ADDRESS"),
        python(Peer::Kiss, "kiss/python/mirror.py"),
        python(Peer::Thrift, "thrift/python/mirror.py"),
        python(Peer::Python, "python/mirror.py"),
        with(Peer::Jprotobuf, &|folder| {
            words(&["java", "-cp", &format!("{folder}/classes:{folder}/lib/*"), "peer.Mirror", "PORT"])
        }),
        with(Peer::Curl, &|program| words(&["sh", "-c", CURL, program, "http://ADDRESS/test.Mirror/Show"])),
        with(Peer::Grpcurl, &|program| words(&["sh", "-c", GRPCURL, program, &protos, "ADDRESS"])),
    ]
}

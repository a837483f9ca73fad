//! The steps of `cargo xtask test`, and the run with its summary.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::interop::{self, Suite};
use crate::peers::Peers;
use crate::process::{self, Failure, Workspace};
use crate::{examples, gates, packages, platforms, suites, tidy, transcript, tutorial};

/// One kind of test.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    about: &'static str,
    check: fn(&Run<'_>) -> Outcome,
}

/// State that the steps of one run share.
pub(crate) struct Run<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) peers: Peers,
}

/// How a step ended.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Failed(String),
    Passed,
    /// Passed when it ran once more; has the reason of the failure before.
    PassedAtSecondTry(String),
    /// Could not run here; has the name of the missing program.
    Skipped(String),
}

impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(failure) => Self::Failed(failure.to_string()),
        }
    }
}

/// How long a well-behaved caller calls beside each strategy of a hostile peer.
const ADVERSARY_MILLIS: &str = "20";

/// The steps of `cargo xtask quick`: they need no foreign program and no network.
pub(crate) const QUICK: &str = "tidy,fmt,clippy,test";

/// Every step, the quickest to fail first.
pub(crate) const ALL: &[Step] = &[
    Step {
        name: "tidy",
        about: "rules that no compiler checks",
        check: |run| {
            if tidy::run(run.workspace) {
                Outcome::Passed
            } else {
                Outcome::Failed("see the complaints above".into())
            }
        },
    },
    Step {
        name: "fmt",
        about: "formatting",
        check: |run| run.workspace.cargo(&["fmt", "--all", "--check"]).into(),
    },
    Step { name: "clippy", about: "lints of every target; a warning is an error", check: clippy },
    Step { name: "doc", about: "documentation of the libraries; a warning is an error", check: doc },
    Step {
        name: "test",
        about: "unit, integration and property tests",
        check: |run| {
            run.workspace
                .cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"])
                .into()
        },
    },
    Step {
        name: "doctest",
        about: "the code in the documentation",
        check: |run| run.workspace.cargo(&["test", "--workspace", "--doc"]).into(),
    },
    Step {
        name: "packages",
        about: "each product crate can be packed for a registry",
        check: |run| packages::pack(run).into(),
    },
    Step {
        name: "deny",
        about: "licences, sources and second versions of dependencies, as deny.toml allows them",
        check: |run| packages::deny(run),
    },
    Step {
        name: "features",
        about: "each library of programs without features, with each feature alone, and with all",
        check: |run| packages::features(run).into(),
    },
    Step {
        name: "msrv",
        about: "the product crates with the oldest compiler that their manifests promise",
        check: |run| packages::oldest_compiler(run),
    },
    Step {
        name: "platforms",
        about: "what compiles for macOS and Windows, and the error of what does not",
        check: platforms::check,
    },
    Step {
        name: "fuzz",
        about: "every fuzz target compiles, with the dependencies that their lock file has",
        check: |run| run.workspace.cargo(&["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"]).into(),
    },
    Step {
        name: "examples",
        about: "every example, run to its end",
        check: |run| examples::run_all(run.workspace).into(),
    },
    Step {
        name: "tutorial",
        about: "every file and every command of docs/start.md, in a crate outside the workspace",
        check: |run| tutorial::follow(run).into(),
    },
    Step {
        name: "gates",
        about: "instructions, system calls, clock readings and allocations of a call, under their bounds",
        check: gates::check,
    },
    Step {
        name: "every-wire",
        about: "every wire at once on one port for a minute, foreign clients too, among silent connections and slow ones",
        check: suites::every_wire,
    },
    Step {
        name: "adversary",
        about: "hostile peers of every wire beside a well-behaved caller, and hostile servers of every client",
        check: |run| {
            let mut command = run.workspace.cargo_command();
            // Built as in the step `test`; one test on each of two cores.
            command.args([
                "test",
                "--workspace",
                "--test",
                "adversary",
                "--",
                "--nocapture",
                "--test-threads=2",
            ]);
            process::run(command.env("ADVERSARY_MILLIS", ADVERSARY_MILLIS)).into()
        },
    },
    Step {
        name: "soak",
        about: "200 subscribers of ZeroMQ, Redis, NATS, event streams and the native wire that come, stall and go",
        check: |run| {
            let mut command = run.workspace.cargo_command();
            command.args(["test", "--workspace", "--test", "soak_subscribers", "--", "--nocapture"]);
            process::run(command.env("SOAK_SECONDS", "30").env("SOAK_SUBSCRIBERS", "200")).into()
        },
    },
    Step { name: "peers", about: "the foreign programs are installed", check: peers },
    Step {
        name: "interop-admin",
        about: "the admin pages from Python, and their metrics through the parsers of Prometheus",
        check: |run| interop::run(run, Suite::Admin),
    },
    Step {
        name: "registries",
        about: "every registry against its real server: Consul, DNS, etcd, Redis, ZooKeeper",
        check: |run| suites::registries(run),
    },
    Step {
        name: "engines",
        about: "every engine of a bus against its real server: Kafka, NATS, Redis",
        check: |run| suites::engines(run),
    },
    Step {
        name: "interop-call",
        about: "`switchboard call` to a server of Python grpcio, with and without reflection",
        check: |run| interop::run(run, Suite::Call),
    },
    Step {
        name: "interop-grpc",
        about: "gRPC from Python: every kind of call, statuses, metadata, drain",
        check: |run| interop::run(run, Suite::Grpc),
    },
    Step {
        name: "interop-grpc-go",
        about: "the interop cases of gRPC, from its Go client",
        check: |run| suites::grpc_go(run),
    },
    Step {
        name: "interop-grpc-go-retry",
        about: "a grpc-go client with a retry policy: attempts, and pauses that the server requests",
        check: |run| suites::grpc_go_retry(run),
    },
    Step {
        name: "interop-grpc-go-server",
        about: "the interop cases of gRPC, from our client to its Go server",
        check: |run| suites::grpc_go_server(run),
    },
    Step {
        name: "interop-grpc-python",
        about: "the interop cases of gRPC, from our client to a server of Python grpcio",
        check: |run| interop::run(run, Suite::Client),
    },
    Step {
        name: "interop-grpcurl",
        about: "gRPC from grpcurl: with schema files and by reflection",
        check: |run| interop::run(run, Suite::Grpcurl),
    },
    Step {
        name: "interop-evans",
        about: "gRPC from evans, by reflection",
        check: |run| interop::run(run, Suite::Evans),
    },
    Step {
        name: "interop-grpcui",
        about: "gRPC from the web page grpcui, by reflection",
        check: |run| interop::run(run, Suite::Grpcui),
    },
    Step {
        name: "interop-http",
        about: "Connect and HTTP/JSON from curl, OpenAPI, gRPC-Web, raw and hostile connections",
        check: |run| interop::run(run, Suite::Http),
    },
    Step {
        name: "interop-js",
        about: "gRPC, gRPC-Web and Connect from the clients of Node programs",
        check: |run| interop::run_js(run),
    },
    Step {
        name: "interop-tools",
        about: "calls and load from buf curl and ghz",
        check: |run| suites::tools(run),
    },
    Step {
        name: "interop-jsonrpc",
        about: "JSON-RPC from jayson and Python's jsonrpcclient, over HTTP, TCP and WebSocket",
        check: |run| interop::run(run, Suite::JsonRpc),
    },
    Step {
        name: "interop-native",
        about: "the native wire from a Python client that was written from its document",
        check: |run| interop::run(run, Suite::Native),
    },
    Step {
        name: "interop-baidu",
        about: "baidu_std with Java's jprotobuf-rpc, client and server: attachments, gzip, log ids, credentials, errors",
        check: |run| suites::baidu(run),
    },
    Step {
        name: "interop-brpc-java",
        about: "baidu_std, hulu and sofa with Baidu's brpc-java, client and server: compression, attachments, pairs, errors",
        check: |run| suites::brpc_java(run),
    },
    Step {
        name: "interop-baidu-streams",
        about: "streaming RPC of baidu_std with Python programs that were written from its description, client and server",
        check: |run| suites::baidu_streams(run),
    },
    Step {
        name: "interop-bus",
        about: "`switchboard bus` with nats-server, redis-server and libzmq: pub, sub, req, rep, push, pull, proxy, refusals",
        check: |run| suites::bus(run),
    },
    Step {
        name: "interop-events",
        about: "event streams of a bus with curl, Chromium, Node's eventsource and Python's websockets, through kills of the server",
        check: |run| suites::events(run),
    },
    Step {
        name: "interop-kiss",
        about: "kiss-rpc and FlatBuffers in gRPC with Python programs that were written from the document, both directions",
        check: |run| suites::kiss(run),
    },
    Step {
        name: "interop-mqtt",
        about: "the plugin for MQTT with paho-mqtt, mosquitto_pub and mosquitto_sub, and scripts that the broker mosquitto answers",
        check: |run| suites::mqtt(run),
    },
    Step {
        name: "interop-nats",
        about: "the plugin for NATS with nats-py, transport-node and the tool nats: messages, queue groups, calls, TLS, WebSockets",
        check: |run| suites::nats(run),
    },
    Step {
        name: "interop-one-topic",
        about: "one topic with subscribers of native, gRPC, Connect, JSON-RPC, SSE, libzmq, nats-py and redis-py at the same time",
        check: |run| suites::one_topic(run),
    },
    Step {
        name: "interop-thrift",
        about: "the cross tests of Thrift with its Python library, both directions: binary, compact, THeader",
        check: |run| suites::thrift(run),
    },
    Step {
        name: "interop-zmtp",
        about: "libzmq through pyzmq: the ZMTP machine and our sockets in every pair of socket types; topics of a server; jszmq",
        check: |run| suites::zmtp(run),
    },
    Step {
        name: "interop-patterns",
        about: "patterns with programs of libzmq through pyzmq, and with workers of majortomo, in both directions",
        check: |run| suites::patterns(run),
    },
    Step {
        name: "interop-redis",
        about: "redis-py, redis-cli, redis-benchmark and ioredis: RESP2 and RESP3, patterns, calls, credentials, reconnects",
        check: |run| suites::redis(run),
    },
    Step {
        name: "interop-centrifuge",
        about: "the library centrifuge in Node, JSON and Protobuf: publications, presence, calls, recovery over a restart, tokens",
        check: |run| suites::centrifuge(run),
    },
    Step {
        name: "interop-goim",
        about: "devices of goim and im-cloud in Python on TCP and WebSockets, and their HTTP interfaces, byte for byte",
        check: |run| suites::goim(run),
    },
    Step {
        name: "conformance-client",
        about: "every case of Connect's suite for clients: Connect, gRPC, gRPC-Web on HTTP/1.1 and HTTP/2, with TLS and without",
        check: |run| suites::conformance_client(run),
    },
    Step {
        name: "conformance-server",
        about: "every case of Connect's suite: Connect, gRPC, gRPC-Web on HTTP/1.1 and HTTP/2, with TLS and without",
        check: |run| suites::conformance_server(run),
    },
    Step {
        name: "h2spec",
        about: "HTTP/2 as its suite checks it, beside grpc-go",
        check: |run| suites::h2spec(run),
    },
    Step {
        name: "interop-ws",
        about: "WebSocket from Python's websockets and Node's ws, and the client for browsers",
        check: |run| interop::run(run, Suite::WebSocket),
    },
    Step {
        name: "interop-browser",
        about: "the page of the demo in Chromium: Connect, gRPC-Web, the native wire and JSON-RPC from its scripts",
        check: |run| interop::run(run, Suite::Browser),
    },
    Step {
        name: "interop-rpcx",
        about: "rpcx in both directions: every codec, compression, metadata, errors, heartbeats, on each network",
        check: |run| suites::rpcx(run),
    },
    Step {
        name: "proxy",
        about: "`switchboard proxy` between grpcurl or rpcx's Go client and servers of ours and of rpcx",
        check: |run| interop::run(run, Suite::Proxy),
    },
    Step {
        name: "interop-erpc",
        about: "eRPC in both directions: its three framings, gzip filter, metadata, errors, pushes, credentials, heartbeats",
        check: |run| suites::erpc(run),
    },
    Step {
        name: "interop-tls",
        about: "grpcio, grpcurl, curl and OpenSSL inside TLS, and a reload",
        check: |run| interop::run(run, Suite::Tls),
    },
];

/// The steps with these names, comma separated, in the order in which they run.
///
/// # Errors
///
/// Names the first that does not exist.
pub(crate) fn select(names: &str) -> Result<Vec<Step>, String> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|step| step.name != **name)) {
        return Err(format!("no step is called `{unknown}`: see `cargo xtask test --list`"));
    }
    Ok(ALL.iter().filter(|step| names.contains(&step.name)).copied().collect())
}

/// Prints the steps in the order in which they run.
pub(crate) fn print_list() {
    for step in ALL {
        println!("{:<22} {}", step.name, step.about);
    }
}

/// Runs the steps one after the other, whatever fails, and prints a summary.
///
/// In CI a step has one line, and its output below that only if it fails; elsewhere people watch what it does.
/// Returns whether the run as a whole is good. The last line is `N passed, N failed`, counted in steps.
pub(crate) fn run(workspace: &Workspace, steps: &[Step]) -> bool {
    let is_ci = process::is_ci();
    let run = Run { workspace, peers: Peers::new(workspace) };
    if is_ci {
        println!("{HEADING}");
    }
    let mut finished = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let started = Instant::now();
        let mut output = String::new();
        let outcome = if is_ci {
            print!("{:<22}  ", step.name);
            // Readers of the log of a machine see which step runs now.
            let _ = std::io::stdout().flush();
            transcript::run(workspace, step, &mut output)
        } else {
            println!("\n==> [{}/{}] {}: {}", index + 1, steps.len(), step.name, step.about);
            (step.check)(&run)
        };
        let outcome = second_try(step, outcome, || {
            if is_ci { transcript::run(workspace, step, &mut output) } else { (step.check)(&run) }
        });
        let step = Finished { name: step.name, outcome, took: started.elapsed() };
        if is_ci {
            println!("{}{output}", step.result());
        } else {
            println!("<== {} {} in {:.1} s", step.name, word(&step.outcome), step.took.as_secs_f64());
        }
        finished.push(step);
    }
    let summary = Summary::of(&finished, is_ci);
    print!("\n{}", summary.text);
    summary.failed == 0
}

/// Runs a failed step once more if it needs a foreign program: those fail for reasons of their own, such as a port that
/// another process took. The failure is reported with the result, so that its cause is found.
fn second_try(step: &Step, outcome: Outcome, check: impl FnOnce() -> Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(first) if needs_foreign_programs(step) => match check() {
            Outcome::Passed => Outcome::PassedAtSecondTry(first),
            Outcome::Failed(second) => Outcome::Failed(format!("{second}; before that: {first}")),
            _ => Outcome::Failed(first),
        },
        outcome => outcome,
    }
}

/// The steps after `peers` run foreign programs.
fn needs_foreign_programs(step: &Step) -> bool {
    ALL.iter().skip_while(|other| other.name != "peers").skip(1).any(|other| other.name == step.name)
}

/// Runs one step in this process, for [`transcript::run`] in another.
pub(crate) fn run_one(workspace: &Workspace, selected: &[Step]) -> ExitCode {
    let run = Run { workspace, peers: Peers::new(workspace) };
    selected.iter().map(|step| transcript::exit(&(step.check)(&run))).next().unwrap_or(ExitCode::FAILURE)
}

const HEADING: &str = "step                    result      seconds";

struct Finished {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

impl Finished {
    /// The columns of [`HEADING`] after the first.
    fn result(&self) -> String {
        format!("{:<8}  {:>9.1}", word(&self.outcome), self.took.as_secs_f64())
    }
}

struct Summary {
    text: String,
    failed: usize,
}

impl Summary {
    /// A skipped step counts as failed in CI and as neither elsewhere; in CI the lines of the table stand already.
    fn of(finished: &[Finished], is_ci: bool) -> Self {
        let mut text = String::new();
        let mut line = |content: &str| {
            text.push_str(content);
            text.push('\n');
        };
        if !is_ci {
            line(HEADING);
            finished.iter().for_each(|step| line(&format!("{:<22}  {}", step.name, step.result())));
        }
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for step in finished {
            match &step.outcome {
                Outcome::Passed => passed += 1,
                Outcome::PassedAtSecondTry(reason) => {
                    passed += 1;
                    line(&format!("PASSED AT THE SECOND TRY {}: {reason}", step.name));
                }
                Outcome::Failed(reason) => {
                    failed += 1;
                    line(&format!("FAILED  {}: {reason}", step.name));
                }
                Outcome::Skipped(reason) => {
                    skipped += 1;
                    line(&format!("SKIPPED {}: {reason}", step.name));
                }
            }
        }
        if skipped > 0 {
            line(&format!("{skipped} SKIPPED: this run proves nothing about them"));
        }
        if is_ci {
            failed += skipped;
        }
        line(&format!("{passed} passed, {failed} failed"));
        Self { text, failed }
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Failed(_) => "FAILED",
        Outcome::Passed => "passed",
        Outcome::PassedAtSecondTry(_) => "passed at the second try",
        Outcome::Skipped(_) => "SKIPPED",
    }
}

fn clippy(run: &Run<'_>) -> Outcome {
    let clippy = |which: &[&str]| {
        let arguments = [&["clippy"], which, &["--", "-D", "warnings"]].concat();
        run.workspace.cargo(&arguments)
    };
    // Nothing else in the workspace enables most registries, or the framework without optional wires.
    clippy(&["--workspace", "--all-targets"])
        .and_then(|()| clippy(&["--package", "switchboard-registry", "--all-targets", "--all-features"]))
        .and_then(|()| clippy(&["--package", "switchboard-broker", "--all-targets", "--all-features"]))
        .and_then(|()| clippy(&["--package", "switchboard", "--lib", "--no-default-features"]))
        .into()
}

fn doc(run: &Run<'_>) -> Outcome {
    // Libraries only: the binary has the name of the main library; their pages would overwrite each other.
    let mut command = run.workspace.cargo_command();
    command.args(["doc", "--workspace", "--lib", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut command).into()
}

fn peers(run: &Run<'_>) -> Outcome {
    let missing = run.peers.install_all();
    if missing.is_empty() { Outcome::Passed } else { Outcome::Skipped(missing.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(name: &'static str, outcome: Outcome) -> Finished {
        Finished { name, outcome, took: Duration::from_millis(1500) }
    }

    #[test]
    fn the_last_line_counts_steps() {
        let steps = [finished("fmt", Outcome::Passed), finished("test", Outcome::Failed("no".into()))];
        let summary = Summary::of(&steps, false);
        assert_eq!(summary.text.lines().last(), Some("1 passed, 1 failed"));
        assert!(summary.text.contains("FAILED  test: no"), "{}", summary.text);
    }

    #[test]
    fn a_skipped_step_is_named_and_fails_only_in_ci() {
        let steps = [finished("peers", Outcome::Skipped("grpcurl: no go".into()))];
        for (is_ci, last) in [(false, "0 passed, 0 failed"), (true, "0 passed, 1 failed")] {
            let summary = Summary::of(&steps, is_ci);
            assert!(summary.text.contains("SKIPPED peers: grpcurl: no go"), "{}", summary.text);
            assert_eq!(summary.text.lines().last(), Some(last));
        }
    }

    #[test]
    fn only_steps_with_foreign_programs_run_twice() {
        let failed = || Outcome::Failed("the port was taken".into());
        let step = |name: &str| select(name).unwrap()[0];
        for name in ["registries", "interop-grpc"] {
            let outcome = second_try(&step(name), failed(), || Outcome::Passed);
            let summary = Summary::of(&[finished(name, outcome)], true);
            assert!(summary.text.contains("SECOND TRY"), "{}", summary.text);
            assert!(summary.text.contains("the port was taken"), "{}", summary.text);
            assert_eq!(summary.text.lines().last(), Some("1 passed, 0 failed"));
            let twice = second_try(&step(name), failed(), || Outcome::Failed("it hangs".into()));
            assert!(
                matches!(&twice, Outcome::Failed(why) if why == "it hangs; before that: the port was taken"),
                "{twice:?}"
            );
            let skipped = second_try(&step(name), failed(), || Outcome::Skipped("no server".into()));
            assert!(matches!(skipped, Outcome::Failed(_)), "{skipped:?}");
        }
        let tests = second_try(&step("test"), failed(), || panic!("it runs once"));
        assert!(matches!(tests, Outcome::Failed(_)), "{tests:?}");
    }

    #[test]
    fn steps_are_selected_by_name_and_keep_their_order() {
        let selected = select("test,fmt").unwrap();
        assert_eq!(selected.iter().map(|step| step.name).collect::<Vec<_>>(), ["fmt", "test"]);
        assert_eq!(select(QUICK).unwrap().len(), QUICK.split(',').count());
        assert!(select("fmt,nope").is_err_and(|message| message.contains("`nope`")));
    }
}

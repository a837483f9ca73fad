//! rpcx's own plug-ins, in a program of `interop/rpcx-registry`.

use std::{path::PathBuf, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// The program, and the registry that it uses.
pub(crate) struct Plugins {
    program: PathBuf,
    kind: &'static str,
    place: String,
}

/// A run of it; ended with its owner.
pub(crate) struct Plugin {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

const LIMIT: Duration = Duration::from_secs(30);

impl Plugins {
    /// The program that `SWITCHBOARD_RPCX_REGISTRY` names, or a line that says how to have it.
    pub(crate) fn of(kind: &'static str, place: &str) -> Option<Plugins> {
        let Some(program) = std::env::var_os("SWITCHBOARD_RPCX_REGISTRY") else {
            skip("SWITCHBOARD_RPCX_REGISTRY is not set: run `cargo xtask test --only registries`");
            return None;
        };
        Some(Plugins { program: program.into(), kind, place: place.to_owned() })
    }

    /// A server's, which has registered.
    pub(crate) async fn register(&self, base: &str, service: &str, address: &str, meta: &str) -> Plugin {
        let mut plugin = self.start(&["register", self.kind, &self.place, base, service, address, meta]);
        assert_eq!(plugin.line().await, "registered");
        plugin
    }

    /// A client's.
    pub(crate) fn discover(&self, base: &str, service: &str) -> Plugin {
        self.start(&["discover", self.kind, &self.place, base, service])
    }

    fn start(&self, arguments: &[&str]) -> Plugin {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Plugin { input: child.stdin.take(), child, output }
    }
}

/// Says why a test is left out, where none may be missing by failing it.
pub(crate) fn skip(why: &str) {
    let required = std::env::var_os("SWITCHBOARD_REGISTRIES").is_some_and(|value| value == "required");
    assert!(!required, "SKIPPED: {why}");
    eprintln!("SKIPPED: {why}");
}

impl Plugin {
    /// The next line.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(LIMIT, self.output.next_line()).await.expect("it writes in time");
        line.expect("it can be read").expect("it goes on")
    }

    /// Reads until this line.
    pub(crate) async fn until(&mut self, wanted: &str) {
        let mut last = String::new();
        let reading = async {
            while let Some(line) = self.output.next_line().await.expect("it can be read") {
                if line == wanted {
                    return;
                }
                last = line;
            }
        };
        let reached = timeout(LIMIT, reading).await;
        assert!(reached.is_ok(), "{wanted:?} does not come, but {last:?}");
    }

    /// Ends it as it wishes to be ended.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        let ended = timeout(LIMIT, self.child.wait()).await.expect("it ends in time");
        assert!(ended.expect("it is our child").success());
    }
}

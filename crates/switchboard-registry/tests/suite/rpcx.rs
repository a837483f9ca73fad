//! rpcx's own plug-ins, in a program of `interop/rpcx-registry`.

use super::process::named;
use std::{path::PathBuf, process::Stdio, time::Duration};
use switchboard::discover::{Instance, State};
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

/// A run of the program; it is killed when this is dropped.
pub(crate) struct Plugin {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

const LIMIT: Duration = Duration::from_secs(30);

impl Plugins {
    /// Finds the program that `SWITCHBOARD_RPCX_REGISTRY` names, or prints a line that says how to set it.
    pub(crate) fn of(kind: &'static str, place: &str) -> Option<Plugins> {
        let program = named("SWITCHBOARD_RPCX_REGISTRY")?;
        Some(Plugins { program, kind, place: place.to_owned() })
    }

    /// Starts a server of theirs, which has registered when this returns.
    pub(crate) async fn register(&self, base: &str, service: &str, address: &str, meta: &str) -> Plugin {
        let mut plugin = self.start(&["register", self.kind, &self.place, base, service, address, meta]);
        assert_eq!(plugin.line().await, "registered");
        plugin
    }

    /// Starts a client of theirs.
    pub(crate) fn discover(&self, base: &str, service: &str) -> Plugin {
        self.start(&["discover", self.kind, &self.place, base, service])
    }

    /// Their client for Redis lists keys that begin with the name of the service, without checking that the name ends
    /// there. It also does not notice when nothing is left.
    fn takes_twins_for_one(&self) -> bool {
        self.kind == "redis"
    }

    fn start(&self, arguments: &[&str]) -> Plugin {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Plugin { input: child.stdin.take(), child, output }
    }
}

/// Runs servers and clients of theirs and of ours in one key-value store, whose address with the base path is `url`:
/// each client sees servers join, change and leave, and theirs sees that one of ours crashes. `armed` returns once
/// their client is notified of changes, because it may miss one before that.
pub(crate) async fn both_ways(plugins: &Plugins, base: &str, url: &str, armed: impl AsyncFn()) {
    let registry = switchboard_registry::connect(url).expect("a good address");
    let mut watch = registry.watch("Arith");
    assert_eq!(watch.changed().await.instances, []);

    let server = plugins.register(base, "Arith", "tcp@10.0.0.7:8972", "group=g&weight=2").await;
    // It has the prefix of the other.
    let twin = match plugins.takes_twins_for_one() {
        false => Some(plugins.register(base, "Arithmetic", "tcp@10.0.0.8:8972", "").await),
        true => None,
    };
    let theirs = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("g").weight(200);
    super::until_is(&mut watch, |watch| watch.latest().instances == [theirs.clone()]).await;
    // Some of their clients do not start if the service never had an instance.
    let mut discovery = plugins.discover(base, "Arith");
    let found = "tcp@10.0.0.7:8972?group=g&weight=2";
    let both = format!("{found} tcp@10.0.0.9:80?zone=z");
    discovery.until(found).await;
    armed().await;

    let ours = Instance::new("Arith", "tcp://10.0.0.9:80?wire=rpcx").zone("z");
    let lease = registry.register(ours.clone()).await.expect("the registry takes it");
    discovery.until(&both).await;
    armed().await;
    lease.replace(ours.clone().state(State::Draining)).await.expect("the registry takes it");
    let inactive = "tcp@10.0.0.9:80?state=inactive&switchboard.state=draining&zone=z";
    discovery.until(&format!("{found} {inactive}")).await;
    armed().await;
    lease.end().await.expect("the registry takes it");
    discovery.until(found).await;
    armed().await;

    let process = switchboard_registry::connect(url).expect("a good address");
    let lease = process.register(ours).await.expect("the registry takes it");
    discovery.until(&both).await;
    armed().await;
    lease.kill();
    drop(process);
    discovery.until(found).await;
    armed().await;

    server.end().await;
    super::until(&mut watch, "").await;
    if let Some(twin) = twin {
        discovery.until("").await;
        twin.end().await;
    }
}

/// Checks that we see the crash of a server of theirs.
pub(crate) async fn their_crash(plugins: &Plugins, base: &str, url: &str) {
    let mut watch = switchboard_registry::connect(url).expect("a good address").watch("Crash");
    let server = plugins.register(base, "Crash", "tcp@10.0.0.7:8972", "").await;
    super::until(&mut watch, "tcp://10.0.0.7:8972?wire=rpcx").await;
    server.kill().await;
    super::until(&mut watch, "").await;
}

impl Plugin {
    /// Returns the next line.
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
        assert!(reached.is_ok(), "{wanted:?} did not appear; the last line is {last:?}");
    }

    /// Kills the program.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is our child");
    }

    /// Ends the program regularly.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        let ended = timeout(LIMIT, self.child.wait()).await.expect("it ends in time");
        assert!(ended.expect("it is our child").success());
    }
}

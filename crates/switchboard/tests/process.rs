//! A server that is a process of its own, killed by SIGKILL under load: every call ends with a correct
//! statement whether it may have begun, and callers reconnect to the next server at the same address.
//! The server is this test binary again, started as a server by an environment variable.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    collections::{HashMap, HashSet},
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use support::{raw::soon, *};
use switchboard::{
    Call, Channel, ClientMethod, Code, Kind, MethodInfo, Origin, Reply, Result, Retry, Server, Service,
    ServiceInfo, Status,
    codec::serde::{decode, encode},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

/// Environment variables of the child: its address, and the file for the numbers of its calls.
const ADDRESS: &str = "SWITCHBOARD_TEST_ADDRESS";
const LEDGER: &str = "SWITCHBOARD_TEST_LEDGER";
const CALLERS: u64 = 300;
const HANGING: u64 = 50;

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Ledger",
    methods: &[
        MethodInfo::new("Note", Kind::Unary),
        MethodInfo::new("Hang", Kind::Unary),
        MethodInfo::new("UntilHanging", Kind::Unary),
    ],
    descriptor: &[],
};
static NOTE: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Ledger/Note" };
static HANG: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Ledger/Hang" };
static UNTIL_HANGING: ClientMethod =
    ClientMethod { service: &INFO, index: 2, path: "test.Ledger/UntilHanging" };

/// Writes the number of each call to a file first; the file outlives the process.
struct Ledger {
    file: File,
    hanging: watch::Sender<u64>,
}

impl Service for Ledger {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, method) = (call.codec(), call.method());
        let (bytes, cx) = call.into_one()?;
        let number: u64 = decode(codec, bytes)?;
        if method == 2 {
            let enough = self.hanging.subscribe().wait_for(|hanging| *hanging >= number).await.map(drop);
            enough.map_err(|_| Status::internal("the service has ended"))?;
            return Ok(Reply::one(encode(&number, codec)?, cx));
        }
        (&self.file).write_all(&number.to_le_bytes()).map_err(|error| Status::internal(error.to_string()))?;
        if method == 1 {
            self.hanging.send_modify(|hanging| *hanging += 1);
            std::future::pending::<()>().await;
        }
        if number.is_multiple_of(2) {
            // Half of the calls are parked.
            tokio::task::yield_now().await;
        }
        Ok(Reply::one(encode(&number, codec)?, cx))
    }
}

/// Not a test by itself: the server, when the environment says so, until it is killed or its parent is gone.
#[test]
fn child() {
    let (Ok(address), Ok(ledger)) = (std::env::var(ADDRESS), std::env::var(LEDGER)) else { return };
    switchboard::run(async move {
        let file = OpenOptions::new().append(true).create(true).open(ledger).unwrap();
        let ledger = Ledger { file, hanging: watch::Sender::new(0) };
        let server = Server::new().add(ledger).add(Probe::default());
        let running = server.listen(address).start().await.expect("start");
        println!("\nserving {}", running.url());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    });
}

/// A server process; dropping it kills it.
struct Peer {
    child: Child,
    url: String,
}

impl Peer {
    fn start(address: &str, ledger: &Path) -> Peer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
            .env(ADDRESS, address)
            .env(LEDGER, ledger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        Peer { child, url: url.expect("the child serves") }
    }

    /// SIGKILL, by its process id.
    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Outcomes of the callers, each call under its own number.
#[derive(Default)]
struct Load {
    next: AtomicU64,
    /// Answers of each caller.
    answered: Vec<AtomicU64>,
    changed: Notify,
}

impl Load {
    /// Waits until every caller has `more` answers than now.
    async fn goes_on(&self, more: u64) {
        let before: Vec<_> = self.answered.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = self.answered.iter().map(|count| count.load(Ordering::SeqCst));
            if now.zip(&before).all(|(now, before)| now >= before + more) {
                return;
            }
            changed.await;
        }
    }
}

type Outcomes = Vec<(u64, Result<u64>)>;

/// Calls without a pause until `stop`.
fn caller(at: usize, channel: Channel, load: Arc<Load>, stop: watch::Receiver<bool>) -> JoinHandle<Outcomes> {
    tokio::spawn(async move {
        let mut outcomes = Vec::new();
        while !*stop.borrow() {
            let number = load.next.fetch_add(1, Ordering::SeqCst);
            let outcome = soon(ask::<_, u64>(&channel, &NOTE, &number)).await;
            if outcome.is_ok() {
                load.answered[at].fetch_add(1, Ordering::SeqCst);
                load.changed.notify_waiters();
            } else {
                // A pause: while no server listens, connections are refused at once.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            outcomes.push((number, outcome));
        }
        outcomes
    })
}

/// Fails unless `status` is one that a killed server causes, with correct retry information.
fn check(status: &Status, began: bool) {
    assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Connection), "{status}");
    match status.retry() {
        Retry::Safe => assert!(!began, "began, but said to be safe to retry: {status}"),
        Retry::IfIdempotent => {}
        other => panic!("{other:?}: {status}"),
    }
}

async fn killed_and_replaced(address: &str, ledger: PathBuf) {
    let mut peer = Peer::start(address, &ledger);
    let url = peer.url.clone();
    let channel = Channel::builder(&url).backoff_max(Duration::from_millis(50)).connect().await.unwrap();
    let load =
        Arc::new(Load { answered: (0..CALLERS).map(|_| AtomicU64::new(0)).collect(), ..Load::default() });
    let (stopping, stop) = watch::channel(false);
    let callers: Vec<_> =
        (0..CALLERS as usize).map(|at| caller(at, channel.clone(), load.clone(), stop.clone())).collect();
    let mut hung = Vec::new();
    for _ in 0..2 {
        let hanging: Vec<_> = (0..HANGING)
            .map(|_| {
                let (number, channel) = (load.next.fetch_add(1, Ordering::SeqCst), channel.clone());
                tokio::spawn(async move { (number, ask::<_, u64>(&channel, &HANG, &number).await) })
            })
            .collect();
        let mut replies = count(&channel, u32::MAX, 1000).await.unwrap();
        soon(replies.next()).await.unwrap().expect("item");
        let (sender, mut receiver) = chat(&channel).await.unwrap();
        sender.send("a".into()).await.unwrap();
        soon(receiver.next()).await.unwrap().expect("item");
        soon(ask::<_, u64>(&channel, &UNTIL_HANGING, &HANGING)).await.unwrap();
        soon(load.goes_on(10)).await;

        peer.kill();
        for call in hanging {
            let (number, outcome) = soon(call).await.unwrap();
            assert_eq!(outcome.as_ref().unwrap_err().retry(), Retry::IfIdempotent);
            hung.push((number, outcome));
        }
        let end = soon(async {
            loop {
                if let Err(status) = replies.next().await {
                    return status;
                }
            }
        });
        check(&end.await, true);
        check(&soon(receiver.next()).await.unwrap_err(), true);
        peer = Peer::start(&url, &ledger);
        assert_eq!(peer.url, url);
        soon(load.goes_on(10)).await;
    }
    stopping.send(true).unwrap();
    let mut outcomes: HashMap<_, _> = hung.into_iter().collect();
    for caller in callers {
        outcomes.extend(soon(caller).await.unwrap());
    }
    peer.kill();

    let bytes = std::fs::read(&ledger).unwrap();
    std::fs::remove_file(&ledger).unwrap();
    let mut began = HashSet::new();
    for entry in bytes.chunks_exact(8) {
        let number = u64::from_le_bytes(entry.try_into().unwrap());
        assert!(began.insert(number), "call {number} was executed twice");
    }
    assert!(began.iter().all(|number| outcomes.contains_key(number)));
    let mut failed = 0;
    for (number, outcome) in outcomes {
        match outcome {
            Ok(reply) => assert!(reply == number && began.contains(&number)),
            Err(status) => {
                check(&status, began.contains(&number));
                failed += 1;
            }
        }
    }
    assert!(failed >= 2 * HANGING, "{failed}");
}

/// A path that no other test uses; nothing is there.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("switchboard-{}-{name}", std::process::id()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_on_tcp_is_survived() {
    killed_and_replaced("tcp://127.0.0.1:0", scratch("tcp.ledger")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_on_a_unix_socket_is_survived() {
    let socket = scratch("kill.sock");
    killed_and_replaced(&format!("unix:{}", socket.display()), scratch("unix.ledger")).await;
    // The last one was killed as well, and a socket outlives its process.
    std::fs::remove_file(socket).unwrap();
}

//! Titanic over TCP: restarts, SIGKILL at any time, full stores, services that come and go.

use crate::{HEARTBEAT, soon, text, until};
use bytes::Bytes;
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use switchboard_pattern::{
    majordomo::{self, Broker, Worker},
    titanic::{Client, RequestId, SyncPolicy, Titanic, TitanicBuilder},
};
use switchboard_socket::{Message, Router};
use switchboard_wire::Code;
use tokio::task::JoinHandle;

const PAUSE: Duration = Duration::from_millis(5);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let number = NEXT.fetch_add(1, Relaxed);
        Folder(std::env::temp_dir().join(format!("switchboard-titanic-test-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn titanic(endpoint: &str, folder: &Folder) -> TitanicBuilder {
    Titanic::builder(endpoint, &folder.0).options(|options| {
        options.heartbeat_interval = HEARTBEAT;
        options.retry_pause = Duration::from_millis(20);
        options.execution_timeout = Duration::from_secs(5);
    })
}

async fn broker() -> (Broker, String) {
    let broker = Broker::builder().options(|options| options.heartbeat_interval = HEARTBEAT);
    let broker = broker.bind("tcp://127.0.0.1:0").await.unwrap();
    let endpoint = broker.endpoint().to_string();
    (broker, endpoint)
}

fn client(endpoint: &str) -> Client {
    Client::new(majordomo::Client::connect(endpoint).unwrap())
}

/// A worker that repeats each request.
async fn echo(endpoint: &str) -> JoinHandle<()> {
    let mut worker = Worker::builder(endpoint, "echo").heartbeat_interval(HEARTBEAT).connect().unwrap();
    tokio::spawn(async move {
        while let Some(request) = worker.next().await {
            let body = request.body().clone();
            let _ = request.reply(body).await;
        }
    })
}

#[tokio::test]
async fn requests_wait_on_disk_for_a_worker_and_replies_for_a_client() {
    let folder = Folder::new();
    let (_broker, endpoint) = broker().await;
    let server = titanic(&endpoint, &folder).start().await.unwrap();
    let client = client(&endpoint);
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(soon(client.store("echo", number.to_string())).await.unwrap());
    }
    assert_eq!(soon(client.fetch(ids[0])).await.unwrap(), None);
    soon(server.close()).await;
    // The requests are those of the last server.
    let server = titanic(&endpoint, &folder).start().await.unwrap();
    let _worker = echo(&endpoint).await;
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(text(&soon(client.wait(*id, PAUSE)).await.unwrap()), number.to_string());
        assert_eq!(text(&soon(client.wait(*id, PAUSE)).await.unwrap()), number.to_string());
        soon(client.close(*id)).await.unwrap();
        soon(client.close(*id)).await.unwrap();
        assert_eq!(soon(client.fetch(*id)).await.unwrap_err().code(), Code::NotFound);
    }
    let stats = server.stats();
    assert_eq!((stats.executed, stats.closed, stats.requests, stats.live_bytes), (20, 20, 0, 0));
}

#[tokio::test]
async fn frames_that_are_not_valid_have_a_status() {
    let folder = Folder::new();
    let (_broker, endpoint) = broker().await;
    let builder = titanic(&endpoint, &folder).options(|options| {
        options.requests_max = 1;
        options.keep = Duration::from_secs(3600);
    });
    let _server = builder.start().await.unwrap();
    let raw = majordomo::Client::connect(&endpoint).unwrap();
    for (service, body, status) in [
        ("titanic.request", vec!["only a name"], "400"),
        ("titanic.request", vec!["", "body"], "400"),
        ("titanic.reply", vec!["not a number"], "400"),
        ("titanic.reply", vec!["00000000000000000000000000000000"], "400"),
        ("titanic.close", vec!["a", "b"], "400"),
        ("titanic.close", vec!["0000000000000000000000000000000A"], "200"),
        ("titanic.request", vec!["none", "body"], "200"),
        ("titanic.request", vec!["none", "body"], "500"),
    ] {
        let reply = soon(raw.request(service, Message::new(body.clone()))).await.unwrap();
        assert!(reply.frames()[0].starts_with(status.as_bytes()), "{service} {body:?}: {reply:?}");
    }
    let failure = soon(client(&endpoint).store("none", "body")).await.unwrap_err();
    assert_eq!(failure.code(), Code::ResourceExhausted);
    assert!(failure.message().contains("requests_max"), "{failure}");
}

#[tokio::test]
async fn a_service_without_workers_does_not_stop_others_and_old_requests_expire() {
    let folder = Folder::new();
    let (_broker, endpoint) = broker().await;
    let builder = titanic(&endpoint, &folder).options(|options| {
        options.outstanding_max = 4;
        options.outstanding_per_service_max = 2;
    });
    let server = builder.start().await.unwrap();
    let client = client(&endpoint);
    let mut lost = Vec::new();
    for number in 0..10 {
        lost.push(soon(client.store(&format!("none{}", number % 5), "body")).await.unwrap());
    }
    let _worker = echo(&endpoint).await;
    let id = soon(client.store("echo", "body")).await.unwrap();
    assert_eq!(text(&soon(client.wait(id, PAUSE)).await.unwrap()), "body");
    // With a short time from now on: all requests that the folder has are older soon.
    soon(server.close()).await;
    let builder = titanic(&endpoint, &folder).options(|options| options.keep = Duration::from_secs(1));
    let server = builder.start().await.unwrap();
    until("the requests expire", || server.stats().expired == 11).await;
    assert_eq!(soon(client.fetch(lost[0])).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_worker_that_is_killed_in_a_request_gets_it_again() {
    let folder = Folder::new();
    let (_broker, endpoint) = broker().await;
    let server = titanic(&endpoint, &folder).options(|options| {
        options.execution_timeout = Duration::from_millis(300);
    });
    let server = server.start().await.unwrap();
    let client = client(&endpoint);
    let killed = crate::dealer(&endpoint).await;
    killed.send(["MDPW02", "\x01", "echo"]).await.unwrap();
    let id = soon(client.store("echo", "body")).await.unwrap();
    while soon(killed.recv()).await.unwrap().frames()[1] == "\x05" {}
    drop(killed);
    let _worker = echo(&endpoint).await;
    assert_eq!(text(&soon(client.wait(id, PAUSE)).await.unwrap()), "body");
    assert!(server.stats().failed > 0);
}

#[tokio::test]
async fn a_broker_without_mmi_is_served() {
    let folder = Folder::new();
    let broker = Router::bind("tcp://127.0.0.1:0").await.unwrap();
    let endpoint = broker.endpoints()[0].to_string();
    let builder = titanic(&endpoint, &folder).options(|options| {
        options.workers = 1;
        options.execution_timeout = Duration::from_millis(800);
    });
    let _server = builder.start().await.unwrap();
    let mut is_stored = false;
    // The broker of the test answers nothing, and passes one request to the first worker of titanic.request.
    let request = loop {
        let frames = soon(broker.recv()).await.unwrap().into_frames();
        match [1, 2, 3].map(|index| frames.get(index).map_or(&b""[..], |frame| frame)) {
            [b"MDPW02", b"\x01", b"titanic.request"] if !is_stored => {
                is_stored = true;
                let request = ["MDPW02", "\x02", "client", "", "echo", "body"].map(Bytes::from);
                broker.send(Message::new([&frames[..1], &request].concat())).await.unwrap();
            }
            [b"MDPC02", b"\x01", b"echo"] => break frames,
            _ => {}
        }
    };
    assert_eq!(request[4], "body");
}

/// The process that the next test kills: a broker, a server and a worker.
#[tokio::test]
#[ignore = "a part of the next test"]
async fn process_to_be_killed() {
    let Some(folder) = std::env::var_os("TITANIC_FOLDER") else { return };
    let (_broker, endpoint) = broker().await;
    let server = Titanic::builder(&endpoint, folder).options(|options| {
        options.heartbeat_interval = HEARTBEAT;
        options.retry_pause = Duration::from_millis(20);
        // Either is enough for the end of a process.
        if std::env::var_os("TITANIC_SYNC").is_none() {
            options.sync = SyncPolicy::Never;
        }
    });
    let _server = server.start().await.unwrap();
    let _worker = echo(&endpoint).await;
    println!("\nendpoint {endpoint}");
    std::future::pending::<()>().await;
}

/// A process that does not outlive a test that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(folder: &Folder, is_synced: bool) -> (Killed, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if is_synced {
        command.env("TITANIC_SYNC", "1");
    }
    let mut child = command
        .args(["--exact", "titanic::process_to_be_killed", "--ignored", "--nocapture", "--test-threads=1"])
        .env("TITANIC_FOLDER", &folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let endpoint = lines.find_map(|line| Some(line.unwrap().strip_prefix("endpoint ")?.to_owned())).unwrap();
    // The pipe stays open, so that the child does not end by it.
    std::thread::spawn(move || lines.for_each(drop));
    (Killed(child), endpoint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_requests_survive_sigkill_at_any_time() {
    const ROUNDS: usize = 4;
    let folder = Folder::new();
    // Confirmed requests, and those that were certainly not closed.
    let confirmed: Arc<Mutex<Vec<(RequestId, String)>>> = Arc::default();
    for round in 0..ROUNDS {
        let (child, endpoint) = spawn(&folder, round % 2 == 0);
        let before = confirmed.lock().unwrap().len();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..4 {
            let (client, confirmed) = (client(&endpoint), confirmed.clone());
            tasks.spawn(async move {
                for number in 0.. {
                    let body = format!("{round}.{task}.{number}");
                    let Ok(id) = client.store("echo", body.as_str()).await else { return };
                    if number % 3 == 0 {
                        // Confirmed or not: it is not checked later.
                        let _ = client.close(id).await;
                    } else {
                        confirmed.lock().unwrap().push((id, body));
                    }
                }
            });
        }
        until("requests are confirmed", || confirmed.lock().unwrap().len() >= before + 40).await;
        drop(child);
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
    }
    let (_broker, endpoint) = broker().await;
    let server = titanic(&endpoint, &folder).start().await.unwrap();
    let _worker = echo(&endpoint).await;
    let client = client(&endpoint);
    let confirmed = confirmed.lock().unwrap().clone();
    assert!(confirmed.len() >= ROUNDS * 40);
    for (id, body) in &confirmed {
        assert_eq!(text(&soon(client.wait(*id, PAUSE)).await.unwrap()), *body);
    }
    assert!(server.stats().requests >= confirmed.len());
}

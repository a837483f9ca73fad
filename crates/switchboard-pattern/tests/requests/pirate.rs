//! Lazy, Simple and Paranoid Pirate over TCP.

use crate::{HEARTBEAT, dealer, forwarder::Forwarder, soon, text, until};
use std::time::Duration;
use switchboard_pattern::pirate::{Client, Queue, QueueBuilder, Worker};
use switchboard_socket::{Message, Rep};
use switchboard_wire::Code;
use tokio::task::{JoinHandle, JoinSet};

const ANY: &str = "tcp://127.0.0.1:0";

/// A queue that notices silence quickly.
fn quick() -> QueueBuilder {
    Queue::builder().options(|options| {
        options.heartbeat_interval = HEARTBEAT;
        options.busy_expiry = Duration::from_millis(500);
    })
}

async fn start(builder: QueueBuilder) -> (Queue, String, String) {
    let queue = builder.bind(ANY, ANY).await.unwrap();
    let (clients, workers) = (queue.clients_endpoint().to_string(), queue.workers_endpoint().to_string());
    (queue, clients, workers)
}

fn client(endpoint: &str, timeout_ms: u64, retries: u32) -> Client {
    Client::builder(endpoint).timeout(Duration::from_millis(timeout_ms)).retries(retries).connect().unwrap()
}

fn worker(endpoint: &str, is_simple: bool) -> Worker {
    let builder = Worker::builder(endpoint).simple(is_simple).heartbeat_interval(HEARTBEAT);
    builder.reconnect_pause(Duration::from_millis(10)).connect().unwrap()
}

/// A worker that repeats each request.
fn echo(endpoint: &str, is_simple: bool) -> JoinHandle<()> {
    let mut worker = worker(endpoint, is_simple);
    tokio::spawn(async move {
        while let Some(request) = worker.next().await {
            let body = request.body().clone();
            // A session that has ended is no failure of this worker.
            let _ = request.reply(body).await;
        }
    })
}

#[tokio::test]
async fn workers_of_both_kinds_serve_many_clients() {
    let (queue, clients, workers) = start(Queue::builder()).await;
    let _workers = [echo(&workers, false), echo(&workers, true)];
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let mut client = client(&clients, 20_000, 0);
        tasks.spawn(async move {
            for round in 0..10 {
                let body = format!("{number}.{round}");
                assert_eq!(text(&client.request(body.as_str()).await.unwrap()), body);
            }
        });
    }
    while let Some(task) = soon(tasks.join_next()).await {
        task.unwrap();
    }
    assert_eq!(queue.stats().replies, 200);
}

#[tokio::test]
async fn a_lazy_client_survives_a_server_that_loses_requests() {
    let server = Rep::bind(ANY).await.unwrap();
    let endpoint = server.endpoints()[0].to_string();
    let mut client = client(&endpoint, 100, 50);
    let served = tokio::spawn(async move {
        // The reply to the first request is late, and goes to a socket that is closed.
        server.recv().await.unwrap();
        tokio::time::sleep(Duration::from_millis(150)).await;
        loop {
            let reply = server.send("reply").await;
            if reply.is_ok() && server.recv().await.is_err() {
                return;
            }
        }
    });
    assert_eq!(text(&soon(client.request("body")).await.unwrap()), "reply");
    assert!(client.stats().retries > 0);
    served.abort();
}

#[tokio::test]
async fn a_lazy_client_gives_up_after_its_retries() {
    let (queue, clients, _) = start(Queue::builder().options(|options| options.queue_requests_max = 1)).await;
    let mut client = client(&clients, 40, 2);
    let failure = soon(client.request("body")).await.unwrap_err();
    assert_eq!(failure.code(), Code::DeadlineExceeded);
    assert!(failure.message().contains("after 2 retries"), "{failure}");
    assert_eq!((client.stats().retries, client.stats().failures), (2, 1));
    assert_eq!(
        soon(client.request(Message::new(Vec::<Vec<u8>>::new()))).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    until("the requests of closed sockets are dropped", || queue.stats().waiting == 0).await;
}

#[tokio::test]
async fn a_request_of_a_killed_worker_is_sent_again() {
    let (queue, clients, workers) = start(quick()).await;
    for ready in [vec!["\x01"], vec!["", "\x01"]] {
        let killed = dealer(&workers).await;
        killed.send(Message::new(ready)).await.unwrap();
        let mut client = client(&clients, 200, 100);
        let request = tokio::spawn(async move { client.request("body").await });
        let request_frames = soon(killed.recv()).await.unwrap();
        assert_eq!(request_frames.body(), b"body");
        drop(killed);
        let worker = echo(&workers, false);
        assert_eq!(text(&soon(request).await.unwrap().unwrap()), "body");
        worker.abort();
        until("the workers are removed", || queue.stats().workers == 0).await;
    }
    assert_eq!(queue.stats().requests_lost, 2);
}

#[tokio::test]
async fn a_worker_that_never_sends_heartbeats_is_removed() {
    let (queue, _, workers) = start(quick()).await;
    let silent = dealer(&workers).await;
    silent.send("\x01").await.unwrap();
    until("the worker is removed", || queue.stats().workers_expired == 1).await;
}

#[tokio::test]
async fn workers_survive_a_restart_of_the_queue() {
    let (queue, clients, workers) = start(quick()).await;
    let _workers = [echo(&workers, false), echo(&workers, true)];
    let mut client = client(&clients, 200, 100);
    assert_eq!(text(&soon(client.request("one")).await.unwrap()), "one");
    drop(queue);
    let queue = loop {
        match quick().bind(&clients, &workers).await {
            Ok(queue) => break queue,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(text(&soon(client.request("two")).await.unwrap()), "two");
    until("both workers are back", || queue.stats().workers == 2).await;
}

#[tokio::test]
async fn a_split_network_ends_the_session_of_a_paranoid_worker_on_both_sides() {
    let (queue, clients, workers) = start(quick()).await;
    let forwarder = Forwarder::to(&workers).await;
    let mut far = worker(&forwarder.endpoint, false);
    until("the worker is registered", || queue.stats().workers == 1).await;
    forwarder.split();
    until("the worker is removed", || queue.stats().workers_expired == 1).await;
    until("the worker registers again", || far.stats().sessions > 1).await;
    forwarder.heal();
    let mut client = client(&clients, 200, 100);
    let request = tokio::spawn(async move { client.request("body").await });
    let work = soon(far.next()).await.unwrap();
    assert_eq!(work.body().body(), b"body");
    work.reply("healed").await.unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "healed");
}

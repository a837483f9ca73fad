//! Majordomo over TCP.

use crate::{HEARTBEAT, dealer, forwarder::Forwarder, soon, text, until};
use std::time::Duration;
use switchboard_pattern::majordomo::{Broker, BrokerBuilder, BrokerOptions, Client, Worker};
use switchboard_socket::{Dealer, Message, SocketOptions};
use switchboard_wire::Code;
use tokio::task::{JoinHandle, JoinSet};

/// A broker that notices silence quickly.
fn quick() -> BrokerBuilder {
    Broker::builder().options(|options| {
        options.heartbeat_interval = HEARTBEAT;
        options.busy_expiry = Duration::from_millis(500);
    })
}

async fn start(builder: BrokerBuilder) -> (Broker, String) {
    let broker = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let endpoint = broker.endpoint().to_string();
    (broker, endpoint)
}

async fn worker(endpoint: &str, service: &str) -> Worker {
    let builder = Worker::builder(endpoint, service).heartbeat_interval(HEARTBEAT);
    builder.reconnect_pause(Duration::from_millis(10)).connect().unwrap()
}

/// A worker that repeats each request.
async fn echo(endpoint: &str, service: &str) -> JoinHandle<()> {
    let mut worker = worker(endpoint, service).await;
    tokio::spawn(async move {
        while let Some(request) = worker.next().await {
            let body = request.body().clone();
            // A session that has ended is no failure of this worker.
            let _ = request.reply(body).await;
        }
    })
}

fn extended(endpoint: &str) -> Client {
    Client::builder(endpoint).extended(true).connect().unwrap()
}

/// Registers a worker that the test plays itself.
async fn raw_worker(endpoint: &str, service: &'static str) -> Dealer {
    let worker = dealer(endpoint).await;
    worker.send(["MDPW02", "\x01", service]).await.unwrap();
    worker
}

/// Receives the next message of the broker to a worker that is not a heartbeat.
async fn next(worker: &Dealer) -> Message {
    loop {
        let message = soon(worker.recv()).await.unwrap();
        if message.frames()[1] != "\x05" {
            return message;
        }
    }
}

#[tokio::test]
async fn time_limits_of_sockets_end_no_session_and_no_server() {
    let limit = |options: &mut SocketOptions| {
        options.timeouts.receive = Some(Duration::ZERO);
        options.timeouts.send = Some(Duration::ZERO);
    };
    let (broker, endpoint) = start(Broker::builder().socket_options(limit)).await;
    let builder = Worker::builder(&endpoint, "echo").socket_options(limit);
    let mut worker = builder.connect().unwrap();
    until("the worker is registered", || broker.stats().workers == 1).await;
    // Nothing arrives at the worker for longer than the limit.
    tokio::time::sleep(HEARTBEAT).await;
    let client = Client::builder(&endpoint).socket_options(limit).connect().unwrap();
    let request = tokio::spawn(async move { client.request("echo", "body").await });
    let received = soon(worker.next()).await.unwrap();
    received.reply("reply").await.unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "reply");
    assert_eq!(worker.stats().sessions, 1);
    let wrong = Worker::builder(&endpoint, "echo").socket_options(|options| {
        options.limits.peers_max = 0;
    });
    assert_eq!(wrong.connect().unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn many_requests_are_outstanding_with_and_without_the_extension() {
    const REQUESTS: usize = 200;
    let (broker, endpoint) = start(Broker::builder()).await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(echo(&endpoint, "echo").await);
    }
    for is_extended in [false, true] {
        let builder = Client::builder(&endpoint).extended(is_extended).outstanding_max(20);
        let client = builder.connect().unwrap();
        let mut requests = JoinSet::new();
        for number in 0..REQUESTS {
            let client = client.clone();
            requests.spawn(async move {
                let reply = client.request("echo", number.to_string()).await.unwrap();
                assert_eq!(text(&reply), number.to_string());
            });
        }
        while let Some(request) = soon(requests.join_next()).await {
            request.unwrap();
        }
        let stats = client.stats();
        assert_eq!((stats.replies, stats.outstanding), (REQUESTS as u64, 0));
        assert!(stats.connections <= if is_extended { 1 } else { 20 }, "{stats:?}");
    }
    assert_eq!(broker.stats().replies, 2 * REQUESTS as u64);
}

#[tokio::test]
async fn parts_of_a_reply_arrive_before_the_final_one() {
    let (_broker, endpoint) = start(Broker::builder()).await;
    let mut worker = worker(&endpoint, "count").await;
    let task = tokio::spawn(async move {
        for _ in 0..2 {
            let request = worker.next().await.unwrap();
            for number in 0..3 {
                request.partial(number.to_string()).await.unwrap();
            }
            request.reply("end").await.unwrap();
        }
    });
    for client in [extended(&endpoint), Client::connect(&endpoint).unwrap()] {
        let mut replies = client.call("count").stream("").await.unwrap();
        let mut parts = Vec::new();
        while let Some(reply) = soon(replies.next()).await.unwrap() {
            parts.push((text(reply.body()), reply.is_final()));
        }
        let expected = [("0", false), ("1", false), ("2", false), ("end", true)];
        assert_eq!(parts, expected.map(|(text, is_final)| (text.to_owned(), is_final)));
    }
    soon(task).await.unwrap();
}

#[tokio::test]
async fn a_broker_knows_its_services() {
    let (broker, endpoint) = start(Broker::builder()).await;
    let client = Client::connect(&endpoint).unwrap();
    assert!(!soon(client.has_service("echo")).await.unwrap());
    let _worker = echo(&endpoint, "echo").await;
    until("a worker is registered", || broker.stats().workers == 1).await;
    assert!(soon(client.has_service("echo")).await.unwrap());
    assert_eq!(soon(client.request("mmi.other", "")).await.unwrap().body(), b"501");
    let failure = client.call("echo").priority(1).send("").await.unwrap_err();
    assert_eq!(failure.code(), Code::InvalidArgument);
    assert_eq!(client.request("", "").await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_request_of_a_killed_worker_is_lost_or_delivered_again_as_the_client_says() {
    let (broker, endpoint) = start(Broker::builder()).await;
    let client = extended(&endpoint);
    for deliveries in [1, 2] {
        let killed = raw_worker(&endpoint, "s").await;
        let caller = client.clone();
        let request =
            tokio::spawn(async move { caller.call("s").deliveries_max(deliveries).send("body").await });
        next(&killed).await;
        drop(killed);
        if deliveries == 1 {
            let failure = soon(request).await.unwrap().unwrap_err();
            assert_eq!(failure.code(), Code::Unavailable, "{failure}");
            until("the worker is removed", || broker.stats().workers == 0).await;
        } else {
            let _worker = echo(&endpoint, "s").await;
            assert_eq!(text(&soon(request).await.unwrap().unwrap()), "body");
        }
    }
    let stats = broker.stats();
    assert_eq!((stats.requests_lost, stats.redelivered), (1, 1));
}

#[tokio::test]
async fn a_worker_that_never_sends_heartbeats_is_removed() {
    let (broker, endpoint) = start(quick()).await;
    let silent = raw_worker(&endpoint, "s").await;
    until("the worker is registered", || broker.stats().workers == 1).await;
    until("the worker is removed", || broker.stats().workers_expired == 1).await;
    silent.send(["MDPW02", "\x05"]).await.unwrap();
    assert_eq!(next(&silent).await, Message::from(["MDPW02", "\x06"]));
}

#[tokio::test]
async fn a_slow_worker_keeps_its_request_while_it_sends_heartbeats() {
    let (broker, endpoint) = start(quick()).await;
    let mut worker = worker(&endpoint, "slow").await;
    let client = extended(&endpoint);
    let request = tokio::spawn(async move { client.request("slow", "body").await });
    let work = soon(worker.next()).await.unwrap();
    // Longer than the broker waits for a silent worker.
    tokio::time::sleep(Duration::from_millis(800)).await;
    work.reply("done").await.unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "done");
    assert_eq!(broker.stats().workers_expired, 0);
}

#[tokio::test]
async fn a_dropped_request_ends_the_session_and_is_delivered_again() {
    let (broker, endpoint) = start(Broker::builder()).await;
    let mut worker = worker(&endpoint, "s").await;
    let client = extended(&endpoint);
    let request = tokio::spawn(async move { client.call("s").deliveries_max(2).send("body").await });
    drop(soon(worker.next()).await.unwrap());
    let again = soon(worker.next()).await.unwrap();
    again.reply("second").await.unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "second");
    assert_eq!((broker.stats().redelivered, worker.stats().sessions), (1, 2));
}

#[tokio::test]
async fn workers_and_clients_survive_a_restart_of_the_broker() {
    let (broker, endpoint) = start(quick()).await;
    let _worker = echo(&endpoint, "echo").await;
    for is_extended in [false, true] {
        let builder = Client::builder(&endpoint).extended(is_extended).retries(20);
        let client = builder.timeout(Duration::from_secs(2)).connect().unwrap();
        assert_eq!(text(&soon(client.request("echo", "one")).await.unwrap()), "one");
    }
    let client = Client::builder(&endpoint).retries(20).timeout(Duration::from_secs(2)).connect().unwrap();
    // Killed: no peer gets a notice but the end of its connection.
    drop(broker);
    let request = tokio::spawn(async move { client.request("echo", "two").await });
    let broker = loop {
        match quick().bind(&endpoint).await {
            Ok(broker) => break broker,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "two");
    assert_eq!(broker.stats().workers, 1);
}

#[tokio::test]
async fn a_request_on_a_lost_connection_fails_at_once() {
    let (_broker, endpoint) = start(Broker::builder()).await;
    let forwarder = Forwarder::to(&endpoint).await;
    for is_extended in [false, true] {
        let worker = raw_worker(&endpoint, "never").await;
        let client = Client::builder(&forwarder.endpoint).extended(is_extended).connect().unwrap();
        let request = tokio::spawn(async move { client.request("never", "body").await });
        next(&worker).await;
        forwarder.cut();
        let failure = soon(request).await.unwrap().unwrap_err();
        assert_eq!(failure.code(), Code::Unavailable, "{failure}");
    }
}

#[tokio::test]
async fn a_split_network_expires_the_worker_and_heals() {
    let (broker, endpoint) = start(quick()).await;
    let forwarder = Forwarder::to(&endpoint).await;
    let mut far = worker(&forwarder.endpoint, "s").await;
    let client = extended(&endpoint);
    let caller = client.clone();
    let request = tokio::spawn(async move { caller.call("s").deliveries_max(2).send("body").await });
    let work = soon(far.next()).await.unwrap();
    forwarder.split();
    until("the far worker is removed", || broker.stats().workers_expired == 1).await;
    let near = echo(&endpoint, "s").await;
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "body");
    near.abort();
    until("the near worker is removed", || broker.stats().workers == 0).await;
    forwarder.heal();
    // Its session has ended, or the broker drops the reply.
    let _ = work.reply("late").await;
    let request = tokio::spawn(async move { client.request("s", "again").await });
    soon(far.next()).await.unwrap().reply("healed").await.unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "healed");
    assert!(far.stats().sessions > 1);
}

#[tokio::test]
async fn requests_of_a_client_that_leaves_are_dropped() {
    let (broker, endpoint) = start(Broker::builder()).await;
    let client = dealer(&endpoint).await;
    client.send(["MDPC02", "\x01", "later", "body"]).await.unwrap();
    until("the request waits", || broker.stats().services.iter().any(|service| service.queued == 1)).await;
    drop(client);
    until("the request is dropped", || broker.stats().orphaned == 1).await;
    let worker = raw_worker(&endpoint, "busy").await;
    let client = dealer(&endpoint).await;
    client.send(["MDPC02", "\x01", "busy", "body"]).await.unwrap();
    let request = next(&worker).await;
    drop(client);
    let address = request.frames()[2].clone();
    until("the client is gone", || {
        worker.try_send(["MDPW02".into(), "\x03".into(), address.clone(), "".into(), "part".into()]).unwrap();
        broker.stats().replies_dropped > 0
    })
    .await;
    assert_eq!(broker.stats().queued_bytes, 0);
}

#[tokio::test]
async fn a_full_queue_is_reported_at_once() {
    let (broker, endpoint) = start(Broker::builder().options(|options| options.queue_requests_max = 2)).await;
    let client = extended(&endpoint);
    let mut requests = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        requests.spawn(async move { client.call("none").timeout(Duration::from_secs(5)).send("body").await });
    }
    let first = soon(requests.join_next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(first.code(), Code::ResourceExhausted);
    assert!(first.message().contains("queue_requests_max"), "{first}");
    assert_eq!(broker.stats().refused, 1);
    soon(broker.close()).await;
    while let Some(request) = soon(requests.join_next()).await {
        assert_eq!(request.unwrap().unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn a_late_reply_is_not_taken_for_the_next_one() {
    let (_broker, endpoint) = start(Broker::builder()).await;
    let mut worker = worker(&endpoint, "s").await;
    for client in [extended(&endpoint), Client::connect(&endpoint).unwrap()] {
        let failure = client.call("s").timeout(Duration::from_millis(50)).send("first").await.unwrap_err();
        assert_eq!(failure.code(), Code::DeadlineExceeded);
        let second = tokio::spawn(async move { client.request("s", "second").await });
        for _ in 0..2 {
            let request = soon(worker.next()).await.unwrap();
            let body = request.body().clone();
            let is_second = text(&body) == "second";
            request.reply(body).await.unwrap();
            if is_second {
                break;
            }
        }
        assert_eq!(text(&soon(second).await.unwrap().unwrap()), "second");
    }
}

#[tokio::test]
async fn outstanding_requests_have_a_limit() {
    let (_broker, endpoint) = start(Broker::builder()).await;
    let client = Client::builder(&endpoint).outstanding_max(1).connect().unwrap();
    let _first = client.call("none").stream("body").await.unwrap();
    let failure = client.call("none").timeout(Duration::from_millis(20)).send("body").await.unwrap_err();
    assert!(failure.message().contains("outstanding_max"), "{failure}");
    assert_eq!(client.stats().outstanding, 1);
}

#[tokio::test]
async fn parts_that_the_program_does_not_take_are_limited() {
    let (_broker, endpoint) = start(Broker::builder()).await;
    let mut worker = worker(&endpoint, "flood").await;
    let (client, (parts, bytes)) = (extended(&endpoint), (300, 1 << 20));
    let task = tokio::spawn(async move {
        for (count, size) in [(parts, 1), (20, bytes)] {
            let request = worker.next().await.unwrap();
            for _ in 0..count {
                request.partial(vec![0; size]).await.unwrap();
            }
            request.reply("end").await.unwrap();
        }
    });
    for limit in [256, 16] {
        let mut replies = client.call("flood").stream("").await.unwrap();
        until("a part is dropped", || client.stats().replies_dropped > if limit == 256 { 0 } else { 45 })
            .await;
        let mut taken = 0;
        let failure = loop {
            match soon(replies.next()).await {
                Ok(_) => taken += 1,
                Err(failure) => break failure,
            }
        };
        assert_eq!((failure.code(), taken), (Code::ResourceExhausted, limit));
    }
    soon(task).await.unwrap();
}

#[tokio::test]
async fn a_client_behind_a_split_network_is_noticed() {
    let builder = Broker::builder().socket_options(|options| options.heartbeats.interval = Some(HEARTBEAT));
    let (broker, endpoint) = start(builder).await;
    let forwarder = Forwarder::to(&endpoint).await;
    let client = dealer(&forwarder.endpoint).await;
    client.send(["MDPC02", "\x01", "later", "body"]).await.unwrap();
    until("the request waits", || broker.stats().services.iter().any(|service| service.queued == 1)).await;
    forwarder.split();
    until("the request is dropped", || broker.stats().orphaned == 1).await;
}

async fn refuses(name: &str, change: impl FnOnce(&mut BrokerOptions)) {
    let failure = Broker::builder().options(change).bind("tcp://127.0.0.1:0").await.unwrap_err();
    assert!(failure.code() == Code::InvalidArgument && failure.message().contains(name), "{failure}");
}

#[tokio::test]
async fn options_that_are_0_are_refused_by_name() {
    refuses("busy_expiry", |options| options.busy_expiry = Duration::ZERO).await;
    refuses("deliveries_default", |options| options.deliveries_default = 0).await;
    refuses("heartbeat_interval", |options| options.heartbeat_interval = Duration::ZERO).await;
    refuses("liveness", |options| options.liveness = 0).await;
    refuses("services_max", |options| options.services_max = 0).await;
    refuses("workers_max", |options| options.workers_max = 0).await;
    assert!(Worker::builder("tcp://127.0.0.1:1", "s").liveness(0).connect().is_err());
    assert!(Worker::connect("tcp://127.0.0.1:1", "mmi.service").is_err());
    assert!(Worker::connect("tcp://127.0.0.1:1", "").is_err());
    assert!(Worker::connect("nowhere", "s").is_err());
    assert!(Client::connect("nowhere").is_err());
    assert!(Client::builder("tcp://127.0.0.1:1").outstanding_max(0).connect().is_err());
}

#[tokio::test]
async fn a_broker_has_several_endpoints() {
    let (broker, endpoint) = start(Broker::builder()).await;
    let workers = broker.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let _worker = echo(&workers, "echo").await;
    let client = Client::connect(&endpoint).unwrap();
    assert_eq!(text(&soon(client.request("echo", "body")).await.unwrap()), "body");
}

//! Freelance over Unix sockets, whose endpoints are known before they are bound, and over TCP.

use crate::{forwarder::Forwarder, soon, text, until};
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};
use switchboard_pattern::freelance::{
    SequentialClient, Server, ShotgunClient, TrackedBuilder, TrackedClient,
};
use switchboard_socket::{Message, Rep, Router, SocketOptions};
use switchboard_wire::Code;
use tokio::task::{JoinHandle, JoinSet};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

fn endpoint() -> String {
    let number = NEXT.fetch_add(1, Relaxed);
    let path = std::env::temp_dir().join(format!("switchboard-freelance-{}-{number}", std::process::id()));
    format!("ipc://{}", path.display())
}

/// A server that replies with its name and the request.
async fn server(endpoint: &str, name: &'static str) -> JoinHandle<()> {
    let mut server = Server::bind(endpoint).await.unwrap();
    tokio::spawn(async move {
        while let Some(request) = server.next().await {
            let reply = format!("{name} {}", text(request.body()));
            let _ = request.reply(reply);
        }
    })
}

/// A server with a REP socket, which repeats all frames.
async fn rep() -> (Rep, String) {
    let server = Rep::bind("tcp://127.0.0.1:0").await.unwrap();
    let endpoint = server.endpoints()[0].to_string();
    (server, endpoint)
}

fn echo(server: Rep) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok(request) = server.recv().await {
            server.send(request).await.unwrap();
        }
    })
}

fn quick(servers: &[String]) -> TrackedBuilder {
    let builder = TrackedClient::builder(servers).ping_interval(Duration::from_millis(20));
    builder.expiry(Duration::from_millis(200)).attempt_timeout(SHORT).timeout(LONG)
}

#[tokio::test]
async fn a_sequential_client_takes_the_next_server_and_stays_there() {
    let ((silent, first), (live, second)) = (rep().await, rep().await);
    let _live = echo(live);
    let mut client = SequentialClient::connect(&[&first, &second], SHORT).unwrap();
    for body in ["one", "two"] {
        assert_eq!(text(&soon(client.request(body)).await.unwrap()), body);
    }
    assert_eq!((client.stats().replies, client.stats().retries), (2, 1));
    drop(silent);
    let mut client = SequentialClient::connect(&[&first], SHORT).unwrap();
    let failure = soon(client.request("three")).await.unwrap_err();
    assert_eq!((failure.code(), client.stats().failures), (Code::DeadlineExceeded, 1));
    assert!(SequentialClient::connect::<String>(&[], SHORT).is_err());
}

#[tokio::test]
async fn a_shotgun_client_takes_the_first_reply_and_drops_late_ones() {
    let ((slow, first), (live, second)) = (rep().await, rep().await);
    let _live = echo(live);
    let nowhere = "tcp://127.0.0.1:1".to_owned();
    let mut client = ShotgunClient::connect(&[nowhere, first, second], LONG).await.unwrap();
    assert_eq!(text(&soon(client.request("one")).await.unwrap()), "one");
    // The slow server replies to the first request during the second one.
    let late = tokio::spawn(async move {
        let request = slow.recv().await.unwrap();
        slow.send(request).await.unwrap();
        slow
    });
    let slow = soon(late).await.unwrap();
    for body in ["two", "three"] {
        assert_eq!(text(&soon(client.request(body)).await.unwrap()), body);
    }
    assert_eq!(client.stats().replies, 3);
    drop(slow);
    let mut client = ShotgunClient::connect(&["tcp://127.0.0.1:1"], SHORT).await.unwrap();
    assert_eq!(soon(client.request("four")).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(
        client.request(Message::new(Vec::<Vec<u8>>::new())).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_tracked_client_prefers_the_first_live_server() {
    let endpoints = [endpoint(), endpoint()];
    let second = server(&endpoints[1], "second").await;
    let client = quick(&endpoints).connect().await.unwrap();
    assert_eq!(text(&soon(client.request("a")).await.unwrap()), "second a");
    let first = server(&endpoints[0], "first").await;
    until("both servers are alive", || client.stats().alive == 2).await;
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let client = client.clone();
        tasks.spawn(async move {
            assert_eq!(text(&client.request(number.to_string()).await.unwrap()), format!("first {number}"));
        });
    }
    while let Some(task) = soon(tasks.join_next()).await {
        task.unwrap();
    }
    first.abort();
    second.abort();
    until("no server is alive", || client.stats().alive == 0).await;
}

#[tokio::test]
async fn a_request_goes_to_the_next_server_when_its_server_is_killed_or_slow() {
    for is_killed in [true, false] {
        let endpoints = [endpoint(), endpoint()];
        let mut first = Server::bind(&endpoints[0]).await.unwrap();
        // The end of the connection alone moves the request of a killed server.
        let (attempt, expiry) = if is_killed { (LONG, LONG) } else { (SHORT, Duration::from_millis(200)) };
        let builder = quick(&endpoints).attempt_timeout(attempt).expiry(expiry);
        let client = builder.connect().await.unwrap();
        let caller = client.clone();
        let request = tokio::spawn(async move { caller.request("body").await });
        let work = soon(first.next()).await.unwrap();
        let _second = server(&endpoints[1], "second").await;
        if is_killed {
            until("both servers are alive", || client.stats().alive == 2).await;
            drop(work);
            drop(first);
            assert_eq!(text(&soon(request).await.unwrap().unwrap()), "second body");
        } else {
            assert_eq!(text(&soon(request).await.unwrap().unwrap()), "second body");
            work.reply("late").unwrap();
            until("the late reply is dropped", || client.stats().replies_dropped == 1).await;
        }
    }
}

#[tokio::test]
async fn a_split_network_moves_requests_to_the_other_server() {
    // The routing id of the server is the endpoint of the forwarder.
    let forwarder = Forwarder::without_target().await;
    let mut far = Server::builder(&forwarder.endpoint).bind("tcp://127.0.0.1:0").await.unwrap();
    forwarder.set_target(&far.endpoint().to_string());
    let endpoints = [forwarder.endpoint.clone(), endpoint()];
    let client = quick(&endpoints).attempt_timeout(LONG).connect().await.unwrap();
    let caller = client.clone();
    let request = tokio::spawn(async move { caller.request("body").await });
    let _work = soon(far.next()).await.unwrap();
    forwarder.split();
    let _near = server(&endpoints[1], "near").await;
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "near body");
    assert_eq!(client.stats().alive, 1);
    forwarder.heal();
    until("the far server is alive", || client.stats().alive == 2).await;
}

#[tokio::test]
async fn time_limits_of_sockets_end_no_server() {
    let endpoints = [endpoint()];
    let builder = Server::builder(&endpoints[0]).socket_options(|options| {
        options.timeouts.receive = Some(Duration::ZERO);
    });
    let mut server = builder.bind(&endpoints[0]).await.unwrap();
    let client = quick(&endpoints).connect().await.unwrap();
    let request = tokio::spawn(async move { client.request("body").await });
    soon(server.next()).await.unwrap().reply("reply").unwrap();
    assert_eq!(text(&soon(request).await.unwrap().unwrap()), "reply");
}

#[tokio::test]
async fn a_full_server_drops_requests_and_counts_them() {
    let endpoints = [endpoint()];
    let builder = Server::builder(&endpoints[0]).queue_requests_max(2).queue_bytes_max(2000);
    let mut server = builder.bind(&endpoints[0]).await.unwrap();
    let client = quick(&endpoints).timeout(Duration::from_millis(500)).connect().await.unwrap();
    until("the server is alive", || client.stats().alive == 1).await;
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        tasks.spawn(async move { client.request("body").await });
    }
    until("one request is dropped", || server.stats().refused == 1).await;
    for _ in 0..2 {
        soon(server.next()).await.unwrap();
    }
    assert_eq!(server.stats().waiting_bytes, 0);
    tasks.spawn(async move { client.request("b".repeat(3000)).await });
    until("the large request is dropped", || server.stats().refused == 2).await;
    while let Some(task) = soon(tasks.join_next()).await {
        assert_eq!(task.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn bad_frames_and_clients_that_leave_do_not_stop_a_server() {
    let endpoint = endpoint();
    let mut server = Server::bind(&endpoint).await.unwrap();
    let mut options = SocketOptions::default();
    options.routing.mandatory = true;
    let peer = Router::with_options(options).unwrap();
    peer.connect_to(&endpoint).await.unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..500 {
        let count = random.usize(1..5);
        let frames = (0..count).map(|_| (0..random.usize(..6)).map(|_| random.u8(..)).collect::<Vec<u8>>());
        let frames = std::iter::once(endpoint.clone().into_bytes()).chain(frames);
        let message = Message::new(frames.collect::<Vec<_>>());
        while peer.try_send(message.clone()).is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while server.stats().requests > 0 && server.stats().waiting_bytes > 0 {
            soon(server.next()).await.unwrap();
        }
    }
    peer.send([&*endpoint, "control", "last"].map(str::to_owned)).await.unwrap();
    let last = loop {
        let request = soon(server.next()).await.unwrap();
        if request.body().body() == b"last" {
            break request;
        }
    };
    assert!(server.stats().invalid > 0);
    soon(peer.close()).await;
    // Passed or not: the server does not wait for a client that is gone.
    let _ = last.reply("late");
    let stats = server.stats();
    assert_eq!(stats.replies + stats.replies_dropped, 1);
}

#[tokio::test]
async fn outstanding_requests_of_a_tracked_client_have_a_limit() {
    let endpoints = [endpoint()];
    let mut server = Server::bind(&endpoints[0]).await.unwrap();
    let client = quick(&endpoints).outstanding_max(1).connect().await.unwrap();
    let (first, second) = (client.clone(), client.clone());
    let first = tokio::spawn(async move { first.request("first").await });
    let work = soon(server.next()).await.unwrap();
    let second = tokio::spawn(async move { second.request("second").await });
    until("the server is alive", || client.stats().alive == 1).await;
    assert_eq!(server.stats().requests, 1);
    work.reply("1").unwrap();
    soon(server.next()).await.unwrap().reply("2").unwrap();
    assert_eq!(text(&soon(first).await.unwrap().unwrap()), "1");
    assert_eq!(text(&soon(second).await.unwrap().unwrap()), "2");
    assert!(quick(&endpoints).outstanding_max(0).connect().await.is_err());
    assert!(quick(&[]).connect().await.is_err());
}

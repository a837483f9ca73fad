//! Servers that are killed, links that drop, servers that drain: every call ends, and callers reconnect.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use support::{proxy::Proxy, raw::soon, *};
use switchboard::{Channel, Code, Origin, Result, Retry, Running, Server, Status};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

async fn serve_at(address: &str) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    (Server::new().add(probe).listen(address).start().await.expect("start"), seen)
}

/// Starts callers that call without a pause until `stop`; each returns the statuses of its failed calls.
fn load(channel: &Channel, callers: usize, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<(u64, Vec<Status>)>> {
    let caller = |_| {
        let (channel, stop) = (channel.clone(), stop.clone());
        tokio::spawn(async move {
            let (mut answered, mut failed) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                match soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![7u8; 100])).await {
                    Ok(_) => answered += 1,
                    Err(status) => {
                        failed.push(status);
                        tokio::task::yield_now().await;
                    }
                }
            }
            (answered, failed)
        })
    };
    (0..callers).map(caller).collect()
}

/// Calls until a call succeeds.
async fn recovered(channel: &Channel) {
    soon(async {
        while ask::<_, Vec<u8>>(channel, &ECHO, &vec![1u8]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// A listener whose backlog is full: the kernel answers no further connect.
async fn blackhole() -> (socket2::Socket, Vec<JoinHandle<std::io::Result<TcpStream>>>, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fill = Vec::new();
    // Some connects are taken by the kernel; the first that is not shows that the rest will hang.
    loop {
        let connect = tokio::spawn(TcpStream::connect(address));
        let mut connect = Some(connect);
        let taken = tokio::time::timeout(Duration::from_millis(200), connect.as_mut().unwrap()).await;
        match taken {
            Ok(stream) => fill.push(tokio::spawn(async move { stream.unwrap() })),
            Err(_) => {
                fill.extend(connect);
                return (socket, fill, address);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_every_call_ends_and_callers_come_back() {
    let (mut running, _) = serve_at("tcp://127.0.0.1:0").await;
    let url = running.url();
    let channel = Channel::builder(&url).backoff_max(Duration::from_millis(50)).connect().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers = load(&channel, 50, &stop);
    for _ in 0..3 {
        recovered(&channel).await;
        running.kill();
        let status = soon(async {
            loop {
                if let Err(status) = ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await {
                    return status;
                }
            }
        })
        .await;
        assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Connection), "{status}");
        // Connections of the old server keep the port for a moment.
        running = soon(async {
            loop {
                let again = Server::new().add(Probe::default()).listen(&url).start().await;
                match again {
                    Ok(running) => return running,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await;
    }
    recovered(&channel).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for caller in callers {
        let (count, failed) = soon(caller).await.unwrap();
        answered += count;
        for status in failed {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().contains(&url), "{status}");
            assert!(
                ["is lost: ", "connect to "].iter().any(|cause| status.message().contains(cause)),
                "{status}"
            );
        }
    }
    assert!(answered > 0);
}

#[tokio::test]
async fn cut_link_ends_every_kind_of_call() {
    let (running, seen) = serve_at("tcp://127.0.0.1:0").await;
    let proxy = Proxy::to(&running).await;
    let channel = Channel::connect(&proxy.url()).await.unwrap();
    let unary = {
        let channel = channel.clone();
        tokio::spawn(async move { ask::<_, ()>(&channel, &HANG, &"").await })
    };
    let mut replies = count(&channel, u32::MAX, 1000).await.unwrap();
    replies.next().await.unwrap().expect("item");
    let upload = sum(&channel).await.unwrap();
    upload.send(1).await.unwrap();
    let (sender, mut receiver) = chat(&channel).await.unwrap();
    sender.send("a".into()).await.unwrap();
    receiver.next().await.unwrap().expect("item");
    soon(seen.until(|seen| seen.hanging() == 3)).await;
    proxy.cut();
    let lost = |status: Status| {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert_eq!((status.origin(), status.retry()), (Origin::Connection, Retry::IfIdempotent));
        assert!(status.message().contains(&proxy.address.to_string()), "{status}");
    };
    lost(soon(unary).await.unwrap().unwrap_err());
    lost(
        soon(async {
            loop {
                if let Err(status) = replies.next().await {
                    return status;
                }
            }
        })
        .await,
    );
    lost(
        soon(async {
            loop {
                if let Err(status) = upload.send(1).await {
                    return status;
                }
            }
        })
        .await,
    );
    lost(soon(upload.finish()).await.unwrap_err());
    lost(soon(receiver.next()).await.unwrap_err());
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    recovered(&channel).await;
}

#[tokio::test]
async fn dead_port_is_refused_at_once_and_named() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let status = soon(Channel::connect(&format!("tcp://{address}"))).await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
    assert!(status.message().contains(&format!("connect to tcp://{address}: ")), "{status}");
    assert!(status.message().contains("refused"), "{status}");
    let lazy = Channel::builder(&format!("tcp://{address}")).lazy().unwrap();
    let status = soon(ask::<_, ()>(&lazy, &ECHO, &"")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn connect_to_a_blackhole_ends_with_the_connect_timeout() {
    let (_one, _fill, first) = blackhole().await;
    let (_two, _fill, second) = blackhole().await;
    let limit = Duration::from_millis(1500);
    // The clock jumps as soon as nothing but time is waited for.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let url = format!("tcp://{first},{second}");
    let status = soon(Channel::builder(&url).connect_timeout(limit).connect()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("no response within 1.5s (connect_timeout)"), "{status}");
    // Both addresses in the same time: one after the other would be twice the limit.
    assert!(began.elapsed() < 2 * limit, "{:?}", began.elapsed());
    tokio::time::resume();
    // A call's own deadline is shorter.
    let lazy = Channel::builder(&url).lazy().unwrap();
    let status = call::<_, ()>(&lazy, &ECHO, &"").timeout(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[tokio::test]
async fn one_dead_address_of_two_delays_no_call() {
    let (_hole, _fill, dead) = blackhole().await;
    let (running, _) = serve_at("tcp://127.0.0.1:0").await;
    let url = format!("tcp://{dead},{}", running.url().replace("tcp://", ""));
    // Within `soon`, which is shorter than one wait for the dead address.
    let channel =
        soon(Channel::builder(&url).connect_timeout(Duration::from_secs(60)).connect()).await.unwrap();
    for _ in 0..100 {
        soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await.unwrap();
    }
}

#[tokio::test]
async fn listener_that_closes_at_once_is_not_stormed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let acceptor = {
        let accepted = accepted.clone();
        tokio::spawn(async move {
            loop {
                drop(listener.accept().await.unwrap());
                accepted.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let channel = Channel::builder(&url).connections(1).lazy().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers = load(&channel, 20, &stop);
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let (answered, failed) = soon(caller).await.unwrap();
        assert!(answered == 0 && !failed.is_empty());
        assert!(failed.iter().all(|status| status.code() == Code::Unavailable));
    }
    // Pauses of 25 to 50 ms at first, then doubled: a handful of tries in half a second, not thousands.
    let accepted = accepted.load(Ordering::SeqCst);
    assert!((1..30).contains(&accepted), "{accepted}");
    acceptor.abort();
}

#[tokio::test]
async fn keepalive_notices_a_link_that_is_silent() {
    let (running, _) = serve_at("tcp://127.0.0.1:0").await;
    let proxy = Proxy::to(&running).await;
    let channel = Channel::builder(&proxy.url())
        .connections(1)
        .keepalive(Duration::from_millis(100))
        .connect()
        .await
        .unwrap();
    // A handler that takes long is no dead link. Time passes as soon as nothing else happens: however busy the machine
    // is, answers are in time.
    tokio::time::pause();
    let hang = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(500)).await.unwrap_err();
    assert_eq!(hang.code(), Code::DeadlineExceeded, "{hang}");
    assert_eq!(proxy.accepted.load(Ordering::SeqCst), 1);
    proxy.frozen.store(true, Ordering::SeqCst);
    let status = soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await.unwrap_err();
    assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Connection));
    assert!(
        status.message().contains("no data received") && status.message().contains("keepalive"),
        "{status}"
    );
    tokio::time::resume();
    proxy.frozen.store(false, Ordering::SeqCst);
    recovered(&channel).await;
}

#[tokio::test]
async fn drain_under_load_loses_no_call() {
    let (first, _) = serve_at("tcp://127.0.0.1:0").await;
    let (second, _) = serve_at("tcp://127.0.0.1:0").await;
    let url = format!("{},{}", first.url(), second.url().replace("tcp://", ""));
    let channel = Channel::connect(&url).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let callers = load(&channel, 50, &stop);
    for _ in 0..200 {
        ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    }
    let echoed = |running: &Running| running.stats().methods[0].ended[0];
    assert!(echoed(&first) > 0 && echoed(&second) > 0);
    let mut replies = count(&channel, 100, 100_000).await.unwrap();
    // It has begun, on one server or the other.
    soon(replies.next()).await.unwrap().expect("item");
    let drained = soon(first.drain(Duration::from_secs(10)));
    let read = async {
        for _ in 1..100 {
            soon(replies.next()).await.unwrap().expect("item");
        }
        assert_eq!(replies.next().await.unwrap(), None);
    };
    let (drained, ()) = tokio::join!(drained, read);
    assert_eq!(drained.aborted, 0);
    for _ in 0..200 {
        ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
        channel_stream(&channel).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let (answered, failed) = soon(caller).await.unwrap();
        assert!(answered > 0 && failed.is_empty(), "{:?}", failed[0]);
    }
}

async fn channel_stream(channel: &Channel) -> Result<()> {
    let upload = sum(channel).await?;
    upload.send(1).await?;
    upload.finish().await.map(drop)
}

#[tokio::test]
async fn drain_ends_at_its_limit_and_counts_what_it_aborted() {
    let (running, seen) = serve_at("tcp://127.0.0.1:0").await;
    let channel = Channel::builder(&running.url()).connections(1).connect().await.unwrap();
    let hang = {
        let channel = channel.clone();
        tokio::spawn(async move { ask::<_, ()>(&channel, &HANG, &"").await })
    };
    soon(seen.until(|seen| seen.hanging() == 1)).await;
    assert_eq!(soon(running.drain(Duration::from_millis(50))).await.aborted, 1);
    assert_eq!(soon(hang).await.unwrap().unwrap_err().code(), Code::Unavailable);
    soon(seen.until(|seen| seen.hanging() == 0)).await;
}

#[tokio::test]
async fn idle_and_silent_clients_do_not_hold_the_drain() {
    let (running, _) = serve_at("tcp://127.0.0.1:0").await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]).await.unwrap();
    // One has shown its protocol and closes nothing, the other has sent nothing.
    let mut idle = support::raw::Raw::open(&running).await;
    idle.echo(1).await;
    let _silent = support::raw::Raw::silent(&running).await;
    soon(async {
        while running.stats().connections < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The limit is longer than `soon` waits.
    assert_eq!(soon(running.drain(Duration::from_secs(60))).await.aborted, 0);
    let away = idle.expect().await;
    assert_eq!((away.kind, &away.body[..]), (support::raw::GO_AWAY, &b"the server is going away"[..]));
}

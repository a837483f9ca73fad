//! Channels to several servers: calls go on while servers die and come back.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod choice;
mod explain;
mod flaky;
mod modes;
#[path = "../support/mod.rs"]
mod support;

use std::{
    future::{Future, IntoFuture, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};
use support::{raw::soon, *};
use switchboard::{Channel, Code, Running, Server};

async fn serve_at(address: &str) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    (Server::new().add(probe).listen(address).start().await.expect("start"), seen)
}

/// So many servers, each on a port of its own.
async fn servers(count: usize) -> Vec<(Running, Arc<Seen>)> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(serve_at("tcp://127.0.0.1:0").await);
    }
    servers
}

/// A URL of all of them, with options.
fn url(servers: &[(Running, Arc<Seen>)], options: &str) -> String {
    let addresses: Vec<_> = servers.iter().map(|(running, _)| running.url()).collect();
    format!("{}{options}", addresses.join(","))
}

/// Starts a server again where another one was.
async fn restarted(url: &str) -> Running {
    soon(async {
        loop {
            match Server::new().add(Probe::default()).listen(url).start().await {
                Ok(running) => return running,
                // Connections of the old one keep the port for a moment.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

/// Calls that a server has answered.
fn answered(running: &Running) -> u64 {
    running.stats().methods.iter().map(|method| method.ended[0]).sum()
}

/// A call that may be sent again when its connection breaks.
async fn echo(channel: &Channel) -> switchboard::Result<Vec<u8>> {
    let call = call::<_, Vec<u8>>(channel, &ECHO, &b"hello".to_vec());
    soon(call.idempotent().into_future()).await.map(switchboard::Response::into_inner)
}

#[tokio::test]
async fn calls_are_spread_and_survive_a_server_that_dies() {
    let mut servers = servers(3).await;
    let channel = Channel::connect(&url(&servers, "?balance=p2c")).await.unwrap();
    // Connections to all of them are made in the background.
    soon(async {
        while servers.iter().any(|(running, _)| answered(running) == 0) {
            echo(&channel).await.unwrap();
        }
    })
    .await;
    for _ in 0..100 {
        echo(&channel).await.unwrap();
    }
    let (dead, _) = servers.remove(1);
    let address = dead.url();
    dead.kill();
    for _ in 0..200 {
        echo(&channel).await.unwrap();
    }
    let back = restarted(&address).await;
    soon(async {
        while answered(&back) == 0 {
            echo(&channel).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn with_all_servers_dead_calls_fail_and_say_why() {
    let servers = servers(2).await;
    let channel = Channel::connect(&url(&servers, "?retries=1")).await.unwrap();
    echo(&channel).await.unwrap();
    let urls: Vec<_> = servers.iter().map(|(running, _)| running.url()).collect();
    for (running, _) in servers {
        running.kill();
    }
    let status = soon(async {
        loop {
            if let Err(status) = echo(&channel).await
                && status.message().contains("none of 2 endpoints")
            {
                return status;
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(urls.iter().all(|url| status.message().contains(url)), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_while_servers_die_and_come_back() {
    let mut servers = servers(4).await;
    let channel = Channel::connect(&url(&servers, "")).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let caller = |_| {
        let (channel, stop) = (channel.clone(), stop.clone());
        tokio::spawn(async move {
            let mut calls = 0u64;
            while !stop.load(Ordering::Relaxed) {
                if let Err(status) = echo(&channel).await {
                    panic!("after {calls} calls: {status}");
                }
                calls += 1;
            }
            calls
        })
    };
    let callers: Vec<_> = (0..100).map(caller).collect();
    for round in 0..6 {
        let (running, seen) = servers.remove(round % 3);
        let address = running.url();
        running.kill();
        let back = restarted(&address).await;
        // Calls are back on it.
        soon(async {
            while answered(&back) == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        servers.push((back, seen));
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(soon(caller).await.unwrap() > 0);
    }
}

/// Callers that look late find the next connection in the place of the one that their calls were lost with.
#[tokio::test]
async fn calls_lost_with_a_connection_say_nothing_of_the_next_one() {
    let (running, seen) = serve_at("tcp://127.0.0.1:0").await;
    let address = running.url();
    let channel = Channel::connect(&format!("{address}?balance=p2c&fail=failfast")).await.unwrap();
    let mut calls: Vec<_> =
        (0..50).map(|_| Box::pin(call::<_, Vec<u8>>(&channel, &HANG, &b"hello".to_vec()))).collect();
    for call in &mut calls {
        let pending = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
    }
    soon(seen.until(|seen| seen.hanging() == calls.len())).await;
    running.kill();
    let _back = restarted(&address).await;
    soon(async { while echo(&channel).await.is_err() {} }).await;
    for call in calls {
        assert_eq!(soon(call).await.unwrap_err().code(), Code::Unavailable);
    }
    let [endpoint] = &channel.endpoints()[..] else { panic!("one server") };
    assert!(endpoint.open_breakers.is_empty() && endpoint.state == "up", "{endpoint:?}");
    assert!(endpoint.latency < Duration::from_secs(1), "{endpoint:?}");
}

#[test]
fn works_from_threads_without_a_runtime() {
    let (urls, servers) = switchboard::blocking::run(async {
        let servers = servers(2).await;
        Ok((url(&servers, ""), servers))
    })
    .unwrap();
    let channel = switchboard::blocking::connect(&urls).unwrap();
    for _ in 0..20 {
        let reply = switchboard::blocking::run(call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).unwrap();
        assert_eq!(*reply, [1]);
    }
    drop(servers);
}

#[test]
fn pinned_workers_share_the_servers() {
    switchboard::Runtime::new().workers(2).run(async {
        let servers = servers(3).await;
        let channel = Channel::connect(&url(&servers, "?balance=least_active")).await.unwrap();
        soon(async {
            while servers.iter().any(|(running, _)| answered(running) < 10) {
                echo(&channel).await.unwrap();
            }
        })
        .await;
    });
}

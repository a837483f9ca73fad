//! A server drains while callers reach it through WebSockets: calls in flight end well, new calls go to another server
//! or surely did not begin, and the drain ends before its limit.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

mod support;

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use support::{
    gate::{Gate, PASS, WAIT, message},
    raw::soon,
};
use switchboard::{Channel, ClientMethod, Code, Codec, Limit, Result, Retry, Running, Server, Status};

/// Options of channels for each wire that a WebSocket carries.
const WIRES: [&str; 3] = ["", "wire=jsonrpc", "wire=rpcx"];
/// No drain in these tests takes so long.
const LIMIT: Duration = Duration::from_secs(60);
/// For so long, and some more, a server that drains takes the calls of peers that may not know of it.
const LINGER: Duration = Duration::from_millis(400);

async fn start() -> (Running, Gate) {
    let gate = Gate::default();
    let server = Server::new().add(gate.clone()).listen("tcp://127.0.0.1:0");
    (server.start().await.unwrap(), gate)
}

/// The address of a server through WebSockets, with an option of the wire.
fn url(running: &Running, wire: &str) -> String {
    running.url().replace("tcp://", "ws://") + "?connections=1&" + wire
}

/// A call, whose reply has to be its own; sent again only where it surely did not begin, unless it is `idempotent`.
async fn call_as(
    idempotent: bool,
    channel: &Channel,
    method: &'static ClientMethod,
    number: u64,
) -> Result<()> {
    let codec = channel.codec(Codec::Proto);
    let sent = message(number, codec);
    let call = channel.unary(method, codec, Ok(sent.clone()), |_, bytes| Ok(bytes));
    let call = if idempotent { call.idempotent() } else { call };
    assert_eq!(soon(call.into_future()).await?.into_inner(), sent);
    Ok(())
}

async fn call(channel: &Channel, method: &'static ClientMethod, number: u64) -> Result<()> {
    call_as(false, channel, method, number).await
}

#[tokio::test]
async fn calls_in_flight_end_well_and_new_ones_surely_did_not_begin() {
    for wire in WIRES {
        let (running, gate) = start().await;
        let channel = Channel::connect(&url(&running, wire)).await.unwrap();
        let waiting = {
            let channel = channel.clone();
            tokio::spawn(async move { call(&channel, &WAIT, 1).await })
        };
        soon(gate.arrived.notified()).await;
        let drained = tokio::spawn(running.drain(LIMIT));
        // Calls are taken until the client knows of the drain, or the server refuses them.
        let refused = soon(async {
            loop {
                if let Err(status) = call(&channel, &PASS, 2).await {
                    return status;
                }
            }
        })
        .await;
        assert_eq!((refused.code(), refused.retry()), (Code::Unavailable, Retry::Safe), "{wire}: {refused}");
        gate.open.add_permits(1);
        soon(waiting).await.unwrap().unwrap_or_else(|status| panic!("{wire}: {status}"));
        assert_eq!(soon(drained).await.unwrap().aborted, 0, "{wire}");
    }
}

#[tokio::test]
async fn drain_under_load_loses_no_call() {
    for wire in WIRES {
        // The native wire alone has GO_AWAY. A call on another wire may cross the end of its connection, and its caller
        // cannot know then whether it began.
        let idempotent = !wire.is_empty();
        let (first, gate) = start().await;
        let (second, other) = start().await;
        let urls =
            format!("{},{}", first.url(), second.url().replace("tcp://", "")).replace("tcp://", "ws://");
        let channel = Channel::connect(&format!("{urls}?connections=1&{wire}")).await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..10)
            .map(|number| {
                let (channel, stop) = (channel.clone(), stop.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        call_as(idempotent, &channel, &PASS, number).await?;
                    }
                    Ok::<_, Status>(())
                })
            })
            .collect();
        let mut waiting = Vec::new();
        let mut waits_at_first = false;
        while !waits_at_first {
            let channel = channel.clone();
            waiting.push(tokio::spawn(async move { call(&channel, &WAIT, 100).await }));
            waits_at_first = soon(async {
                tokio::select! {
                    () = gate.arrived.notified() => true,
                    () = other.arrived.notified() => false,
                }
            })
            .await;
        }
        let drained = tokio::spawn(first.drain(LIMIT));
        for gate in [&gate, &other] {
            gate.open.add_permits(waiting.len());
        }
        for waiting in waiting {
            soon(waiting).await.unwrap().unwrap_or_else(|status| panic!("{wire}: {status}"));
        }
        assert_eq!(soon(drained).await.unwrap().aborted, 0, "{wire}");
        for number in 0..20 {
            call_as(idempotent, &channel, &PASS, number)
                .await
                .unwrap_or_else(|status| panic!("{wire}: {status}"));
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            soon(caller).await.unwrap().unwrap_or_else(|status| panic!("{wire}: {status}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_meet_the_begin_of_a_drain_are_answered_or_did_not_begin() {
    const CALLERS: u64 = 8;
    let mut answered = [0; WIRES.len()];
    for round in 0..72 {
        let at = round as usize % WIRES.len();
        let (running, _) = start().await;
        let url = url(&running, WIRES[at]);
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let url = url.clone();
                tokio::spawn(async move {
                    let channel = Channel::builder(&url).lazy().unwrap();
                    (call(&channel, &PASS, number).await, Instant::now())
                })
            })
            .collect();
        // The drain begins with so many WebSockets just open, and others in their handshake.
        soon(async {
            while websockets(&running) < round % CALLERS {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let began = Instant::now();
        let drained = tokio::spawn(running.drain(LIMIT));
        for caller in callers {
            let (result, ended) = caller.await.unwrap();
            let Err(status) = result else {
                answered[at] += 1;
                continue;
            };
            assert_eq!(status.code(), Code::Unavailable, "{url}: {status}");
            assert!(!status.message().contains("broke the protocol"), "{url}: {status}");
            if ended < began + LINGER {
                assert_eq!(status.retry(), Retry::Safe, "{url}: {status}");
            }
        }
        assert_eq!(soon(drained).await.unwrap().aborted, 0);
    }
    assert!(answered.iter().all(|calls| *calls > 0), "no call met the begin of a drain: {answered:?}");
}

#[tokio::test]
async fn calls_on_old_connections_move_to_new_ones() {
    for wire in WIRES {
        let server = Server::new().add(Gate::default()).listen("tcp://127.0.0.1:0");
        let running = server.limit(Limit::ConnectionAge, 100).start().await.unwrap();
        let channel = Channel::connect(&url(&running, wire)).await.unwrap();
        soon(async {
            while websockets(&running) < 3 {
                let Err(status) = call(&channel, &PASS, 7).await else { continue };
                // A call on a wire without GO_AWAY may cross the end of its connection.
                assert!(!wire.is_empty() && status.code() == Code::Unavailable, "{wire}: {status}");
            }
        })
        .await;
    }
}

/// WebSockets that were opened so far.
fn websockets(running: &Running) -> u64 {
    let protocols = running.stats().protocols;
    protocols
        .iter()
        .find(|protocol| protocol.protocol == "websocket")
        .map_or(0, |protocol| protocol.connections)
}

//! Hostile peers of every wire: a well-behaved caller beside them is served, and the server holds no memory
//! for them afterwards.
//!
//! Each test serves one wire on one thread, with the connection of a well-behaved caller. A hostile peer on another
//! thread goes through the strategies in `strategies/` in turn. While it does, every call of the caller must get its
//! reply, the heap of the serving thread stays under a bound, and afterwards the server holds nothing. The processor
//! time that a call takes beside the peer is compared with that of calls alone: time that the machine spends elsewhere
//! does not count.
//!
//! `clients.rs` turns the roles round: clients of every wire and hostile servers.
//!
//! A plain test run makes some calls beside each strategy; `ADVERSARY_MILLIS=100` goes on for so long with each, and
//! `--nocapture` shows a table. `ADVERSARY_ONLY` names a part of the strategies to run.
#![cfg(all(feature = "http", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]
#![allow(missing_docs, unreachable_pub, reason = "modules of one test")]
#![allow(unsafe_code, reason = "an allocator that counts can only be written so")]

mod clients;
mod counting;
mod peer;
mod random;
mod report;
mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod target;
mod tricks;
mod wire;
mod wires;

use peer::{Attack, PATIENCE};
use report::{Latencies, Row};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use strategies::Strategy;
use support::raw::soon;
use switchboard::{Channel, StopOptions};
use target::{Served, show};
use wire::Wire;

macro_rules! servers {
    ($($name:ident $wire:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            static WIRE: Wire = $wire;
            attacked(&WIRE).await;
        })*
    };
}

servers! {
    server_of_baidu_std wires::baidu::BAIDU;
    server_of_erpc wires::erpc::ERPC;
    server_of_grpc wires::http2::HTTP2;
    server_of_grpc_web wires::http1::GRPC_WEB;
    server_of_http1 wires::http1::HTTP1;
    server_of_hulu wires::hulu::HULU;
    server_of_json_rpc wires::jsonrpc::JSON_RPC;
    server_of_json_rpc_by_post wires::http1::JSON_RPC_POST;
    server_of_json_rpc_in_websockets wires::websocket::JSON_RPC;
    server_of_kiss wires::kiss::KISS;
    server_of_native wires::native::NATIVE;
    server_of_native_in_websockets wires::websocket::WEBSOCKET;
    server_of_rpcx wires::rpcx::RPCX;
    server_of_sofa wires::sofa::SOFA;
    server_of_thrift wires::thrift::FRAMED;
    server_of_thrift_compact wires::thrift::COMPACT;
    server_of_thrift_header wires::thrift::HEADER;
    server_of_thrift_unframed wires::thrift::UNFRAMED;
    server_of_tls wires::tls::TLS;
}

/// Calls beside each strategy, unless a time is set.
const CALLS: usize = 20;
/// Tries until the calls beside a peer must have been quick enough.
const TRIES: usize = 4;
/// Heap that a peer of any strategy may make the serving thread use at once.
const PEAK_MAX: i64 = 48 << 20;
/// Heap that may be left when a peer is gone: buffers that the thread uses again, tables that have grown.
const LEFT_MAX: i64 = 4 << 20;

/// How long the calls beside a strategy go on.
fn length() -> Duration {
    let millis = std::env::var("ADVERSARY_MILLIS").ok();
    Duration::from_millis(millis.map_or(0, |millis| millis.parse().expect("a number of milliseconds")))
}

/// Runs the strategies that `ADVERSARY_ONLY` has in their names, or all.
fn chosen() -> impl Iterator<Item = &'static Strategy> {
    let only = std::env::var("ADVERSARY_ONLY").unwrap_or_default();
    strategies::all().filter(move |strategy| strategy.name.contains(&only))
}

/// A wire under all strategies.
async fn attacked(wire: &'static Wire) {
    let served = Served::start(wire.tls).await;
    let channel = served.channel(wire.channel).await;
    // What a first call allocates is not the peer's.
    calls(&channel, Duration::ZERO, || false).await.unwrap();
    let neighbours = served.running.stats().connections;
    let before = counting::live();
    println!("{}", report::head());
    let mut faults = Vec::new();
    for strategy in chosen() {
        let ended = run(&served, &channel, wire, strategy, neighbours).await;
        let left = counting::live() - before;
        match ended {
            Ok(row) => println!("{}", Row { left, ..row }),
            Err(fault) => {
                println!("{:<19} {:<38} FAILED: {fault}", wire.name, strategy.name);
                faults.push(format!("{}: {fault}", strategy.name));
            }
        }
        if left > LEFT_MAX {
            faults.push(format!("{}: {left} bytes of the heap are left", strategy.name));
            break;
        }
    }
    let stopped = soon(
        served.running.stop(StopOptions::new().drain(Duration::from_secs(10)).close(Duration::from_secs(15))),
    )
    .await;
    if !stopped.is_clean() {
        faults.push(format!("the drain aborted {stopped:?}"));
    }
    assert!(faults.is_empty(), "{}:\n{}", wire.name, faults.join("\n"));
}

/// One strategy, again if the calls beside it were slow.
async fn run(
    served: &Served,
    channel: &Channel,
    wire: &'static Wire,
    strategy: &'static Strategy,
    neighbours: u64,
) -> Result<Row, String> {
    for attempt in 1.. {
        let alone = calls(channel, Duration::ZERO, || false)
            .await
            .map_err(|why| format!("a call before it failed: {why}"))?;
        counting::reset_peak();
        let before = counting::live();
        let attack = Arc::new(Attack::new(wire, served.address));
        let (hostile, run) = (attack.clone(), strategy.run);
        let thread = std::thread::spawn(move || run(&hostile));
        let accepted = served.running.stats().accepted;
        let under_way = || {
            let now = served.running.stats().accepted;
            attack.accepted.store(now - accepted, Ordering::Relaxed);
            !thread.is_finished() && attack.deeds.load(Ordering::Relaxed) == 0
        };
        let beside = calls(channel, length(), under_way).await;
        attack.stop.store(true, Ordering::Relaxed);
        // The server goes on while this waits for the thread.
        let joined = tokio::time::timeout(4 * PATIENCE, tokio::task::spawn_blocking(|| thread.join())).await;
        let joined = joined.map_err(|_| "the peer waits for ever".to_owned())?.unwrap();
        joined.map_err(|_| "the peer panicked".to_owned())?;
        let beside = beside.map_err(|why| format!("a call beside it failed: {why}"))?;
        let faults = attack.faults.lock().unwrap().join("\n");
        if !faults.is_empty() {
            return Err(faults);
        }
        forgotten(served, neighbours).await?;
        let peak = counting::peak() - before;
        if peak > PEAK_MAX {
            return Err(format!("it made the server use {peak} bytes of the heap"));
        }
        let deeds = attack.deeds.load(Ordering::Relaxed);
        let row = Row { wire: wire.name, name: strategy.name, deeds, alone, beside, peak, left: 0 };
        if row.is_quick() {
            return Ok(row);
        }
        if attempt == TRIES {
            return Err(format!("calls beside it are too slow, {TRIES} times:\n{row}"));
        }
    }
    unreachable!("the last try returns")
}

/// Calls one after the other, for `length` and while `more` says so.
async fn calls(channel: &Channel, length: Duration, more: impl Fn() -> bool) -> Result<Latencies, String> {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let (began, mut latencies) = (Instant::now(), Latencies::default());
    while more() || latencies.len() < CALLS || began.elapsed() < length {
        let (worked, started) = (counting::worked(), Instant::now());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shown = tokio::time::timeout(PATIENCE, show(channel, number)).await;
        shown.map_err(|_| format!("no reply after {PATIENCE:?}"))??;
        latencies.add(started.elapsed(), counting::worked().saturating_sub(worked));
        // The peer's thread gets its turn.
        tokio::task::yield_now().await;
    }
    Ok(latencies)
}

/// Waits until the server holds nothing of a peer that has gone. What the peer wrote before that is still read, some
/// megabytes a connection: the patience is for a server that does not go on.
async fn forgotten(served: &Served, neighbours: u64) -> Result<(), String> {
    let (mut began, mut before) = (Instant::now(), 0);
    loop {
        let stats = served.running.stats();
        let received: u64 = stats.protocols.iter().map(|protocol| protocol.received).sum();
        if received != before {
            (began, before) = (Instant::now(), received);
        }
        let (connections, calls, held) = (stats.connections, stats.calls_in_flight, stats.memory.held);
        if connections <= neighbours && calls == 0 && held < 4096 {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("{connections} connections, {calls} calls and {held} bytes are left"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

//! Bugs that simulations have found, each reproduced in few steps.

use super::{
    journal::Journal,
    messages,
    network::Link,
    random::Random,
    service::{READ, WRITE, Work, WorkRequest, WorkResponse},
    wires::{ALIASES, WIRES, Wire},
};
use crate::{Server, StopOptions};
use bytes::Bytes;
use std::{
    future::IntoFuture,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use switchboard_client::Channel;
use switchboard_core::Result;
use switchboard_discovery::{
    balance::{Balance, Endpoints, Pick},
    discover::{Fixed, Instance, State},
};
use switchboard_guard::guard::ResultCache;
use switchboard_net::net::memory;
use switchboard_wire::{Code, Codec, Retry};
use tokio::time::{Instant, advance, timeout};

const SOON: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn deadline_that_passes_while_the_connection_closes_ends_its_call() {
    let mut silent = memory::Listener::bind("sim-silent").unwrap();
    let channel = Channel::builder("memory://sim-silent").keepalive(Duration::from_secs(1)).lazy().unwrap();
    let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
    let call = tokio::spawn(call.timeout(Duration::from_secs(3)).into_future());
    let held = silent.accept().await.unwrap();
    // The peer does not respond to the ping; long after it, all timers fire at once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    advance(Duration::from_secs(60)).await;
    let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn connect_time_counts_toward_the_timeout() {
    for (name, options) in [("sim-slow", ""), ("sim-slow-fleet", "?fail=failtry")] {
        let mut silent = memory::Listener::bind(name).unwrap();
        let mut held = Vec::new();
        // Fill the accept queue until a dial waits.
        while let Ok(dialled) = timeout(Duration::from_millis(1), memory::dial(name)).await {
            held.push(dialled.unwrap());
        }
        let channel = Channel::builder(&format!("memory://{name}{options}")).lazy().unwrap();
        let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
        let call = tokio::spawn(call.timeout(Duration::from_millis(400)).into_future());
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(300)).await;
        held.push(silent.accept().await.unwrap());
        let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(began.elapsed() < Duration::from_millis(410), "{options}: {:?}", began.elapsed());
    }
}

/// Sends a write that takes 100 ms, with a key or without, and aborts its connection after 50 ms. Returns the number of
/// attempts or the error, and the number of effects.
async fn abort_during_write(number: usize, wire: &Wire, keys: bool) -> (Result<u32>, u32) {
    let (front, back) = (format!("sim-cut-{number}-{keys}"), format!("sim-cut-{number}-{keys}-back"));
    let journal = Arc::new(Journal::new());
    let work = Work { journal: journal.clone(), incarnation: (0, 0), fail_percent: Arc::default() };
    let server = Server::new().add(work).listen(format!("memory://{back}"));
    let server = ALIASES.into_iter().fold(server, |server, (alias, name)| server.alias(alias, name));
    let running = server.result_cache(ResultCache::of("sim.Work/Write")).start().await.unwrap();
    let link = Link::new(front.clone(), back, Random::new(1));
    let builder = Channel::builder(&wire.at(&format!("memory://{front}")));
    let channel = builder.connections(1).idempotency_keys(keys).connect().await.unwrap();
    let request = WorkRequest { id: 1, work_ms: 100, bytes: 1, count: 0, fails: 0 };
    let call = channel.unary(
        &WRITE,
        wire.codec,
        messages::write(&request, wire.codec),
        messages::read::<WorkResponse>,
    );
    let call = tokio::spawn(call.into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(link.abort_connections(true, &Random::new(1)), 1, "{}", wire.name());
    let outcome = timeout(SOON, call).await.expect("it ends").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.stop(StopOptions::new().drain(Duration::ZERO).close(SOON)).await;
    (outcome.map(|response| response.attempts()), journal.effects(1))
}

#[tokio::test(start_paused = true)]
async fn write_with_a_key_runs_once_when_its_connection_breaks_before_the_reply() {
    for (number, wire) in WIRES.iter().enumerate() {
        let (outcome, effects) = abort_during_write(number, wire, true).await;
        if wire.metadata {
            // One retry, or more when an attempt met a connection that was closing.
            let attempts = outcome.unwrap();
            assert!(attempts >= 2 && effects == 1, "{}: {attempts} attempts, {effects} effects", wire.name());
        } else {
            // The wire does not carry the key to the server.
            assert_eq!((outcome.unwrap_err().code(), effects), (Code::Unavailable, 1), "{}", wire.name());
        }
        let (outcome, effects) = abort_during_write(number, wire, false).await;
        let code = outcome.unwrap_err().code();
        assert_eq!((code, effects), (Code::Unavailable, 1), "{}: not retried", wire.name());
    }
}

/// Runs `run` on its own thread, so that an endless loop without a wait fails the test instead of blocking it.
fn ends<T: Send + 'static>(run: impl Future<Output = T> + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        done.send(runtime.block_on(run))
    });
    result.recv_timeout(Duration::from_secs(60)).expect("ends, and does not loop forever")
}

/// Returns the connected servers of a fleet, once there is one.
async fn connected(channel: &Channel) -> Vec<String> {
    loop {
        let up: Vec<_> = channel.endpoints().into_iter().filter(|endpoint| endpoint.state == "up").collect();
        if !up.is_empty() {
            return up.into_iter().map(|endpoint| endpoint.address).collect();
        }
        // The first call connects.
        let _ = read(channel).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn read(channel: &Channel) -> Result<Bytes> {
    let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
    timeout(SOON, call.timeout(Duration::from_millis(500)).into_future())
        .await
        .expect("it ends")
        .map(switchboard_client::Response::into_inner)
}

#[test]
fn calls_end_when_the_only_connected_server_drains() {
    let status = ends(async {
        let work =
            Work { journal: Arc::new(Journal::new()), incarnation: (0, 0), fail_percent: Arc::default() };
        let running = Server::new().add(work).listen("memory://sim-draining").start().await.unwrap();
        let draining = Instance::new("sim.Work", running.url()).state(State::Draining);
        let dead = Instance::new("sim.Work", "memory://sim-absent");
        let list = Arc::new(Fixed::new([draining, dead]));
        let channel = Channel::fleet(list, "sim.Work").url_options("fail=failfast").unwrap().lazy().unwrap();
        assert_eq!(connected(&channel).await, ["memory://sim-draining"]);
        read(&channel).await.unwrap_err()
    });
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().contains("sim-absent"), "{status}");
}

#[test]
fn balancer_that_selects_no_endpoint_is_called_a_limited_number_of_times() {
    struct Picky;

    impl Balance for Picky {
        fn pick(&self, _set: &Endpoints, _pick: &Pick<'_>) -> Option<usize> {
            None
        }
    }

    let status = ends(async {
        let work =
            Work { journal: Arc::new(Journal::new()), incarnation: (0, 0), fail_percent: Arc::default() };
        let running = Server::new().add(work).listen("memory://sim-rejected").start().await.unwrap();
        let channel = Channel::builder(&running.url()).balance(Picky).lazy().unwrap();
        connected(&channel).await;
        read(&channel).await.unwrap_err()
    });
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().contains("the balancer chose no endpoint"), "{status}");
}

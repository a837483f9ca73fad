//! What simulations have found, each in as few steps as it takes.

use super::{
    chance::Chance,
    journal::Journal,
    messages,
    network::Link,
    service::{Ask, READ, Told, WRITE, Work},
    wires::{ALIASES, WIRES, Wire},
};
use crate::{
    Channel, Code, Codec, Result, Retry, Server,
    balance::{Balance, Endpoints, Pick},
    discover::{Fixed, Instance, State},
    guard::ResultCache,
    net::memory,
};
use bytes::Bytes;
use std::{
    future::IntoFuture,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tokio::time::{Instant, advance, timeout};

const SOON: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn deadline_that_passes_as_the_connection_is_given_up_ends_its_call() {
    let mut silent = memory::Listener::bind("sim-silent").unwrap();
    let channel = Channel::builder("memory://sim-silent").keepalive(Duration::from_secs(1)).lazy().unwrap();
    let call = channel.unary(&READ, Codec::Postcard, Ok(Bytes::new()), |_, reply: Bytes| Ok(reply));
    let call = tokio::spawn(call.timeout(Duration::from_secs(3)).into_future());
    let held = silent.accept().await.unwrap();
    // The ping that nobody answers, and long after it everything at once.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    advance(Duration::from_secs(60)).await;
    let status = timeout(SOON, call).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn time_that_connecting_takes_is_taken_off_the_timeout() {
    for (name, options) in [("sim-slow", ""), ("sim-slow-fleet", "?fail=failtry")] {
        let mut silent = memory::Listener::bind(name).unwrap();
        let mut held = Vec::new();
        // Until nobody else gets in.
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

/// Sends a write that takes 100 ms, with a key or without, and cuts its connection after 50; what came of it, and how
/// often it took effect.
async fn cut_write(number: usize, wire: &Wire, keys: bool) -> (Result<u32>, u32) {
    let (front, back) = (format!("sim-cut-{number}-{keys}"), format!("sim-cut-{number}-{keys}-back"));
    let journal = Arc::new(Journal::new());
    let work = Work { journal: journal.clone(), place: (0, 0), sick: Arc::default() };
    let server = Server::new().add(work).listen(format!("memory://{back}"));
    let server = ALIASES.into_iter().fold(server, |server, (alias, name)| server.alias(alias, name));
    let running = server.result_cache(ResultCache::of("sim.Work/Write")).start().await.unwrap();
    let link = Link::new(front.clone(), back, Chance::new(1));
    let builder = Channel::builder(&wire.at(&format!("memory://{front}")));
    let channel = builder.connections(1).idempotency_keys(keys).connect().await.unwrap();
    let ask = Ask { request: 1, work_ms: 100, bytes: 1, count: 0, fails: 0 };
    let call = channel.unary(&WRITE, wire.codec, messages::write(&ask, wire.codec), messages::read::<Told>);
    let call = tokio::spawn(call.into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(link.cut(true, &Chance::new(1)), 1, "{}", wire.name());
    let outcome = timeout(SOON, call).await.expect("it ends").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.stop(Duration::ZERO, SOON).await;
    (outcome.map(|told| told.attempts()), journal.effects(1))
}

#[tokio::test(start_paused = true)]
async fn write_with_a_key_runs_once_when_its_connection_is_cut_before_the_reply() {
    for (number, wire) in WIRES.iter().enumerate() {
        let (outcome, effects) = cut_write(number, wire, true).await;
        if wire.metadata {
            // Once more, or oftener where an attempt met a connection that was just closing.
            let attempts = outcome.unwrap();
            assert!(attempts >= 2 && effects == 1, "{}: {attempts} attempts, {effects} effects", wire.name());
        } else {
            // Its server does not get the key.
            assert_eq!((outcome.unwrap_err().code(), effects), (Code::Unavailable, 1), "{}", wire.name());
        }
        let (outcome, effects) = cut_write(number, wire, false).await;
        let code = outcome.unwrap_err().code();
        assert_eq!((code, effects), (Code::Unavailable, 1), "{}: it is not sent again", wire.name());
    }
}

/// Runs this on a thread of its own: what goes round without waiting could not be ended on this one.
fn ends<T: Send + 'static>(run: impl Future<Output = T> + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        done.send(runtime.block_on(run))
    });
    result.recv_timeout(Duration::from_secs(60)).expect("it ends, and does not go round and round")
}

/// The servers of a fleet that are connected, once one is.
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
        .map(crate::Response::into_inner)
}

#[test]
fn calls_end_where_the_only_server_that_is_connected_drains() {
    let status = ends(async {
        let work = Work { journal: Arc::new(Journal::new()), place: (0, 0), sick: Arc::default() };
        let running = Server::new().add(work).listen("memory://sim-draining").start().await.unwrap();
        let draining = Instance::new("sim.Work", running.url()).state(State::Draining);
        let dead = Instance::new("sim.Work", "memory://sim-nobody");
        let list = Arc::new(Fixed::new([draining, dead]));
        let channel = Channel::fleet(list, "sim.Work").url_options("fail=failfast").unwrap().lazy().unwrap();
        assert_eq!(connected(&channel).await, ["memory://sim-draining"]);
        read(&channel).await.unwrap_err()
    });
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().contains("sim-nobody"), "{status}");
}

#[test]
fn balancer_that_wants_nobody_is_not_asked_without_end() {
    struct Picky;

    impl Balance for Picky {
        fn pick(&self, _set: &Endpoints, _pick: &Pick<'_>) -> Option<usize> {
            None
        }
    }

    let status = ends(async {
        let work = Work { journal: Arc::new(Journal::new()), place: (0, 0), sick: Arc::default() };
        let running = Server::new().add(work).listen("memory://sim-unwanted").start().await.unwrap();
        let channel = Channel::builder(&running.url()).balance(Picky).lazy().unwrap();
        connected(&channel).await;
        read(&channel).await.unwrap_err()
    });
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().contains("the balancer chose no endpoint"), "{status}");
}

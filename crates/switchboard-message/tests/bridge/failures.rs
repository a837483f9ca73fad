//! Bridges whose destination fails for a while.

use super::{kept, next, publish, settled};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use switchboard_message::{
    Bridge, Bus, Embedded, Position, Publication, Topic,
    broker::{Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
};
use switchboard_wire::Status;
use tokio::time::timeout;

/// An engine whose appends and reads fail while they have an error.
#[derive(Debug)]
struct Faulty {
    inner: Embedded,
    append: Mutex<Option<Status>>,
    read: Mutex<Option<Status>>,
    failures: AtomicUsize,
    /// The next append that fails has appended.
    loses_response: AtomicBool,
}

impl Faulty {
    fn new() -> Arc<Faulty> {
        Arc::new(Faulty {
            inner: Embedded::new(kept()),
            append: Mutex::default(),
            read: Mutex::default(),
            failures: AtomicUsize::new(0),
            loses_response: AtomicBool::new(false),
        })
    }

    fn bus(self: &Arc<Self>) -> Bus {
        Bus::builder().engine(self.clone()).build()
    }

    fn check(&self, error: &Mutex<Option<Status>>) -> switchboard_core::Result<()> {
        let Some(status) = error.lock().unwrap().clone() else { return Ok(()) };
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(status)
    }

    /// Waits until an operation has failed, then ends the errors.
    async fn mended_after(&self, failures: usize) {
        let failed = async {
            while self.failures.load(Ordering::Relaxed) < failures {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), failed).await.expect("the engine fails");
        *self.append.lock().unwrap() = None;
        *self.read.lock().unwrap() = None;
    }
}

impl Broker for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(async move {
            if self.loses_response.swap(false, Ordering::Relaxed) {
                self.inner.append(topic, publications.clone()).await?;
            }
            self.check(&self.append)?;
            self.inner.append(topic, publications).await
        })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        self.inner.subscribe(topic, known, to)
    }

    fn unsubscribe(&self, topic: &Topic) {
        self.inner.unsubscribe(topic);
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(async move {
            self.check(&self.read)?;
            self.inner.read(topic, from, entries_max).await
        })
    }
}

#[tokio::test]
async fn a_returned_entry_does_not_pass_one_that_was_not_published() {
    let (a, engine) = (kept(), Faulty::new());
    let b = engine.bus();
    let mut copies = b.subscribe::<u64>("t").await.unwrap();
    a.publish("t", &1_u64).await.unwrap();
    a.publish("t", &2_u64).header("switchboard-trail", "b").await.unwrap();
    *engine.append.lock().unwrap() = Some(Status::failed_precondition("not now"));
    let bridge = Bridge::builder("a", &a, "b", &b).to("t").first_entries(10).start().await.unwrap();
    engine.mended_after(1).await;
    a.publish("t", &3_u64).await.unwrap();
    assert_eq!((next(&mut copies).await, next(&mut copies).await), (1, 3));
    assert_eq!(bridge.stats().gaps, 0);
}

#[tokio::test]
async fn a_pattern_without_topics_at_the_start_copies_all() {
    let (a, engine) = (kept(), Faulty::new());
    let b = engine.bus();
    let mut copies = b.subscribe::<u64>("t/1").await.unwrap();
    let bridge = Bridge::builder("a", &a, "b", &b).to("t/>").start().await.unwrap();
    *engine.read.lock().unwrap() = Some(Status::unavailable("away"));
    publish(&a, "t/1", 0..5).await;
    engine.mended_after(1).await;
    for expected in 0..5 {
        assert_eq!(next(&mut copies).await, expected);
    }
    assert_eq!(bridge.stats().gaps, 0);
}

#[tokio::test]
async fn the_newest_copy_is_found_behind_large_entries() {
    let (a, b) = (kept(), kept());
    let large = "x".repeat(8_000);
    for _ in 0..300 {
        b.publish("t", &large).await.unwrap();
    }
    let start = || Bridge::builder("a", &a, "b", &b).to("t").start();
    let bridge = start().await.unwrap();
    publish(&a, "t", 0..5).await;
    settled(&bridge, 5).await;
    drop(bridge);
    publish(&a, "t", 5..8).await;
    let mut copies = b.subscribe::<u64>("t").await.unwrap();
    let bridge = start().await.unwrap();
    for expected in 5..8 {
        assert_eq!(next(&mut copies).await, expected);
    }
    assert_eq!((bridge.stats().copied, bridge.stats().gaps), (3, 0));
}

#[tokio::test]
async fn a_destination_without_a_copy_is_a_gap() {
    let (a, b) = (kept(), kept());
    publish(&b, "t", 0..1_000).await;
    let bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    assert_eq!(bridge.stats().gaps, 1);
}

#[tokio::test]
async fn a_pattern_reports_the_entries_that_it_missed() {
    let (a, engine) = (kept(), Faulty::new());
    let b = engine.bus();
    let bridge = Bridge::builder("a", &a, "b", &b).to("t/>").start().await.unwrap();
    publish(&a, "t/1", 0..1).await;
    settled(&bridge, 1).await;
    *engine.append.lock().unwrap() = Some(Status::failed_precondition("not now"));
    publish(&a, "t/1", 1..2).await;
    engine.mended_after(1).await;
    // The source keeps 1,000.
    publish(&a, "t/1", 2..1_502).await;
    settled(&bridge, 1_001).await;
    assert_eq!((bridge.stats().copied, bridge.stats().gaps), (1_001, 1));
}

#[tokio::test]
async fn copies_with_too_many_headers_are_refused() {
    let (a, b) = (kept(), kept());
    let bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    let mut copies = b.subscribe::<u64>("t").await.unwrap();
    for (entry, headers) in [(0_u64, 126), (1, 127), (2, 0)] {
        let mut publication = a.publish("t", &entry);
        for number in 0..headers {
            publication = publication.header(&format!("h{number}"), "x");
        }
        publication.await.unwrap();
    }
    assert_eq!((next(&mut copies).await, next(&mut copies).await), (0, 2));
    settled(&bridge, 3).await;
    assert_eq!((bridge.stats().copied, bridge.stats().refused), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_without_a_response_is_searched_when_its_id_is_forgotten() {
    let (a, engine) = (kept(), Faulty::new());
    let b = engine.bus();
    let mut copies = b.subscribe::<u64>("t").await.unwrap();
    let _bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    engine.loses_response.store(true, Ordering::Relaxed);
    *engine.append.lock().unwrap() = Some(Status::unavailable("away"));
    publish(&a, "t", 0..1).await;
    assert_eq!(next(&mut copies).await, 0);
    // Ids are remembered for two minutes.
    tokio::time::sleep(Duration::from_secs(600)).await;
    engine.mended_after(2).await;
    publish(&a, "t", 1..2).await;
    assert_eq!(next(&mut copies).await, 1);
}

#[tokio::test]
async fn a_withdrawn_permission_ends_the_direction() {
    let (a, engine) = (kept(), Faulty::new());
    let b = engine.bus();
    let bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    // Found when the bridge subscribes again, not when it copies.
    *engine.append.lock().unwrap() = Some(Status::failed_precondition("not now"));
    *engine.read.lock().unwrap() = Some(Status::permission_denied("no more"));
    publish(&a, "t", 0..1).await;
    let ended = async {
        while bridge.failure().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(30), ended).await.expect("the direction ends");
    assert_eq!(bridge.failure().unwrap().message(), "no more");
}

#[tokio::test]
async fn many_topics_of_a_pattern_are_copied() {
    let (a, b) = (kept(), kept());
    let bridge = Bridge::builder("a", &a, "b", &b).to("t/>").start().await.unwrap();
    for entry in 0..2 {
        // More than the bridge keeps positions of without a look at the list.
        for topic in 0..1_500 {
            publish(&a, &format!("t/{topic}"), entry..entry + 1).await;
            tokio::task::yield_now().await;
        }
        settled(&bridge, (entry + 1) * 1_500).await;
    }
    assert_eq!((bridge.stats().copied, bridge.stats().gaps), (3_000, 0));
}

//! The engine inside the process, in the suite of all engines.

mod suite;

use std::{sync::Arc, time::Duration};
use suite::{Engine, HISTORY, broker_suite};
use switchboard_message::{Bus, Embedded, TopicOptions, broker::Broker};

struct Inside {
    topics: Bus,
}

impl Engine for Inside {
    async fn start() -> Option<Inside> {
        let kept = TopicOptions::new().history(HISTORY as usize, Duration::MAX);
        Some(Inside { topics: Bus::builder().topics(">", kept).expect("a pattern").build() })
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(Embedded::new(self.topics.clone()))
    }

    fn is_remote(&self) -> bool {
        false
    }
}

broker_suite!(Inside);

/// The engine without its history, as one that only passes entries on.
mod without_history {
    use super::{Inside, suite};
    use std::sync::Arc;
    use suite::{Engine, broker_suite};
    use switchboard_message::{
        Position, Publication, Topic,
        broker::{Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
    };
    use switchboard_wire::Status;

    struct Forgetful(Inside);

    #[derive(Debug)]
    struct Forgets(Arc<dyn Broker>);

    impl Broker for Forgets {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn capabilities(&self) -> Capabilities {
            let mut capabilities = self.0.capabilities();
            capabilities.has_history = false;
            capabilities
        }

        fn append<'a>(
            &'a self,
            topic: &'a Topic,
            publications: Vec<Publication>,
        ) -> BrokerFuture<'a, Position> {
            self.0.append(topic, publications)
        }

        fn subscribe<'a>(
            &'a self,
            topic: &'a Topic,
            known: Option<Position>,
            to: Mailbox,
        ) -> BrokerFuture<'a, Position> {
            self.0.subscribe(topic, known, to)
        }

        fn unsubscribe(&self, topic: &Topic) {
            self.0.unsubscribe(topic);
        }

        fn read<'a>(&'a self, _: &'a Topic, _: ReadFrom, _: usize) -> BrokerFuture<'a, Page> {
            Box::pin(async { Err(Status::unimplemented("this engine has no history")) })
        }
    }

    impl Engine for Forgetful {
        async fn start() -> Option<Forgetful> {
            Inside::start().await.map(Forgetful)
        }

        fn broker(&self) -> Arc<dyn Broker> {
            Arc::new(Forgets(self.0.broker()))
        }

        fn is_remote(&self) -> bool {
            false
        }
    }

    broker_suite!(Forgetful:
        order_with_many_publishers, every_start_position, holes_are_filled, duplicates_are_dropped,
        history_is_trimmed_below_a_reader, a_slow_reader_catches_up, drain,
        a_bridge_copies_both_ways);
}

/// The engine, with a replica that is behind for some reads.
mod with_a_replica {
    use super::{Inside, suite};
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };
    use suite::Engine;
    use switchboard_message::{
        Bus, Delivery, GapReason, Position, Publication, Topic,
        broker::{Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
    };

    #[derive(Debug)]
    struct Behind {
        broker: Arc<dyn Broker>,
        reads: AtomicU64,
        /// Reads after the first one that have no entries.
        empty: u64,
    }

    impl Broker for Behind {
        fn name(&self) -> &str {
            self.broker.name()
        }

        fn capabilities(&self) -> Capabilities {
            self.broker.capabilities()
        }

        fn append<'a>(
            &'a self,
            topic: &'a Topic,
            publications: Vec<Publication>,
        ) -> BrokerFuture<'a, Position> {
            self.broker.append(topic, publications)
        }

        fn subscribe<'a>(
            &'a self,
            topic: &'a Topic,
            known: Option<Position>,
            to: Mailbox,
        ) -> BrokerFuture<'a, Position> {
            self.broker.subscribe(topic, known, to)
        }

        fn unsubscribe(&self, topic: &Topic) {
            self.broker.unsubscribe(topic);
        }

        fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, max: usize) -> BrokerFuture<'a, Page> {
            Box::pin(async move {
                let page = self.broker.read(topic, from, max).await?;
                let read = self.reads.fetch_add(1, Ordering::Relaxed);
                Ok(match (1..=self.empty).contains(&read) {
                    true => Page::new(page.head, None, Vec::new()),
                    false => page,
                })
            })
        }
    }

    /// Publishes a hundred entries, and subscribes from the first one on; with the head of the topic.
    async fn subscribe(empty: u64) -> (switchboard_message::Subscription<u64>, Bus) {
        let engine = Inside::start().await.expect("an engine of the process");
        let broker = Behind { broker: engine.broker(), reads: AtomicU64::new(0), empty };
        let bus = Bus::builder().engine(Arc::new(broker)).build();
        suite::publish(&bus, "behind", 0..100).await;
        (
            bus.subscribe::<u64>("behind")
                .since(Duration::from_secs(3_600))
                .await
                .expect("the engine is there"),
            bus,
        )
    }

    #[tokio::test]
    async fn an_empty_page_is_read_again() {
        let (mut subscription, _bus) = subscribe(2).await;
        assert!(matches!(suite::next(&mut subscription).await, Delivery::Recovered));
        suite::expect(&mut subscription, 0..100).await;
    }

    #[tokio::test]
    async fn entries_that_stay_away_are_a_gap() {
        let (mut subscription, bus) = subscribe(u64::MAX).await;
        assert!(matches!(suite::next(&mut subscription).await, Delivery::Recovered));
        suite::expect(&mut subscription, 0..64).await;
        assert_eq!(suite::next_gap(&mut subscription).await, (65..101, GapReason::Lost));
        suite::publish(&bus, "behind", 100..101).await;
        suite::expect(&mut subscription, 100..101).await;
    }
}

/// Engines that are away.
mod away {
    use std::sync::Arc;
    use switchboard_message::{
        Bus, Position, Publication, Topic,
        broker::{Accepted, Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
    };
    use switchboard_wire::{Retry, Status};

    #[derive(Debug)]
    struct Away {
        drops_duplicates: bool,
    }

    fn away<T>() -> BrokerFuture<'static, T> {
        Box::pin(async { Err(Status::unavailable("the engine does not respond")) })
    }

    impl Broker for Away {
        fn name(&self) -> &'static str {
            "away"
        }

        fn capabilities(&self) -> Capabilities {
            let mut capabilities = Capabilities::new(Accepted::Engine);
            capabilities.drops_duplicates = self.drops_duplicates;
            capabilities
        }

        fn append<'a>(&'a self, _: &'a Topic, _: Vec<Publication>) -> BrokerFuture<'a, Position> {
            away()
        }

        fn subscribe<'a>(
            &'a self,
            _: &'a Topic,
            _: Option<Position>,
            _: Mailbox,
        ) -> BrokerFuture<'a, Position> {
            away()
        }

        fn unsubscribe(&self, _: &Topic) {}

        fn read<'a>(&'a self, _: &'a Topic, _: ReadFrom, _: usize) -> BrokerFuture<'a, Page> {
            away()
        }
    }

    #[tokio::test]
    async fn a_retry_is_safe_if_the_engine_drops_duplicates() {
        for drops_duplicates in [false, true] {
            let bus = Bus::builder().engine(Arc::new(Away { drops_duplicates })).build();
            let status = bus.publish("t", &0_u64).id("id").await.unwrap_err();
            assert_eq!(status.retry() == Retry::Safe, drops_duplicates, "{status}");
            let status = bus.publish("t", &0_u64).await.unwrap_err();
            assert_ne!(status.retry(), Retry::Safe, "{status}");
        }
    }
}

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
        history_is_trimmed_below_a_reader, a_slow_reader_catches_up, drain);
}

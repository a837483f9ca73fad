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

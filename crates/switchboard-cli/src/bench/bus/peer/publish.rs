//! Publishing to a topic of the process with one subscriber, in one thread.

use super::{PeerArgs, Reading, Tally, message};
use crate::bench::bus::stamp::Checker;
use ::switchboard::{Codec, Result};
use std::{sync::Arc, time::Duration};
use switchboard_message::{Bus, Delivery, Publication, SlowReader, TopicOptions};

const TOPIC: &str = "bench";
/// The publisher waits for the subscriber: no entry is lost.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Publishes, receives and measures.
pub(super) async fn publish(args: &PeerArgs) -> Result<Reading> {
    let options = TopicOptions::new().slow_reader(SlowReader::Wait(WAIT_MAX));
    let bus = Bus::builder().topics(TOPIC, options)?.build();
    let mut subscription = bus.subscribe_encoded(TOPIC).await?;
    let tally = Arc::new(Tally::new());
    let received = tally.clone();
    tokio::spawn(async move {
        let mut checker = Checker::default();
        while let Ok(Some(delivery)) = subscription.next().await {
            // A gap shows in the number of the next entry.
            if let Delivery::Entry(entry) = delivery {
                received.receive(&entry, &mut checker, false);
            }
        }
    });
    let bytes = args.bytes;
    let published = async {
        for number in 0.. {
            let publication = Publication::new(Codec::Raw, message(0, number, bytes));
            bus.publish_encoded(TOPIC, publication).await?;
        }
        Ok(Reading::default())
    };
    tokio::select! {
        reading = tally.measure(args) => Ok(reading),
        ended = published => ended,
    }
}

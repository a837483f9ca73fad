//! One publisher and its subscribers. The publisher waits for a slow one, so that both sides do the same work for each
//! message and none is lost.

use super::{PeerArgs, Reading, Tally, end_with_input, message, report, spawn};
use crate::bench::bus::stamp::Checker;
use std::sync::Arc;
use switchboard_socket::{Result, SocketOptions, Sub, Xpub, options::QueueFullPolicy};

/// Waits for all subscribers, then publishes.
pub(super) async fn publish(args: &PeerArgs) -> Result<Reading> {
    let mut options = SocketOptions::default();
    options.queues.when_full = QueueFullPolicy::Wait;
    options.subscriptions.verbose = true;
    let xpub = Xpub::with_options(options)?;
    xpub.bind_to(&args.endpoint).await?;
    report(&xpub.endpoints());
    let counted = xpub.clone();
    end_with_input(move || counted.stats().dropped);
    for _ in 0..args.peers {
        xpub.recv().await?;
    }
    for number in 0.. {
        xpub.send(message(0, number, args.bytes)).await?;
    }
    Ok(Reading::default())
}

/// Receives at all subscribers and measures.
pub(super) async fn subscribe(args: &PeerArgs) -> Result<Reading> {
    let tally = Arc::new(Tally::new());
    for _ in 0..args.peers {
        let sub = Sub::connect(&args.endpoint).await?;
        sub.subscribe("")?;
        let tally = tally.clone();
        spawn(async move {
            let mut checker = Checker::default();
            loop {
                let message = sub.recv().await?;
                tally.receive(message.body(), &mut checker, false);
            }
        });
    }
    Ok(tally.measure(args).await)
}

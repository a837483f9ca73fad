//! A group of a topic in another process, with or without acknowledgements.

use super::{PeerArgs, Reading, Tally, end_with_input, message};
use crate::bench::{
    bus::stamp::{Checker, Stamp},
    process,
};
use ::switchboard::{Codec, Result, Server, Status};
use std::{io, thread, time::Duration};
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, Delivery, Publication, SlowReader, TopicOptions};

const TOPIC: &str = "bench/jobs";
/// The receiver publishes here when it has subscribed.
const READY: &str = "bench/ready";
const GROUP: &str = "workers";
/// The publisher waits for the group: no entry is lost.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// More deliveries of an entry than kills.
const ATTEMPTS_MAX: u32 = 10_000;

/// Serves the topics, waits for the receiver, and publishes.
pub(super) async fn publish(args: &PeerArgs) -> Result<Reading> {
    let options = TopicOptions::new().slow_reader(SlowReader::Wait(WAIT_MAX));
    let bus = Bus::builder().topics("bench/*", options)?.build();
    let running = Server::new().plugin(BusServer::new(bus.clone())).listen(&args.endpoint).start().await?;
    let mut ready = bus.subscribe_encoded(READY).await?;
    process::report_address(running.url());
    end_with_input(|| 0);
    ready.next().await?;
    for number in 0.. {
        let publication = Publication::new(Codec::Raw, message(0, number, args.bytes));
        bus.publish_encoded(TOPIC, publication).await?;
    }
    Ok(Reading::default())
}

/// Serves the topics, and publishes until a line of the standard input; prints the number of entries.
pub(super) async fn publish_until_stopped(args: &PeerArgs) -> Result<Reading> {
    let options = TopicOptions::new().slow_reader(SlowReader::Wait(WAIT_MAX));
    let bus = Bus::builder().topics("bench/*", options)?.build();
    // A member that takes nothing: the group does not end while its receiver is killed.
    let _member = bus.subscribe_encoded(TOPIC).group(GROUP).ack().attempts_max(ATTEMPTS_MAX).await?;
    let running = Server::new().plugin(BusServer::new(bus.clone())).listen(&args.endpoint).start().await?;
    process::report_address(running.url());
    let (stop, mut stopped) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        // The end of the input stops too.
        let _ = io::stdin().read_line(&mut String::new());
        let _ = stop.send(());
    });
    let mut messages = 0;
    while stopped.try_recv().is_err() {
        let publication = Publication::new(Codec::Raw, message(0, messages, args.bytes));
        // Entries that are not acknowledged stay in the topic, so the publisher waits for the receiver.
        bus.publish_encoded(TOPIC, publication).await?;
        messages += 1;
    }
    Reading { messages, ..Reading::default() }.print();
    // The topics are served until this process is killed.
    std::future::pending().await
}

/// Prints the number and the delivery of each entry, then acknowledges it.
pub(super) async fn print_received(args: &PeerArgs) -> Result<Reading> {
    let bus = Bus::connect(&args.endpoint).await?;
    let mut subscription = bus.subscribe_encoded(TOPIC).group(GROUP).ack().attempts_max(ATTEMPTS_MAX).await?;
    while let Some(delivery) = subscription.next().await? {
        if let Delivery::Entry(entry) = delivery {
            let number = Stamp::read(&entry).map_or(0, |stamp| stamp.number);
            // One write: a killed process has printed the whole line or nothing.
            println!("{number} {}.", entry.attempt());
            entry.ack();
        }
    }
    Ok(Reading::default())
}

/// Receives as the member of a group and measures; `--stalled` leaves out the acknowledgements.
pub(super) async fn receive(args: &PeerArgs) -> Result<Reading> {
    let bus = Bus::connect(&args.endpoint).await?;
    let subscribe = bus.subscribe_encoded(TOPIC).group(GROUP);
    let mut subscription = if args.stalled { subscribe.await? } else { subscribe.ack().await? };
    bus.publish_encoded(READY, Publication::new(Codec::Raw, "")).await?;
    let tally = Tally::new();
    let received = async {
        let mut checker = Checker::default();
        while let Some(delivery) = subscription.next().await? {
            // A gap shows in the number of the next entry.
            if let Delivery::Entry(entry) = delivery {
                tally.receive(&entry, &mut checker, false);
                entry.ack();
            }
        }
        Err(Status::unavailable("the subscription ended"))
    };
    tokio::select! {
        reading = tally.measure(args) => Ok(reading),
        error = received => error,
    }
}

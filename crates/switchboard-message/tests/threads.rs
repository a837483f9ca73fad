//! Publishers and subscriptions on several threads: no entry and no notification is lost.
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, time::Duration};
use switchboard_core::Result;
use switchboard_message::{Bus, Delivery, SlowReader, Subscription, TopicOptions};
use tokio::task::JoinSet;

const PUBLISHERS: u64 = 4;
const ENTRIES: u64 = 3_000;
const TOTAL: u64 = PUBLISHERS * ENTRIES;
/// Ends a test that waits for a lost notification.
const STALLED: Duration = Duration::from_secs(120);

fn bus() -> Bus {
    let options = TopicOptions::new().backlog(16).slow_reader(SlowReader::Wait(STALLED));
    Bus::builder().topics(">", options).unwrap().build()
}

fn start_publishers(bus: &Bus, tasks: &mut JoinSet<Result<()>>) {
    for publisher in 0..PUBLISHERS {
        let bus = bus.clone();
        tasks.spawn(async move {
            for entry in 0..ENTRIES {
                // Some find an empty topic, others a full one.
                if entry % 64 == 0 {
                    tokio::task::yield_now().await;
                }
                bus.publish(&format!("t/{}", entry % 5), &(publisher * ENTRIES + entry)).await?;
            }
            Ok(())
        });
    }
}

async fn next(subscription: &mut Subscription<u64>) -> Result<u64> {
    match subscription.next().await? {
        Some(Delivery::Entry(message)) => {
            message.ack();
            Ok(*message)
        }
        other => panic!("{other:?}"),
    }
}

async fn finish(mut tasks: JoinSet<Result<()>>) {
    let all = async {
        while let Some(task) = tasks.join_next().await {
            task.unwrap().unwrap();
        }
    };
    tokio::time::timeout(STALLED, all).await.expect("a task waits for a notification that was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn own_cursors_receive_every_entry() -> Result<()> {
    let (bus, mut tasks) = (bus(), JoinSet::new());
    for topics in ["t/*", "t/*", "#"] {
        let mut subscription = bus.subscribe::<u64>(topics).await?;
        tasks.spawn(async move {
            let mut received = HashSet::new();
            for _ in 0..TOTAL {
                assert!(received.insert(next(&mut subscription).await?));
            }
            Ok(())
        });
    }
    let mut single = bus.subscribe::<u64>("t/0").await?;
    tasks.spawn(async move {
        // The order of each publisher is kept.
        let mut newest = [None; PUBLISHERS as usize];
        for _ in 0..TOTAL / 5 {
            let entry = next(&mut single).await?;
            let newest = &mut newest[(entry / ENTRIES) as usize];
            assert!(newest.is_none_or(|newest| newest < entry));
            *newest = Some(entry);
        }
        Ok(())
    });
    start_publishers(&bus, &mut tasks);
    finish(tasks).await;
    assert_eq!((bus.stats().entries, bus.stats().bytes, bus.stats().cursors), (0, 0, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_receives_every_entry_once() -> Result<()> {
    let (bus, mut tasks) = (bus(), JoinSet::new());
    let (done, mut received) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..3 {
        let mut member = bus.subscribe::<u64>("t/>").group("workers").ack().unacknowledged_max(2).await?;
        let done = done.clone();
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = done.closed() => return Ok(()),
                    entry = next(&mut member) => { _ = done.send(entry?); }
                }
            }
        });
    }
    start_publishers(&bus, &mut tasks);
    let mut all = HashSet::new();
    tasks.spawn(async move {
        while (all.len() as u64) < TOTAL {
            assert!(all.insert(received.recv().await.unwrap()));
        }
        received.close();
        assert!(received.try_recv().is_err());
        Ok(())
    });
    finish(tasks).await;
    assert_eq!((bus.stats().entries, bus.stats().cursors), (0, 0));
    Ok(())
}

//! Acknowledged pipelines: over the topics of this process and of a server, with workers that are killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod killed;

use std::{collections::BTreeSet, time::Duration};
use switchboard::{Running, Server};
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, TopicOptions};
use switchboard_pattern::{
    ErrorKind,
    pipeline::{Pipeline, Sink},
};
use tokio::time::timeout;

/// Time for anything that must happen; tests fail after it.
const LIMIT: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("in time")
}

fn bus(backlog: usize) -> Bus {
    Bus::builder().topics(">", Pipeline::topic_options(backlog, LIMIT)).unwrap().build()
}

fn pipeline(bus: &Bus) -> Pipeline {
    Pipeline::new(bus, "jobs/tasks").results("jobs/results")
}

async fn serve(bus: &Bus) -> Running {
    Server::new().add(BusServer::new(bus.clone())).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Does tasks until it is aborted.
fn work(pipeline: Pipeline) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut worker = pipeline.worker::<u64>().await.unwrap();
        while let Some(task) = worker.next().await.unwrap() {
            task.finish_with(&(*task + 1)).await.unwrap();
        }
    })
}

/// Collects this many different results; returns them with the number of those that were flagged.
async fn collect(sink: &mut Sink<u64>, count: usize) -> (BTreeSet<u64>, u64) {
    let mut results = BTreeSet::new();
    within(async {
        while results.len() < count {
            let outcome = sink.next().await.unwrap().unwrap();
            assert!(results.insert(*outcome) || outcome.is_duplicate(), "{} twice, not flagged", *outcome);
            assert!(outcome.task().is_some());
            outcome.ack();
        }
    })
    .await;
    (results, sink.stats().duplicates)
}

#[tokio::test]
async fn tasks_are_shared_by_workers_and_all_results_arrive() {
    let bus = bus(10_000);
    let pipeline = pipeline(&bus);
    let _hold = pipeline.hold().await.unwrap();
    let workers = [work(pipeline.clone()), work(pipeline.clone())];
    let ventilator = pipeline.ventilator();
    ventilator.push_batch(&(0..500).collect::<Vec<u64>>()).await.unwrap();
    for task in 500..600_u64 {
        ventilator.push(&task).await.unwrap();
    }
    let mut sink = pipeline.sink::<u64>().await.unwrap();
    let (results, duplicates) = collect(&mut sink, 600).await;
    assert_eq!((results, duplicates), ((1..=600).collect(), 0));
    workers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn without_a_worker_publishers_wait_and_nothing_is_lost() {
    let bus = bus(10);
    let pipeline = pipeline(&bus);
    let _hold = pipeline.hold().await.unwrap();
    let ventilator = pipeline.ventilator();
    let pushing = tokio::spawn(async move {
        for task in 0..50_u64 {
            ventilator.push(&task).await.unwrap();
        }
    });
    let waits = || bus.topic_stats("jobs/tasks").is_some_and(|stats| stats.entries == 10);
    within(async {
        while !waits() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(!pushing.is_finished());
    let mut worker = pipeline.worker::<u64>().await.unwrap();
    for expected in 0..50 {
        let task = within(worker.next()).await.unwrap().unwrap();
        assert_eq!((*task, task.is_redelivered()), (expected, false));
        task.finish();
    }
    within(pushing).await.unwrap();
    assert_eq!((worker.stats().received, worker.stats().finished), (50, 50));
}

#[tokio::test]
async fn a_rejected_task_returns_and_one_without_an_end_becomes_a_dead_letter() {
    let bus = bus(10);
    let pipeline = pipeline(&bus).dead_letters("jobs/dead", 3);
    let _hold = pipeline.hold().await.unwrap();
    let mut dead = bus.subscribe::<u64>("jobs/dead").await.unwrap();
    let mut worker = pipeline.worker::<u64>().await.unwrap();
    pipeline.ventilator().push(&7_u64).await.unwrap();
    for attempt in 1..=3 {
        let task = within(worker.next()).await.unwrap().unwrap();
        assert_eq!((task.attempt(), task.is_redelivered()), (attempt, attempt > 1));
        task.reject();
    }
    let letter = tokio::select! {
        letter = within(dead.next()) => letter.unwrap(),
        task = worker.next() => panic!("{task:?}"),
    };
    assert!(matches!(letter, Some(switchboard_message::Delivery::Entry(task)) if *task == 7));
    assert_eq!((worker.stats().redelivered, worker.stats().rejected), (2, 3));
}

#[tokio::test]
async fn a_second_result_and_a_second_push_of_a_task_are_dropped() {
    let bus = bus(10);
    let pipeline = pipeline(&bus);
    let _hold = pipeline.hold().await.unwrap();
    let ventilator = pipeline.ventilator();
    let first = ventilator.push_once("order 7", &7_u64).await.unwrap();
    assert_eq!(ventilator.push_once("order 7", &7_u64).await.unwrap(), first);
    let mut worker = pipeline.worker::<u64>().await.unwrap();
    let task = within(worker.next()).await.unwrap().unwrap();
    for _ in 0..2 {
        task.finish_with(&8_u64).await.unwrap();
    }
    ventilator.push(&9_u64).await.unwrap();
    let task = within(worker.next()).await.unwrap().unwrap();
    task.finish_with(&10_u64).await.unwrap();
    let mut sink = pipeline.sink::<u64>().await.unwrap();
    assert_eq!(collect(&mut sink, 2).await, (BTreeSet::from([8, 10]), 0));
}

#[tokio::test]
async fn a_sink_that_ends_without_an_acknowledgement_leaves_flagged_results() {
    let bus = bus(10);
    let pipeline = pipeline(&bus);
    let _hold = pipeline.hold().await.unwrap();
    bus.publish("jobs/results", &1_u64).await.unwrap();
    let mut sink = pipeline.sink::<u64>().await.unwrap();
    let outcome = within(sink.next()).await.unwrap().unwrap();
    assert_eq!((outcome.is_duplicate(), outcome.task()), (false, None));
    drop(sink);
    let mut sink = pipeline.sink::<u64>().await.unwrap();
    let outcome = within(sink.next()).await.unwrap().unwrap();
    assert!(outcome.is_duplicate() && outcome.ack());
}

#[tokio::test]
async fn a_limit_of_attempts_of_tasks_drops_no_result() {
    let bus = bus(10);
    let pipeline = pipeline(&bus).dead_letters("jobs/dead", 1);
    let _hold = pipeline.hold().await.unwrap();
    bus.publish("jobs/results", &1_u64).await.unwrap();
    for attempt in 0..3 {
        let mut sink = pipeline.sink::<u64>().await.unwrap();
        let outcome = within(sink.next()).await.unwrap().unwrap();
        assert_eq!((*outcome, outcome.is_duplicate()), (1, attempt > 0));
    }
}

#[tokio::test]
async fn lost_tasks_are_an_error_and_the_next_ones_follow() {
    let options = TopicOptions::new().backlog(2);
    let bus = Bus::builder().topics(">", options).unwrap().build();
    let pipeline = Pipeline::new(&bus, "t");
    let mut worker = pipeline.worker::<u64>().await.unwrap();
    pipeline.ventilator().push_batch(&[1_u64, 2, 3, 4]).await.unwrap();
    let lost = within(worker.next()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(lost.to_string().contains("1..3"), "{lost}");
    assert_eq!(*within(worker.next()).await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn settings_are_checked() {
    let bus = bus(10);
    let server = serve(&bus).await;
    let remote = Bus::connect(&server.url()).await.unwrap();
    assert_eq!(Pipeline::new(&remote, "t").hold().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let without = Pipeline::new(&bus, "t");
    assert_eq!(without.sink::<u64>().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Pipeline::new(&bus, "").hold().await.unwrap_err().kind(), ErrorKind::Bus);
}

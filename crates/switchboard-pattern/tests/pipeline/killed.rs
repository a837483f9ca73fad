//! MSG-9: a worker in another process is killed 50 times.

use super::*;
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// Address of the bus, for the worker in the other process.
const URL: &str = "SWITCHBOARD_TEST_URL";
const KILLS: usize = 50;
const TASKS: u64 = 5_000;

/// This program again, as a worker.
struct Process(Child);

impl Process {
    /// Starts a worker; returns once it has done this number of tasks.
    fn start(url: &str, tasks: usize) -> Process {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--exact", "killed::works_until_it_is_killed"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let done = lines.map_while(Result::ok).filter(|line| line.contains("done")).take(tasks).count();
        assert_eq!(done, tasks, "the worker runs");
        Process(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
#[ignore = "the worker of the other test, in a process of its own"]
async fn works_until_it_is_killed() {
    let bus = Bus::connect(&env::var(URL).unwrap()).await.unwrap();
    let mut worker = pipeline(&bus).worker::<u64>().await.unwrap();
    while let Some(task) = worker.next().await.unwrap() {
        task.finish_with(&(*task + 1)).await.unwrap();
        println!("done {}", *task);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_50_times_loses_nothing_and_duplicates_are_flagged() {
    let bus = bus(100_000);
    let local = pipeline(&bus);
    let _hold = local.hold().await.unwrap();
    let server = serve(&bus).await;
    let url = server.url();
    let ventilator = local.ventilator();
    for tasks in (0..TASKS).collect::<Vec<_>>().chunks(500) {
        ventilator.push_batch(tasks).await.unwrap();
    }
    let mut sink = local.sink::<u64>().await.unwrap();
    let killing = tokio::task::spawn_blocking(move || {
        for kill in 0..KILLS {
            // Killed while it works: after its first tasks, and before the last ones.
            drop(Process::start(&url, 1 + kill % 5));
        }
        url
    });
    let url = within(killing).await.unwrap();
    let remaining = Bus::connect(&url).await.unwrap();
    let worker = pipeline(&remaining);
    let mut redelivered = 0;
    let mut worker = worker.worker::<u64>().await.unwrap();
    let working = async {
        loop {
            let task = worker.next().await.unwrap().unwrap();
            redelivered += u64::from(task.is_redelivered());
            task.finish_with(&(*task + 1)).await.unwrap();
        }
    };
    let results = tokio::select! {
        (results, _) = collect(&mut sink, TASKS as usize) => results,
        () = working => unreachable!(),
    };
    assert_eq!(results, (1..=TASKS).collect(), "no task is lost");
    assert!(redelivered > 0, "the last killed worker held tasks");
}

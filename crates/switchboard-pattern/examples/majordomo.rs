//! A broker, workers and clients of Majordomo, each in a process of its own:
//!
//! ```console
//! cargo run --release -p switchboard-pattern --example majordomo -- broker tcp://127.0.0.1:5555
//! cargo run --release -p switchboard-pattern --example majordomo -- workers tcp://127.0.0.1:5555 echo 4
//! cargo run --release -p switchboard-pattern --example majordomo -- requests tcp://127.0.0.1:5555 echo 100000
//! ```
//!
//! The broker prints its counters and its memory once a second; `requests` prints their rate, 100 of them at a time.
//! Without arguments, all of them run in this process for 10,000 requests.

use std::{
    env, fs,
    time::{Duration, Instant},
};
use switchboard_core::Result;
use switchboard_pattern::majordomo::{Broker, Client, Worker};
use tokio::task::JoinSet;

const AT_A_TIME: usize = 100;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().unwrap_or(1);
    match *arguments {
        [] => all().await,
        ["broker", endpoint] => broker(endpoint).await,
        ["workers", endpoint, service, count] => workers(endpoint, service, number(count)).await,
        ["requests", endpoint, service, count] => requests(endpoint, service, number(count)).await,
        _ => {
            println!(
                "usage: majordomo broker ENDPOINT | workers ENDPOINT SERVICE COUNT | requests ENDPOINT SERVICE COUNT"
            );
            Ok(())
        }
    }
}

async fn all() -> Result<()> {
    let broker = Broker::bind("tcp://127.0.0.1:0").await?;
    let endpoint = broker.endpoint().to_string();
    tokio::select! {
        ended = workers(&endpoint, "echo", 4) => ended,
        done = requests(&endpoint, "echo", 10_000) => done,
    }
}

async fn broker(endpoint: &str) -> Result<()> {
    let broker = Broker::bind(endpoint).await?;
    println!("broker at {}", broker.endpoint());
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stats = broker.stats();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default().to_owned();
        println!(
            "workers {}, requests {}, replies {}, {memory}",
            stats.workers, stats.requests, stats.replies
        );
    }
}

async fn workers(endpoint: &str, service: &str, count: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let mut worker = Worker::connect(endpoint, service)?;
        tasks.spawn(async move {
            while let Some(request) = worker.next().await {
                let body = request.body().clone();
                request.reply(body).await?;
            }
            Result::<()>::Ok(())
        });
    }
    println!("{count} workers of {service}");
    while let Some(Ok(ended)) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn requests(endpoint: &str, service: &str, count: usize) -> Result<()> {
    let client = Client::builder(endpoint).extended(true).outstanding_max(AT_A_TIME).connect()?;
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for _ in 0..AT_A_TIME {
        let (client, service) = (client.clone(), service.to_owned());
        tasks.spawn(async move {
            for _ in 0..count / AT_A_TIME {
                client.request(&service, "hello").await?;
            }
            Result::<()>::Ok(())
        });
    }
    while let Some(Ok(ended)) = tasks.join_next().await {
        ended?;
    }
    let rate = (count / AT_A_TIME * AT_A_TIME) as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} requests a second, {AT_A_TIME} at a time");
    Ok(())
}

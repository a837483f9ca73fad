//! A line each second, and what a person types in between.

use super::{Callers, Cluster, SERVERS};
use std::time::{Duration, Instant};
use switchboard::{Result, Status};
use tokio::{signal::ctrl_c, sync::mpsc, time::interval};

/// Shows what happens until Ctrl-C.
pub(crate) async fn run(mut cluster: Cluster, callers: &Callers) -> Result<()> {
    introduce(&mut cluster);
    let mut typed = typed();
    let (mut every, mut last) = (interval(Duration::from_secs(1)), Seen::now(callers));
    every.tick().await;
    loop {
        tokio::select! {
            stop = ctrl_c() => {
                stop.map_err(|error| Status::internal(format!("cannot watch for Ctrl-C: {error}")))?;
                break;
            }
            Some(letter) = typed.recv() => match cluster.node(&letter) {
                Some(node) => node.toggle()?,
                None => println!("there is no {letter:?}: type a, b, c or r"),
            },
            _ = every.tick() => {
                let now = Seen::now(callers);
                println!("{}", line(&mut cluster, callers, &last, &now));
                if let Some(failure) = callers.last_failure() {
                    println!("    a call failed: {failure}");
                }
                last = now;
            }
        }
    }
    println!("\nending all of them");
    cluster.stop();
    Ok(())
}

fn introduce(cluster: &mut Cluster) {
    let mut show = |letter: &str, what: &str| {
        let node = cluster.node(letter).map(|node| (node.url(), node.pid().unwrap_or_default()));
        let (url, pid) = node.unwrap_or_default();
        println!("{letter}  {what:<8}  {url:<24} pid {pid}");
    };
    show("r", "registry");
    SERVERS.iter().for_each(|name| show(name, "server"));
    println!(
        "kill -9 one of them, or type its letter and Enter; the letter starts it again. Ctrl-C ends all.\n"
    );
}

/// Lines of standard input, as far as there are any.
fn typed() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(std::io::Result::ok) {
            let letter = line.trim().to_lowercase();
            if !letter.is_empty() && sender.blocking_send(letter).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Counters at one time.
pub(crate) struct Seen {
    at: Instant,
    answers: [u64; SERVERS.len()],
    failures: u64,
}

impl Seen {
    pub(crate) fn now(callers: &Callers) -> Seen {
        Seen { at: Instant::now(), answers: callers.answers(), failures: callers.failures() }
    }
}

/// Formats the calls since the last line, and the servers that are up.
pub(crate) fn line(cluster: &mut Cluster, callers: &Callers, last: &Seen, now: &Seen) -> String {
    let counts: Vec<u64> = now.answers.iter().zip(&last.answers).map(|(now, last)| now - last).collect();
    let (calls, seconds) = (counts.iter().sum::<u64>(), (now.at - last.at).as_secs_f64().max(0.001));
    let mut text = format!(
        "{:>6.0} calls/s  {:>3} errors  p99 {:>6.1} ms ",
        calls as f64 / seconds,
        now.failures - last.failures,
        callers.p99().as_secs_f64() * 1e3
    );
    for (at, name) in SERVERS.iter().enumerate() {
        let share = 100.0 * counts[at] as f64 / calls.max(1) as f64;
        let dead = if cluster.servers[at].pid().is_some() { "" } else { ", dead" };
        text.push_str(&format!("  {name} {share:>3.0} % ({}{dead})", cluster.state(at)));
    }
    if cluster.registry.pid().is_none() {
        text.push_str("  registry dead");
    }
    text
}

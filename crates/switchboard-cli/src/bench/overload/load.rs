//! An open loop: calls are sent when they are due, regardless of earlier calls.
//!
//! Arrivals are random (Poisson), as those of many independent callers are. Latency is measured from when a call was
//! due.

use crate::{
    bench::{alarm::Alarm, measure::Measured, worker},
    services::proto::bench::{BenchClient, EchoMessage},
};
use ::switchboard::{Channel, Code, Status};
use bytes::Bytes;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Barrier, OnceLock},
    time::{Duration, Instant},
};

/// Bytes of the payload, each way.
const PAYLOAD: usize = 100;
/// Calls of one worker that are in flight; calls beyond the limit are not sent, as by callers out of memory.
const OUTSTANDING_MAX: usize = 20_000;

/// One tenant's calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) tenant: &'static str,
    /// Calls a second.
    pub(super) rate: f64,
}

/// Duration of the load, and deadline of the calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
    pub(super) deadline: Duration,
}

/// The results of the calls of one flow that were due in the measured time.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// `requests` are the calls with a reply in time; latencies are those of all admitted calls.
    pub(super) measured: Measured,
    pub(super) offered: u64,
    pub(super) refused: u64,
    /// Calls without a reply by the deadline.
    pub(super) late: u64,
    pub(super) unsent: u64,
}

impl Outcome {
    fn new() -> Self {
        Self { measured: Measured::new(), offered: 0, refused: 0, late: 0, unsent: 0 }
    }

    fn merge(&mut self, other: Self) {
        self.measured.merge(other.measured);
        self.offered += other.offered;
        self.refused += other.refused;
        self.late += other.late;
        self.unsent += other.unsent;
    }

    fn note(&mut self, took: Duration, deadline: Duration, result: Result<(), Status>) {
        match result.map_err(|status| (status.code(), status)) {
            Ok(()) if took <= deadline => self.measured.record(took),
            Ok(()) | Err((Code::DeadlineExceeded, _)) => {
                self.late += 1;
                self.measured.miss(took);
            }
            Err((Code::ResourceExhausted, _)) => self.refused += 1,
            Err((_, status)) => self.measured.fail(status.to_string()),
        }
    }
}

/// Sends all `flows` to `url` at once, and returns the results of each.
///
/// # Errors
/// When the server cannot be reached or a worker cannot start.
pub(super) fn measure(url: &str, flows: &[Flow], times: Times) -> Result<Vec<Outcome>, String> {
    let count = worker::cores();
    let start = Arc::new((Barrier::new(count), OnceLock::new()));
    let workers = (0..count)
        .map(|at| {
            let (url, start, flows) = (url.to_owned(), start.clone(), flows.to_vec());
            worker::start(&format!("load-{at}"), move || async move {
                let clients = connect(&url, &flows).await;
                // A sender that cannot connect must not block the others.
                start.0.wait();
                let clients = clients?;
                let begin = *start.1.get_or_init(Instant::now) + times.warm_up;
                let mut running = Vec::new();
                for (seed, (client, flow)) in clients.into_iter().zip(flows).enumerate() {
                    let flow = Flow { rate: flow.rate / count as f64, ..flow };
                    let seed = (at as u64 + 1) * 1000 + seed as u64;
                    running.push(tokio::task::spawn_local(send(client, flow, begin, times, seed)));
                }
                let mut outcomes = Vec::new();
                for flow in running {
                    outcomes.push(flow.await.map_err(|error| format!("a sender failed: {error}"))?);
                }
                Ok::<_, String>(outcomes)
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut total = vec![Outcome::new(); flows.len()];
    for worker in workers {
        for (sum, outcome) in total.iter_mut().zip(worker.join()??) {
            sum.merge(outcome);
        }
    }
    Ok(total)
}

async fn connect(url: &str, flows: &[Flow]) -> Result<Vec<BenchClient>, String> {
    let mut clients = Vec::new();
    for flow in flows {
        let channel = Channel::builder(url).connections(1).meta(super::server::TENANT, flow.tenant);
        clients.push(BenchClient::new(channel.connect().await.map_err(|status| status.to_string())?));
    }
    Ok(clients)
}

/// Sends calls when they are due until the time is over, and waits for the last replies.
async fn send(client: BenchClient, flow: Flow, begin: Instant, times: Times, seed: u64) -> Outcome {
    let request = Rc::new(EchoMessage { payload: Some(Bytes::from(vec![7; PAYLOAD])), ..Default::default() });
    let outcome = Rc::new(RefCell::new(Outcome::new()));
    let outstanding = Rc::new(Cell::new(0));
    let alarm = Alarm::new();
    let (end, mut random) = (begin + times.measured, Random(seed));
    let mut due = begin.checked_sub(times.warm_up).unwrap_or(begin);
    loop {
        let now = Instant::now();
        while due <= now && due < end {
            let (at, counts) = (due, due >= begin);
            outcome.borrow_mut().offered += u64::from(counts);
            if outstanding.get() >= OUTSTANDING_MAX {
                outcome.borrow_mut().unsent += u64::from(counts);
            } else {
                outstanding.set(outstanding.get() + 1);
                let (client, request) = (client.clone(), request.clone());
                let (outcome, outstanding) = (outcome.clone(), outstanding.clone());
                tokio::task::spawn_local(async move {
                    let result = client.echo(&*request).encoded().timeout(times.deadline).await;
                    outstanding.set(outstanding.get() - 1);
                    if counts {
                        outcome.borrow_mut().note(at.elapsed(), times.deadline, result.map(drop));
                    }
                });
            }
            due += Duration::from_secs_f64(random.exponential() / flow.rate);
        }
        if due >= end {
            break;
        }
        alarm.until(due).await;
    }
    while outstanding.get() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut outcome = outcome.borrow().clone();
    outcome.measured.elapsed = times.measured;
    outcome
}

/// Pseudo-random numbers for arrivals, the same in every run (xorshift).
struct Random(u64);

impl Random {
    /// Returns a number of the exponential distribution with mean 1.
    fn exponential(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - unit).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_mean() {
        let mut random = Random(1001);
        let sum: f64 = (0..100_000).map(|_| random.exponential()).sum();
        assert!((sum / 1e5 - 1.0).abs() < 0.02, "{sum}");
    }

    #[test]
    fn outcomes_are_distinguished() {
        let ms = Duration::from_millis;
        let mut outcome = Outcome::new();
        for (took, result) in [
            (50, Ok(())),
            (150, Ok(())),
            (100, Err(Status::deadline_exceeded("late"))),
            (1, Err(Status::resource_exhausted("full"))),
            (1, Err(Status::unavailable("gone"))),
        ] {
            outcome.note(ms(took), ms(100), result);
        }
        let counts = (outcome.measured.requests, outcome.late, outcome.refused, outcome.measured.errors);
        assert_eq!(counts, (1, 2, 1, 1));
        assert_eq!(outcome.measured.latency.len(), 3, "of the admitted calls");
    }
}

//! Generates load on pinned workers and measures it.
//!
//! A measurement connects, starts all workers at the same time, does not count the calls of a warm-up, and then counts
//! until the time is over and at least one reply arrived, or the number of calls is reached. The callers are in
//! [`callers`].

use super::{
    callers::{self, Arrivals, Tally},
    load::Load,
    measure::Measured,
    memory::Watch,
    process::Server,
    worker,
};
use std::{
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Barrier, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time};

/// The load to generate.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Callers with one request outstanding each.
    pub callers: usize,
    /// Connections in total; a worker has at least one, so fewer connections than cores use fewer workers.
    pub connections: Option<usize>,
    pub until: Until,
    /// Open loop: arrivals a second.
    pub rate: Option<u64>,
    /// Time before anything is counted.
    pub warm_up: Duration,
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Calls(u64),
    Elapsed(Duration),
}

impl Shape {
    /// Returns the number of workers for this load.
    fn workers(&self) -> usize {
        worker::cores().min(self.callers).min(self.connections.unwrap_or(usize::MAX)).max(1)
    }

    /// Returns the number of connections of this load.
    pub fn connections(&self) -> usize {
        self.connections.unwrap_or_else(|| self.workers())
    }

    /// Returns the share of worker `at` of `workers`.
    fn share(&self, at: usize, workers: usize) -> Share {
        Share {
            callers: portion(self.callers, at, workers),
            connections: portion(self.connections(), at, workers),
            calls: match self.until {
                Until::Calls(calls) => {
                    Some(calls / workers as u64 + u64::from((at as u64) < calls % workers as u64))
                }
                Until::Elapsed(_) => None,
            },
            // Workers alternate, so that arrivals are evenly spaced over all of them.
            arrivals: self.rate.map(|rate| {
                let interval = Duration::from_secs_f64(workers as f64 / rate as f64);
                (interval.mul_f64(at as f64 / workers as f64), interval)
            }),
        }
    }
}

/// One worker's share of a [`Shape`].
struct Share {
    callers: usize,
    connections: usize,
    calls: Option<u64>,
    /// Time of the first arrival after the start, and the interval between arrivals.
    arrivals: Option<(Duration, Duration)>,
}

/// Returns the part of `total` for worker `at` of `workers`, as even as possible.
pub fn portion(total: usize, at: usize, workers: usize) -> usize {
    total / workers + usize::from(at < total % workers)
}

/// Measures `load` once; `done` approximates the number of calls made, for showing progress. The memory of `server` is
/// recorded, if there is one.
///
/// # Errors
/// When a worker cannot start or connect. Calls that fail are counted in the result.
pub fn measure<L: Load>(
    load: &L,
    shape: Shape,
    server: Option<&Server>,
    done: &Arc<AtomicU64>,
) -> Result<Measured, String> {
    let memory = server.map(|server| Arc::new(Watch::new(server)));
    let count = shape.workers();
    let line = Arc::new(StartLine::new(count));
    let workers = (0..count)
        .map(|at| {
            let (load, share, line) = (load.clone(), shape.share(at, count), line.clone());
            let (done, memory) = (done.clone(), memory.clone());
            worker::start(&format!("load-{at}"), move || work(load, shape, share, line, done, memory))
        })
        .collect::<Result<Vec<_>, _>>();
    // Workers that did start wait for those that did not: the process must end with the error.
    let mut total = Measured::new();
    let mut failed = None;
    for worker in workers? {
        match worker.join().flatten() {
            Ok(Some(share)) => total.merge(share),
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    total.server_rss = memory.and_then(|memory| memory.noted());
    failed.map_or(Ok(total), Err)
}

/// Barrier at which workers wait until all are connected.
struct StartLine {
    all: Barrier,
    failed: AtomicBool,
    start: OnceLock<Instant>,
}

impl StartLine {
    fn new(workers: usize) -> Self {
        Self { all: Barrier::new(workers), failed: AtomicBool::new(false), start: OnceLock::new() }
    }

    /// Waits for the others; returns the common start time, or `None` if one of them failed.
    fn wait(&self, ready: bool) -> Option<Instant> {
        if !ready {
            self.failed.store(true, Ordering::Release);
        }
        self.all.wait();
        (!self.failed.load(Ordering::Acquire)).then(|| *self.start.get_or_init(Instant::now))
    }
}

async fn work<L: Load>(
    load: L,
    shape: Shape,
    share: Share,
    line: Arc<StartLine>,
    done: Arc<AtomicU64>,
    memory: Option<Arc<Watch>>,
) -> Result<Option<Measured>, String> {
    let connections = connect(&load, share.connections).await;
    let Some(start) = line.wait(connections.is_ok()) else { return connections.map(|_| None) };
    let connections = connections?;

    let begin = start + shape.warm_up;
    let end = match shape.until {
        Until::Elapsed(time) => Some(begin + time),
        Until::Calls(_) => None,
    };
    let tally = Rc::new(Tally::new(begin, end, share.calls.unwrap_or(u64::MAX), done, memory.clone()));
    callers::set_tally(tally.clone());
    let arrivals = share.arrivals.zip(end).map(|((first, interval), end)| {
        let arrivals = Rc::new(Arrivals::new(start + first, interval));
        tokio::task::spawn_local(callers::pace(arrivals.clone(), end));
        arrivals
    });
    let running: Vec<_> = (0..share.callers)
        .map(|at| {
            let caller = load.caller(&connections[at % connections.len()]);
            match &arrivals {
                Some(arrivals) => {
                    // Open-loop calls are few enough that boxing their futures does not matter.
                    let calls: Pin<Box<dyn Future<Output = ()>>> =
                        Box::pin(callers::open_loop(caller, arrivals.clone(), tally.clone()));
                    tokio::task::spawn_local(calls)
                }
                None => L::spawn(caller),
            }
        })
        .collect();
    until_done(running, &tally, end).await;
    if let Some(memory) = memory {
        memory.end();
    }
    if let Some((arrivals, end)) = arrivals.zip(end) {
        arrivals.drain(&tally, end);
    }
    Ok(Some(tally.finish()))
}

async fn connect<L: Load>(load: &L, count: usize) -> Result<Vec<L::Connection>, String> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(load.connect().await?);
    }
    Ok(connections)
}

/// Time without a single reply after which callers are aborted.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until all callers have ended, or no call has completed for [`PATIENCE`] after the `end`.
async fn until_done(mut running: Vec<JoinHandle<()>>, tally: &Tally, end: Option<Instant>) {
    let mut seen = tally.calls();
    let mut deadline = end.unwrap_or_else(Instant::now) + PATIENCE;
    while let Some(caller) = running.last_mut() {
        match time::timeout_at(deadline.into(), caller).await {
            Ok(Ok(())) => drop(running.pop()),
            Ok(Err(_)) => {
                running.pop();
                tally.fail("a caller panicked: see the lines above".to_owned());
            }
            Err(_) if tally.calls() != seen => {
                seen = tally.calls();
                deadline = Instant::now() + PATIENCE;
            }
            Err(_) => {
                for caller in running.drain(..).filter(|caller| !caller.is_finished()) {
                    caller.abort();
                    tally.fail(format!("no reply for {} seconds", PATIENCE.as_secs()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_even_and_add_up() {
        assert_eq!([0, 1, 2].map(|at| portion(11, at, 3)), [4, 4, 3]);
        assert_eq!([0, 1].map(|at| portion(1, at, 2)), [1, 0]);
    }

    #[test]
    fn a_worker_has_a_caller_and_a_connection_at_least() {
        let shape = |callers, connections| Shape {
            callers,
            connections,
            until: Until::Calls(1),
            rate: None,
            warm_up: Duration::ZERO,
        };
        assert_eq!(shape(1, None).workers(), 1);
        assert_eq!(shape(1000, Some(1)).workers(), 1);
        assert_eq!(shape(1000, None).connections(), worker::cores().min(1000));
    }
}

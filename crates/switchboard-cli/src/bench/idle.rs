//! Memory of idle connections: opens many, makes one call on each, and reads the server's memory while they are open.

use super::{
    engine::portion,
    load::{Caller, Load},
    measure::Measured,
    process::Server,
    worker,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Instant,
};
use tokio::sync::oneshot;

/// Opens `count` connections and holds them while the memory of `server` is read.
///
/// The result has a request for each connection, with the latency of its one call, and the time that opening and
/// calling took. Memory is that of the process: buffers in the kernel are not part of it.
///
/// # Errors
/// When a connection cannot be opened, or the memory of the server cannot be read.
pub(super) fn measure<L: Load>(
    load: &L,
    count: usize,
    server: Option<&Server>,
    done: &Arc<AtomicU64>,
) -> Result<Measured, String> {
    // Allocations of the server for its first connection are not attributed to the others.
    let first = Held::open(load, 1, done)?;
    let before = server.map(Server::resident_bytes).transpose()?;
    let start = Instant::now();
    let mut held = Held::open(load, count, done)?;
    let mut measured = held.measured.take().unwrap_or_else(Measured::new);
    measured.elapsed = start.elapsed();
    let after = server.map(Server::resident_bytes).transpose()?;
    measured.bytes_per_connection =
        before.zip(after).map(|(before, after)| (after as f64 - before as f64) / count as f64);
    held.close()?;
    first.close()?;
    Ok(measured)
}

/// Open connections.
struct Held {
    /// Counts of the first call on each connection.
    measured: Option<Measured>,
    /// Workers close their connections when their sender is dropped.
    workers: Vec<(oneshot::Sender<()>, worker::Worker<()>)>,
}

impl Held {
    fn open<L: Load>(load: &L, count: usize, done: &Arc<AtomicU64>) -> Result<Self, String> {
        let (report, reports) = mpsc::channel();
        let workers = worker::cores().min(count);
        let mut held = Self { measured: None, workers: Vec::with_capacity(workers) };
        for at in 0..workers {
            let (release, released) = oneshot::channel();
            let (load, report, done) = (load.clone(), report.clone(), done.clone());
            let share = portion(count, at, workers);
            let worker = worker::start(&format!("idle-{at}"), move || async move {
                let mut measured = Measured::new();
                let opened = open(&load, share, &mut measured, &done).await;
                let (held, outcome) =
                    opened.map_or_else(|error| (None, Err(error)), |held| (Some(held), Ok(measured)));
                // The receiver is dropped only when another worker has failed.
                let _ = report.send(outcome);
                let _ = released.await;
                drop(held);
            })?;
            held.workers.push((release, worker));
        }
        drop(report);
        let mut total = Measured::new();
        for share in reports {
            total.merge(share?);
            if total.requests + total.errors == count as u64 {
                break;
            }
        }
        held.measured = Some(total);
        Ok(held)
    }

    fn close(self) -> Result<(), String> {
        self.workers.into_iter().try_for_each(|(release, worker)| {
            drop(release);
            worker.join()
        })
    }
}

/// Opens the connections and their callers, both of which may keep a connection open.
async fn open<L: Load>(
    load: &L,
    count: usize,
    measured: &mut Measured,
    done: &AtomicU64,
) -> Result<Vec<(L::Connection, L::Caller)>, String> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let connection = load.connect().await?;
        let mut caller = load.caller(&connection);
        let start = Instant::now();
        match caller.call().await {
            Ok(()) => measured.record(start.elapsed()),
            Err(error) => measured.fail(error),
        }
        held.push((connection, caller));
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(held)
}

//! Callers, and what they have seen.

use super::{SERVERS, WorkClient};
use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use switchboard::Channel;

/// Each has one call at a time, and a pause between two.
const CALLERS: usize = 50;
const PAUSE: Duration = Duration::from_millis(5);

/// Counters of all callers.
#[derive(Default)]
pub(crate) struct Callers {
    answers: [AtomicU64; SERVERS.len()],
    failures: AtomicU64,
    last_failure: Mutex<Option<String>>,
    /// Latencies of the calls since the last query.
    times: Mutex<Vec<Duration>>,
}

impl Callers {
    /// Begins to call; the callers end with this program.
    pub(crate) fn start(channel: &Channel) -> Arc<Callers> {
        let callers = Arc::new(Callers::default());
        for _ in 0..CALLERS {
            tokio::spawn(call_on(WorkClient::new(channel.clone()), callers.clone()));
        }
        callers
    }

    /// Answers of each server.
    pub(crate) fn answers(&self) -> [u64; SERVERS.len()] {
        self.answers.each_ref().map(|count| count.load(Relaxed))
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// 99 of 100 calls since the last look took no longer.
    pub(crate) fn p99(&self) -> Duration {
        let mut times = mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }
}

async fn call_on(client: WorkClient, callers: Arc<Callers>) {
    loop {
        let began = Instant::now();
        match client.work().timeout(Duration::from_secs(5)).await {
            Ok(name) => {
                if let Some(at) = SERVERS.iter().position(|server| **server == **name) {
                    callers.answers[at].fetch_add(1, Relaxed);
                }
                callers.times.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
            }
            Err(status) => {
                callers.failures.fetch_add(1, Relaxed);
                let text = status.to_string();
                *callers.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

//! The server under load: its capacity is known, because its handlers wait for a backend with a fixed throughput.

use super::options::{Limiter, OverloadServerArgs};
use crate::{bench::process, services};
use ::switchboard::{
    Call, Reply, Result, Runtime,
    guard::{Concurrency, Fair},
    layer::{BoxFuture, Layer, Next},
};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The metadata with the tenant of the caller.
pub(super) const TENANT: &str = "tenant";

/// Serves `args` on a free port; prints its address first.
///
/// # Errors
/// When it cannot listen or accept.
pub(super) fn serve(args: &OverloadServerArgs) -> Result<(), String> {
    let mut server = services::kiss::named(services::server())
        .layer(Backend::new(args.backend.units, args.backend.work()));
    server = match args.limit {
        Limiter::Auto => server.concurrency(Concurrency::auto()),
        Limiter::Gradient => server.concurrency(Concurrency::gradient()),
        Limiter::Off => server,
    };
    if let Some(wait) = args.fair_ms {
        server = server.fair(Fair::by_metadata(TENANT).wait_max(Duration::from_millis(wait)));
    }
    let server = server.listen("tcp://127.0.0.1:0");
    Runtime::new().workers(args.server.workers as usize).run(async move {
        let running = server.start().await.map_err(|error| error.to_string())?;
        process::report_address(running.url());
        process::end_with_parent();
        std::future::pending().await
    })
}

/// A fixed number of units, each of which processes one call after the other. Accepted work is completed even if its
/// caller no longer waits, as in a database.
struct Backend {
    /// When each unit is free.
    units: Mutex<BinaryHeap<Reverse<Instant>>>,
    work: Duration,
}

impl Backend {
    fn new(units: u32, work: Duration) -> Self {
        let now = Instant::now();
        Self { units: Mutex::new((0..units).map(|_| Reverse(now)).collect()), work }
    }

    /// Assigns one more call to the next free unit; returns when it is done.
    fn take(&self, now: Instant) -> Instant {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        let Reverse(free) = units.pop().unwrap_or(Reverse(now));
        let done = free.max(now) + self.work;
        units.push(Reverse(done));
        done
    }
}

impl Layer for Backend {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            tokio::time::sleep_until(self.take(Instant::now()).into()).await;
            next.call(call).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_does_so_much_and_no_more() {
        let (ms, start) = (Duration::from_millis(1), Instant::now());
        let backend = Backend::new(2, 10 * ms);
        let done = [0, 0, 1, 1, 50].map(|at| (backend.take(start + at * ms) - start).as_millis());
        // Two at once, then those that arrive meanwhile; idle time is not saved up.
        assert_eq!(done[4], 60);
        assert!(done[..2].iter().all(|done| (10..=11).contains(done)), "{done:?}");
        assert!(done[2..4].iter().all(|done| (20..=21).contains(done)), "{done:?}");
    }
}

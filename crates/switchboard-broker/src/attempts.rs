//! Attempts to connect, shared by the callers that wait for them.

use std::sync::atomic::{AtomicU64, Ordering};
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::sync::Mutex;

/// Attempts to open one connection, at most one at a time.
///
/// A caller that waits while an attempt fails receives its error: with a server that does not respond, callers do not
/// time out one after the other.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Held during an attempt; with the error of the last one that failed.
    last: Mutex<Option<Status>>,
    /// Attempts that failed.
    failures: AtomicU64,
}

impl Attempts {
    /// Returns the open connection, or opens one. Cancel safe: the attempt of a dropped future ends, and the next
    /// caller begins another one.
    pub(crate) async fn open<T>(
        &self,
        known: impl Fn() -> Option<T>,
        open: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if let Some(known) = known() {
            return Ok(known);
        }
        let before = self.failures.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if let Some(known) = known() {
            return Ok(known);
        }
        if let Some(status) = last.as_ref().filter(|_| self.failures.load(Ordering::Acquire) != before) {
            return Err(status.clone());
        }
        let opened = open.await;
        if let Err(status) = &opened {
            *last = Some(status.clone());
            self.failures.fetch_add(1, Ordering::Release);
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, sync::atomic::AtomicUsize};

    #[tokio::test]
    async fn callers_share_the_attempt_that_they_wait_for() {
        let (attempts, opened) = (Arc::new(Attempts::default()), Arc::new(AtomicUsize::new(0)));
        let call = || {
            let (attempts, opened) = (attempts.clone(), opened.clone());
            async move {
                let open = async {
                    // The other callers begin to wait.
                    tokio::task::yield_now().await;
                    match opened.fetch_add(1, Ordering::Relaxed) {
                        0 => Err(Status::unavailable("does not respond")),
                        number => Ok(number),
                    }
                };
                attempts.open(|| None, open).await
            }
        };
        let callers: Vec<_> = (0..1_000).map(|_| tokio::spawn(call())).collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap().unwrap_err().message(), "does not respond");
        }
        assert_eq!(opened.load(Ordering::Relaxed), 1);
        // A later caller begins a new attempt.
        assert_eq!(call().await.unwrap(), 1);
        let known: Result<usize> = attempts.open(|| Some(7), async { Ok(8) }).await;
        assert_eq!(known.unwrap(), 7);
    }
}

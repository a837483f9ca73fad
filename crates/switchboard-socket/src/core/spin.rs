//! Polls for an inproc peer before a task sleeps.
//!
//! A peer in another thread wakes a sleeping task with a system call, which costs more than many messages. Two threads
//! that take turns to wait would make one per batch. The polls yield to the other tasks of the thread, and stop when
//! earlier ones found nothing.

use std::{
    hint,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};
use switchboard_core::clock;

/// Polls before a task sleeps, about 50 us.
const POLLS_MAX: u32 = 64;
/// Time of these polls at most: other tasks of the thread, between two polls, may take long.
const TIME_MAX: Duration = Duration::from_millis(1);
/// Checks of each poll, about half a microsecond.
const CHECKS: u32 = 32;
/// Successful waits that are remembered.
const SCORE_MAX: u32 = 8;
/// Waits without polls after which one polls again, once it is known that polls find nothing.
const RETRY_AFTER: u32 = 16;

/// Success of the polls of one kind of wait.
#[derive(Debug)]
pub(crate) struct Spin {
    /// Above `RETRY_AFTER`: waits may poll. Otherwise the number of waits without polls.
    score: AtomicU32,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { score: AtomicU32::new(RETRY_AFTER + SCORE_MAX) }
    }
}

impl Spin {
    /// Polls until `is_ready`, until `deadline`, or until it is better to sleep; returns true if it is ready. Cancel
    /// safe.
    pub(crate) async fn poll(&self, deadline: Option<Instant>, is_ready: impl Fn() -> bool) -> bool {
        let score = self.score.load(Ordering::Relaxed);
        if score < RETRY_AFTER {
            self.score.store(score + 1, Ordering::Relaxed);
            return is_ready();
        }
        let end = clock::after(clock::now(), TIME_MAX);
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        for _ in 0..POLLS_MAX {
            for _ in 0..CHECKS {
                if is_ready() {
                    self.score.store(RETRY_AFTER + SCORE_MAX, Ordering::Relaxed);
                    return true;
                }
                hint::spin_loop();
            }
            tokio::task::yield_now().await;
            if clock::now() >= end {
                break;
            }
        }
        // A lost update of another task costs a few polls.
        self.score.store(if score > RETRY_AFTER { score - 1 } else { 0 }, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Socket, SocketOptions, SocketType};

    #[tokio::test]
    async fn polls_that_find_nothing_stop_and_are_tried_again() {
        let spin = Spin::default();
        assert!(spin.poll(None, || true).await);
        for _ in 0..=SCORE_MAX {
            assert!(!spin.poll(None, || false).await);
        }
        let polls = AtomicU32::new(0);
        let never = || {
            polls.fetch_add(1, Ordering::Relaxed);
            false
        };
        for _ in 0..RETRY_AFTER {
            spin.poll(None, never).await;
        }
        assert_eq!(polls.swap(0, Ordering::Relaxed), RETRY_AFTER, "one check per wait");
        spin.poll(None, never).await;
        let polled = polls.load(Ordering::Relaxed);
        assert!((CHECKS..=POLLS_MAX * CHECKS).contains(&polled), "{polled}");
    }

    #[tokio::test]
    async fn polls_end_with_the_deadline() {
        let (spin, polls) = (Spin::default(), AtomicU32::new(0));
        let never = || {
            polls.fetch_add(1, Ordering::Relaxed);
            false
        };
        assert!(!spin.poll(Some(clock::now()), never).await);
        assert_eq!(polls.load(Ordering::Relaxed), CHECKS, "one poll");
    }
    #[tokio::test]
    async fn a_send_has_a_time_limit_while_its_peer_is_resumed_again_and_again() {
        let mut options = SocketOptions::default();
        (options.queues.send_messages_max, options.queues.receive_messages_max) = (1, 1);
        options.timeouts.send = Some(Duration::from_millis(5));
        let [push, pull] =
            [SocketType::Push, SocketType::Pull].map(|kind| Socket::new(kind, options.clone()).unwrap());
        pull.bind_to("inproc://resumed-again").await.unwrap();
        push.connect_to("inproc://resumed-again").await.unwrap();
        while push.try_send("fills the queue").is_ok() {}
        let (core, peer) = (push.core().clone(), push.stats().peers[0].id);
        let resuming = tokio::spawn(async move {
            loop {
                core.resume(peer);
                tokio::task::yield_now().await;
            }
        });
        let sent = tokio::time::timeout(Duration::from_secs(20), push.send("waits")).await;
        resuming.abort();
        assert_eq!(sent.expect("the limit of the send is checked").unwrap_err().kind(), ErrorKind::TimedOut);
    }
}

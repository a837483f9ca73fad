//! The timer of a connection: one for its deadlines, its keepalive and the limits of its waits.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use tokio::time::{Sleep, sleep_until};

/// Wakes the task of a connection at the earliest of several times.
#[derive(Debug, Default)]
pub struct Timer {
    /// Time at which the task must run.
    at: Option<Instant>,
    /// Kept for the life of the connection: a new one would be an allocation for each wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    /// Sets the time, whether the previous one was earlier or not.
    #[inline]
    pub fn set(&mut self, at: Instant) {
        self.at = Some(at);
    }

    /// Sets the time, unless an earlier one is set.
    #[inline]
    pub fn wake_by(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |set| set.min(at)));
    }

    /// Returns whether a time is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Returns whether the time has come.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Registers the task for the set time; wakes it at once if that has passed.
    #[inline(always)]
    pub fn register(&mut self, cx: &mut Context<'_>) {
        if let Some(at) = self.at
            && self.poll_until(at, cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
    }

    /// Registers the task for `at`, or for an earlier time that was set before and has not passed at `now`. A timer
    /// that fires early costs one empty poll; changing it with every read would cost more.
    #[inline(always)]
    pub fn register_by(&mut self, at: Instant, now: Instant, cx: &mut Context<'_>) {
        let kept = self.at.filter(|set| *set <= at && *set > now).unwrap_or(at);
        self.at = Some(kept);
        if self.poll_until(kept, cx).is_pending() {
            return;
        }
        self.at = Some(at);
        if kept == at || self.poll_until(at, cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    #[inline(always)]
    fn poll_until(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let at = tokio::time::Instant::from_std(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, time::Duration};

    const SECOND: Duration = Duration::from_secs(1);

    async fn fires(timer: &mut Timer, at: Instant, now: Instant) -> Instant {
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                timer.register_by(at, now, cx);
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        tokio::time::Instant::now().into_std()
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wakes_the_task() {
        let began = tokio::time::Instant::now().into_std();
        let mut timer = Timer::default();
        assert!(!timer.is_set() && !timer.is_due(began));
        timer.wake_by(began + 2 * SECOND);
        timer.wake_by(began + SECOND);
        timer.wake_by(began + 3 * SECOND);
        assert!(timer.is_due(began + SECOND) && !timer.is_due(began));
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            timer.register(cx);
            if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        assert_eq!(tokio::time::Instant::now().into_std(), began + SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_is_kept_until_it_passes() {
        let began = tokio::time::Instant::now().into_std();
        let mut timer = Timer::default();
        timer.set(began + SECOND);
        // A later time does not move the timer, and the task is woken early.
        assert_eq!(fires(&mut timer, began + 5 * SECOND, began).await, began + SECOND);
        // The time that has passed is replaced.
        assert_eq!(fires(&mut timer, began + 5 * SECOND, began + SECOND).await, began + 5 * SECOND);
        // An earlier one moves it.
        timer.set(began + 9 * SECOND);
        assert_eq!(fires(&mut timer, began + 6 * SECOND, began + 5 * SECOND).await, began + 6 * SECOND);
    }
}

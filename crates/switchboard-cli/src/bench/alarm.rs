//! Waits until an instant with an error of some 50 us, without polling.
//!
//! The timer of the runtime has ticks of a millisecond, which would be most of the latency of a call that takes 100 us.
//! On Linux an alarm is a timer of the kernel instead, whose end wakes the runtime as a socket does.

use std::time::Instant;
use tokio::time;

/// A timer of one worker.
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Alarm {
    /// Makes a timer in the runtime that the caller runs in. Without one of the kernel, that of the runtime serves.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            timer: kernel::timer().ok(),
        }
    }

    /// Waits until `due`; returns after one turn of the runtime when `due` is past.
    pub(super) async fn until(&self, due: Instant) {
        let gap = due.saturating_duration_since(Instant::now());
        if gap.is_zero() {
            return tokio::task::yield_now().await;
        }
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer
            && kernel::wait(timer, gap).await.is_ok()
        {
            return;
        }
        time::sleep(gap).await;
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::{io, os::fd::OwnedFd, time::Duration};
    use tokio::io::{Interest, unix::AsyncFd};

    #[expect(deprecated, reason = "an OwnedFd stays open as its successor demands, which is unsafe to call")]
    pub(super) fn timer() -> io::Result<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        AsyncFd::with_interest(timerfd_create(TimerfdClockId::Monotonic, flags)?, Interest::READABLE)
    }

    /// Waits for `gap`, which is not zero: a zero would disarm the timer.
    pub(super) async fn wait(timer: &AsyncFd<OwnedFd>, gap: Duration) -> io::Result<()> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Timespec { tv_sec: gap.as_secs() as i64, tv_nsec: i64::from(gap.subsec_nanos()) };
        let set = Itimerspec { it_interval: never, it_value: once };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &set)?;
        timer.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut [0; 8])?)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn an_alarm_goes_off_again_and_again_and_never_early() {
        let alarm = Alarm::new();
        for us in [0, 1, 300, 3000, 20] {
            let due = Instant::now() + Duration::from_micros(us);
            alarm.until(due).await;
            assert!(Instant::now() >= due, "{us} us");
        }
    }

    #[tokio::test]
    async fn an_alarm_that_was_given_up_does_not_end_the_next_one_early() {
        let alarm = Alarm::new();
        let early = Instant::now() + Duration::from_millis(1);
        tokio::select! {
            biased;
            () = alarm.until(early) => {}
            () = tokio::task::yield_now() => {}
        }
        let due = early + Duration::from_millis(20);
        alarm.until(due).await;
        assert!(Instant::now() >= due);
    }
}

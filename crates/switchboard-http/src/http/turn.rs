//! Limits how long an HTTP connection occupies its worker before other connections run.
//!
//! hyper reads and responds as long as there is data to read, and then yields to tasks that are ready, but not to tasks
//! whose sockets are: a runtime polls its sockets when no task is ready, or after many tasks. A peer that sends without
//! a pause would delay the other connections of the worker for that long.

use std::{
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use switchboard_net::connection::Pause;

/// Time since which a connection has had data to read, and the pause that follows.
pub(super) struct Turn {
    max: Duration,
    began: Option<Instant>,
    pause: Pause,
}

impl Turn {
    /// A turn of at most `max` (`connection_turn_max`).
    pub(super) fn new(max: Duration) -> Turn {
        Turn { max, began: None, pause: Pause::default() }
    }

    /// Pending while the connection has to pause; its task is woken afterwards.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.pause.has_begun() {
            ready!(self.pause.poll(cx));
            // hyper may still have much buffered data.
            self.began = Some(switchboard_core::clock::now());
        }
        let Some(began) = self.began else { return Poll::Ready(()) };
        if switchboard_core::clock::since(began) < self.max {
            return Poll::Ready(());
        }
        self.pause.begin(cx);
        Poll::Pending
    }

    /// Records that data arrived: the turn continues.
    pub(super) fn read(&mut self, now: Instant) {
        self.began.get_or_insert(now);
    }

    /// Records that no data is left to read: the turn is over.
    pub(super) fn rest(&mut self) {
        self.began = None;
    }
}

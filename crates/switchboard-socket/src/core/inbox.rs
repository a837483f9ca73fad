//! Received messages of all peers, in fair order.
//!
//! ```text
//! connection ─► lane (locked once per batch) ─► arrivals ─► consumer: one message of each lane in turn
//! ```
//!
//! A lane is in `arrivals` or with the consumer, never in both, so its messages stay in order.

use super::{
    lane::{Lane, Pushed, Taken},
    spin::Spin,
};
use crate::{Message, Result};
use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;

/// Received messages of a socket.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// `arrivals` is not empty.
    has_news: AtomicBool,
    arrivals: Mutex<Vec<Arc<Lane>>>,
    consumer: Mutex<Consumer>,
    /// Wakes receivers.
    pub(crate) readable: Notify,
    /// Waits for messages of inproc peers.
    pub(super) spin: Spin,
}

#[derive(Debug, Default)]
struct Consumer {
    /// Lanes with messages, the next one first.
    lanes: VecDeque<(Arc<Lane>, Taken)>,
}

impl Inbox {
    /// Notifies the receivers of messages in a lane.
    #[inline]
    pub(crate) fn arrived(&self, lane: &Arc<Lane>, pushed: Pushed) {
        if pushed == Pushed::News {
            lock(&self.arrivals).push(lane.clone());
            self.has_news.store(true, Ordering::Release);
            self.readable.notify_one();
        }
    }

    /// Takes the next message.
    #[inline]
    pub(crate) fn pop_into(&self, message: &mut Option<Message>) {
        lock(&self.consumer).pop_into(self, message);
    }

    /// Returns the first message that `select` accepts; others are dropped. `select` must not use the inbox.
    #[inline]
    pub(crate) fn try_pop<T>(&self, select: impl FnMut(&Lane, Message) -> Option<T>) -> Option<T> {
        lock(&self.consumer).pop(self, select)
    }

    /// As [`try_pop`](Self::try_pop), if `check` allows it. No other receiver takes a message between the two.
    ///
    /// # Errors
    /// Returns the error of `check`; no message is taken.
    pub(crate) fn try_pop_if<T>(
        &self,
        check: impl FnOnce() -> Result<()>,
        select: impl FnMut(&Lane, Message) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut consumer = lock(&self.consumer);
        check()?;
        Ok(consumer.pop(self, select))
    }

    /// Returns true if messages arrived from a lane that had none.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Returns true if a message can be taken at once.
    pub(crate) fn has_messages(&self) -> bool {
        self.has_news.load(Ordering::Acquire) || !lock(&self.consumer).lanes.is_empty()
    }

    fn take_arrivals(&self, consumer: &mut Consumer) {
        let arrivals = {
            let mut arrivals = lock(&self.arrivals);
            self.has_news.store(false, Ordering::Release);
            mem::take(&mut *arrivals)
        };
        for lane in arrivals {
            let mut taken = Taken::default();
            lane.take(&mut taken);
            if !taken.messages.is_empty() {
                consumer.lanes.push_back((lane, taken));
            }
        }
    }
}

impl Consumer {
    /// Returns the first message that `select` accepts.
    #[inline]
    fn pop<T>(&mut self, inbox: &Inbox, mut select: impl FnMut(&Lane, Message) -> Option<T>) -> Option<T> {
        loop {
            if inbox.has_news.load(Ordering::Acquire) {
                inbox.take_arrivals(self);
            }
            let (lane, message) = self.next()?;
            if let Some(selected) = select(lane, message) {
                return Some(selected);
            }
        }
    }

    #[inline]
    fn pop_into(&mut self, inbox: &Inbox, message: &mut Option<Message>) {
        if inbox.has_news.load(Ordering::Acquire) {
            inbox.take_arrivals(self);
        }
        while let Some((lane, taken)) = self.lanes.front_mut() {
            *message = taken.messages.pop_front();
            if message.is_some() {
                if taken.is_at_half() {
                    lane.release_half(taken);
                }
                if self.lanes.len() > 1 {
                    self.lanes.rotate_left(1);
                }
                return;
            }
            self.refill();
        }
    }

    /// Takes further messages of the first lane, or removes it.
    fn refill(&mut self) {
        if let Some((lane, mut taken)) = self.lanes.pop_front() {
            lane.take(&mut taken);
            if !taken.messages.is_empty() {
                // It is still the turn of this lane.
                self.lanes.push_front((lane, taken));
            }
        }
    }

    /// Returns the next message, and the lane that it is from.
    #[inline]
    fn next(&mut self) -> Option<(&Lane, Message)> {
        loop {
            let (lane, taken) = self.lanes.front_mut()?;
            if let Some(message) = taken.messages.pop_front() {
                if taken.is_at_half() {
                    lane.release_half(taken);
                }
                if self.lanes.len() > 1 {
                    self.lanes.rotate_left(1);
                }
                let (lane, _) = self.lanes.back()?;
                return Some((lane, message));
            }
            self.refill();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PeerId, core::lane::LaneLimits};
    use bytes::Bytes;

    fn lane(number: u32, messages_max: usize) -> Arc<Lane> {
        let limits = LaneLimits { messages_max, bytes_max: 0, conflate: false, is_inproc: false };
        Arc::new(Lane::new(PeerId::new(number, 0), Bytes::new(), limits))
    }

    fn send(inbox: &Inbox, lane: &Arc<Lane>, texts: &[&str]) {
        let mut messages = texts.iter().map(|text| Message::from(*text)).collect();
        inbox.arrived(lane, lane.extend(&mut messages));
    }

    fn drain(inbox: &Inbox) -> Vec<String> {
        let text = |_: &Lane, message: Message| Some(String::from_utf8_lossy(message.body()).into_owned());
        std::iter::from_fn(|| inbox.try_pop(text)).collect()
    }

    #[test]
    fn peers_have_turns_and_each_stays_in_order() {
        let inbox = Inbox::default();
        let (a, b) = (lane(1, 0), lane(2, 0));
        send(&inbox, &a, &["a1", "a2", "a3"]);
        send(&inbox, &b, &["b1"]);
        assert_eq!(inbox.try_pop(|_, message| Some(message)), Some(Message::from("a1")));
        send(&inbox, &b, &["b2", "b3"]);
        send(&inbox, &a, &["a4"]);
        let order = drain(&inbox);
        assert_eq!(order[..3], ["b1", "a2", "b2"], "{order:?}");
        let of = |peer: &str| order.iter().filter(|text| text.starts_with(peer)).cloned().collect::<Vec<_>>();
        assert_eq!(
            (of("a"), of("b")),
            (["a2", "a3", "a4"].map(String::from).into(), ["b1", "b2", "b3"].map(String::from).into())
        );
        assert!(!inbox.has_messages());
        send(&inbox, &a, &["a5"]);
        assert!(inbox.has_messages());
        assert_eq!(drain(&inbox), ["a5"]);
    }

    #[test]
    fn room_returns_when_the_messages_are_used() {
        let inbox = Inbox::default();
        let lane = lane(1, 4);
        let waker = std::task::Waker::noop();
        send(&inbox, &lane, &["1", "2", "3", "4"]);
        assert_eq!(lane.room_or_wake(waker), 0);
        for room in [0, 0, 0, 4] {
            assert!(inbox.try_pop(|_, message| Some(message)).is_some());
            assert_eq!(lane.room_or_wake(waker), room, "messages of a small batch are released together");
        }
        assert!(inbox.try_pop(|_, message| Some(message)).is_none());
        assert_eq!((lane.room_or_wake(waker), lane.counts()), (4, (0, 4)));
    }
}

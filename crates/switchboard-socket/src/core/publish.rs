//! Passing of a message to several peers: subscribers, members of a group, publishers.

use super::{
    Core, Sending,
    batch::{self, SHARE_MIN},
    peer::{Delivery, Encoded, Shared, Sink, WireSink},
    send::check_frames,
};
use crate::{
    Error, ErrorKind, Message, PeerId, Result,
    monitor::Event,
    options::{QueueFullPolicy, QueueOptions},
};
use std::{
    mem,
    sync::{MutexGuard, Weak, atomic::Ordering},
    task::Waker,
};
use switchboard_wire::zmtp::patterns::Change;

/// Reason of a drop.
pub(super) const FULL: &str = "the queue is full";

/// Number of peers from which a message is encoded once for all.
const SHARED_PEERS_MIN: usize = 2;

impl Core {
    pub(super) fn report_drop(&self, is_first: bool, id: PeerId) {
        if is_first {
            self.monitors.emit(|| Event::Dropped { peer: Some(id), count: 1, reason: FULL });
        }
    }

    /// Sends to the subscribers of a prefix of the first frame.
    pub(super) fn publish(&self, message: Message) -> Result<Option<Message>> {
        check_frames(&message)?;
        let mut sending = self.sending();
        sending.check_open()?;
        let mut matching = mem::take(&mut sending.matching);
        matching.clear();
        let first = message.frames().first().map_or(&[][..], |frame| frame);
        sending.subscribers.matching(first, &mut matching);
        if self.options.subscriptions.invert_matching {
            matching.sort_unstable();
            let all = sending.peers.iter().map(|peer| peer.id);
            matching = all.filter(|id| matching.binary_search(id).is_err()).collect();
        }
        let only = sending.next_only_to.take();
        if let Some(only) = only {
            matching.retain(|id| *id == only);
        }
        let waiting = self.distribute(sending, matching, message)?;
        if waiting.is_some()
            && let Some(only) = only
        {
            let mut sending = self.sending();
            // The message that waits for room is still the next one.
            sending.next_only_to = sending.peers.find(only).map(|peer| peer.id);
        }
        Ok(waiting)
    }

    /// Sends to the peers that joined the group in the first frame.
    pub(super) fn broadcast(&self, message: Message) -> Result<Option<Message>> {
        if message.frames().len() != 2 {
            let text = "message to RADIO does not have two frames, the group and the body";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let mut sending = self.sending();
        sending.check_open()?;
        let mut matching = mem::take(&mut sending.matching);
        matching.clear();
        if let Some(members) = sending.groups.get(&message.frames()[0]) {
            matching.extend_from_slice(members);
        }
        self.distribute(sending, matching, message)
    }

    fn distribute(
        &self,
        mut sending: MutexGuard<'_, Sending>,
        matching: Vec<PeerId>,
        message: Message,
    ) -> Result<Option<Message>> {
        let queues = &self.options.queues;
        if queues.when_full == QueueFullPolicy::Wait
            && matching
                .iter()
                .any(|id| sending.peers.find(*id).is_some_and(|peer| peer.is_full(queues, self.this())))
        {
            sending.matching = matching;
            return Ok(Some(message));
        }
        let encoded =
            (matching.len() >= SHARED_PEERS_MIN).then(|| sending.encode(&message, queues.when_full));
        let (mut wakers, mut firsts) = (Vec::new(), Vec::new());
        for &id in &matching {
            match sending.publish_to(id, &message, encoded.as_ref(), queues, self.this()) {
                Published::Dropped { is_first, waker } => {
                    wakers.extend(waker);
                    if is_first {
                        firsts.push(id);
                    }
                }
                Published::Sent { waker, should_yield } => {
                    wakers.extend(waker);
                    if should_yield {
                        self.should_yield.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        sending.matching = matching;
        drop(sending);
        wakers.into_iter().for_each(Waker::wake);
        firsts.into_iter().for_each(|id| self.report_drop(true, id));
        Ok(None)
    }

    /// Sends a subscription of XSUB to its publishers; other messages go to each publisher with room.
    pub(super) fn send_upstream(&self, message: Message) -> Result<Option<Message>> {
        check_frames(&message)?;
        match Change::read(message.frames()) {
            Some(Change::Subscribe(topic)) => self.subscribe(&topic).map(|()| None),
            Some(Change::Cancel(topic)) => self.cancel(&topic).map(|()| None),
            None => {
                let mut sending = self.sending();
                sending.check_open()?;
                let mut all = mem::take(&mut sending.matching);
                all.clear();
                all.extend(sending.peers.iter().map(|peer| peer.id));
                self.distribute(sending, all, message)
            }
        }
    }
}

/// Result of passing a message to one of several subscribers.
enum Published {
    Dropped { is_first: bool, waker: Option<Waker> },
    Sent { waker: Option<Waker>, should_yield: bool },
}

impl Sending {
    /// Encodes a message for several peers. A policy that drops old messages needs the bytes of each in its queue.
    fn encode(&mut self, message: &Message, when_full: QueueFullPolicy) -> Encoded {
        if message.size_bytes() > SHARE_MIN || when_full == QueueFullPolicy::DropOldest {
            return Encoded::Whole(batch::encode(message));
        }
        if self.segments.is_full() {
            for peer in self.peers.iter_mut() {
                peer.seal(&mut self.segments);
            }
            self.segments.clear();
        }
        Encoded::Range(self.segments.append(message))
    }

    fn publish_to(
        &mut self,
        id: PeerId,
        message: &Message,
        encoded: Option<&Encoded>,
        queues: &QueueOptions,
        core: &Weak<Core>,
    ) -> Published {
        let Some(peer) = self.peers.find(id) else {
            return Published::Sent { waker: None, should_yield: false };
        };
        let shared = encoded.and_then(|encoded| peer.deliver_encoded(encoded, &mut self.segments, queues));
        let shared = shared.unwrap_or_else(|| {
            peer.seal(&mut self.segments);
            match peer.deliver(&mut Some(message.clone()), queues, core) {
                Delivery::Full => Shared::Full,
                Delivery::Sent(waker) => Shared::Sent(waker),
            }
        });
        if let Shared::Sent(waker) = shared {
            return Published::Sent { waker, should_yield: peer.should_yield(queues) };
        }
        let (dropped, waker) = match &mut peer.sink {
            Sink::Wire(wire) if queues.when_full == QueueFullPolicy::DropOldest => {
                wire.replace_oldest(message, queues)
            }
            _ => (1, None),
        };
        Published::Dropped { is_first: self.count_drops(id, dropped), waker }
    }
}

impl WireSink {
    /// Drops the oldest messages until there is room for a new one. Drops the new one if there is none even then, with
    /// nothing but messages that are being written. Returns the number of dropped messages, and the task to be woken.
    fn replace_oldest(&mut self, message: &Message, queues: &QueueOptions) -> (u64, Option<Waker>) {
        let mut dropped = 0;
        while self.is_full(queues) && self.pending_messages() > 0 {
            self.pending().drop_oldest();
            dropped += 1;
        }
        if self.is_full(queues) {
            return (dropped + 1, None);
        }
        self.pending().push(message);
        (dropped, self.take_waiting())
    }
}

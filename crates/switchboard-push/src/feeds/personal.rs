//! Topics of users and of keys: one subscription of an engine for all users, and one for all keys.
//!
//! A device has two such topics, and is idle for most of its life: a subscription and a log for each would be most of
//! its memory. Each worker gets the entries of all users and keys instead, and drops those of devices on other workers.
//! A bus whose topics are in an engine has no subscriptions to patterns: there, each topic has its own.

use super::{
    Encoder, Feeds, Notice,
    catch_up::after,
    command::FeedWaker,
    deliver::{Budget, Slow},
    feed::Feed,
};
use crate::{control::Control, names};
use bytes::Bytes;
use futures_core::Stream;
use smallvec::smallvec;
use std::{
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard::Result;
use switchboard_fanout::Subscribers;
use switchboard_message::{Delivery, Gap, Message, Pattern, Subscription};

/// Users or keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PersonalKind {
    User,
    Key,
}

/// The subscription to all topics of a kind.
pub(super) struct Personal {
    subscription: Subscription<Bytes>,
    queued: Arc<FeedWaker>,
    waker: Waker,
}

impl PersonalKind {
    /// Index of the kind among those of feeds, which are smaller.
    fn index(self) -> u32 {
        u32::MAX - 1 - self as u32
    }

    /// Returns the kind of an index; `None` for that of a feed.
    pub(super) fn of_index(index: u32) -> Option<PersonalKind> {
        [PersonalKind::User, PersonalKind::Key].into_iter().find(|kind| kind.index() == index)
    }

    fn prefix(self) -> &'static str {
        match self {
            PersonalKind::User => names::USER,
            PersonalKind::Key => names::KEY,
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Feeds<K> {
    /// Has a feed get its entries by the subscription to all topics of its kind, which begins with the first one.
    pub(super) fn begin_personal(&mut self, feed: &mut Feed<K>) -> Result<()> {
        let kind = if names::is_user(feed.topic.name()) { PersonalKind::User } else { PersonalKind::Key };
        if self.personal[kind as usize].is_none() {
            self.open_personal(kind)?;
        }
        feed.is_shared = true;
        // Entries that were published before, and that the subscription has not delivered yet, are not for it.
        feed.position = self.state.bus.topic_stats(&feed.topic).map(|stats| stats.head);
        feed.skip = feed.position;
        Ok(())
    }

    fn open_personal(&mut self, kind: PersonalKind) -> Result<()> {
        let all = self.state.bus.subscribe_encoded(Pattern::prefix(kind.prefix()));
        let subscription = switchboard_adapter::parts::begin(all)?;
        let queued = Arc::new(FeedWaker::new(kind.index(), self.ready.clone()));
        let waker = Waker::from(queued.clone());
        // The first poll registers the waker.
        self.ready.push(kind.index());
        self.personal[kind as usize] = Some(Personal { subscription, queued, waker });
        Ok(())
    }

    /// Delivers the entries of users or keys.
    pub(super) fn deliver_personal<E: Encoder<Key = K>>(
        &mut self,
        kind: PersonalKind,
        budget: &mut Budget,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        while let Some(personal) = &mut self.personal[kind as usize] {
            if budget.is_spent() {
                return personal.waker.wake_by_ref();
            }
            personal.queued.rearm();
            let next =
                Pin::new(&mut personal.subscription).poll_next(&mut Context::from_waker(&personal.waker));
            let Poll::Ready(item) = next else { return };
            match item {
                Some(Ok(Delivery::Entry(message))) => {
                    budget.spend(message.len());
                    if let Some(index) = self.by_topic.get(message.topic()).copied() {
                        self.deliver_to(index, message, encoder, subscribers);
                    }
                }
                Some(Ok(Delivery::Gap(gap))) => self.missed_by(&gap, encoder, subscribers),
                Some(Ok(_)) => {}
                Some(Err(status)) => tracing::warn!("push: topics \"{}\": {status}", kind.prefix()),
                None => {
                    // The topics of a hub have no policy that ends a subscription.
                    self.personal[kind as usize] = None;
                    if let Err(status) = self.open_personal(kind) {
                        tracing::warn!("push: topics \"{}\" are not read: {status}", kind.prefix());
                    }
                }
            }
        }
    }

    /// Delivers an entry to the subscribers of its topic.
    fn deliver_to<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        message: Message<Bytes>,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let counters = self.state.counters.clone();
        let Some(feed) = self.feeds.get_mut(index as usize).and_then(Option::as_deref_mut) else { return };
        let position = message.position();
        let is_earlier = |skip: switchboard_message::Position| {
            skip.epoch == position.epoch && position.offset <= skip.offset
        };
        if feed.skip.is_some_and(is_earlier) {
            return;
        }
        (feed.skip, feed.position) = (None, Some(position));
        let mut slow = Slow::new();
        match Control::of(message.entry()) {
            Some(Some(order)) => {
                self.notices.extend(feed.each().map(|id| Notice::Order(id, order.clone())));
            }
            Some(None) => {}
            None => {
                let scratch = (&mut self.scratch, &*counters);
                feed.flush(&mut smallvec![message], encoder, subscribers, scratch, &mut slow);
            }
        }
        self.slow(index, &slow, encoder, subscribers);
        self.advance(index, encoder, subscribers);
    }

    /// Reports missing entries to the subscribers of their topic.
    fn missed_by<E: Encoder<Key = K>>(&mut self, gap: &Gap, encoder: &mut E, subscribers: &mut Subscribers) {
        let counters = self.state.counters.clone();
        let Some(index) = self.by_topic.get(&gap.topic).copied() else { return };
        let Some(feed) = self.feeds.get_mut(index as usize).and_then(Option::as_deref_mut) else { return };
        (feed.skip, feed.position) = (None, Some(after(gap)));
        feed.missed(gap, encoder, subscribers, (&mut self.scratch, &counters));
        self.advance(index, encoder, subscribers);
    }
}

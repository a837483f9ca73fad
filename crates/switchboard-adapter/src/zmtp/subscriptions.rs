//! Subscriptions of SUB and PULL peers, and the rules of topics that apply to them.

use super::{
    adapter::{SUBSCRIPTIONS_MAX, ZmtpAdapter},
    feed,
    peer::{Peer, Prefixes, Role},
};
use bytes::Bytes;
use switchboard_core::Caller;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_message::Pattern;
use switchboard_wire::Status;

impl ZmtpAdapter {
    /// Returns the subscriptions of a new SUB: none yet.
    pub(super) fn subscriptions(&self, caller: Option<&Caller>) -> Prefixes {
        let shared = &self.shared;
        Prefixes::new(shared.rules.may_subscribe(&shared.single_frames, caller).is_ok())
    }

    /// Subscribes a peer to a prefix. A prefix that can be that of a topic which the caller may not read is refused as
    /// a whole; the protocol has no way to report it.
    ///
    /// # Errors
    /// The reason to close the connection: too many subscriptions, or a limit of the bus.
    pub(super) fn subscribe(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        prefix: &Bytes,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Peer { role: Role::Subscriber(prefixes), connection, caller, .. } = peer else { return Ok(()) };
        if prefixes.count >= SUBSCRIPTIONS_MAX {
            let text = format!("a peer has at most {SUBSCRIPTIONS_MAX} subscriptions");
            return Err(CloseReason::Violation { name: "subscriptions", text: text.into() });
        }
        if !prefixes.all.contains_key(prefix) {
            let shared = &self.shared;
            let pattern = Pattern::prefix(prefix.clone());
            if let Err(status) = shared.rules.may_subscribe(pattern, caller.as_deref()) {
                shared.counters.refused_subscription(&status);
                return Ok(());
            }
            let begin = |topics, task| {
                feed::entries(&shared.bus, topics, task, self.waiting.clone(), self.engine.clone())
            };
            self.interests.add(prefix, begin).map_err(|status| refused(&status))?;
        }
        if !prefixes.add(prefix) {
            return Ok(());
        }
        if connection.is_sealed() {
            self.sealed.add(id, prefix);
        } else {
            self.filters.added(id, prefix, prefixes, subscribers);
        }
        Ok(())
    }

    /// Ends a subscription of a peer to a prefix, if it has one.
    pub(super) fn cancel(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        prefix: &Bytes,
        subscribers: &mut Subscribers,
    ) {
        let Peer { role: Role::Subscriber(prefixes), connection, .. } = peer else { return };
        if !prefixes.remove(prefix) {
            return;
        }
        self.interests.remove(prefix);
        if connection.is_sealed() {
            self.sealed.cancel(id, prefix);
        } else {
            self.filters.removed(id, prefix, prefixes, subscribers);
        }
    }

    /// Gives a PULL jobs from now on, if its caller may read their topic.
    ///
    /// # Errors
    /// The reason to close the connection: a limit of the bus.
    pub(super) fn enter_workers(
        &mut self,
        id: SubscriberId,
        caller: Option<&Caller>,
    ) -> Result<(), CloseReason> {
        let shared = &self.shared;
        if let Some(pipeline) = &shared.pipeline
            && let Err(status) = shared.rules.may_subscribe(&pipeline.topic, caller)
        {
            shared.counters.refused_subscription(&status);
            return Ok(());
        }
        self.jobs.enter(id, shared, &self.engine).map_err(|status| refused(&status))
    }
}

/// Returns the reason to close a peer for which the bus refused a subscription.
fn refused(status: &Status) -> CloseReason {
    CloseReason::Violation { name: "bus", text: status.message().to_owned().into() }
}

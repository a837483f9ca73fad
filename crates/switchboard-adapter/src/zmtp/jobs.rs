//! Distribution of entries to PULL peers, in turn among those that have room.

use super::{
    Shared,
    adapter::ZmtpAdapter,
    entries::{self, Encoded},
    feed,
    peer::Peer,
};
use crate::{feed::Feed, responses::add};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use switchboard_core::Result;
use switchboard_fanout::{Handle, SubscriberId, Subscribers};
use switchboard_message::Message;
use tokio::sync::Semaphore;

/// Jobs between the bus and a peer. Those behind them stay in the group, for other members.
const JOBS_MAX: usize = 16;
/// Bytes that wait for a peer, at which others get the next jobs.
const ROOM_BYTES: usize = 64 << 10;

/// The PULL peers of an engine.
#[derive(Debug)]
pub(super) struct Jobs {
    /// All of them, and whether each is among those with room.
    workers: HashMap<SubscriberId, bool>,
    /// Those with room, the next one first; also some that are gone.
    ready: VecDeque<SubscriberId>,
    /// Jobs for which no peer has room.
    pending: VecDeque<Message<Bytes>>,
    permits: Arc<Semaphore>,
    feed: Option<Feed>,
}

impl Jobs {
    pub(super) fn new() -> Jobs {
        Jobs {
            workers: HashMap::new(),
            ready: VecDeque::new(),
            pending: VecDeque::new(),
            permits: Arc::new(Semaphore::new(JOBS_MAX)),
            feed: None,
        }
    }

    /// Adds a peer; the first one makes the engine a member of the group.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn enter(
        &mut self,
        id: SubscriberId,
        shared: &Shared,
        engine: &Handle<ZmtpAdapter>,
    ) -> Result<()> {
        if let (None, Some(pipeline)) = (&self.feed, &shared.pipeline) {
            self.permits = Arc::new(Semaphore::new(JOBS_MAX));
            self.feed = Some(feed::jobs(&shared.bus, pipeline, engine.clone(), self.permits.clone())?);
        }
        self.workers.insert(id, true);
        self.ready.push_back(id);
        Ok(())
    }

    /// Removes a peer; the last one gives the jobs that no peer has back to the group.
    pub(super) fn leave(&mut self, id: SubscriberId) {
        self.workers.remove(&id);
        if self.workers.is_empty() {
            self.ready.clear();
            self.feed = None;
            for job in self.pending.drain(..) {
                job.reject();
            }
        }
    }

    /// A peer has room again.
    pub(super) fn drained(
        &mut self,
        id: SubscriberId,
        shared: &Shared,
        peers: &mut HashMap<SubscriberId, Peer>,
        subscribers: &mut Subscribers,
    ) {
        if let Some(is_ready @ false) = self.workers.get_mut(&id) {
            *is_ready = true;
            self.ready.push_back(id);
            self.assign(shared, peers, subscribers);
        }
    }

    /// Takes a job of the group.
    pub(super) fn add(
        &mut self,
        job: Message<Bytes>,
        shared: &Shared,
        peers: &mut HashMap<SubscriberId, Peer>,
        subscribers: &mut Subscribers,
    ) {
        if self.workers.is_empty() {
            job.reject();
            return;
        }
        self.pending.push_back(job);
        self.assign(shared, peers, subscribers);
    }

    /// Gives jobs to the peers with room, in turn.
    fn assign(
        &mut self,
        shared: &Shared,
        peers: &mut HashMap<SubscriberId, Peer>,
        subscribers: &mut Subscribers,
    ) {
        while !self.pending.is_empty() {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(is_ready) = self.workers.get_mut(&id) else { continue };
            let Some(job) = self.pending.pop_front() else { return };
            let sealed = peers.get_mut(&id).filter(|peer| peer.connection.is_sealed());
            let waiting = subscribers.send(id, |out| match sealed {
                Some(peer) => {
                    // The handshake is complete.
                    let _ = peer.connection.send(&entries::frames(None, job.entry()), out);
                }
                None => {
                    let Encoded { head, payload } = entries::encode(None, job.entry());
                    out.tail().extend_from_slice(&head);
                    out.chain(payload);
                }
            });
            if waiting == 0 {
                // The peer is gone, which `leave` says next.
                self.pending.push_front(job);
                continue;
            }
            job.ack();
            add(&shared.counters.jobs, 1);
            self.permits.add_permits(1);
            *is_ready = waiting < ROOM_BYTES;
            if *is_ready {
                self.ready.push_back(id);
            }
        }
    }
}

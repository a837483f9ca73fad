//! Messages of PUB and PUSH peers as entries of the bus.

use super::{Shared, adapter::ZmtpAdapter, entries, feed::Command, mapping::Local, peer::Peer};
use crate::{responses::add, task::Task};
use bytes::Bytes;
use switchboard_core::{Caller, Result};
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::{Attempt, Publication, Topic};
use switchboard_wire::{Status, zmtp::patterns::Assembly};

/// The messages of a PUB or a PUSH.
#[derive(Debug)]
pub(super) struct Publishing {
    assembly: Assembly,
    local: Local,
}

impl Publishing {
    pub(super) fn new(local: Local) -> Publishing {
        Publishing { assembly: Assembly::new(), local }
    }

    /// Adds a frame; returns the message if it is the last one.
    pub(super) fn push(&mut self, body: Bytes, more: bool) -> Option<(Local, Vec<Bytes>)> {
        Some((self.local, self.assembly.push(body, more)?))
    }
}

impl ZmtpAdapter {
    /// Publishes a message of a peer; the protocol has no way to report that it was refused. A PUSH is not read while
    /// its topic is full, if the topic makes its publishers wait.
    pub(super) fn publish(
        &self,
        id: SubscriberId,
        peer: &mut Peer,
        (local, frames): (Local, Vec<Bytes>),
        subscribers: &mut Subscribers,
    ) {
        let shared = &self.shared;
        let caller = peer.caller.as_deref();
        let published = match (local, &shared.pipeline, &frames[..]) {
            (Local::Pipeline, Some(pipeline), frames) => {
                match push(shared, &pipeline.topic, frames, caller) {
                    Some(published) => published,
                    None => return self.publish_later(id, peer, pipeline.topic.clone(), frames, subscribers),
                }
            }
            (_, _, [frame]) => publish(shared, &shared.single_frames, std::slice::from_ref(frame), caller),
            (_, _, [name, frames @ ..]) => {
                Topic::from_bytes(name).and_then(|topic| publish(shared, &topic, frames, caller))
            }
            (_, _, []) => Ok(()),
        };
        count(shared, published);
    }

    /// Publishes a message that the rules have admitted, when its topic has room.
    fn publish_later(
        &self,
        id: SubscriberId,
        peer: &mut Peer,
        topic: Topic,
        frames: &[Bytes],
        subscribers: &mut Subscribers,
    ) {
        let (shared, engine, frames) = (self.shared.clone(), self.engine.clone(), frames.to_vec());
        peer.wait(
            id,
            subscribers,
            Task::spawn(async move {
                let published = match entries::publication(&frames) {
                    Ok(publication) => shared.bus.publish_encoded(&topic, publication).await.map(drop),
                    Err(status) => Err(status),
                };
                count(&shared, published);
                // An engine that has ended has no peers.
                let _ = engine.send(Command::Resume(id)).await;
            }),
        );
    }
}

/// Makes a publication of frames, if the rules allow it to this caller. It counts in the rate of its rule.
fn admit(shared: &Shared, topic: &Topic, frames: &[Bytes], caller: Option<&Caller>) -> Result<Publication> {
    let publication = entries::publication(frames)?;
    shared.rules.admit(topic.name(), caller, std::slice::from_ref(&publication))?;
    Ok(publication)
}

/// Publishes to a topic, without waiting for a slow reader of the topic.
fn publish(shared: &Shared, topic: &Topic, frames: &[Bytes], caller: Option<&Caller>) -> Result<()> {
    crate::publish::publish(&shared.bus, topic, admit(shared, topic, frames, caller)?, "PUB peers").map(drop)
}

/// Publishes to a topic; `None` if the publisher has to wait: for a slow reader, or for the file of a durable topic.
fn push(shared: &Shared, topic: &Topic, frames: &[Bytes], caller: Option<&Caller>) -> Option<Result<()>> {
    let job = match admit(shared, topic, frames, caller) {
        Ok(job) => job,
        Err(status) => return Some(Err(status)),
    };
    match shared.bus.publish_encoded(topic, job).attempt() {
        Ok(Attempt::Published(..)) => Some(Ok(())),
        Ok(_) => None,
        Err(status) => Some(Err(status)),
    }
}

fn count(shared: &Shared, published: Result<(), Status>) {
    match published {
        Ok(()) => add(&shared.counters.published, 1),
        Err(status) => shared.counters.refused_message(&status),
    }
}

//! Messages of PUB and PUSH peers as entries of the bus.

use super::{Shared, adapter::ZmtpAdapter, entries, feed::Command, mapping::Local, peer::Peer, task::Task};
use crate::responses::add;
use bytes::Bytes;
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::Topic;
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
        let published = match (local, &shared.pipeline, &frames[..]) {
            (Local::Pipeline, Some(pipeline), frames) => match push(shared, &pipeline.topic, frames) {
                Some(published) => published,
                None => return self.publish_later(id, peer, pipeline.topic.clone(), frames, subscribers),
            },
            (_, _, [frame]) => publish(shared, &shared.single_frames, std::slice::from_ref(frame)),
            (_, _, [name, frames @ ..]) => {
                Topic::from_bytes(name).and_then(|topic| publish(shared, &topic, frames))
            }
            (_, _, []) => Ok(()),
        };
        count(shared, published);
    }

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

/// Publishes to a topic, without waiting for a slow reader of the topic.
fn publish(shared: &Shared, topic: &Topic, frames: &[Bytes]) -> Result<()> {
    crate::publish::publish(&shared.bus, topic, entries::publication(frames)?, "PUB peers")
}

/// Publishes to a topic; `None` if the topic is full and makes its publishers wait.
fn push(shared: &Shared, topic: &Topic, frames: &[Bytes]) -> Option<Result<()>> {
    let publication = match entries::publication(frames) {
        Ok(publication) => publication,
        Err(status) => return Some(Err(status)),
    };
    let publishing = pin!(shared.bus.publish_encoded(topic, publication));
    match publishing.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(published) => Some(published.map(drop)),
        Poll::Pending => None,
    }
}

fn count(shared: &Shared, published: Result<(), Status>) {
    match published {
        Ok(()) => add(&shared.counters.published, 1),
        Err(status) => {
            add(&shared.counters.refused, 1);
            tracing::debug!("zmtp: a message of a peer is dropped: {status}");
        }
    }
}

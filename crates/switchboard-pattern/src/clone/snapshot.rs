//! Snapshots that are being sent, one task each: a slow client delays neither updates nor other clients.

use super::frames;
use bytes::Bytes;
use std::{collections::HashMap, time::Duration};
use switchboard_socket::Router;
use tokio::task::{Id, JoinError, JoinSet};

/// Entries of a snapshot, and the number of the last update in it.
pub(super) type Content = (Vec<(String, u64, Bytes)>, u64);

#[derive(Debug)]
pub(super) struct Snapshots {
    socket: Router,
    running: JoinSet<()>,
    /// Clients whose snapshot is being sent.
    identities: HashMap<Id, Bytes>,
    max: usize,
    timeout: Duration,
}

impl Snapshots {
    pub(super) fn new(socket: Router, max: usize, timeout: Duration) -> Snapshots {
        Snapshots { socket, running: JoinSet::new(), identities: HashMap::new(), max, timeout }
    }

    /// Returns true if a client may receive a snapshot now: it receives none, and others leave room.
    pub(super) fn has_room(&mut self, identity: &Bytes) -> bool {
        while let Some(ended) = self.running.try_join_next_with_id() {
            self.remove(ended);
        }
        self.running.len() < self.max && !self.identities.values().any(|known| known == identity)
    }

    /// Sends a snapshot in the background. It ends early with its client, or when the client is too slow.
    pub(super) fn begin(&mut self, identity: Bytes, content: Content, subtree: String) {
        let (socket, known, limit) = (self.socket.clone(), identity.clone(), self.timeout);
        let task = self.running.spawn(async move {
            match tokio::time::timeout(limit, send(&socket, &identity, content, &subtree)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a snapshot was not sent"),
                Err(_) => tracing::debug!("a snapshot was not sent within snapshot_timeout={limit:?}"),
            }
        });
        self.identities.insert(task.id(), known);
    }

    /// Waits until a snapshot has been sent. Cancel safe.
    pub(super) async fn ended(&mut self) {
        match self.running.join_next_with_id().await {
            Some(ended) => self.remove(ended),
            None => std::future::pending().await,
        }
    }

    /// Removes the client of a task that ended, or that failed with a panic.
    fn remove(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.identities.remove(&id);
    }
}

async fn send(
    socket: &Router,
    identity: &Bytes,
    (entries, sequence): Content,
    subtree: &str,
) -> switchboard_socket::Result<()> {
    for (key, sequence, value) in entries {
        socket.send(frames::entry(identity, &key, sequence, &value)).await?;
    }
    socket.send(frames::end(identity, sequence, subtree)).await
}

//! Snapshots that are being sent, one task each: a slow client delays neither updates nor other clients.

use super::frames;
use bytes::Bytes;
use std::collections::HashSet;
use switchboard_socket::Router;
use tokio::task::JoinSet;

/// Entries of a snapshot, and the number of the last update in it.
pub(super) type Content = (Vec<(String, u64, Bytes)>, u64);

#[derive(Debug)]
pub(super) struct Snapshots {
    socket: Router,
    running: JoinSet<Bytes>,
    /// Clients whose snapshot is being sent.
    identities: HashSet<Bytes>,
    max: usize,
}

impl Snapshots {
    pub(super) fn new(socket: Router, max: usize) -> Snapshots {
        Snapshots { socket, running: JoinSet::new(), identities: HashSet::new(), max }
    }

    /// Returns true if a client may receive a snapshot now: it receives none, and others leave room.
    pub(super) fn has_room(&self, identity: &Bytes) -> bool {
        self.running.len() < self.max && !self.identities.contains(identity)
    }

    /// Sends a snapshot in the background. It ends early with its client, or when the client does not read.
    pub(super) fn begin(&mut self, identity: Bytes, content: Content, subtree: String) {
        let socket = self.socket.clone();
        self.identities.insert(identity.clone());
        self.running.spawn(async move {
            if let Err(error) = send(&socket, &identity, content, &subtree).await {
                tracing::debug!(%error, "a snapshot was not sent");
            }
            identity
        });
    }

    /// Waits until a snapshot has been sent. Cancel safe.
    pub(super) async fn ended(&mut self) {
        match self.running.join_next().await {
            Some(Ok(identity)) => drop(self.identities.remove(&identity)),
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
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

//! Subscriptions: those of the peers of a publisher, and those of a subscriber itself.

use super::{
    Core, Sending,
    lane::Lane,
    peer::{Command, Sink},
    send::check_frames,
    turn::Turn,
};
use crate::{Error, ErrorKind, Message, PeerId, Result};
use bytes::Bytes;
use std::{
    sync::{Arc, Weak},
    task::Waker,
};
use switchboard_wire::zmtp::{SocketType, patterns::Change};

impl Core {
    /// Adds a subscription of a peer; returns the message for the application of an XPUB.
    ///
    /// # Errors
    /// Returns the reason for which the connection must be closed.
    pub(crate) fn subscribed(
        &self,
        peer: PeerId,
        topic: Bytes,
    ) -> std::result::Result<Option<Message>, String> {
        let options = &self.options.subscriptions;
        if options.is_manual() && self.kind == SocketType::Xpub {
            return Ok(Some(Message::from(Change::Subscribe(topic).to_frame())));
        }
        let is_first = {
            let mut sending = self.sending();
            let is_first = sending.subscribers.subscribe(&topic, peer).map_err(|why| why.to_string())?;
            if let Some(welcome) = options.welcome.as_ref().filter(|welcome| welcome.starts_with(&topic)) {
                // It has the limits of the queue: a peer may subscribe again and again, and read nothing.
                self.send_or_drop(sending, Some(peer), Message::from(welcome.clone()));
            }
            is_first
        };
        let is_reported = is_first || options.verbose || options.verboser;
        let is_reported = is_reported && self.kind == SocketType::Xpub;
        Ok(is_reported.then(|| Message::from(Change::Subscribe(topic).to_frame())))
    }

    /// Ends a subscription of a peer; returns the message for the application of an XPUB.
    pub(crate) fn cancelled(&self, peer: PeerId, topic: Bytes) -> Option<Message> {
        if self.options.subscriptions.is_manual() && self.kind == SocketType::Xpub {
            return Some(Message::from(Change::Cancel(topic).to_frame()));
        }
        let is_last = self.sending().subscribers.cancel(&topic, peer);
        let is_reported = is_last || self.options.subscriptions.verboser;
        let is_reported = is_reported && self.kind == SocketType::Xpub;
        is_reported.then(|| Message::from(Change::Cancel(topic).to_frame()))
    }

    /// Reports the subscriptions that ended with their peer to the application of an XPUB.
    pub(super) fn report_cancelled(&self, cancelled: Vec<(Arc<Lane>, Vec<u8>)>) {
        if self.kind != SocketType::Xpub {
            return;
        }
        for (lane, topic) in cancelled {
            let mut messages = vec![Message::from(Change::Cancel(topic.into()).to_frame())];
            self.inbox.arrived(&lane, lane.extend(&mut messages));
        }
    }

    /// Adds a peer to a group.
    ///
    /// # Errors
    /// Returns the reason for which the connection must be closed.
    pub(crate) fn joined(&self, peer: PeerId, group: Bytes) -> std::result::Result<(), String> {
        let mut guard = self.sending();
        let sending = &mut *guard;
        let limit = self.options.limits.subscriptions_max;
        let Some(joining) = sending.peers.find(peer) else { return Err("the peer is gone".to_owned()) };
        let count = joining.groups;
        if count >= limit {
            return Err(format!(
                "connection has {count} groups; the limit is {limit} (limits.subscriptions_max)"
            ));
        }
        let members = sending.groups.entry(group).or_default();
        if !members.contains(&peer) {
            members.push(peer);
            joining.groups += 1;
        }
        Ok(())
    }

    /// Removes a peer from a group.
    pub(crate) fn left(&self, peer: PeerId, group: &Bytes) {
        let mut guard = self.sending();
        let sending = &mut *guard;
        let Some(members) = sending.groups.get_mut(group) else { return };
        let Some(at) = members.iter().position(|member| *member == peer) else { return };
        members.remove(at);
        if members.is_empty() {
            sending.groups.remove(group);
        }
        if let Some(peer) = sending.peers.find(peer) {
            peer.groups -= 1;
        }
    }

    /// Subscribes to a topic, or joins a group, at all peers, now and later.
    pub(crate) fn subscribe(&self, topic: &Bytes) -> Result<()> {
        let recipients = {
            let mut sending = self.sending();
            let limit = self.options.limits.subscriptions_max as usize;
            if sending.wanted.len() >= limit && !sending.wanted.contains_key(topic) {
                let text = format!("{} has {limit} subscriptions (limits.subscriptions_max)", self.kind);
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
            let count = sending.wanted.entry(topic.clone()).or_default();
            *count += 1;
            let is_first = *count == 1;
            self.filter().add(self.kind, topic);
            // With the same lock: a peer that attaches later sends all subscriptions itself.
            is_first.then(|| sending.command(&self.wants(topic)))
        };
        if let Some(recipients) = recipients {
            recipients.notify(&self.wants(topic));
        }
        Ok(())
    }

    /// Ends one subscription to a topic, or leaves a group.
    pub(crate) fn cancel(&self, topic: &Bytes) -> Result<()> {
        let command = match self.kind {
            SocketType::Dish => Command::Leave(topic.clone()),
            _ => Command::Cancel(topic.clone()),
        };
        let recipients = {
            let mut sending = self.sending();
            let Some(count) = sending.wanted.get_mut(topic) else {
                let text = format!("{} is not subscribed to \"{}\"", self.kind, topic.escape_ascii());
                return Err(Error::new(ErrorKind::InvalidInput, text));
            };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                sending.wanted.remove(topic);
            }
            if is_last || self.kind != SocketType::Dish {
                // Prefixes are counted by the filter; groups are not.
                self.filter().remove(self.kind, topic);
            }
            is_last.then(|| sending.command(&command))
        };
        if let Some(recipients) = recipients {
            recipients.notify(&command);
        }
        Ok(())
    }

    /// Changes the subscriptions of the peer whose change this XPUB received last, with the option
    /// `subscriptions.manual`.
    pub(crate) fn change_manually(&self, change: &Change) -> Result<()> {
        let peer = self.last_changed()?;
        let mut sending = self.sending();
        if sending.peers.find(peer).is_none() {
            // Its end cancelled all of its subscriptions; one that is added now would never end.
            return Ok(());
        }
        match change {
            Change::Cancel(topic) => {
                sending.subscribers.cancel(topic, peer);
            }
            Change::Subscribe(topic) => {
                sending
                    .subscribers
                    .subscribe(topic, peer)
                    .map_err(|why| Error::new(ErrorKind::InvalidInput, why.to_string()))?;
                if self.options.subscriptions.manual_last_value {
                    sending.next_only_to = Some(peer);
                }
            }
        }
        Ok(())
    }

    /// Sends a message to the peer whose change this XPUB received last, with the option `subscriptions.manual`.
    pub(crate) fn send_to_last_changed(&self, message: Message) -> Result<()> {
        check_frames(&message)?;
        let peer = self.last_changed()?;
        let sending = self.sending();
        sending.check_open()?;
        self.send_or_drop(sending, Some(peer), message);
        Ok(())
    }

    fn last_changed(&self) -> Result<PeerId> {
        let Turn::Xpub(Some(peer)) = *self.turn() else {
            let text = "XPUB has received no subscription with the option subscriptions.manual";
            return Err(Error::new(ErrorKind::State, text));
        };
        Ok(peer)
    }

    /// Passes the subscriptions of this socket to a new inproc peer.
    pub(crate) fn send_subscriptions_inproc(&self, core: &Weak<Core>, peer: PeerId) {
        let wanted: Vec<Bytes> = self.sending().wanted.keys().cloned().collect();
        for topic in wanted {
            command_inproc(core, peer, &self.wants(&topic));
        }
    }
}

/// Peers to which a command was passed, and those that execute it without a lock of this socket.
struct Recipients {
    wakers: Vec<Waker>,
    inproc: Vec<(Weak<Core>, PeerId)>,
}

impl Recipients {
    fn notify(self, command: &Command) {
        self.wakers.into_iter().for_each(Waker::wake);
        for (core, peer) in self.inproc {
            command_inproc(&core, peer, command);
        }
    }
}

impl Sending {
    /// Passes a command to all connections.
    fn command(&mut self, command: &Command) -> Recipients {
        let mut recipients = Recipients { wakers: Vec::new(), inproc: Vec::new() };
        for peer in self.peers.iter_mut() {
            match &peer.sink {
                Sink::Inproc { core, peer, .. } => recipients.inproc.push((core.clone(), *peer)),
                Sink::Wire(_) => recipients.wakers.extend(peer.command(command.clone())),
            }
        }
        recipients
    }
}

/// Executes a command at the other socket, which calls this one `peer`.
fn command_inproc(core: &Weak<Core>, peer: PeerId, command: &Command) {
    let Some(core) = core.upgrade() else { return };
    let message = match command {
        // An inproc peer is bounded by the limit of its own socket.
        Command::Subscribe(topic) => core.subscribed(peer, topic.clone()).unwrap_or_default(),
        Command::Cancel(topic) => core.cancelled(peer, topic.clone()),
        Command::Join(group) => {
            let _ = core.joined(peer, group.clone());
            None
        }
        Command::Leave(group) => {
            core.left(peer, group);
            None
        }
        Command::Ping => None,
    };
    let lane = core.sending().peers.find(peer).map(|peer| peer.lane.clone());
    if let (Some(message), Some(lane)) = (message, lane) {
        let mut messages = vec![message];
        core.inbox.arrived(&lane, lane.extend(&mut messages));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Socket, SocketOptions, SocketType};

    #[tokio::test]
    async fn a_welcome_message_is_sent_behind_the_messages_that_wait() {
        let mut options = SocketOptions::default();
        options.subscriptions.welcome = Some("t welcome".into());
        let publisher = Socket::new(SocketType::Xpub, options).unwrap();
        let bound = publisher.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
        let subscribers = [(); 2].map(|()| Socket::new(SocketType::Sub, SocketOptions::default()).unwrap());
        for subscriber in &subscribers {
            subscriber.connect_to(&bound).await.unwrap();
            subscriber.subscribe("t").unwrap();
            assert_eq!(subscriber.recv().await.unwrap().body(), b"t welcome");
        }
        // No connection writes meanwhile: the test does not wait.
        publisher.try_send("t 1").unwrap();
        for peer in publisher.stats().peers {
            publisher.core().subscribed(peer.id, "t".into()).unwrap();
        }
        publisher.try_send("t 2").unwrap();
        for subscriber in &subscribers {
            for expected in ["t 1", "t welcome", "t 2"] {
                assert_eq!(subscriber.recv().await.unwrap().body(), expected.as_bytes());
            }
        }
    }
}

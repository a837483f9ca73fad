//! Arrival and end of peers.

use super::{
    Batch, Command, Core, Sending,
    lane::{Lane, LaneLimits},
    peer::{Peer, PeerMetadata, Sink, WireSink},
    send::probe,
};
use crate::{Endpoint, Message, PeerId, monitor::Event};
use bytes::Bytes;
use std::{mem, sync::Arc, task::Waker};
use switchboard_wire::zmtp::{self, SocketType};

/// A connection after its handshake.
pub(crate) struct Attach<'a> {
    pub(crate) endpoint: &'a Arc<str>,
    /// Socket type of the peer.
    pub(crate) kind: SocketType,
    /// Routing id of the peer; empty if it has none.
    pub(crate) identity: &'a Bytes,
    /// The peer that connects again.
    pub(crate) known: Option<PeerId>,
    pub(crate) metadata: PeerMetadata,
}

/// The place of a connection in its socket.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) id: PeerId,
    pub(crate) lane: Arc<Lane>,
}

/// Returns true if the socket type sends to its peers in turn.
pub(super) fn rotates(kind: SocketType) -> bool {
    matches!(
        kind,
        SocketType::Channel
            | SocketType::Client
            | SocketType::Dealer
            | SocketType::Pair
            | SocketType::Push
            | SocketType::Req
            | SocketType::Scatter
    )
}

/// Returns true if the socket type sends to the peer that the first frame names.
pub(super) fn routes(kind: SocketType) -> bool {
    matches!(kind, SocketType::Peer | SocketType::Router | SocketType::Server | SocketType::Stream)
}

impl Core {
    fn lane_limits(&self) -> LaneLimits {
        let queues = &self.options.queues;
        LaneLimits {
            messages_max: queues.receive_messages_max,
            bytes_max: queues.receive_bytes_max,
            conflate: queues.conflate,
            is_inproc: false,
        }
    }

    /// Returns the limits of a lane that is the queue of both sides: the sum of their limits, as in libzmq.
    fn inproc_limits(&self, other: &Core) -> LaneLimits {
        let (own, sender) = (self.lane_limits(), &other.options.queues);
        let sum =
            |one: usize, other: usize| if one == 0 || other == 0 { 0 } else { one.saturating_add(other) };
        LaneLimits {
            messages_max: sum(own.messages_max, sender.send_messages_max),
            bytes_max: sum(own.bytes_max, sender.send_bytes_max),
            conflate: own.conflate || sender.conflate,
            is_inproc: true,
        }
    }

    /// Returns true if messages wait for an endpoint that is not connected yet.
    pub(crate) fn keeps_peers(&self) -> bool {
        rotates(self.kind) && !self.options.routing.immediate
    }

    /// Adds the peer of a connecting endpoint before its first connection.
    ///
    /// # Errors
    /// Returns the reason if the socket has as many peers as it may have.
    pub(crate) fn add_persistent(&self, endpoint: &Arc<str>) -> Result<PeerId, String> {
        let id = {
            let mut sending = self.sending();
            self.check_room(&sending)?;
            let id = self.insert(&mut sending, endpoint, Bytes::new(), |_| Sink::Wire(WireSink::default()));
            if let Some(peer) = sending.peers.find(id) {
                peer.is_persistent = true;
            }
            id
        };
        self.room.notify_waiters();
        Ok(id)
    }

    fn check_room(&self, sending: &Sending) -> Result<(), String> {
        if sending.is_closing {
            return Err("the socket is closed".to_owned());
        }
        if matches!(self.kind, SocketType::Channel | SocketType::Pair) && sending.peers.len() > 0 {
            return Err(format!("{} has a peer already; the type talks to exactly one", self.kind));
        }
        let (count, limit) = (sending.peers.len(), self.options.limits.peers_max);
        if count >= limit {
            return Err(format!("the socket has {count} peers; the limit is {limit} (limits.peers_max)"));
        }
        Ok(())
    }

    fn insert(
        &self,
        sending: &mut Sending,
        endpoint: &Arc<str>,
        route: Bytes,
        sink: impl FnOnce(PeerId) -> Sink,
    ) -> PeerId {
        let limits = self.lane_limits();
        let id = sending.peers.insert(|id| Peer {
            id,
            endpoint: endpoint.clone(),
            kind: None,
            metadata: None,
            lane: Arc::new(Lane::new(id, route, limits)),
            sink: sink(id),
            is_connected: false,
            is_persistent: false,
            is_inproc_connecting: false,
            is_suspended: false,
            is_dropping: false,
            sent: 0,
            dropped: 0,
            connections: 0,
            groups: 0,
        });
        if rotates(self.kind) {
            sending.rotation.add(id);
        }
        id
    }

    /// Adds a connection, or continues its peer.
    ///
    /// # Errors
    /// Returns the reason for which the connection must be closed.
    pub(crate) fn attach(&self, attach: Attach<'_>) -> Result<Attached, String> {
        let (attached, replaced) = {
            let mut sending = self.sending();
            let (id, replaced) = match attach.known.filter(|id| sending.peers.find(*id).is_some()) {
                Some(id) => (id, None),
                None => self.add(&mut sending, attach.endpoint, attach.identity)?,
            };
            let commands: Vec<Command> = sending.wanted.keys().map(|topic| self.wants(topic)).collect();
            let Some(peer) = sending.peers.find(id) else { return Err("the peer is gone".to_owned()) };
            peer.kind = Some(attach.kind);
            peer.is_connected = true;
            peer.connections += 1;
            peer.metadata = Some(Box::new(attach.metadata));
            if let Sink::Wire(wire) = &mut peer.sink {
                wire.commands = commands;
                if self.options.routing.probe && peer.connections == 1 && self.probes() {
                    probe(wire.pending());
                }
            }
            (Attached { id, lane: peer.lane.clone() }, replaced)
        };
        if let Some(waker) = replaced {
            waker.wake();
        }
        self.report_connected(&attached.lane);
        self.room.notify_waiters();
        Ok(attached)
    }

    fn probes(&self) -> bool {
        matches!(self.kind, SocketType::Dealer | SocketType::Req | SocketType::Router)
    }

    /// Returns the command for a topic or group of this socket.
    pub(super) fn wants(&self, topic: &Bytes) -> Command {
        match self.kind {
            SocketType::Dish => Command::Join(topic.clone()),
            _ => Command::Subscribe(topic.clone()),
        }
    }

    fn add(
        &self,
        sending: &mut Sending,
        endpoint: &Arc<str>,
        identity: &Bytes,
    ) -> Result<(PeerId, Option<Waker>), String> {
        self.check_room(sending)?;
        if !routes(self.kind) {
            let id = self.insert(sending, endpoint, Bytes::new(), |_| Sink::Wire(WireSink::default()));
            return Ok((id, None));
        }
        let has_identity = matches!(self.kind, SocketType::Router | SocketType::Stream);
        let identity = if has_identity { identity.clone() } else { Bytes::new() };
        if !identity.is_empty() && sending.routes.find(&identity).is_some() && !self.options.routing.handover
        {
            let identity = identity.escape_ascii();
            return Err(format!(
                "another peer has the routing id \"{identity}\"; the option routing.handover replaces it"
            ));
        }
        let id = self.insert(sending, endpoint, Bytes::new(), |_| Sink::Wire(WireSink::default()));
        let (route, replaced) = match sending.routes.add(&identity, id) {
            zmtp::patterns::Added::Added(route) => (route, None),
            zmtp::patterns::Added::Replaced(route, old) => (route, Some(old)),
            zmtp::patterns::Added::Ignored => (identity, None),
        };
        if let Some(peer) = sending.peers.find(id) {
            peer.lane = Arc::new(Lane::new(id, route, self.lane_limits()));
        }
        let waker = replaced.and_then(|old| sending.abort(old, "another peer took the routing id"));
        Ok((id, waker))
    }

    /// Adds an inproc peer. It gets messages after [`join_inproc`](Self::join_inproc).
    pub(crate) fn attach_inproc(
        &self,
        endpoint: &Arc<str>,
        other: &Core,
        is_connecting: bool,
    ) -> Result<Attached, String> {
        let mut sending = self.sending();
        let (id, replaced) = self.add(&mut sending, endpoint, &other.options.routing.routing_id)?;
        sending.rotation.suspend(id);
        let Some(peer) = sending.peers.find(id) else { return Err("the peer is gone".to_owned()) };
        peer.lane = Arc::new(Lane::new(id, peer.lane.route.clone(), self.inproc_limits(other)));
        peer.is_suspended = true;
        peer.kind = Some(other.kind);
        peer.is_connected = true;
        peer.is_inproc_connecting = is_connecting;
        peer.connections = 1;
        let attached = Attached { id, lane: peer.lane.clone() };
        drop(sending);
        if let Some(waker) = replaced {
            waker.wake();
        }
        Ok(attached)
    }

    /// Connects an inproc peer to the lane of the other socket.
    pub(crate) fn join_inproc(&self, id: PeerId, lane: Arc<Lane>, core: std::sync::Weak<Core>, peer: PeerId) {
        self.has_inproc.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(own) = self.sending().peers.find(id) {
            own.sink = Sink::Inproc { lane, core, peer };
        }
        self.resume(id);
    }

    /// Ends one connection to an inproc endpoint at both of its sides. The messages that were passed stay with the
    /// receiver.
    pub(crate) fn disconnect_inproc(&self, endpoint: &Endpoint) {
        let name = endpoint.to_string();
        let found = self.sending().peers.iter().find_map(|peer| match &peer.sink {
            Sink::Inproc { core, peer: other, .. }
                if peer.is_inproc_connecting && *peer.endpoint == *name =>
            {
                Some((peer.id, core.clone(), *other))
            }
            _ => None,
        });
        let Some((id, core, other)) = found else { return };
        self.detach(id, Batch::default(), "the endpoint was disconnected");
        if let Some(core) = core.upgrade() {
            core.detach(other, Batch::default(), "the other socket disconnected");
        }
    }

    /// Ends the connection of a peer. `unsent` are the messages that its task had taken.
    pub(crate) fn detach(&self, id: PeerId, unsent: Batch, reason: &str) {
        let mut guard = self.sending();
        let sending = &mut *guard;
        let Some(peer) = sending.peers.find(id) else { return };
        let endpoint = peer.endpoint.clone();
        let was_connected = mem::replace(&mut peer.is_connected, false);
        let lane = peer.lane.clone();
        let notices = &self.options.notices;
        let is_kept = peer.is_persistent && !peer.is_inproc();
        let notice = if is_kept { &notices.hiccup } else { &notices.disconnect };
        let (lost, is_reply_lost, cancelled) = if is_kept {
            peer.seal(&mut sending.segments);
            let lost = peer.suspend_connection(unsent);
            peer.dropped += lost;
            (lost, peer.unsent() == 0, Vec::new())
        } else {
            let lost = peer.unsent() as u64;
            (lost, true, sending.remove(id))
        };
        sending.dropped += lost;
        drop(guard);
        if is_reply_lost && self.turn().lose(id) {
            self.inbox.readable.notify_waiters();
        }
        self.report_cancelled(cancelled);
        if let Some(notice) = notice.as_ref().filter(|_| was_connected) {
            let mut messages = vec![Message::from(notice.clone())];
            self.inbox.arrived(&lane, lane.extend(&mut messages));
        }
        if was_connected && !is_kept {
            self.report_disconnected(&lane);
        }
        self.room.notify_waiters();
        if lost > 0 {
            let reason = "the connection ended";
            self.monitors.emit(|| Event::Dropped { peer: Some(id), count: lost, reason });
        }
        if was_connected {
            tracing::debug!(target: "switchboard::socket", %endpoint, peer = %id, reason, "peer disconnected");
            let (endpoint, reason) = (endpoint.to_string(), reason.to_owned());
            self.monitors.emit(|| Event::Disconnected { endpoint, peer: id, reason });
        }
    }

    /// Removes the peer of an endpoint that ended.
    pub(crate) fn remove_persistent(&self, id: PeerId) {
        let is_known = {
            let mut sending = self.sending();
            sending.peers.find(id).map(|peer| peer.is_persistent = false).is_some()
        };
        if is_known {
            self.detach(id, Batch::default(), "the endpoint was disconnected");
        }
    }
}

impl Peer {
    fn is_inproc(&self) -> bool {
        matches!(&self.sink, Sink::Inproc { .. })
    }

    /// Keeps the messages for the next connection; returns the number of lost ones.
    fn suspend_connection(&mut self, unsent: Batch) -> u64 {
        let Sink::Wire(wire) = &mut self.sink else { return 0 };
        wire.forget_task();
        wire.pending().requeue(unsent)
    }
}

impl Sending {
    /// Removes a peer; returns the topics that have no subscription left, and its lane.
    fn remove(&mut self, id: PeerId) -> Vec<(Arc<Lane>, Vec<u8>)> {
        let Some(peer) = self.peers.remove(id) else { return Vec::new() };
        self.rotation.remove(id);
        self.routes.remove(&peer.lane.route, id);
        self.next_only_to.take_if(|only| *only == id);
        if peer.groups > 0 {
            self.groups.retain(|_, members| {
                members.retain(|member| *member != id);
                !members.is_empty()
            });
        }
        self.subscribers.remove(id).into_iter().map(|topic| (peer.lane.clone(), topic)).collect()
    }
}

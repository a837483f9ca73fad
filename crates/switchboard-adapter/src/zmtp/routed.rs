//! Peers of a ROUTER of the application.

use super::{
    adapter::ZmtpAdapter,
    feed::Command,
    peer::{Peer, Role},
    router::{Inlet, RouterGone, ZmtpRouterMessage},
};
use crate::{responses::add, task::Task};
use bytes::Bytes;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_wire::zmtp::patterns::Assembly;
use tokio::sync::OwnedSemaphorePermit;

/// A peer of a ROUTER.
#[derive(Debug)]
pub(super) struct Routed {
    assembly: Assembly,
    router: Inlet,
    /// Its number in the router.
    number: u64,
    identity: Bytes,
    /// The room of the messages in the outbox, until the peer has read them.
    sent: Vec<OwnedSemaphorePermit>,
}

impl Routed {
    /// Adds a frame; returns the message if it is the last one.
    pub(super) fn push(&mut self, body: Bytes, more: bool) -> Option<ZmtpRouterMessage> {
        let frames = self.assembly.push(body, more)?;
        Some(ZmtpRouterMessage { identity: self.identity.clone(), frames })
    }

    /// The peer has read what was sent to it.
    pub(super) fn drained(&mut self) {
        self.sent = Vec::new();
    }

    /// The connection has ended.
    pub(super) fn leave(&self) {
        self.router.peers.remove(self.number, &self.identity);
    }
}

impl ZmtpAdapter {
    /// Adds a peer to a router.
    pub(super) fn enter_router(
        &self,
        id: SubscriberId,
        identity: &Bytes,
        router: usize,
    ) -> Result<Role, CloseReason> {
        let violation = |name, text: String| CloseReason::Violation { name, text: text.into() };
        let Some(router) = self.shared.routers.get(router) else {
            return Err(violation("router", "the router of this type of peers does not exist".to_owned()));
        };
        let name = if router.peers.is_single() { "pair" } else { "identity" };
        let violation = |text| violation(name, text);
        let (number, identity) = router.peers.add(identity, self.engine.clone(), id).map_err(violation)?;
        let (assembly, router, sent) = (Assembly::new(), router.clone(), Vec::new());
        Ok(Role::Routed(Box::new(Routed { assembly, router, number, identity, sent })))
    }

    /// Passes a message of a peer to the application. The peer is not read while the application has no room.
    pub(super) fn route_in(
        &self,
        id: SubscriberId,
        peer: &mut Peer,
        message: ZmtpRouterMessage,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Role::Routed(routed) = &peer.role else { return Ok(()) };
        match routed.router.deliver(message) {
            Ok(None) => add(&self.shared.counters.routed, 1),
            Ok(Some(message)) => {
                let (router, engine, shared) =
                    (routed.router.clone(), self.engine.clone(), self.shared.clone());
                peer.wait(
                    id,
                    subscribers,
                    Task::spawn(async move {
                        router.deliver_later(message).await;
                        add(&shared.counters.routed, 1);
                        // An engine that has ended has no peers.
                        let _ = engine.send(Command::Resume(id)).await;
                    }),
                );
            }
            Err(RouterGone) => {
                let text = "the application does not receive the messages of its ROUTER any more".into();
                return Err(CloseReason::Violation { name: "router", text });
            }
        }
        Ok(())
    }

    /// Sends a message of the application to a peer.
    pub(super) fn route_out(
        &mut self,
        id: SubscriberId,
        frames: &[Bytes],
        permit: OwnedSemaphorePermit,
        subscribers: &mut Subscribers,
    ) {
        let Some(Peer { connection, role: Role::Routed(routed), .. }) = self.peers.get_mut(&id) else {
            return;
        };
        let waiting = subscribers.send(id, |out| {
            // The handshake is complete.
            let _ = connection.send(frames, out);
        });
        if waiting > 0 {
            routed.sent.push(permit);
        }
    }
}

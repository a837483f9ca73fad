//! The way of a device from its credentials to its topics.

use super::{
    adapter::{Command, GoimAdapter},
    peer::Peer,
    stats::count,
};
use crate::{Accepts, Connect, Credentials, Identity, api::room_name, feeds::EngineCloser, start::Start};
use std::{
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker},
};
use switchboard::{Result, Status};
use switchboard_adapter::parts::Task;
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_wire::{
    Metadata,
    goim::{Auth, Variant},
};

/// Metadata of the credentials with the whole body of the authentication.
const BODY: &str = "goim-auth-bin";
/// Metadata of the credentials with the platform of the device.
const PLATFORM: &str = "goim-platform-bin";

impl GoimAdapter {
    /// Begins to verify the credentials of a device.
    ///
    /// # Errors
    /// The hub refuses them at once.
    pub(super) fn verify(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        auth: Box<Auth>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let credentials = credentials(peer, &auth);
        let mut verify = self.context.hub.verify(&credentials);
        // Most verifications need no wait.
        match Pin::new(&mut verify).poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(verified) => self.verified(id, peer, &auth, verified, subscribers),
            Poll::Pending => {
                let engine = self.engine.clone();
                peer.login = Some(Task::spawn(async move {
                    let verified = verify.await;
                    // An engine that has ended has no devices.
                    let _ = engine.send(Command::Verified(id, auth, verified)).await;
                }));
                subscribers.pause(id);
                Ok(())
            }
        }
    }

    /// Connects a device whose credentials are verified.
    ///
    /// # Errors
    /// The hub refuses it.
    pub(super) fn verified(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        auth: &Auth,
        verified: Result<Identity>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let refused = |status: Status| {
            count(&self.context.counters.unauthenticated);
            CloseReason::Violation { name: "unauthenticated", text: status.message().to_owned().into() }
        };
        let identity = verified.map_err(refused)?;
        let variant = peer.machine.variant();
        let accepts = match variant {
            Variant::Goim => Accepts::only(auth.accepts.iter().copied()),
            Variant::ImCloud => Accepts::all(),
        };
        let mut connect = Connect::new(variant.name()).accepts(accepts).address(peer.remote.address.clone());
        if let Some(key) = &auth.key {
            connect = connect.key(key.as_str());
        }
        let closer = EngineCloser::new(&self.engine, id);
        let device = self.context.hub.connect(identity, connect, closer).map_err(refused)?;
        peer.machine.accept(&mut self.out);
        // Pushes follow the reply.
        self.flush(id, subscribers);
        if let Some(address) = subscribers.address(id) {
            self.context.addresses.add(address.ip());
            peer.address = Some(address.ip());
        }
        let topics: Vec<_> = device.own_topics().cloned().collect();
        let rooms: Vec<String> = device.identity().rooms_to_join().map(str::to_owned).collect();
        peer.device = Some(device);
        for topic in topics {
            let start = (peer.key(), Start::Next);
            self.feeds
                .subscribe(id, &topic, start, &mut self.encoder, subscribers)
                .map_err(|status| refused_topic(&status))?;
        }
        if let Some(device) = &peer.device {
            device.announce().map_err(|status| refused_topic(&status))?;
        }
        for room in rooms {
            self.join_by_server(id, peer, &room, subscribers);
        }
        if let Some(room) = &auth.room {
            self.change_room(id, peer, Some(&room_name(room)), subscribers);
        }
        self.heard(peer);
        self.arm(id, peer, subscribers);
        Ok(())
    }
}

fn refused_topic(status: &Status) -> CloseReason {
    CloseReason::Violation { name: "topic", text: status.message().to_owned().into() }
}

fn credentials(peer: &mut Peer, auth: &Auth) -> Credentials {
    let user = if auth.mid == 0 { String::new() } else { auth.mid.to_string() };
    let mut claimed = Identity::new(user);
    claimed.key.clone_from(&auth.key);
    let mut metadata = Metadata::new();
    // The names are valid, and binary values have no rules.
    let _ = metadata.insert(BODY, auth.body.clone());
    let _ = metadata.insert(PLATFORM, auth.platform.clone());
    // A header with one of these names has no effect: the first value is read.
    metadata.extend(std::mem::take(&mut peer.metadata));
    Credentials::new(peer.machine.variant().name(), peer.remote.clone())
        .token(auth.token.clone().unwrap_or_default())
        .claimed(claimed)
        .metadata(metadata)
}

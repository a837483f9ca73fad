//! The tokens of connections and of subscriptions.

use super::{
    adapter::{CentrifugeAdapter, Command},
    encoder::{BegunBy, Pending, channel, client_id, room},
    ending::Ending,
    errors::{Failure, is_expired},
    peer::{Peer, Subscription, left},
    stats::count,
};
use crate::{Connect, Credentials, Device, DisconnectReason, Identity, feeds::EngineCloser, start::Start};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker},
    time::Duration,
};
use switchboard::{Code, Result, Status};
use switchboard_adapter::parts::Task;
use switchboard_core::clock;
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_wire::{
    Metadata,
    centrifuge::{
        Connect as Request, Connected, Refreshed, Reply, SubRefreshed, Subscribe, Subscribed, code,
    },
};

/// Claim of the tokens of subscriptions, which tokens of connections do not have.
const CHANNEL: &str = "channel";

/// Start of the names in the metadata of the headers in *connect*.
const HEADER: &str = "centrifuge-";
const AUTHORIZATION: &str = "authorization";

/// The command that waits for a verification.
pub(super) enum Purpose {
    Connect { id: u32, token: String },
    Refresh { id: u32 },
    Subscribe { id: u32, request: Box<Subscribe> },
    SubRefresh { id: u32, channel: String },
}

impl CentrifugeAdapter {
    /// Begins a connection.
    pub(super) fn connect(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        (command, request): (u32, Request),
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        for (name, value) in request.headers {
            // A name of its own: proxies do not see these headers, and cannot remove them. Those that metadata cannot
            // have are not for a verifier.
            let _ = peer.metadata.insert(&format!("{HEADER}{}", name.to_ascii_lowercase()), value);
        }
        let purpose = Purpose::Connect { id: command, token: request.token.clone() };
        self.verify(id, peer, request.token, purpose, subscribers)
    }

    /// Begins to verify a token.
    pub(super) fn verify(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        token: String,
        purpose: Purpose,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        let metadata = match token.is_empty() {
            true => peer.metadata.clone(),
            false => without_authorization(&peer.metadata),
        };
        let credentials = Credentials::new("centrifuge", peer.remote.clone()).token(token).metadata(metadata);
        let mut verify = self.context.hub.verify(&credentials);
        // Most verifications need no wait.
        match Pin::new(&mut verify).poll(&mut TaskContext::from_waker(Waker::noop())) {
            Poll::Ready(verified) => self.verified(id, peer, purpose, verified, subscribers),
            Poll::Pending => {
                let engine = self.engine.clone();
                peer.login = Some(Task::spawn(async move {
                    let verified = verify.await;
                    // An engine that has ended has no clients.
                    let _ = engine.send(Command::Verified(id, purpose, verified)).await;
                }));
                subscribers.pause(id);
                Ok(())
            }
        }
    }

    /// Continues a command whose token is verified.
    pub(super) fn verified(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        purpose: Purpose,
        verified: Result<Identity>,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        match purpose {
            Purpose::Connect { id: command, token } => {
                self.connected_as(id, peer, (command, token), verified, subscribers)
            }
            Purpose::Refresh { id: command } => self.refreshed(peer, command, verified),
            Purpose::Subscribe { id: command, request } => match permission(peer, &request.channel, verified)
            {
                Ok(identity) => {
                    let granted = Subscription { expires_at: identity.expires_at };
                    self.subscribe_to(id, peer, (command, *request), Some(granted), subscribers)
                }
                Err(failure) => self.fail(peer, command, failure),
            },
            Purpose::SubRefresh { id: command, channel } => {
                let identity = match permission(peer, &channel, verified) {
                    Ok(identity) => identity,
                    Err(failure) => return self.fail(peer, command, failure),
                };
                let Some(subscription) = peer.subscriptions.get_mut(&room(&channel)) else {
                    let text = format!("the client is not subscribed to channel \"{channel}\"");
                    return self.fail(peer, command, Failure::new(code::BAD_REQUEST, text));
                };
                subscription.expires_at = identity.expires_at;
                let mut result = SubRefreshed::default();
                (result.expires, result.ttl) = ttl(identity.expires_at.map(left));
                let mut reply = Reply::default();
                (reply.id, reply.sub_refresh) = (command, Some(Box::new(result)));
                self.reply(peer, &reply)
            }
        }
    }

    /// Connects a device whose token is verified.
    fn connected_as(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        (command, token): (u32, String),
        verified: Result<Identity>,
        subscribers: &mut Subscribers,
    ) -> Result<(), Ending> {
        let device = verified.and_then(|identity| self.device(id, peer, identity));
        let device = match device {
            Ok(device) => device,
            Err(status) => return self.refused(peer, command, &status),
        };
        if !token.is_empty() && self.context.settings.has_calls {
            // Calls of services have the token of the connection.
            peer.authorization = Some(format!("Bearer {token}").into());
        }
        let interval = self.context.hub.heartbeat().interval;
        let mut result = Connected::default();
        result.client = client_id(device.session());
        result.version = env!("CARGO_PKG_VERSION").to_owned();
        (result.expires, result.ttl) = ttl(device.expires_in());
        (result.ping, result.pong) = (seconds(interval), true);
        peer.ping_at = clock::after(clock::now(), interval);
        let topics: Vec<_> = device.own_topics().cloned().collect();
        let rooms = rooms(device.identity());
        peer.device = Some(device);
        for topic in topics {
            let start = (peer.key(), Start::Next);
            self.feeds
                .subscribe(id, &topic, start, &mut self.encoder, subscribers)
                .map_err(|status| internal(&status))?;
        }
        if let Some(device) = &peer.device {
            device.announce().map_err(|status| internal(&status))?;
        }
        result.subs = self.join_at_connect(id, peer, &rooms, subscribers);
        let mut reply = Reply::default();
        (reply.id, reply.connect) = (command, Some(Box::new(result)));
        self.reply(peer, &reply)?;
        // Publications follow the reply.
        self.flush(id, subscribers);
        Ok(())
    }

    fn device(&self, id: SubscriberId, peer: &Peer, identity: Identity) -> Result<Device> {
        if identity.claims.get(CHANNEL).is_some() {
            return Err(Status::unauthenticated("the token is that of a subscription"));
        }
        let info = identity.claims.get("info").map(ToString::to_string).unwrap_or_default();
        let connect = Connect::new("centrifuge").address(peer.remote.address.clone()).info(info);
        self.context.hub.connect(identity, connect, EngineCloser::new(&self.engine, id))
    }

    /// Responds to a client whose connection is refused.
    fn refused(&mut self, peer: &mut Peer, command: u32, status: &Status) -> Result<(), Ending> {
        count(&self.context.counters.unauthenticated);
        if is_expired(status) || !matches!(status.code(), Code::Unauthenticated | Code::ResourceExhausted) {
            // The client may fetch another token, or try again, on this connection.
            if let Some(machine) = &mut peer.machine {
                machine.connect_again();
            }
            return self.fail(peer, command, Failure::from(status));
        }
        let (code, text) = match status.code() {
            Code::ResourceExhausted => (code::CONNECTION_LIMIT, "connection limit"),
            _ => (code::INVALID_TOKEN, "invalid token"),
        };
        Err(Ending::new(code, text, DisconnectReason::Protocol))
    }

    /// Joins the rooms of a token; returns the subscriptions that have begun. Others follow as pushes.
    fn join_at_connect(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        rooms: &[String],
        subscribers: &mut Subscribers,
    ) -> BTreeMap<String, Subscribed> {
        for name in rooms {
            if let Ok(topic) = crate::names::room(name) {
                self.encoder.pending.insert((id, topic), Pending::Connect);
            }
            self.join_by_server(id, peer, name, subscribers);
        }
        let mut begun = BTreeMap::new();
        self.encoder.begun.retain_mut(|entry| match entry {
            BegunBy::Connect(subscriber, topic, subscribed) if *subscriber == id => {
                let name = crate::names::room_of(topic.name()).unwrap_or_default();
                begun.insert(channel(name), std::mem::take(subscribed));
                false
            }
            _ => true,
        });
        self.encoder
            .pending
            .retain(|(subscriber, _), pending| *subscriber != id || !matches!(pending, Pending::Connect));
        begun
    }

    /// Replaces the token of a connection.
    fn refreshed(&mut self, peer: &mut Peer, command: u32, verified: Result<Identity>) -> Result<(), Ending> {
        let Some(device) = &mut peer.device else { return Ok(()) };
        let failure = match verified.and_then(|identity| device.refresh(identity)) {
            Ok(()) => {
                let mut result = Refreshed::default();
                result.client = client_id(device.session());
                (result.expires, result.ttl) = ttl(device.expires_in());
                let mut reply = Reply::default();
                (reply.id, reply.refresh) = (command, Some(Box::new(result)));
                return self.reply(peer, &reply);
            }
            Err(status) if is_expired(&status) => Failure::new(code::EXPIRED, status.message()),
            Err(status) if status.code() == Code::Unauthenticated => {
                let reason = DisconnectReason::Protocol;
                return Err(Ending::new(code::INVALID_TOKEN, "invalid token", reason));
            }
            Err(status) => Failure::from(status),
        };
        self.fail(peer, command, failure)
    }
}

/// Checks that a token permits a subscription.
fn permission(peer: &Peer, channel: &str, verified: Result<Identity>) -> Result<Identity, Failure> {
    let identity = verified?;
    let user = peer.device.as_ref().map_or("", |device| &*device.identity().user);
    let named = identity.claims.get(CHANNEL).and_then(Value::as_str);
    if named != Some(channel) || identity.user != user {
        let text = format!("the token is not for channel \"{channel}\" and this user");
        return Err(Failure::new(code::PERMISSION_DENIED, text));
    }
    Ok(identity)
}

/// Returns the rooms that a device joins at once: of the claims `rooms`, `channels` and `subs`.
fn rooms(identity: &Identity) -> Vec<String> {
    let mut names: Vec<String> = identity.rooms_to_join().map(str::to_owned).collect();
    let claims = &identity.claims;
    let channels = claims.get("channels").and_then(Value::as_array);
    let channels = channels.into_iter().flatten().filter_map(Value::as_str);
    let subs = claims.get("subs").and_then(Value::as_object);
    let subs = subs.into_iter().flat_map(|subs| subs.keys().map(String::as_str));
    for channel in channels.chain(subs) {
        let name = room(channel);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn internal(status: &Status) -> Ending {
    tracing::warn!("centrifuge: topics of a device: {status}");
    Ending::new(code::SERVER_ERROR, "internal server error", DisconnectReason::Closed)
}

/// Returns whether something expires, and the seconds until then: at least 1.
pub(super) fn ttl(left: Option<Duration>) -> (bool, u32) {
    (left.is_some(), left.map_or(0, seconds))
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Returns the metadata for the calls of a client.
pub(super) fn call_metadata(peer: &Peer) -> Metadata {
    let Some(authorization) = &peer.authorization else { return peer.metadata.clone() };
    let mut metadata = without_authorization(&peer.metadata);
    // The verifiers have accepted the token, so its characters are valid.
    let _ = metadata.insert(AUTHORIZATION, authorization.to_string());
    metadata
}

/// Returns the headers of a handshake for the verification of a token: another one of the handshake must not be
/// verified in its place.
fn without_authorization(headers: &Metadata) -> Metadata {
    let mut metadata = headers.clone();
    metadata.remove(AUTHORIZATION);
    metadata
}

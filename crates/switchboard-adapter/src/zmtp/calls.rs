//! Calls of a REQ or DEALER peer, and the responses that wait for it.

use super::{
    adapter::ZmtpAdapter,
    feed::Command,
    peer::{Peer, Role},
    request::{self, Request},
};
use crate::responses::flush;
use bytes::Bytes;
use std::{collections::VecDeque, fmt, future::Future, pin::Pin, sync::Arc};
use switchboard_fanout::{CloseReason, Handle, SubscriberId, Subscribers};
use switchboard_net::plugin::Services;
use switchboard_wire::{
    Metadata, Retry, Status,
    zmtp::{Connection, patterns::Assembly},
};
use tokio::task::JoinSet;

/// Bytes that wait for a peer, above which further responses wait for it to read.
pub(super) const ROOM_BYTES: usize = 64 << 10;

/// A task of a call, with its type erased: the code of tasks is compiled once.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a peer. Dropping them cancels those in flight.
pub(super) struct Calls {
    assembly: Assembly,
    remote: Arc<switchboard_core::Peer>,
    /// Credentials of the login.
    credentials: Metadata,
    tasks: JoinSet<()>,
    /// Calls without a response in the outbox.
    in_flight: usize,
    in_flight_max: usize,
    /// Responses for which the peer has no room.
    waiting: VecDeque<Vec<Bytes>>,
    waiting_bytes: usize,
    /// The outbox of the peer is full.
    is_full: bool,
}

impl Calls {
    /// Creates the calls of a peer, of which at most `in_flight_max` run at a time.
    pub(super) fn new(
        remote: Arc<switchboard_core::Peer>,
        credentials: Metadata,
        in_flight_max: usize,
    ) -> Calls {
        Calls {
            assembly: Assembly::new(),
            remote,
            credentials,
            tasks: JoinSet::new(),
            in_flight: 0,
            in_flight_max: in_flight_max.max(1),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_full: false,
        }
    }

    /// Adds a frame; returns the request if it is the last one.
    pub(super) fn push(&mut self, body: Bytes, more: bool) -> Option<Vec<Bytes>> {
        self.assembly.push(body, more)
    }

    /// Returns whether as many calls are in flight as may be: no more requests are read.
    pub(super) fn is_at_limit(&self) -> bool {
        self.in_flight >= self.in_flight_max
    }

    /// Returns whether a response is under way.
    fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// Returns the bytes of responses that wait for room.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Begins a call; [`Command::Response`] has the frames of the response. Returns the response to a request that
    /// cannot be read, and to each without `services`: the server stops.
    ///
    /// # Errors
    /// The text of the error of a request that cannot have a response.
    pub(super) fn begin(
        &mut self,
        id: SubscriberId,
        frames: Vec<Bytes>,
        default_method: Option<&str>,
        services: Option<&dyn Services>,
        engine: &Handle<ZmtpAdapter>,
    ) -> Result<Option<Vec<Bytes>>, String> {
        let Request { reply, call } = request::read(frames, default_method, &self.credentials)?;
        self.in_flight = self.in_flight.saturating_add(1);
        let call = match call {
            Ok(call) => match services {
                Some(services) => services.call(&self.remote, call),
                None => return Ok(Some(reply.frames(Err(going_away())))),
            },
            Err(status) => return Ok(Some(reply.frames(Err(status)))),
        };
        let engine = engine.clone();
        let task: Task = Box::pin(async move {
            let response = reply.frames(call.await);
            // An engine that has ended has no peers.
            let _ = engine.send(Command::Response(id, response)).await;
        });
        self.tasks.spawn(task);
        Ok(None)
    }

    /// Sends a response, or keeps it until the peer has room.
    pub(super) fn respond(
        &mut self,
        id: SubscriberId,
        frames: Vec<Bytes>,
        connection: &mut Connection,
        subscribers: &mut Subscribers,
    ) {
        // Those that have ended.
        while self.tasks.try_join_next().is_some() {}
        if self.is_full {
            self.waiting_bytes = self.waiting_bytes.saturating_add(size(&frames));
            self.waiting.push_back(frames);
        } else {
            self.write(id, &frames, connection, subscribers);
        }
    }

    /// The peer has read what was sent to it: sends responses that wait.
    pub(super) fn drained(
        &mut self,
        id: SubscriberId,
        connection: &mut Connection,
        subscribers: &mut Subscribers,
    ) {
        self.is_full = false;
        while !self.is_full
            && let Some(frames) = self.waiting.pop_front()
        {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(size(&frames));
            self.write(id, &frames, connection, subscribers);
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    fn write(
        &mut self,
        id: SubscriberId,
        frames: &[Bytes],
        connection: &mut Connection,
        subscribers: &mut Subscribers,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let waiting = subscribers.send(id, |out| {
            // The handshake is complete.
            let _ = connection.send(frames, out);
        });
        self.is_full = waiting >= ROOM_BYTES;
    }
}

impl ZmtpAdapter {
    /// Begins the call of a request. The peer is not read while it has as many calls in flight as it may.
    pub(super) fn call(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        request: Vec<Bytes>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Peer { role: Role::Caller(calls), connection, .. } = peer else { return Ok(()) };
        let default_method = self.shared.default_method.as_deref();
        // READY comes before the response.
        flush(id, &mut self.out, subscribers);
        let services = if self.is_draining { None } else { Some(&*self.services) };
        let begun = calls.begin(id, request, default_method, services, &self.engine);
        let response =
            begun.map_err(|text| CloseReason::Violation { name: "envelope", text: text.into() })?;
        if let Some(response) = response {
            calls.respond(id, response, connection, subscribers);
        }
        subscribers.set_busy(id, calls.is_busy());
        if calls.is_at_limit() {
            peer.is_paused = true;
            subscribers.pause(id);
        }
        Ok(())
    }

    /// A call has ended.
    pub(super) fn respond(&mut self, id: SubscriberId, frames: Vec<Bytes>, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Peer { role: Role::Caller(calls), connection, .. } = peer else { return };
        calls.respond(id, frames, connection, subscribers);
        peer.continue_calls(id, subscribers);
    }
}

impl Peer {
    /// The peer has read what was sent to it: sends responses that wait.
    pub(super) fn send_responses(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        if let Peer { role: Role::Caller(calls), connection, .. } = self {
            calls.drained(id, connection, subscribers);
            self.continue_calls(id, subscribers);
        }
    }

    fn continue_calls(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        let Role::Caller(calls) = &self.role else { return };
        subscribers.set_busy(id, calls.is_busy());
        if !calls.is_at_limit() {
            self.resume(id, subscribers);
        }
        subscribers.set_adapter_bytes(id, self.adapter_bytes());
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

fn going_away() -> Status {
    Status::unavailable("the server is going away; call again on another connection").with_retry(Retry::Safe)
}

fn size(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

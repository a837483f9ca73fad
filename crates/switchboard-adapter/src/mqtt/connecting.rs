//! CONNECT, the verdict on its credentials, and the session that the client gets.

use super::{
    adapter::{Command, MqttAdapter},
    session::Session,
};
use crate::{
    responses::{add, flush},
    task::Task,
};
use bytes::Bytes;
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::{Caller, clock};
use switchboard_fanout::{CloseReason, SubscriberId, Subscribers};
use switchboard_message::GapReason;
use switchboard_wire::{
    Metadata, Status,
    mqtt::{Accept, Connect, PropertyId, Reason, Version},
};

impl MqttAdapter {
    /// Checks the credentials of a client, if the server does, and accepts it.
    ///
    /// # Errors
    /// The reason to close the connection, for a client that is rejected at once.
    pub(super) fn connect(
        &mut self,
        index: u32,
        connect: Box<Connect>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let authorization = connect.authorization();
        let has_method = connect.properties.bytes(PropertyId::AuthenticationMethod).is_some();
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.connect = Some(connect);
        if has_method {
            let text = "no authentication method is supported; use a user name and a password, or a token";
            return Err(self.reject(index, Reason::BAD_AUTHENTICATION_METHOD, text));
        }
        if !self.shared.requires_auth {
            return self.accept(index, None, subscribers);
        }
        let mut metadata = Metadata::new();
        if let Some(authorization) = authorization {
            // ASCII, as the values of metadata.
            let _ = metadata.insert("authorization", Bytes::from(authorization));
        }
        let mut checking = self.shared.services.authenticate(&client.peer, metadata);
        let id = client.id;
        let polled = pin!(&mut checking).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(checked) = polled {
            return self.decide(index, checked.and_then(known), subscribers);
        }
        // Nothing is read before the verdict.
        subscribers.pause(id);
        let engine = self.engine.clone();
        client.check = Some(Task::spawn(async move {
            let checked = checking.await.and_then(known);
            // An engine that has ended has no clients.
            let _ = engine.send(Command::Verdict(id, checked)).await;
        }));
        Ok(())
    }

    fn decide(
        &mut self,
        index: u32,
        checked: Result<Arc<Caller>, Status>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        match checked {
            Ok(caller) => self.accept(index, Some(caller), subscribers),
            Err(status) => {
                add(&self.shared.counters().unauthorized, 1);
                Err(self.reject(index, Reason::BAD_CREDENTIALS, status.message()))
            }
        }
    }

    /// The verdict on the credentials of a client, which may be gone.
    pub(super) fn verdict(
        &mut self,
        id: SubscriberId,
        checked: Result<Arc<Caller>, Status>,
        subscribers: &mut Subscribers,
    ) {
        let Some(index) = self.clients.index(id, subscribers) else { return };
        if let Some(client) = self.clients.get_mut(index) {
            client.check = None;
        }
        match self.decide(index, checked, subscribers) {
            Ok(()) => {
                let client = self.clients.get(index);
                if client.is_some_and(|client| !client.is_paused) {
                    subscribers.resume(id);
                }
            }
            Err(reason) => {
                flush(id, &mut self.out, subscribers);
                subscribers.close(id, reason);
            }
        }
    }

    fn reject(&mut self, index: u32, reason: Reason, text: &str) -> CloseReason {
        if let Some(client) = self.clients.get_mut(index) {
            client.server.reject(reason, text, &mut self.out);
        }
        CloseReason::Violation { name: "rejected", text: text.to_owned().into() }
    }

    /// Accepts a client: it gets its session, or a new one.
    fn accept(
        &mut self,
        index: u32,
        caller: Option<Arc<Caller>>,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let Some(connect) = client.connect.take() else { return Ok(()) };
        let mut accept = Accept::default();
        let client_id = match connect.client_id.is_empty() {
            true => {
                let id = format!("swb-{:016x}{:016x}", clock::random(), clock::random());
                accept.assigned_client_id = Some(Bytes::from(id.clone()));
                Bytes::from(id)
            }
            // A copy, so that it does not keep the packet alive.
            false => Bytes::copy_from_slice(&connect.client_id),
        };
        if !self.may_have(&client_id, caller.as_deref()) {
            let text = "the client identifier is that of another user";
            return Err(self.reject(index, Reason::CLIENT_ID_NOT_VALID, text));
        }
        self.take_over(&client_id, subscribers);
        let session = self.session(&client_id, &connect, caller.clone(), subscribers);
        let (session, is_resumed) = session;
        self.sessions.connect(client_id, index);
        let expiry = self.session_expiry(&connect, &mut accept);
        let silence_max = Some(connect.keep_alive).filter(|seconds| *seconds > 0);
        let silence_max = silence_max.map(|seconds| Duration::from_millis(u64::from(seconds) * 1_500));
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.session = Some(session);
        client.caller = caller;
        client.session_expiry = expiry;
        client.will = connect.will;
        client.silence_max = silence_max;
        let gap = if is_resumed { self.resume_feeds(index, subscribers) } else { None };
        if is_resumed {
            self.note_gap(index, gap, &mut accept);
        }
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.server.accept(&accept, &mut self.out);
        match silence_max {
            Some(silence_max) => subscribers.set_timer(client.id, silence_max),
            None => subscribers.clear_timer(client.id),
        }
        self.flush(index, subscribers);
        self.redeliver(index, subscribers);
        self.send_retained(index, subscribers);
        self.pause_while_full(index, subscribers);
        Ok(())
    }

    /// Returns whether a caller may have the session with a client identifier: it is new, or the caller's own.
    fn may_have(&self, client_id: &[u8], caller: Option<&Caller>) -> bool {
        let connected = self.sessions.connected(client_id).and_then(|index| self.clients.get(index));
        let session = match connected {
            Some(client) => client.session.as_deref(),
            None => self.sessions.absent(client_id).map(|absent| &*absent.session),
        };
        let name = |caller: Option<&Caller>| caller.map(|caller| caller.name.clone());
        session.is_none_or(|session| name(session.caller.as_deref()) == name(caller))
    }

    /// Closes the connection that has the session, which is kept for the next one.
    fn take_over(&mut self, client_id: &[u8], subscribers: &mut Subscribers) {
        let Some(older) = self.sessions.connected(client_id) else { return };
        add(&self.shared.counters().taken_over, 1);
        self.close(older, Reason::SESSION_TAKEN_OVER, CloseReason::Closed, subscribers);
        self.leave(older, subscribers);
    }

    /// Returns the session for a CONNECT, and whether the client had it before.
    fn session(
        &mut self,
        client_id: &Bytes,
        connect: &Connect,
        caller: Option<Arc<Caller>>,
        subscribers: &mut Subscribers,
    ) -> (Box<Session>, bool) {
        let window_max = connect.receive_max().min(self.shared.settings.window_max);
        if let Some(absent) = self.sessions.take(client_id) {
            if !connect.clean_start {
                // Its will is not published: the client is back before the delay has passed.
                let mut session = absent.session;
                session.caller = caller;
                session.window.reconnect(window_max);
                return (session, true);
            }
            self.end_session(&absent, subscribers);
        }
        let number = self.shared.next_session();
        (Box::new(Session::new(client_id.clone(), number, caller, window_max)), false)
    }

    /// Returns the seconds that the session is kept, and reports it to the client if it is less than CONNECT requires.
    fn session_expiry(&self, connect: &Connect, accept: &mut Accept) -> Option<u32> {
        let max = u32::try_from(self.shared.settings.session_expiry_max.as_secs()).unwrap_or(u32::MAX);
        let seconds = connect.session_expiry().unwrap_or(u32::MAX);
        if connect.version == Version::V5 && seconds > max {
            accept.session_expiry = Some(max);
        }
        Some(seconds.min(max)).filter(|seconds| *seconds < u32::MAX)
    }

    /// Reports the outcome of a resumed session. With a gap the session counts as a new one for the client, which then
    /// subscribes again: identifiers of earlier messages are not valid any more.
    fn note_gap(&mut self, index: u32, gap: Option<(GapReason, Option<u64>)>, accept: &mut Accept) {
        let counters = self.shared.counters();
        let Some((reason, missing)) = gap else {
            accept.session_present = true;
            return add(&counters.resumed, 1);
        };
        add(&counters.gaps, 1);
        add(&counters.missed, missing.unwrap_or(0));
        let mut user = |name: &'static str, value: String| {
            accept.user.push((Bytes::from_static(name.as_bytes()), Bytes::from(value)));
        };
        user("gap", reason.name().to_owned());
        if let Some(missing) = missing {
            user("gap-missing", missing.to_string());
        }
        if let Some(session) = self.clients.get_mut(index).and_then(|client| client.session.as_mut()) {
            session.restart();
        }
    }
}

/// Rejects credentials that the server does not check.
fn known(caller: Option<Arc<Caller>>) -> Result<Arc<Caller>, Status> {
    caller.ok_or_else(|| Status::unauthenticated("the server checks no credentials of this kind"))
}

//! The commands of clients that need the bus or the server.

use super::{
    adapter::RespAdapter,
    credentials,
    feed::{self, Command},
    peer::{Client, Held, Work},
    rules,
    sources::subscription_bytes,
};
use crate::{responses::add, task::Task};
use bytes::Bytes;
use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_core::{Caller, Result};
use switchboard_fanout::{CloseReason, SubscriberId};
use switchboard_message::{Attempt, Publication, Topic};
use switchboard_net::plugin::ServiceCall;
use switchboard_wire::{
    Code, Codec, Metadata, Outgoing, Retry, Status,
    resp::{Credentials, Event, Pattern, SubscriptionKind},
};

/// Channels in a reply to `PUBSUB CHANNELS`.
const CHANNELS_MAX: usize = 65_536;
/// Credentials of a connection that the server may reject.
const REJECTIONS_MAX: u32 = 10;

impl RespAdapter {
    /// Executes a command; what its reply has so far begins at byte `before` of the replies.
    ///
    /// # Errors
    /// The reason to close the connection.
    pub(super) fn event(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        event: Event,
        before: usize,
    ) -> Result<(), CloseReason> {
        match event {
            Event::Responded { .. } => {}
            Event::Auth(credentials) => return self.auth(id, client, &credentials),
            Event::Call { method, payload, metadata } => self.call(id, client, &method, payload, metadata),
            Event::Channels { pattern } => self.channels(client, pattern.as_ref()),
            Event::Patterns => {
                client.machine.patterns(self.shared().directory.patterns() as u64, &mut self.out);
            }
            Event::Publish { channel, payload } => self.publish(id, client, channel, payload),
            Event::Quit => return Err(CloseReason::Peer),
            Event::Reset => {
                client.credentials = None;
                client.caller.clone_from(&client.certified);
                self.end_subscriptions(&mut client.subscriptions);
            }
            Event::Subscribe { kind, name } => self.subscribe(id, client, kind, name),
            Event::Subscribers { .. } => {
                let mut out = std::mem::take(&mut self.out);
                let caller = client.caller.as_deref();
                let count = |channel: &Bytes| match self.may_see(channel, caller) {
                    true => self.shared().directory.subscribers(channel),
                    false => 0,
                };
                client.machine.subscribers(count, &mut out);
                self.out = out;
            }
            Event::Unsubscribe { kind, name } => self.unsubscribe(id, client, kind, name, before),
        }
        client.has_waited &= client.machine.has_more_names();
        Ok(())
    }

    /// Has the server check credentials.
    fn auth(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        credentials: &Credentials,
    ) -> Result<(), CloseReason> {
        let (services, peer) = (self.server.services.clone(), client.peer.clone());
        let forms = credentials::forms(credentials);
        let check = async move {
            for form in forms {
                if let Some(caller) = services.authenticate(&peer, form.clone()).await? {
                    return Ok((form, caller));
                }
            }
            Err(Status::unauthenticated("the server checks no credentials of this kind"))
        };
        match self.start(id, client, check, false, Command::Authenticated) {
            Some(checked) => self.authenticated(client, checked),
            None => Ok(()),
        }
    }

    /// Replies to credentials that were checked.
    ///
    /// # Errors
    /// The reason to close the connection, after many that were invalid.
    pub(super) fn authenticated(
        &mut self,
        client: &mut Client,
        checked: Result<(Metadata, Arc<Caller>)>,
    ) -> Result<(), CloseReason> {
        match checked {
            Ok((credentials, caller)) => {
                client.credentials = Some(credentials);
                client.caller = Some(caller);
                client.machine.accept(&mut self.out);
                return Ok(());
            }
            Err(status) if status.code() == Code::Unauthenticated => client.machine.reject(&mut self.out),
            Err(status) => client.machine.refuse(&class(&status), status.message(), &mut self.out),
        }
        add(&self.shared().counters.rejected_credentials, 1);
        client.rejections = client.rejections.saturating_add(1);
        if client.rejections < REJECTIONS_MAX {
            return Ok(());
        }
        let text = format!("{REJECTIONS_MAX} credentials of the connection were rejected");
        Err(CloseReason::Violation { name: "auth", text: text.into() })
    }

    /// Calls a method of the server.
    fn call(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        method: &[u8],
        payload: Bytes,
        mut metadata: Metadata,
    ) {
        add(&self.shared().counters.calls, 1);
        if self.is_draining {
            return client.machine.called(Err::<&Bytes, _>(&going_away()), &mut self.out);
        }
        if let Some(credentials) = &client.credentials {
            credentials::add(credentials, &mut metadata);
        }
        let call = ServiceCall::new(String::from_utf8_lossy(method), Codec::Json, payload).metadata(metadata);
        let response = self.server.services.call(&client.peer, call);
        let response = async move { response.await.map(|response| response.message) };
        if let Some(result) = self.start(id, client, response, true, Command::Called) {
            client.machine.called(result.as_ref(), &mut self.out);
        }
    }

    /// Returns the result of a future that is ready; else a task sends it to the engine as a command, and the client
    /// waits.
    fn start<T: Send + 'static>(
        &self,
        id: SubscriberId,
        client: &mut Client,
        future: impl Future<Output = T> + Send + 'static,
        is_call: bool,
        command: fn(SubscriberId, T) -> Command,
    ) -> Option<T> {
        let mut future = Box::pin(future);
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(result);
        }
        let engine = self.engine.clone();
        let task = Task::spawn(async move {
            let result = future.await;
            // An engine that has ended has closed the client.
            let _ = engine.send(command(id, result)).await;
        });
        client.waits.task = Some(Work { _task: task, is_call });
        None
    }

    /// Lists the channels with subscribers.
    fn channels(&mut self, client: &mut Client, pattern: Option<&Pattern>) {
        match self.shared().directory.channels(pattern, CHANNELS_MAX) {
            Ok(mut names) => {
                names.retain(|name| self.may_see(name, client.caller.as_deref()));
                client.machine.channels(names, &mut self.out);
            }
            Err(count) => {
                let text =
                    format!("{count} channels match; the limit is {CHANNELS_MAX}, use a narrower pattern");
                client.machine.refuse("ERR", &text, &mut self.out);
            }
        }
    }

    /// Publishes a message, after those of the client to another topic are read: the bus keeps no order between topics.
    /// The client waits while its topic has no room, if the topic makes publishers wait.
    pub(super) fn publish(&mut self, id: SubscriberId, client: &mut Client, channel: Bytes, payload: Bytes) {
        let window = &self.server.shared.window;
        if let Some((_, number)) = client.published.as_ref().filter(|(topic, _)| *topic != channel)
            && !window.is_read(*number)
        {
            window.wait(*number, &self.engine, id);
            client.held = Some(Held::Publish(channel, payload));
            client.waits.for_window = true;
            return;
        }
        let bus = self.shared().bus.clone();
        let Ok(name) = std::str::from_utf8(&channel) else {
            let refused = Topic::from_bytes(&channel).map(drop);
            return self.published(id, client, &channel, refused);
        };
        let publication = Publication::new(Codec::Raw, payload.clone());
        if let Err(status) = self.admit(name, client.caller.as_deref(), &publication) {
            return self.published(id, client, &channel, Err(status));
        }
        let attempt = bus.publish_encoded(name, publication).attempt();
        let is_published = attempt.map(|attempt| matches!(attempt, Attempt::Published(..)));
        match is_published {
            Ok(true) => self.published(id, client, &channel, Ok(())),
            Err(status) => self.published(id, client, &channel, Err(status)),
            // For a slow reader, or for the file of a durable topic.
            Ok(false) => {
                let (name, bus) = (name.to_owned(), bus.clone());
                let publishing = async move {
                    let publication = Publication::new(Codec::Raw, payload);
                    let published = bus.publish_encoded(&name, publication).await;
                    (channel, published.map(drop))
                };
                let command = |id, (channel, result)| Command::Published(id, channel, result);
                if let Some((channel, result)) = self.start(id, client, publishing, false, command) {
                    self.published(id, client, &channel, result);
                }
            }
        }
    }

    /// Replies to a publication.
    pub(super) fn published(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        channel: &[u8],
        result: Result<()>,
    ) {
        let shared = &self.server.shared;
        match result {
            Ok(()) => {
                add(&shared.counters.published, 1);
                client.machine.published(shared.directory.receivers(channel), &mut self.out);
                let number = shared.window.count();
                if shared.window.is_full(number) {
                    shared.window.wait(number, &self.engine, id);
                    client.waits.for_window = true;
                }
                match &mut client.published {
                    Some((topic, newest)) if topic[..] == *channel => *newest = number,
                    // A copy: the channel is a part of its request.
                    newest => *newest = Some((Bytes::copy_from_slice(channel), number)),
                }
            }
            Err(status) => {
                add(&shared.counters.refused, 1);
                client.machine.refuse(&rules::class(&status), status.message(), &mut self.out);
            }
        }
    }

    /// Adds a subscription, after all messages that clients have published before it are read: it does not receive
    /// them. The first one makes the engine read the bus.
    pub(super) fn subscribe(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        kind: SubscriptionKind,
        name: Bytes,
    ) {
        let window = &self.server.shared.window;
        let newest = window.newest();
        if !client.has_waited && !window.is_read(newest) {
            window.wait(newest, &self.engine, id);
            client.held = Some(Held::Subscribe(kind, name));
            client.waits.for_window = true;
            return;
        }
        if let Err(status) = self.check_subscription(kind, &name, client.caller.as_deref()) {
            add(&self.shared().counters.refused, 1);
            return client.machine.refuse(&rules::class(&status), status.message(), &mut self.out);
        }
        client.subscriptions.add(self.sources.add(kind, &name), subscription_bytes(kind, &name));
        self.shared().directory.add(kind, &name);
        client.machine.accept(&mut self.out);
    }

    /// Ends a subscription, after all messages that clients have published before it are read: they arrive before the
    /// confirmation, which is the reply from byte `before` on.
    fn unsubscribe(
        &mut self,
        id: SubscriberId,
        client: &mut Client,
        kind: SubscriptionKind,
        name: Bytes,
        before: usize,
    ) {
        let window = &self.server.shared.window;
        let newest = window.newest();
        if client.has_waited || window.is_read(newest) {
            return self.end_subscription(client, kind, &name);
        }
        let mut replies = self.out.take_all();
        let reply = replies.split_off(before.min(replies.len()));
        self.out.put(Outgoing::Lent(&replies));
        window.wait(newest, &self.engine, id);
        client.held = Some(Held::Unsubscribe(kind, name, reply.into()));
        client.waits.for_window = true;
    }

    /// Ends a subscription.
    pub(super) fn end_subscription(&mut self, client: &mut Client, kind: SubscriptionKind, name: &[u8]) {
        let source = self.sources.find(kind, name);
        let bytes = subscription_bytes(kind, name);
        if source.is_some_and(|source| client.subscriptions.remove(source, bytes)) {
            self.shared().directory.remove(kind, name);
        }
    }

    fn check_subscription(
        &mut self,
        kind: SubscriptionKind,
        name: &[u8],
        caller: Option<&Caller>,
    ) -> Result<()> {
        rules::may_subscribe(&self.server.rules, (kind, name), caller)?;
        if self.feed.is_none() {
            self.feed = Some(feed::entries(self.shared(), self.engine.clone())?);
        }
        Ok(())
    }
}

fn going_away() -> Status {
    Status::unavailable("the server is going away; call again on another connection").with_retry(Retry::Safe)
}

/// Returns the class of the error for a status: the name of its code in upper case, as in replies to `CALL`.
pub(super) fn class(status: &Status) -> String {
    status.code().name().to_ascii_uppercase()
}

//! A client of an engine: its connection, its subscriptions, and what it waits for.

use crate::task::Task;
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchboard_core::{Caller, Peer};
use switchboard_wire::{
    Metadata,
    resp::{Server, SubscriptionKind, Version},
};

/// A client of an engine.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) machine: Server,
    pub(super) peer: Arc<Peer>,
    pub(super) subscriptions: Subscriptions,
    /// Credentials that the server has accepted, for the calls.
    pub(super) credentials: Option<Metadata>,
    /// The caller of the credentials or of the certificate, for the rules of topics.
    pub(super) caller: Option<Arc<Caller>>,
    /// The caller of the certificate.
    pub(super) certified: Option<Arc<Caller>>,
    /// Credentials that the server has rejected.
    pub(super) rejections: u32,
    /// Time that it has for its first command and for its credentials.
    pub(super) login_time: Duration,
    pub(super) has_command: bool,
    /// Has sent a command, and needs no credentials or has sent them.
    pub(super) is_ready: bool,
    /// The topic and the number of its newest publication.
    pub(super) published: Option<(Bytes, u64)>,
    /// A command that waits until publications before it are read.
    pub(super) held: Option<Held>,
    /// The last command has waited before it changed subscriptions: its other names do not wait.
    pub(super) has_waited: bool,
    /// Reasons for which its next command is not read.
    pub(super) waits: Waits,
}

impl Client {
    /// Creates a client that has sent nothing.
    pub(super) fn new(
        machine: Server,
        peer: Arc<Peer>,
        certified: Option<Arc<Caller>>,
        login_time: Duration,
    ) -> Client {
        Client {
            machine,
            peer,
            subscriptions: Subscriptions::default(),
            credentials: None,
            caller: certified.clone(),
            certified,
            rejections: 0,
            login_time,
            has_command: false,
            is_ready: false,
            published: None,
            held: None,
            has_waited: false,
            waits: Waits::default(),
        }
    }

    /// Returns the bytes that are held for the client here: its subscriptions, and a command that waits.
    pub(super) fn adapter_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, Held::len).saturating_add(self.subscriptions.bytes)
    }
}

/// A command that waits until publications before it are read.
#[derive(Debug)]
pub(super) enum Held {
    /// A channel and a message.
    Publish(Bytes, Bytes),
    /// A kind and a name.
    Subscribe(SubscriptionKind, Bytes),
    /// A kind and a name, and the reply that confirms the end.
    Unsubscribe(SubscriptionKind, Bytes, Bytes),
}

impl Held {
    /// Returns the bytes that it holds.
    pub(super) fn len(&self) -> usize {
        match self {
            Held::Publish(channel, payload) => channel.len().saturating_add(payload.len()),
            Held::Subscribe(_, name) => name.len(),
            Held::Unsubscribe(_, name, reply) => name.len().saturating_add(reply.len()),
        }
    }
}

/// Reasons for which the next command of a client is not read.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The last command has no reply yet: the task makes it.
    pub(super) task: Option<Work>,
    /// Many bytes of replies are not written.
    pub(super) for_output: bool,
    /// The engines have not read its publications: the next one may be held until they have.
    pub(super) for_window: bool,
}

impl Waits {
    /// Returns whether the next command waits.
    pub(super) fn any(&self) -> bool {
        self.task.is_some() || self.for_output || self.for_window
    }

    /// Returns whether a call of the client has no reply yet.
    pub(super) fn for_call(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_call)
    }
}

/// The work that a client waits for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) _task: Task,
    /// The task calls a method: it is ended with its client.
    pub(super) is_call: bool,
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Numbers of their sources.
    pub(super) all: Vec<u32>,
    /// Sources of subscriptions that have ended since the set was chosen.
    pub(super) left: Vec<u32>,
    /// The set of these subscriptions.
    pub(super) set: Option<u32>,
    /// The version of the protocol in that set.
    pub(super) version: Version,
    /// The set is to be chosen again.
    pub(super) is_changed: bool,
    /// Memory of the subscriptions, as if no other client had them.
    pub(super) bytes: usize,
}

impl Subscriptions {
    /// Adds the subscription to a source, with the memory that it takes.
    pub(super) fn add(&mut self, source: u32, bytes: usize) {
        self.all.push(source);
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_changed = true;
    }

    /// Ends the subscription to a source, with the memory that it took. Returns false if there is none.
    pub(super) fn remove(&mut self, source: u32, bytes: usize) -> bool {
        let Some(at) = self.all.iter().position(|own| *own == source) else { return false };
        self.left.push(self.all.swap_remove(at));
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_changed = true;
        true
    }
}

//! The topics of this process.

use super::engine::Engine;
use crate::{
    clock::Clock,
    files::Files,
    log::{Log, Topic},
};
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use switchboard_wire::Codec;

/// Logs of a bus, its clock and its default codec. With an engine, the logs are mirrors of those of the engine.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) log: Arc<Log>,
    pub(super) clock: Clock,
    pub(super) codec: Codec,
    pub(super) engine: Option<Engine>,
    /// Number of the newest reply topic.
    replies: AtomicU64,
    /// Names of reply topics cannot be guessed: their keys are random.
    reply_names: RandomState,
    /// Writes the last publications when the bus is dropped.
    _files: Option<Files>,
}

/// Beginning of the names of reply topics.
pub(super) const REPLY_PREFIX: &str = "$reply/";

impl Local {
    pub(super) fn new(
        log: Arc<Log>,
        clock: Clock,
        codec: Codec,
        engine: Option<Engine>,
        files: Option<Files>,
    ) -> Local {
        let (replies, reply_names) = (AtomicU64::new(0), RandomState::new());
        Local { log, clock, codec, engine, replies, reply_names, _files: files }
    }

    /// Returns the engine that has the topic: reserved topics are those of this process.
    pub(super) fn engine_of(&self, topic: &str) -> Option<&Engine> {
        self.engine.as_ref().filter(|_| !topic.starts_with('$'))
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns a topic for the replies to one request.
    pub(super) fn reply_topic(&self) -> Topic {
        let number = self.replies.fetch_add(1, Ordering::Relaxed);
        let secret = self.reply_names.hash_one(number);
        Topic::internal(&format!("{REPLY_PREFIX}{number}/{secret:016x}"))
    }
}

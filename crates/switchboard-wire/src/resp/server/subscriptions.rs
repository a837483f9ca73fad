//! Subscriptions, publications, and `PING`, whose reply depends on them.

use super::{Event, Pending, Server, command::unknown_subcommand};
use crate::{
    Outbox,
    resp::{
        Pattern, SubscriptionKind, Version,
        write::{write_confirmation, write_error, write_line, write_push_head, write_text},
    },
};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Names of the subscriptions of a connection. They are ordered, so that replies do not depend on a hash.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    shards: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    fn of(&mut self, kind: SubscriptionKind) -> &mut BTreeSet<Box<[u8]>> {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Shard => &mut self.shards,
        }
    }

    /// Returns the count in a confirmation: shard channels are counted apart.
    fn count(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Channel | SubscriptionKind::Pattern => {
                self.channels.len() + self.patterns.len()
            }
            SubscriptionKind::Shard => self.shards.len(),
        }
    }
}

/// Names of a command that are processed one by one.
#[derive(Debug)]
pub(super) enum Names {
    Subscribe(SubscriptionKind, std::vec::IntoIter<Bytes>),
    Unsubscribe(SubscriptionKind, std::vec::IntoIter<Bytes>),
    UnsubscribeAll(SubscriptionKind),
}

impl Server {
    /// Returns true if the client has RESP2 and a subscription: only some commands are allowed then.
    pub(super) fn is_restricted(&self) -> bool {
        self.version == Version::Resp2 && self.subscriptions.len() > 0
    }

    pub(super) fn ping(&self, text: Option<&Bytes>, out: &mut Outbox) {
        if self.is_restricted() {
            write_push_head(self.version, 2, out);
            write_text(b"pong", out);
            write_text(text.map_or(b"", |text| text), out);
        } else {
            match text {
                Some(text) => write_text(text, out),
                None => write_line(b'+', b"PONG", out),
            }
        }
    }

    /// Begins to subscribe to all names, unless one of them is too long.
    pub(super) fn subscribe(
        &mut self,
        kind: SubscriptionKind,
        names: Vec<Bytes>,
        out: &mut Outbox,
    ) -> Option<Event> {
        let limits = &self.settings.limits;
        let (what, limit, limit_name) = match kind {
            SubscriptionKind::Pattern => ("pattern", limits.pattern_bytes_max, "pattern_bytes_max"),
            _ => ("channel", limits.channel_bytes_max, "channel_bytes_max"),
        };
        let over = names.iter().find_map(|name| over(what, name, limit, limit_name));
        match over {
            Some(text) => {
                write_error("ERR", &text, out);
                None
            }
            None => Some(self.next_name(Names::Subscribe(kind, names.into_iter()), out)),
        }
    }

    /// Begins to end the subscriptions to these names, or all of the kind if there are none.
    pub(super) fn unsubscribe(
        &mut self,
        kind: SubscriptionKind,
        names: Vec<Bytes>,
        out: &mut Outbox,
    ) -> Event {
        if !names.is_empty() {
            return self.next_name(Names::Unsubscribe(kind, names.into_iter()), out);
        }
        if self.subscriptions.of(kind).is_empty() {
            let count = self.subscriptions.count(kind);
            write_confirmation(self.version, kind.unsubscribe(), None, count, out);
            return Event::Responded { command: kind.unsubscribe() };
        }
        self.next_name(Names::UnsubscribeAll(kind), out)
    }

    /// Processes names up to the first one that is an event; the rest is kept for the next call of `recv`.
    pub(super) fn next_name(&mut self, mut names: Names, out: &mut Outbox) -> Event {
        let event = match &mut names {
            Names::Subscribe(kind, rest) => self.subscribe_next(*kind, rest, out),
            Names::Unsubscribe(kind, rest) => self.unsubscribe_next(*kind, rest, out),
            Names::UnsubscribeAll(kind) => {
                let first = self.subscriptions.of(*kind).pop_first();
                first.map(|name| self.unsubscribed(*kind, Bytes::from(name), out))
            }
        };
        let (has_more, command) = match &names {
            Names::Subscribe(kind, rest) => (rest.len() > 0, kind.subscribe()),
            Names::Unsubscribe(kind, rest) => (rest.len() > 0, kind.unsubscribe()),
            Names::UnsubscribeAll(kind) => (!self.subscriptions.of(*kind).is_empty(), kind.unsubscribe()),
        };
        self.names = (has_more && event.is_some()).then(|| Box::new(names));
        event.unwrap_or(Event::Responded { command })
    }

    /// Confirms names that are subscribed to already, and returns the event of the first other one. An error drops the
    /// rest.
    fn subscribe_next(
        &mut self,
        kind: SubscriptionKind,
        rest: &mut std::vec::IntoIter<Bytes>,
        out: &mut Outbox,
    ) -> Option<Event> {
        for name in rest {
            if self.subscriptions.of(kind).contains(&name[..]) {
                self.confirm(kind, &name, out);
                continue;
            }
            let limit = self.settings.limits.subscriptions_max as usize;
            if self.subscriptions.len() >= limit {
                let text = format!("connection has {limit} subscriptions, the limit (subscriptions_max)");
                write_error("ERR", &text, out);
                return None;
            }
            self.pending = Pending::Subscribe(kind, name.clone());
            return Some(Event::Subscribe { kind, name });
        }
        None
    }

    /// Records a subscription and confirms it.
    pub(super) fn confirm(&mut self, kind: SubscriptionKind, name: &Bytes, out: &mut Outbox) {
        self.subscriptions.of(kind).insert(name[..].into());
        let count = self.subscriptions.count(kind);
        write_confirmation(self.version, kind.subscribe(), Some(name), count, out);
    }

    fn unsubscribe_next(
        &mut self,
        kind: SubscriptionKind,
        rest: &mut std::vec::IntoIter<Bytes>,
        out: &mut Outbox,
    ) -> Option<Event> {
        for name in rest {
            if self.subscriptions.of(kind).remove(&name[..]) {
                return Some(self.unsubscribed(kind, name, out));
            }
            let count = self.subscriptions.count(kind);
            write_confirmation(self.version, kind.unsubscribe(), Some(&name), count, out);
        }
        None
    }

    fn unsubscribed(&self, kind: SubscriptionKind, name: Bytes, out: &mut Outbox) -> Event {
        let count = self.subscriptions.count(kind);
        write_confirmation(self.version, kind.unsubscribe(), Some(&name), count, out);
        Event::Unsubscribe { kind, name }
    }

    pub(super) fn publish(&mut self, mut arguments: Vec<Bytes>, out: &mut Outbox) -> Option<Event> {
        let (payload, channel) = (arguments.pop()?, arguments.pop()?);
        if let Some(text) =
            over("channel", &channel, self.settings.limits.channel_bytes_max, "channel_bytes_max")
        {
            write_error("ERR", &text, out);
            return None;
        }
        self.pending = Pending::Publish;
        Some(Event::Publish { channel, payload })
    }

    pub(super) fn pubsub(&mut self, mut arguments: Vec<Bytes>, out: &mut Outbox) -> Option<Event> {
        let subcommand = arguments.remove(0);
        match &subcommand.to_ascii_lowercase()[..] {
            b"channels" | b"shardchannels" if arguments.len() < 2 => {
                let limit = self.settings.limits.pattern_bytes_max;
                let pattern = arguments.first();
                let over = pattern.and_then(|pattern| over("pattern", pattern, limit, "pattern_bytes_max"));
                if let Some(text) = over {
                    write_error("ERR", &text, out);
                    return None;
                }
                self.pending = Pending::Channels;
                Some(Event::Channels { pattern: pattern.map(|pattern| Pattern::new(pattern)) })
            }
            b"numpat" if arguments.is_empty() => {
                self.pending = Pending::Patterns;
                Some(Event::Patterns)
            }
            b"numsub" | b"shardnumsub" => {
                self.pending = Pending::Subscribers(arguments.clone());
                Some(Event::Subscribers { channels: arguments })
            }
            _ => {
                write_error("ERR", &unknown_subcommand("pubsub", &subcommand), out);
                None
            }
        }
    }
}

/// Returns the text of an error if `name` is longer than the limit.
pub(super) fn over(what: &str, name: &[u8], limit: u32, limit_name: &str) -> Option<String> {
    let len = name.len();
    (len > limit as usize)
        .then(|| format!("{what} name has {len} bytes; the limit is {limit} ({limit_name})"))
}

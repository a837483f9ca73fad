//! Subscriptions of the client side, their confirmations and their messages.

use super::{Client, ClientEvent, Expected, NotSent};
use crate::{
    Outbox, Outgoing,
    resp::{SubscriptionKind, Value},
};

impl Client {
    /// Subscribes to these channels, shard channels or patterns. Each name has one [`ClientEvent::Subscribed`], unless
    /// a [`ClientEvent::Refused`] replaces it and the rest.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn subscribe(
        &mut self,
        kind: SubscriptionKind,
        names: &[&[u8]],
        out: &mut Outbox,
    ) -> Result<(), NotSent> {
        let expected = Expected::Subscribed(kind, names.len() as u64);
        self.send_names(kind.subscribe(), expected, names, out)
    }

    /// Ends the subscriptions to these channels, shard channels or patterns. Each name has one
    /// [`ClientEvent::Unsubscribed`], even without a subscription.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn unsubscribe(
        &mut self,
        kind: SubscriptionKind,
        names: &[&[u8]],
        out: &mut Outbox,
    ) -> Result<(), NotSent> {
        let expected = Expected::Unsubscribed(kind, names.len() as u64);
        self.send_names(kind.unsubscribe(), expected, names, out)
    }

    fn send_names(
        &mut self,
        command: &str,
        expected: Expected,
        names: &[&[u8]],
        out: &mut Outbox,
    ) -> Result<(), NotSent> {
        if names.is_empty() {
            return Err(NotSent::Empty);
        }
        let command = command.to_ascii_uppercase();
        let arguments = std::iter::once(command.as_bytes()).chain(names.iter().copied());
        let arguments: Vec<Outgoing<'_>> = arguments.map(Outgoing::Lent).collect();
        self.send(expected, &arguments, out)
    }

    /// Returns the event of a push.
    pub(super) fn push(&mut self, elements: Vec<Value>) -> ClientEvent {
        self.read_push(&elements).unwrap_or(ClientEvent::Push(elements))
    }

    /// Returns the event of a message or confirmation; `None` if the elements are of neither.
    pub(super) fn read_push(&mut self, elements: &[Value]) -> Option<ClientEvent> {
        let [word, rest @ ..] = elements else { return None };
        let word = word.bytes()?;
        let message = |kind, pattern: Option<&Value>, channel: &Value, payload: &Value| {
            let pattern = pattern.map(|pattern| pattern.bytes().cloned());
            let pattern = match pattern {
                Some(pattern) => Some(pattern?),
                None => None,
            };
            let (channel, payload) = (channel.bytes()?.clone(), payload.bytes()?.clone());
            Some(ClientEvent::Message { kind, pattern, channel, payload })
        };
        match (&word[..], rest) {
            (b"message", [channel, payload]) => message(SubscriptionKind::Channel, None, channel, payload),
            (b"smessage", [channel, payload]) => message(SubscriptionKind::Shard, None, channel, payload),
            (b"pmessage", [pattern, channel, payload]) => {
                message(SubscriptionKind::Pattern, Some(pattern), channel, payload)
            }
            (word, [name, count]) => {
                let (name, count) = (name.bytes()?.clone(), u64::try_from(count.integer()?).ok()?);
                let is = |known: &str| known.as_bytes() == word;
                let kind = SubscriptionKind::ALL
                    .into_iter()
                    .find(|kind| is(kind.subscribe()) || is(kind.unsubscribe()))?;
                match kind {
                    SubscriptionKind::Shard => self.shard_count = count,
                    SubscriptionKind::Channel | SubscriptionKind::Pattern => self.plain_count = count,
                }
                let subscribes = is(kind.subscribe());
                self.confirmed(kind, subscribes);
                Some(match subscribes {
                    true => ClientEvent::Subscribed { kind, name },
                    false => ClientEvent::Unsubscribed { kind, name },
                })
            }
            _ => None,
        }
    }

    /// Counts a confirmation of the oldest command, if it is one of its. A server ends subscriptions unrequested too.
    fn confirmed(&mut self, kind: SubscriptionKind, subscribes: bool) {
        let names = match self.expected.front_mut() {
            Some(Expected::Subscribed(expected, names)) if *expected == kind && subscribes => names,
            Some(Expected::Unsubscribed(expected, names)) if *expected == kind && !subscribes => names,
            _ => return,
        };
        *names -= 1;
        if *names == 0 {
            self.expected.pop_front();
        }
    }
}

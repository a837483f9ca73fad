//! The client machine of RESP against the server machine.

use crate::{
    Code, Input, Metadata, Outbox, Outgoing, Status,
    fuzzing::{Choices, feed::pieces},
    resp::{
        Client, ClientEvent, Event, Pattern, ReplyLimits, Server, Settings, SubscriptionKind, Value, Version,
        write_message, write_pattern_message, write_value,
    },
};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc};

/// Checks that each side receives what the other sends, for any split of the bytes, and that a value is read as it was
/// written.
///
/// # Panics
/// If the property does not hold.
pub fn resp_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let mut pair = Pair::new(steps);
    while !choices.is_over() {
        if choices.one_in(4) {
            value_survives(&value(&mut choices, 4), &steps);
            pattern_matches(&mut choices);
        } else {
            pair.act(&mut choices);
        }
    }
}

/// Both sides, and the state that they should have.
struct Pair {
    client: Client,
    server: Server,
    client_input: Input,
    server_input: Input,
    to_client: Outbox,
    to_server: Outbox,
    steps: [u8; 3],
    version: Version,
    names: BTreeSet<(SubscriptionKind, Bytes)>,
}

impl Pair {
    fn new(steps: [u8; 3]) -> Pair {
        Pair {
            client: Client::new(ReplyLimits::default()),
            server: Server::new(Arc::new(Settings::new()), 1),
            client_input: Input::default(),
            server_input: Input::default(),
            to_client: Outbox::new(),
            to_server: Outbox::new(),
            steps,
            version: Version::Resp2,
            names: BTreeSet::new(),
        }
    }

    /// Sends one command, or messages, and checks the events of both sides.
    fn act(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 8 {
            0 => self.publish(choices),
            1 => self.call(choices),
            2 => self.echo(choices),
            3 => self.hello(choices),
            4 => self.reset(choices),
            5 => self.messages(choices),
            _ => self.subscriptions(choices),
        }
        assert_eq!(self.client.outstanding(), 0);
        assert_eq!(self.server.subscription_count(), self.names.len());
        assert_eq!((self.server.version(), self.client.version()), (self.version, self.version));
    }

    fn publish(&mut self, choices: &mut Choices<'_>) {
        let (channel, payload) = (name(choices), choices.message());
        self.command([Outgoing::Lent(b"PUBLISH"), (&channel).into(), (&payload).into()]);
        self.check(Event::Publish { channel, payload }, Value::Integer(2));
    }

    fn call(&mut self, choices: &mut Choices<'_>) {
        let payload = choices.message();
        let mut metadata = Metadata::new();
        let mut arguments = vec![Outgoing::Lent(b"CALL"), Outgoing::Lent(b"a.B/C"), (&payload).into()];
        let value = Bytes::copy_from_slice(choices.bytes(20));
        if choices.one_in(2) {
            metadata.insert("trace-bin", value.clone()).expect("a binary value is valid");
            arguments.extend([Outgoing::Lent(b"trace-bin"), (&value).into()]);
        }
        self.command(arguments);
        let method = Bytes::from_static(b"a.B/C");
        let reply = match payload.len() % 2 {
            0 => Value::Bulk(payload.clone()),
            _ => Value::Error(Bytes::from_static(b"NOT_FOUND method not found")),
        };
        self.check(Event::Call { method, payload, metadata }, reply);
    }

    fn echo(&mut self, choices: &mut Choices<'_>) {
        let message = choices.message();
        self.command([Outgoing::Lent(b"ECHO"), (&message).into()]);
        self.check(Event::Responded { command: "echo" }, Value::Bulk(message));
    }

    fn hello(&mut self, choices: &mut Choices<'_>) {
        let version = if choices.one_in(2) { Version::Resp2 } else { Version::Resp3 };
        self.client.hello(version, None, Some(b"me"), &mut self.to_server).expect("the queue has room");
        let (_, replies) = self.exchange();
        let [ClientEvent::Reply(reply)] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(reply.error().is_some(), self.is_restricted(), "{reply:?}");
        if !self.is_restricted() {
            self.version = version;
        }
    }

    fn reset(&mut self, choices: &mut Choices<'_>) {
        if !choices.one_in(4) {
            return;
        }
        self.command([Outgoing::Lent(b"RESET")]);
        let (events, replies) = self.exchange();
        assert_eq!(events, [Event::Reset]);
        assert_eq!(replies, [ClientEvent::Reply(Value::Simple(Bytes::from_static(b"RESET")))]);
        self.names.clear();
        self.version = Version::Resp2;
    }

    /// Sends a message to each subscription.
    fn messages(&mut self, choices: &mut Choices<'_>) {
        let payload = choices.message();
        let mut expected = Vec::new();
        for (kind, name) in &self.names {
            let is_pattern = *kind == SubscriptionKind::Pattern;
            if is_pattern {
                write_pattern_message(self.version, name, b"channel", &payload, &mut self.to_client);
            } else {
                write_message(self.version, *kind, name, &payload, &mut self.to_client);
            }
            expected.push(ClientEvent::Message {
                kind: *kind,
                pattern: is_pattern.then(|| name.clone()),
                channel: if is_pattern { Bytes::from_static(b"channel") } else { name.clone() },
                payload: payload.clone(),
            });
        }
        assert_eq!(self.exchange(), (Vec::new(), expected));
    }

    fn subscriptions(&mut self, choices: &mut Choices<'_>) {
        let kind = SubscriptionKind::ALL[usize::from(choices.byte() % 3)];
        let subscribes = !choices.one_in(3);
        let names: Vec<Bytes> = (0..1 + choices.byte() % 3).map(|_| name(choices)).collect();
        let lent: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let sent = match subscribes {
            true => self.client.subscribe(kind, &lent, &mut self.to_server),
            false => self.client.unsubscribe(kind, &lent, &mut self.to_server),
        };
        sent.expect("the queue has room");
        let (mut expected, mut confirmed) = (Vec::new(), Vec::new());
        for name in names {
            let key = (kind, name.clone());
            if subscribes {
                if self.names.insert(key) {
                    expected.push(Event::Subscribe { kind, name: name.clone() });
                }
                confirmed.push(ClientEvent::Subscribed { kind, name });
            } else {
                if self.names.remove(&key) {
                    expected.push(Event::Unsubscribe { kind, name: name.clone() });
                }
                confirmed.push(ClientEvent::Unsubscribed { kind, name });
            }
        }
        let (mut events, replies) = self.exchange();
        events.retain(|event| !matches!(event, Event::Responded { .. }));
        assert_eq!((events, replies), (expected, confirmed));
    }

    /// Exchanges a command that a subscriber with RESP2 may not use.
    fn check(&mut self, event: Event, reply: Value) {
        let (events, replies) = self.exchange();
        if self.is_restricted() {
            assert!(matches!(events[..], [Event::Responded { .. }]), "{events:?}");
            assert!(matches!(&replies[..], [ClientEvent::Reply(Value::Error(_))]), "{replies:?}");
        } else {
            assert_eq!((events, replies), (vec![event], vec![ClientEvent::Reply(reply)]));
        }
    }

    fn is_restricted(&self) -> bool {
        self.version == Version::Resp2 && !self.names.is_empty()
    }

    fn command<'a>(&mut self, arguments: impl IntoIterator<Item = Outgoing<'a>>) {
        self.client.command(arguments, &mut self.to_server).expect("the queue has room");
    }

    /// Delivers everything in both directions.
    fn exchange(&mut self) -> (Vec<Event>, Vec<ClientEvent>) {
        let (mut events, mut replies) = (Vec::new(), Vec::new());
        for piece in pieces(&self.to_server.take_all(), &self.steps) {
            self.server_input.extend(piece);
            let (input, out) = (&mut self.server_input, &mut self.to_client);
            while let Some(event) = self.server.recv(input, out).expect("no error") {
                respond(&mut self.server, &event, out);
                events.push(event);
            }
        }
        for piece in pieces(&self.to_client.take_all(), &self.steps) {
            self.client_input.extend(piece);
            while let Some(event) = self.client.recv(&mut self.client_input).expect("no error") {
                replies.push(event);
            }
        }
        assert!(self.server_input.is_empty() && self.client_input.is_empty());
        (events, replies)
    }
}

fn respond(server: &mut Server, event: &Event, out: &mut Outbox) {
    match event {
        Event::Subscribe { .. } => server.accept(out),
        Event::Call { payload, .. } => {
            let status = Status::new(Code::NotFound, "method not found");
            server.called(if payload.len().is_multiple_of(2) { Ok(payload) } else { Err(&status) }, out);
        }
        Event::Publish { .. } => server.published(2, out),
        _ => {}
    }
}

/// Draws one of few names, so that names are repeated.
fn name(choices: &mut Choices<'_>) -> Bytes {
    match choices.byte() % 6 {
        0 => Bytes::copy_from_slice(choices.bytes(30)),
        few => Bytes::copy_from_slice(&b"abcde"[usize::from(few) - 1..usize::from(few)]),
    }
}

/// Checks that a value of RESP3 is read as it was written.
fn value_survives(value: &Value, steps: &[u8]) {
    let (mut client, mut out) = (Client::new(ReplyLimits::default()), Outbox::new());
    client.command([Outgoing::Lent(b"x")], &mut Outbox::new()).expect("the queue has room");
    write_value(Version::Resp3, value, &mut out);
    let (mut input, mut events) = (Input::default(), Vec::new());
    for piece in pieces(&out.take_all(), steps) {
        input.extend(piece);
        events.extend(client.recv(&mut input).expect("no error"));
    }
    // As text, because a double that is not a number does not equal itself.
    assert_eq!(format!("{events:?}"), format!("{:?}", [ClientEvent::Reply(value.clone())]));
}

/// Draws a value of any type but a push.
pub(super) fn value(choices: &mut Choices<'_>, depth: u8) -> Value {
    let kinds = if depth == 0 { 10 } else { 14 };
    let line = |choices: &mut Choices<'_>| -> Bytes {
        let text = choices.bytes(20).iter();
        text.map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
    };
    let count = |choices: &mut Choices<'_>| 0..choices.byte() % 4;
    let entries = |choices: &mut Choices<'_>| -> Vec<(Value, Value)> {
        count(choices).map(|_| (value(choices, depth - 1), value(choices, depth - 1))).collect()
    };
    match choices.byte() % kinds {
        0 => Value::BigNumber(Bytes::from(format!("-{}{}", choices.long(), choices.long()))),
        1 => Value::Boolean(choices.one_in(2)),
        2 => Value::Bulk(choices.message()),
        3 => Value::BulkError(choices.message()),
        4 => Value::Double(f64::from_bits(u64::from(choices.long()) << 32 | u64::from(choices.long()))),
        5 => Value::Error(line(choices)),
        6 => Value::Integer((u64::from(choices.long()) << 32 | u64::from(choices.long())).cast_signed()),
        7 => Value::Null,
        8 => Value::Simple(line(choices)),
        9 => Value::Verbatim { format: *b"txt", text: choices.message() },
        10 => Value::Array(count(choices).map(|_| value(choices, depth - 1)).collect()),
        11 => Value::Attributed { attributes: entries(choices), value: Box::new(value(choices, depth - 1)) },
        12 => Value::Map(entries(choices)),
        _ => Value::Set(count(choices).map(|_| value(choices, depth - 1)).collect()),
    }
}

/// Checks a pattern of stars and literal characters against a matcher that tries everything.
fn pattern_matches(choices: &mut Choices<'_>) {
    let draw = |choices: &mut Choices<'_>, alphabet: &[u8]| -> Vec<u8> {
        let drawn = choices.bytes(12).iter();
        drawn.map(|byte| alphabet[usize::from(*byte) % alphabet.len()]).collect()
    };
    let (pattern, channel) = (draw(choices, b"ab*?"), draw(choices, b"ab"));
    assert_eq!(Pattern::new(&pattern).matches(&channel), matches(&pattern, &channel), "{pattern:?}");
}

fn matches(pattern: &[u8], channel: &[u8]) -> bool {
    match (pattern, channel) {
        ([], _) => channel.is_empty(),
        ([b'*', rest @ ..], _) => (0..=channel.len()).any(|at| matches(rest, &channel[at..])),
        ([b'?', rest @ ..], [_, after @ ..]) => matches(rest, after),
        ([byte, rest @ ..], [first, after @ ..]) => byte == first && matches(rest, after),
        _ => false,
    }
}

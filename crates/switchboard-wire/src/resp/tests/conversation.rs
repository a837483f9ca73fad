//! The client machine against the server machine.

use super::*;
use crate::resp::{write_message, write_pattern_message};

struct Pair {
    client: Client,
    server: Server,
    to_server: Outbox,
    to_client: Outbox,
    server_input: Input,
    client_input: Input,
}

impl Pair {
    fn new(settings: Settings) -> Pair {
        Pair {
            client: Client::new(ReplyLimits::default()),
            server: Server::new(Arc::new(settings), ID),
            to_server: Outbox::new(),
            to_client: Outbox::new(),
            server_input: Input::default(),
            client_input: Input::default(),
        }
    }

    fn command(&mut self, line: &str) {
        let words = line.split(' ').map(|word| Outgoing::Lent(word.as_bytes()));
        self.client.command(words, &mut self.to_server).unwrap();
    }

    /// Delivers everything in both directions; returns the events of both sides.
    fn exchange(&mut self) -> (Vec<Event>, Vec<ClientEvent>) {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for byte in self.to_server.take_all() {
            self.server_input.extend(&[byte]);
            while let Some(event) = self.server.recv(&mut self.server_input, &mut self.to_client).unwrap() {
                respond(&mut self.server, &event, &mut self.to_client);
                requests.push(event);
            }
        }
        for byte in self.to_client.take_all() {
            self.client_input.extend(&[byte]);
            while let Some(event) = self.client.recv(&mut self.client_input).unwrap() {
                replies.push(event);
            }
        }
        (requests, replies)
    }
}

#[test]
fn pipelined_commands_have_their_replies_in_order() {
    for version in [Version::Resp2, Version::Resp3] {
        let mut pair = Pair::new(Settings::new().with_auth(true));
        pair.client.hello(version, Some((b"alice", b"x")), Some(b"me"), &mut pair.to_server).unwrap();
        ["CLIENT GETNAME", "PING", "CALL a.B/C {}", "PUBLISH a hi", "NONE", "PUBSUB NUMPAT"]
            .into_iter()
            .for_each(|line| pair.command(line));
        let (_, replies) = pair.exchange();
        assert_eq!((pair.client.version(), pair.server.version()), (version, version));
        let expected = [
            Value::Bulk(bytes("me")),
            Value::Simple(bytes("PONG")),
            Value::Bulk(bytes("{}")),
            Value::Integer(2),
            Value::Error(bytes("ERR unknown command 'NONE', with args beginning with: ")),
            Value::Integer(3),
        ];
        assert_eq!(replies[1..], expected.map(ClientEvent::Reply));
        assert_eq!(pair.client.outstanding(), 0);
    }
}

#[test]
fn subscriptions_and_messages_of_both_versions() {
    use SubscriptionKind::{Channel, Pattern, Shard};
    for version in [Version::Resp2, Version::Resp3] {
        let mut pair = Pair::new(Settings::new());
        pair.client.hello(version, None, None, &mut pair.to_server).unwrap();
        for (kind, names) in [(Channel, [&b"a"[..], b"b"]), (Pattern, [b"n*", b"?"]), (Shard, [b"s", b"t"])] {
            pair.client.subscribe(kind, &names, &mut pair.to_server).unwrap();
        }
        pair.client.subscribe(Channel, &[b"secret", b"c"], &mut pair.to_server).unwrap();
        pair.client.unsubscribe(Shard, &[b"s", b"never"], &mut pair.to_server).unwrap();
        pair.command("PING");
        let (events, replies) = pair.exchange();
        let subscriptions = events.iter().filter(|event| matches!(event, Event::Subscribe { .. })).count();
        assert_eq!((subscriptions, pair.server.subscription_count()), (7, 5));
        let confirmed = |event: &&ClientEvent| matches!(event, ClientEvent::Subscribed { .. });
        assert_eq!(replies.iter().filter(confirmed).count(), 6);
        let refused = |event: &ClientEvent| matches!(event, ClientEvent::Refused { kind: Channel, .. });
        assert!(replies.iter().any(refused));
        assert!(matches!(replies.last(), Some(ClientEvent::Reply(_))));
        assert_eq!(pair.client.outstanding(), 0);

        let payload = bytes("hi\r\n");
        write_message(version, Channel, b"a", &payload, &mut pair.to_client);
        write_message(version, Shard, b"t", &payload, &mut pair.to_client);
        write_pattern_message(version, b"n*", b"news", &payload, &mut pair.to_client);
        let (_, messages) = pair.exchange();
        let message = |kind, pattern, channel: &str| ClientEvent::Message {
            kind,
            pattern,
            channel: bytes(channel),
            payload: payload.clone(),
        };
        let expected = [
            message(Channel, None, "a"),
            message(Shard, None, "t"),
            message(Pattern, Some(bytes("n*")), "news"),
        ];
        assert_eq!(messages, expected);
    }
}

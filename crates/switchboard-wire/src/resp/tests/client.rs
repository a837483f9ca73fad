use super::*;
use crate::resp::NotSent;

struct Peer {
    client: Client,
    input: Input,
    out: Outbox,
}

impl Peer {
    fn new() -> Peer {
        Peer { client: Client::new(ReplyLimits::default()), input: Input::default(), out: Outbox::new() }
    }

    fn command(&mut self, line: &str) -> Result<(), NotSent> {
        self.client.command(line.split(' ').map(|word| Outgoing::Lent(word.as_bytes())), &mut self.out)
    }

    fn subscribe(&mut self, kind: SubscriptionKind, names: &[&[u8]]) {
        self.client.subscribe(kind, names, &mut self.out).unwrap();
    }

    /// Delivers bytes of the server.
    fn recv(&mut self, wire: &str) -> Vec<ClientEvent> {
        self.input.extend(wire.as_bytes());
        std::iter::from_fn(|| self.client.recv(&mut self.input).unwrap()).collect()
    }
}

fn subscribed(name: &str) -> ClientEvent {
    ClientEvent::Subscribed { kind: SubscriptionKind::Channel, name: bytes(name) }
}

fn message(channel: &str, payload: &str) -> ClientEvent {
    let (kind, channel, payload) = (SubscriptionKind::Channel, bytes(channel), bytes(payload));
    ClientEvent::Message { kind, pattern: None, channel, payload }
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut peer = Peer::new();
    peer.command("SET k v").unwrap();
    peer.client.hello(Version::Resp3, Some((b"u", b"p")), Some(b"n"), &mut peer.out).unwrap();
    peer.client.unsubscribe(SubscriptionKind::Pattern, &[b"a*"], &mut peer.out).unwrap();
    let expected = requests(&["SET k v", "HELLO 3 AUTH u p SETNAME n", "PUNSUBSCRIBE a*"]);
    assert_eq!(peer.out.take_all(), expected);
    assert_eq!(peer.client.outstanding(), 3);
    for line in ["subscribe a", "SUNSUBSCRIBE", "monitor", "CLIENT REPLY OFF"] {
        assert_eq!(peer.command(line), Err(NotSent::Unsupported), "{line}");
    }
    assert_eq!(peer.client.command([] as [Outgoing<'_>; 0], &mut peer.out), Err(NotSent::Empty));
    assert_eq!(peer.client.subscribe(SubscriptionKind::Shard, &[], &mut peer.out), Err(NotSent::Empty));
    assert!(peer.out.is_empty());
}

#[test]
fn arrays_of_resp2_are_messages_for_subscribers_only() {
    let mut peer = Peer::new();
    let wire = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";
    peer.command("LRANGE k 0 -1").unwrap();
    assert!(matches!(peer.recv(wire)[..], [ClientEvent::Reply(Value::Array(_))]));
    peer.subscribe(SubscriptionKind::Channel, &[b"a", b"b"]);
    let confirmations =
        "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    let events = peer.recv(&[confirmations, wire].concat());
    assert_eq!(events, [subscribed("a"), subscribed("b"), message("a", "hi")]);
    assert_eq!(peer.client.outstanding(), 0);
    peer.command("PING").unwrap();
    let events = peer.recv(&[wire, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", wire].concat());
    assert_eq!((&events[0], &events[2]), (&message("a", "hi"), &message("a", "hi")));
    assert!(matches!(events[1], ClientEvent::Reply(Value::Array(_))));
    peer.command("RESET").unwrap();
    peer.command("LRANGE k 0 -1").unwrap();
    let events = peer.recv(&["+RESET\r\n", wire].concat());
    assert!(matches!(events[1], ClientEvent::Reply(_)), "{events:?}");
}

#[test]
fn pushes_of_resp3_are_not_replies() {
    let mut peer = Peer::new();
    peer.client.hello(Version::Resp3, None, None, &mut peer.out).unwrap();
    assert!(matches!(peer.recv("%0\r\n")[..], [ClientEvent::Reply(Value::Map(_))]));
    assert_eq!(peer.client.version(), Version::Resp3);
    peer.command("GET k").unwrap();
    peer.subscribe(SubscriptionKind::Pattern, &[b"a*"]);
    let events = peer.recv(
        ">2\r\n+invalidate\r\n_\r\n$1\r\nv\r\n>3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:1\r\n\
         >4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$2\r\nab\r\n$2\r\nhi\r\n>3\r\n$12\r\nsunsubscribe\r\n$1\r\ns\r\n:0\r\n",
    );
    let pattern = SubscriptionKind::Pattern;
    let expected = [
        ClientEvent::Push(vec![Value::Simple(bytes("invalidate")), Value::Null]),
        ClientEvent::Reply(Value::Bulk(bytes("v"))),
        ClientEvent::Subscribed { kind: pattern, name: bytes("a*") },
        ClientEvent::Message {
            kind: pattern,
            pattern: Some(bytes("a*")),
            channel: bytes("ab"),
            payload: bytes("hi"),
        },
        // The server moved the slot of a shard channel.
        ClientEvent::Unsubscribed { kind: SubscriptionKind::Shard, name: bytes("s") },
    ];
    assert_eq!(events, expected);
    assert_eq!(peer.client.outstanding(), 0);
}

#[test]
fn a_refused_command_keeps_the_order_of_replies() {
    let mut peer = Peer::new();
    peer.subscribe(SubscriptionKind::Channel, &[b"a", b"secret", b"b"]);
    peer.command("PING").unwrap();
    let events =
        peer.recv("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n-NOPERM no\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    let refused = ClientEvent::Refused { kind: SubscriptionKind::Channel, error: bytes("NOPERM no") };
    assert_eq!(events[..2], [subscribed("a"), refused]);
    assert!(matches!(events[2], ClientEvent::Reply(_)));
}

#[test]
fn a_failed_hello_changes_nothing() {
    let mut peer = Peer::new();
    peer.client.hello(Version::Resp3, None, None, &mut peer.out).unwrap();
    assert!(
        matches!(&peer.recv("-NOAUTH no\r\n")[..], [ClientEvent::Reply(value)] if value.error().is_some())
    );
    assert_eq!(peer.client.version(), Version::Resp2);
}

#[test]
fn replies_without_a_command_close_the_connection() {
    let mut peer = Peer::new();
    peer.input.extend(b"+OK\r\n");
    let error = peer.client.recv(&mut peer.input).unwrap_err();
    assert_eq!(error.message(), "reply arrived, and no command is without one");
    assert_eq!(peer.command("PING"), Err(NotSent::Closed));
    peer.input.extend(b"late");
    assert_eq!(peer.client.recv(&mut peer.input), Ok(None));
    let mut peer = Peer::new();
    peer.subscribe(SubscriptionKind::Channel, &[b"a"]);
    peer.input.extend(b"+OK\r\n");
    let error = peer.client.recv(&mut peer.input).unwrap_err();
    assert_eq!(error.message(), "reply to a subscription is neither a confirmation nor an error");
}

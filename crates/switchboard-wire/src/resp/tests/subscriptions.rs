use super::*;

fn subscribe(kind: SubscriptionKind, name: &str) -> Event {
    Event::Subscribe { kind, name: bytes(name) }
}

fn unsubscribe(kind: SubscriptionKind, name: &str) -> Event {
    Event::Unsubscribe { kind, name: bytes(name) }
}

/// Returns a confirmation in RESP2.
fn confirmation(word: &str, name: &str, count: u32) -> String {
    format!("*3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:{count}\r\n", word.len(), name.len())
}

#[test]
fn each_name_has_an_event_and_a_confirmation() {
    use SubscriptionKind::{Channel, Pattern, Shard};
    let commands = ["SUBSCRIBE a b a", "PSUBSCRIBE n*", "SSUBSCRIBE s", "UNSUBSCRIBE a x", "UNSUBSCRIBE"];
    let more = ["PUNSUBSCRIBE n*", "SUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE"];
    let (events, output, error) =
        run_split(&Settings::new(), &requests(&[&commands[..], &more[..]].concat()));
    let events: Vec<Event> =
        events.into_iter().filter(|event| !matches!(event, Event::Responded { .. })).collect();
    assert_eq!(
        events,
        [
            subscribe(Channel, "a"),
            subscribe(Channel, "b"),
            subscribe(Pattern, "n*"),
            subscribe(Shard, "s"),
            unsubscribe(Channel, "a"),
            unsubscribe(Channel, "b"),
            unsubscribe(Pattern, "n*"),
            unsubscribe(Shard, "s"),
        ]
    );
    let expected = [
        confirmation("subscribe", "a", 1),
        confirmation("subscribe", "b", 2),
        confirmation("subscribe", "a", 2),
        confirmation("psubscribe", "n*", 3),
        confirmation("ssubscribe", "s", 1),
        confirmation("unsubscribe", "a", 2),
        confirmation("unsubscribe", "x", 2),
        confirmation("unsubscribe", "b", 1),
        confirmation("punsubscribe", "n*", 0),
        confirmation("sunsubscribe", "s", 0),
        "*3\r\n$12\r\nsunsubscribe\r\n$-1\r\n:0\r\n".to_owned(),
        "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n".to_owned(),
    ];
    assert_eq!((output, error), (expected.concat(), None));
}

#[test]
fn subscribers_with_resp2_use_few_commands() {
    let refused = "-ERR Can't execute 'echo': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                   in this context\r\n";
    let commands = ["SUBSCRIBE a", "ECHO x", "PING", "PING x", "UNSUBSCRIBE", "ECHO x", "PING"];
    let expected = [
        &confirmation("subscribe", "a", 1),
        refused,
        "*2\r\n$4\r\npong\r\n$0\r\n\r\n*2\r\n$4\r\npong\r\n$1\r\nx\r\n",
        &confirmation("unsubscribe", "a", 0),
        "$1\r\nx\r\n+PONG\r\n",
    ];
    assert_eq!(output(&Settings::new(), &commands), expected.concat());
    let (events, output, _) = run_split(&Settings::new(), &requests(&["PSUBSCRIBE a", "RESET", "ECHO x"]));
    assert_eq!(events[1], Event::Reset);
    assert!(output.ends_with("+RESET\r\n$1\r\nx\r\n"));
}

#[test]
fn subscribers_with_resp3_use_all_commands() {
    let greeting = output(&Settings::new(), &["HELLO 3"]);
    let commands =
        ["HELLO 3", "SUBSCRIBE a", "PING", "ECHO x", "UNSUBSCRIBE", "UNSUBSCRIBE", "PUBSUB NUMSUB a"];
    let expected = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n+PONG\r\n$1\r\nx\r\n\
                    >3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n>3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n\
                    *2\r\n$1\r\na\r\n:1\r\n";
    assert_eq!(output(&Settings::new(), &commands), format!("{greeting}{expected}"));
}

#[test]
fn a_refused_subscription_ends_its_command() {
    let expected = [
        &confirmation("subscribe", "a", 1),
        "-NOPERM no permission for this channel\r\n",
        &confirmation("subscribe", "c", 2),
    ];
    let commands = ["SUBSCRIBE a secret b", "SUBSCRIBE c"];
    assert_eq!(output(&Settings::new(), &commands), expected.concat());
}

#[test]
fn publications_and_queries_are_events() {
    let commands = [
        "PUBLISH a hello",
        "SPUBLISH a hello",
        "PUBSUB CHANNELS",
        "PUBSUB CHANNELS n*",
        "PUBSUB NUMSUB a bb",
        "PUBSUB NUMSUB",
        "PUBSUB NUMPAT",
        "PUBSUB SHARDCHANNELS",
        "PUBSUB WHAT",
    ];
    let (events, output, error) = run_split(&Settings::new(), &requests(&commands));
    let publish = Event::Publish { channel: bytes("a"), payload: bytes("hello") };
    assert_eq!(events[..2], [publish.clone(), publish]);
    let Event::Channels { pattern: Some(pattern) } = &events[3] else { panic!("{events:?}") };
    assert!(pattern.matches(b"news"));
    assert_eq!(events[4], Event::Subscribers { channels: vec![bytes("a"), bytes("bb")] });
    let channels = "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    let expected = [
        ":2\r\n:2\r\n",
        channels,
        channels,
        "*4\r\n$1\r\na\r\n:1\r\n$2\r\nbb\r\n:2\r\n*0\r\n:3\r\n",
        channels,
        "-ERR unknown subcommand 'WHAT' of 'pubsub'\r\n",
    ];
    assert_eq!((output, error), (expected.concat(), None));
}

#[test]
fn messages_depend_on_the_version_and_the_kind() {
    use crate::resp::{write_message, write_pattern_message};
    let written = |write: &dyn Fn(Version, &mut Outbox)| {
        [Version::Resp2, Version::Resp3].map(|version| {
            let mut out = Outbox::new();
            write(version, &mut out);
            String::from_utf8(out.take_all()).unwrap()
        })
    };
    let payload = bytes("hi");
    let message = "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    assert_eq!(
        written(&|version, out| write_message(version, SubscriptionKind::Channel, b"c", &payload, out)),
        [format!("*{message}"), format!(">{message}")]
    );
    let message = "3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    assert_eq!(
        written(&|version, out| write_message(version, SubscriptionKind::Shard, b"c", &payload, out)),
        [format!("*{message}"), format!(">{message}")]
    );
    let message = "4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$1\r\nc\r\n$2\r\nhi\r\n";
    assert_eq!(
        written(&|version, out| write_pattern_message(version, b"c*", b"c", &payload, out)),
        [format!("*{message}"), format!(">{message}")]
    );
}

//! The RESP machines against arbitrary bytes.

use crate::{
    Input, Outbox, Outgoing,
    fuzzing::{Choices, feed::pieces},
    resp::{Client, Event, Limits, ReplyLimits, Server, Settings, SubscriptionKind, Version},
};
use bytes::Bytes;
use std::sync::Arc;

/// Longest head: a type, the digits of a number, CRLF.
const HEAD_BYTES: usize = 23;

/// Bytes that a server writes at most for each byte that it reads, and beside them. `INFO` as an inline command has the
/// largest reply for its size.
const WRITTEN_RATIO_MAX: usize = 64;
const WRITTEN_BYTES: usize = 1024;

/// Feeds a server or a client with any bytes. Checks that it does not panic, that the events do not depend on the
/// split, that it respects the limits, and that it writes and examines no more than its input justifies.
///
/// # Panics
/// If the property does not hold.
pub fn resp_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.one_in(3) { client_input(&mut choices) } else { server_input(&mut choices) }
}

fn server_input(choices: &mut Choices<'_>) {
    // Limits that most inputs of this size respect, or any.
    let least = if choices.one_in(4) { 0 } else { 200 };
    let limits = Limits {
        arguments_max: 1 + u32::from(choices.byte()),
        bulk_bytes_max: least + u32::from(choices.byte()),
        channel_bytes_max: u32::from(choices.byte()),
        client_name_bytes_max: u32::from(choices.byte()),
        config_patterns_max: u32::from(choices.byte() % 4),
        inline_bytes_max: least + u32::from(choices.byte()),
        metadata_entries_max: u32::from(choices.byte() % 4),
        pattern_bytes_max: u32::from(choices.byte()),
        request_bytes_max: 2 * least + u32::from(choices.short() % 1000),
        subscriptions_max: u32::from(choices.byte() % 8),
        unauthenticated_arguments_max: 1 + u32::from(choices.byte() % 10),
        unauthenticated_bulk_bytes_max: u32::from(choices.byte()),
    };
    let settings =
        Settings::new().with_limits(limits).with_inline(choices.one_in(2)).with_auth(choices.one_in(4));
    let settings = Arc::new(settings);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = requests(choices);
    let whole = run_server(&settings, &bytes, &[]);
    assert_eq!(run_server(&settings, &bytes, &steps), whole);
}

/// Returns the events, the bytes written, and the error.
fn run_server(settings: &Arc<Settings>, bytes: &[u8], steps: &[u8]) -> (Vec<Event>, Vec<u8>, String) {
    let mut server = Server::new(Arc::clone(settings), 1);
    let limits = settings.limits();
    let kept_max = HEAD_BYTES + limits.request_bytes_max.max(limits.inline_bytes_max) as usize;
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut read, mut written) = (Vec::new(), 0, Vec::new());
    super::super::take_work();
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        read += piece.len();
        loop {
            let before = written.len();
            let received = server.recv(&mut input, &mut out);
            let is_error = received.is_err();
            if let Ok(Some(event)) = &received {
                respond(&mut server, event, &mut out);
            }
            written.extend(out.take_all());
            let ends_whole = written.is_empty() || written.ends_with(b"\r\n");
            assert!(ends_whole, "a reply without its end: {}", written[before..].escape_ascii());
            let written_max = WRITTEN_RATIO_MAX * read + WRITTEN_BYTES;
            assert!(written.len() <= written_max, "{} bytes out for {read}", written.len());
            assert!(server.subscription_count() <= limits.subscriptions_max as usize);
            match received {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert!(is_error && server.is_closed());
                    return (events, written, error.to_string());
                }
            }
        }
        assert!(input.len() <= kept_max, "{} bytes are kept", input.len());
    }
    // Each read may examine the last byte before it again.
    let examined = super::super::take_work();
    assert!(examined <= 2 * bytes.len() as u64, "{examined} bytes examined of {}", bytes.len());
    (events, written, String::new())
}

/// Accepts names and users of even length.
fn respond(server: &mut Server, event: &Event, out: &mut Outbox) {
    match event {
        Event::Auth(credentials) if credentials.password().len() % 2 == 1 => server.reject(out),
        Event::Subscribe { name, .. } if name.len() % 2 == 1 => server.refuse("NOPERM", "refused", out),
        Event::Auth(_) | Event::Subscribe { .. } => server.accept(out),
        Event::Call { payload, .. } => server.called(Ok(payload), out),
        Event::Channels { pattern } => {
            let names = ["a", "news"].into_iter();
            let is_match =
                |name: &&str| pattern.as_ref().is_none_or(|pattern| pattern.matches(name.as_bytes()));
            server.channels(names.filter(is_match).collect::<Vec<_>>(), out);
        }
        Event::Patterns => server.patterns(1, out),
        Event::Publish { .. } => server.published(1, out),
        Event::Subscribers { .. } => server.subscribers(|channel| channel.len() as u64, out),
        Event::Responded { .. } | Event::Quit | Event::Reset | Event::Unsubscribe { .. } => {}
    }
    assert!(!server.is_waiting());
}

const WORDS: [&str; 40] = [
    "AUTH",
    "CALL",
    "CLIENT",
    "COMMAND",
    "CONFIG",
    "ECHO",
    "HELLO",
    "INFO",
    "PING",
    "PSUBSCRIBE",
    "PUBLISH",
    "PUBSUB",
    "PUNSUBSCRIBE",
    "QUIT",
    "RESET",
    "SELECT",
    "SPUBLISH",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "UNSUBSCRIBE",
    "subscribe",
    "hello",
    "ping",
    "POST",
    "Host:",
    "GET",
    "",
    "2",
    "3",
    "SETNAME",
    "SETINFO",
    "lib-name",
    "DOCS",
    "CHANNELS",
    "NUMSUB",
    "NUMPAT",
    "ID",
    "a",
    "news.*",
];

/// Mostly well-formed requests, sometimes only noise.
fn requests(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        // Commands are more likely first, and any word after them.
        let first = usize::from(choices.byte()) % if choices.one_in(8) { WORDS.len() } else { 24 };
        arguments.push(WORDS[first].into());
        for _ in 0..choices.byte() % 4 {
            let argument = match choices.byte() % 4 {
                0 => choices.bytes(20).to_vec(),
                1 => vec![b'x'; usize::from(choices.byte())],
                _ => WORDS[usize::from(choices.byte()) % WORDS.len()].into(),
            };
            arguments.push(argument);
        }
        match choices.byte() % 16 {
            0 => {
                bytes.extend(arguments.join(&b' '));
                bytes.extend(b"\r\n");
            }
            1 => bytes.extend(choices.bytes(10)),
            2 => bytes
                .extend([&b"*0\r\n"[..], b"\r\n", b"*-1\r\n", b"*1\r\n"][usize::from(choices.byte() % 4)]),
            _ => {
                let mut out = Outbox::new();
                let arguments = arguments.iter().map(|argument| Outgoing::Lent(argument));
                crate::resp::write_command(arguments, &mut out);
                let mut request = out.take_all();
                if choices.one_in(16) {
                    let at = usize::from(choices.byte()) % request.len();
                    request[at] ^= choices.byte();
                }
                bytes.extend(request);
            }
        }
    }
    bytes
}

fn client_input(choices: &mut Choices<'_>) {
    let least = if choices.one_in(4) { 0 } else { 200 };
    let limits = ReplyLimits {
        bulk_bytes_max: least + u32::from(choices.byte()),
        commands_max: u32::from(choices.byte()),
        depth_max: 1 + choices.byte() % 8,
        elements_max: 1 + u32::from(choices.byte()),
        line_bytes_max: least + u32::from(choices.byte()),
        reply_bytes_max: 2 * least + u32::from(choices.short() % 1000),
    };
    let version = if choices.one_in(2) { Version::Resp2 } else { Version::Resp3 };
    let subscribes = choices.one_in(2);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = replies(choices);
    let whole = run_client(limits, version, subscribes, &bytes, &[]);
    assert_eq!(run_client(limits, version, subscribes, &bytes, &steps), whole);
}

/// Returns the events and the error.
fn run_client(
    limits: ReplyLimits,
    version: Version,
    subscribes: bool,
    bytes: &[u8],
    steps: &[u8],
) -> (Vec<String>, String) {
    let (mut client, mut out) = (Client::new(limits), Outbox::new());
    // The client refuses more than the limit of commands.
    let _ = client.hello(version, None, None, &mut out);
    if subscribes {
        let _ = client.subscribe(SubscriptionKind::Channel, &[b"a", b"b"], &mut out);
    }
    while client.command([Outgoing::Lent(b"PING")], &mut out).is_ok() {}
    let kept_max = HEAD_BYTES + limits.reply_bytes_max as usize;
    let (mut input, mut events) = (Input::default(), Vec::new());
    super::super::take_work();
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        loop {
            match client.recv(&mut input) {
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(error) => return (events, error.to_string()),
            }
        }
        assert!(input.len() <= kept_max, "{} bytes are kept", input.len());
    }
    let examined = super::super::take_work();
    assert!(examined <= 2 * bytes.len() as u64, "{examined} bytes examined of {}", bytes.len());
    (events, String::new())
}

/// Mostly well-formed replies, sometimes only noise.
fn replies(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        match choices.byte() % 8 {
            0 => {
                let word = [&b"message"[..], b"pmessage", b"subscribe", b"sunsubscribe"]
                    [usize::from(choices.byte() % 4)];
                let head = [b"*3", b">3"][usize::from(choices.byte() % 2)];
                bytes.extend(head);
                bytes.extend(format!("\r\n${}\r\n", word.len()).bytes());
                bytes.extend(word);
                bytes.extend(b"\r\n$1\r\na\r\n");
                bytes.extend([&b":1\r\n"[..], b"$1\r\nx\r\n", b"_\r\n"][usize::from(choices.byte() % 3)]);
            }
            1 => bytes.extend(choices.bytes(10)),
            2 => bytes.extend(b"*2\r\n"),
            _ => {
                let mut out = Outbox::new();
                let value = super::conversation::value(choices, 3);
                crate::resp::write_value(Version::Resp3, &value, &mut out);
                let mut reply = out.take_all();
                if choices.one_in(16) {
                    let at = usize::from(choices.byte()) % reply.len();
                    reply[at] ^= choices.byte();
                }
                bytes.extend(Bytes::from(reply));
            }
        }
    }
    bytes
}

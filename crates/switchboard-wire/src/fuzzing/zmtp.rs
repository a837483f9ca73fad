//! The ZMTP machine against arbitrary bytes and against itself.

mod curve;

pub use curve::zmtp_curve;

use super::{Choices, feed::pieces};
use crate::{
    Input, Outbox,
    zmtp::{
        Connection, Credentials, Event, GREETING_BYTES, Limits, Mechanism, Settings, SocketType, Version,
    },
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Longest header of a frame.
const HEADER_BYTES: usize = 9;

/// Bytes that a connection writes at most beside its PONGs: the greeting, the commands of the handshake, an ERROR.
const WRITTEN_MAX: usize = 1024;

/// Feeds a connection with any bytes. Checks that it does not panic, that the events do not depend on the split, that
/// it respects the limits, and that it writes no more than it receives.
///
/// # Panics
/// If the property does not hold.
pub fn zmtp_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    // Limits that most inputs of this size respect, or any.
    let least = if choices.one_in(4) { 0 } else { 200 };
    let limits = Limits {
        command_bytes_max: least + u32::from(choices.byte()),
        frame_bytes_max: u64::from(least + u32::from(choices.byte())),
        message_bytes_max: u64::from(least + u32::from(choices.short() % 1000)),
        message_frames_max: 1 + u32::from(choices.byte() % 8),
        metadata_bytes_max: least + u32::from(choices.byte()),
        properties_max: 1 + u32::from(choices.byte() % 8),
        topic_bytes_max: least + u32::from(choices.byte()),
    };
    let socket = socket(&mut choices);
    let mechanism = mechanism(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let accepts = !choices.one_in(8);
    let bytes = input(&mechanism, socket, &mut choices);
    let settings = Arc::new(Settings::new(socket).with_limits(limits).with_mechanism(mechanism));
    let whole = run(&settings, &limits, accepts, &bytes, &[]);
    assert_eq!(run(&settings, &limits, accepts, &bytes, &steps), whole);
}

/// Checks that each side receives what the other sends, for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn zmtp_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let ours = socket(&mut choices);
    let theirs = ours.peers()[usize::from(choices.byte()) % ours.peers().len()];
    let mechanisms = match choices.byte() % 5 {
        0 => [Mechanism::Null, Mechanism::Null],
        3 => curve::mechanisms(choices.byte()),
        4 => {
            let [client, server] = curve::mechanisms(choices.byte());
            [server, client]
        }
        first => {
            let credentials = Credentials::new(choices.bytes(40).to_vec(), choices.bytes(40).to_vec());
            let mechanisms = [Mechanism::PlainClient(credentials.expect("short")), Mechanism::PlainServer];
            let [client, server] = mechanisms;
            if first == 1 { [client, server] } else { [server, client] }
        }
    };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let mut sides = [ours, theirs].into_iter().zip(mechanisms).map(|(socket, mechanism)| {
        let version = if choices.one_in(4) { Version::V3_0 } else { Version::V3_1 };
        let settings = Settings::new(socket).with_mechanism(mechanism).with_version(version);
        let identity = choices.bytes(20);
        let settings = settings.clone().with_identity(identity.to_vec()).unwrap_or(settings);
        Side::new(settings)
    });
    let (Some(mut one), Some(mut other)) = (sides.next(), sides.next()) else { return };
    drop(sides);
    // Either side completes the handshake after at most two commands of the other.
    for _ in 0..4 {
        one.send_to(&mut other, &steps);
        other.send_to(&mut one, &steps);
    }
    for (side, peer) in [(&mut one, theirs), (&mut other, ours)] {
        assert!(side.connection.is_open(), "{:?}", side.events);
        let ready = side.events.drain(..).find_map(|event| match event {
            Event::Ready(peer) => Some(peer.socket),
            _ => None,
        });
        assert_eq!(ready, Some(peer));
    }
    while !choices.is_over() {
        let expected = one.say(&other, &mut choices);
        one.send_to(&mut other, &steps);
        assert_eq!(other.events.drain(..).collect::<Vec<_>>(), expected);
        other.send_to(&mut one, &steps);
        one.events.retain(|event| !matches!(event, Event::Pong(_)));
        assert!(one.events.is_empty(), "{:?}", one.events);
        std::mem::swap(&mut one, &mut other);
    }
}

/// A connection with the bytes it has written, and its events.
struct Side {
    connection: Connection,
    input: Input,
    out: Outbox,
    events: Vec<Event>,
}

impl Side {
    fn new(settings: Settings) -> Side {
        let mut out = Outbox::new();
        let connection = Connection::new(Arc::new(settings), &mut out);
        Side { connection, input: Input::default(), out, events: Vec::new() }
    }

    /// Delivers the written bytes to the other side, which accepts all credentials.
    fn send_to(&mut self, other: &mut Side, steps: &[u8]) {
        for piece in pieces(&self.out.take_all(), steps) {
            other.input.extend(piece);
            while let Some(event) = other.connection.recv(&mut other.input, &mut other.out).expect("no error")
            {
                if matches!(event, Event::ClientKey(_) | Event::Credentials(_)) {
                    other.connection.accept(&mut other.out);
                }
                other.events.push(event);
            }
        }
    }

    /// Sends something that the socket type may send; returns the events of the peer.
    fn say(&mut self, peer: &Side, choices: &mut Choices<'_>) -> Vec<Event> {
        let (connection, out) = (&mut self.connection, &mut self.out);
        let topic = Bytes::copy_from_slice(choices.bytes(30));
        match (connection.settings().socket(), choices.byte() % 4) {
            (_, 0) => {
                let ttl = Duration::from_millis(u64::from(choices.short()) * 100);
                let ttl = Some(ttl).filter(|ttl| !ttl.is_zero());
                let sent = connection.ping(ttl, choices.bytes(16), out);
                if sent { vec![Event::Ping { ttl }] } else { Vec::new() }
            }
            (SocketType::Sub | SocketType::Xsub, 1) => {
                assert!(connection.cancel(&topic, out));
                vec![Event::Cancel(topic)]
            }
            (SocketType::Sub | SocketType::Xsub, _) => {
                assert!(connection.subscribe(&topic, out));
                vec![Event::Subscribe(topic)]
            }
            (SocketType::Dish, 1) => {
                assert!(connection.leave(&topic, out));
                vec![Event::Leave(topic)]
            }
            (SocketType::Dish, _) => {
                assert!(connection.join(&topic, out));
                vec![Event::Join(topic)]
            }
            (socket, _) => {
                let frames = match socket {
                    SocketType::Radio => 2,
                    _ if single(socket) => 1,
                    _ => 1 + choices.byte() % 4,
                };
                let body = |choices: &mut Choices<'_>| match socket {
                    SocketType::Radio => Bytes::copy_from_slice(choices.bytes(255)),
                    _ => choices.message(),
                };
                let frames: Vec<Bytes> = (0..frames).map(|_| body(choices)).collect();
                assert!(connection.send(&frames, out));
                if skips(peer.connection.settings().socket()) {
                    return Vec::new();
                }
                let last = frames.len() - 1;
                let event = |(at, body)| Event::Frame { body, more: at < last };
                frames.into_iter().enumerate().map(event).collect()
            }
        }
    }
}

fn single(socket: SocketType) -> bool {
    use SocketType::{Channel, Client, Gather, Peer, Scatter, Server};
    matches!(socket, Channel | Client | Gather | Peer | Scatter | Server)
}

fn skips(socket: SocketType) -> bool {
    use SocketType::{Pub, Push, Radio, Scatter};
    matches!(socket, Pub | Push | Radio | Scatter)
}

fn socket(choices: &mut Choices<'_>) -> SocketType {
    SocketType::ALL[usize::from(choices.byte()) % SocketType::ALL.len()]
}

fn mechanism(choices: &mut Choices<'_>) -> Mechanism {
    match choices.byte() % 4 {
        0 => Mechanism::PlainServer,
        1 => Mechanism::PlainClient(Credentials::new("user", "password").expect("short")),
        _ => Mechanism::Null,
    }
}

/// Returns the events, the bytes written, and the error.
fn run(
    settings: &Arc<Settings>,
    limits: &Limits,
    accepts: bool,
    bytes: &[u8],
    steps: &[u8],
) -> (Vec<Event>, Vec<u8>, String) {
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let mut connection = Connection::new(Arc::clone(settings), &mut out);
    let (mut events, mut read, mut written) = (Vec::new(), 0, Vec::new());
    let frame_max = limits.frame_bytes_max.max(limits.command_bytes_max.into()) as usize + HEADER_BYTES;
    let kept_max = frame_max.max(GREETING_BYTES);
    let mut message = 0;
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        read += piece.len();
        loop {
            let received = connection.recv(&mut input, &mut out);
            written.extend(out.take_all());
            assert!(written.len() <= read + WRITTEN_MAX, "{} bytes out for {read}", written.len());
            match received {
                Ok(Some(event)) => {
                    match &event {
                        Event::Credentials(_) if accepts => connection.accept(&mut out),
                        Event::Credentials(_) => connection.reject("400", &mut out),
                        Event::Frame { body, more } => {
                            message += body.len() as u64;
                            assert!(message <= limits.message_bytes_max, "a message of {message} bytes");
                            message = if *more { message } else { 0 };
                        }
                        Event::Subscribe(topic) | Event::Cancel(topic) => {
                            assert!(topic.len() <= limits.topic_bytes_max as usize);
                        }
                        _ => {}
                    }
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => return (events, written, error.to_string()),
            }
        }
        assert!(input.len() < kept_max, "{} bytes are kept", input.len());
    }
    (events, written, String::new())
}

/// A mostly well-formed connection, sometimes only noise.
fn input(mechanism: &Mechanism, ours: SocketType, choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = vec![0; GREETING_BYTES];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xFF, 0x7F, 3, choices.byte() % 2);
    bytes[12..12 + mechanism.name().len()].copy_from_slice(mechanism.name().as_bytes());
    if choices.one_in(16) {
        let at = usize::from(choices.byte()) % GREETING_BYTES;
        bytes[at] ^= choices.byte();
    }
    let peers = if choices.one_in(8) { &SocketType::ALL[..] } else { ours.peers() };
    let peer = peers[usize::from(choices.byte()) % peers.len()];
    let mut metadata = property("Socket-Type", peer.name().as_bytes());
    while choices.one_in(2) {
        let names = ["Identity", "X-A", "x-b", "X-C", "x-d", "Socket-Type", "", "a b"];
        let name = names[usize::from(choices.byte() % if choices.one_in(8) { 8 } else { 5 })];
        metadata.extend(property(name, choices.bytes(20)));
    }
    match mechanism {
        Mechanism::Null => command("READY", &metadata, &mut bytes),
        Mechanism::PlainClient(_) => {
            command("WELCOME", b"", &mut bytes);
            command("READY", &metadata, &mut bytes);
        }
        // The commands of CURVE are those of `zmtp_curve`.
        Mechanism::CurveClient(_) | Mechanism::CurveServer(_) => {}
        Mechanism::PlainServer => {
            let (username, password) = (choices.bytes(10), choices.bytes(10));
            let lens = [[username.len() as u8], [password.len() as u8]];
            command("HELLO", &[&lens[0], username, &lens[1], password].concat(), &mut bytes);
            command("INITIATE", &metadata, &mut bytes);
        }
    }
    while !choices.is_over() {
        match choices.byte() % 8 {
            0 => {
                let names =
                    ["PING", "PONG", "SUBSCRIBE", "CANCEL", "JOIN", "LEAVE", "ERROR", "LATER", "READY"];
                let name = names[usize::from(choices.byte()) % names.len()];
                command(name, choices.bytes(30), &mut bytes);
            }
            1 => bytes.extend(choices.bytes(10)),
            2 => frame(0, &[&[choices.byte() % 3], choices.bytes(30)].concat(), &mut bytes),
            kind => {
                let flags = if choices.one_in(64) { choices.byte() } else { kind % 2 };
                let most = if choices.one_in(4) { 255 } else { 40 };
                let body = choices.bytes(most).repeat(if choices.one_in(8) { 3 } else { 1 });
                frame(flags, &body, &mut bytes);
            }
        }
    }
    bytes
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u32).to_be_bytes();
    [&[name.len() as u8], name.as_bytes(), &len, value].concat()
}

fn command(name: &str, data: &[u8], into: &mut Vec<u8>) {
    frame(4, &[&[name.len() as u8], name.as_bytes(), data].concat(), into);
}

fn frame(flags: u8, body: &[u8], into: &mut Vec<u8>) {
    match u8::try_from(body.len()) {
        Ok(len) => into.extend([flags, len]),
        Err(_) => {
            into.push(flags | 2);
            into.extend((body.len() as u64).to_be_bytes());
        }
    }
    into.extend(body);
}

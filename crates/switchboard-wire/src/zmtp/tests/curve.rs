//! CURVE: both machines against each other, and every command changed, repeated and oversized.

mod limits;
mod tampering;

use super::*;
use crate::zmtp::{CurveClient, CurveServer, ErrorKind, PublicKey, Randomness, SecretKey};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

/// Names of the commands of a handshake, in order.
const HANDSHAKE: [&str; 4] = ["HELLO", "WELCOME", "INITIATE", "READY"];

fn secret(number: u8) -> SecretKey {
    SecretKey::new([number; 32])
}

/// Numbers that are as good as random ones for the machine, and different ones for each source.
fn random() -> Randomness {
    static SOURCES: AtomicU64 = AtomicU64::new(1);
    let state = Mutex::new(SOURCES.fetch_add(1, Ordering::Relaxed) << 32);
    Randomness::new(move |bytes| {
        for byte in bytes {
            let mut state = state.lock().unwrap();
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*state >> 56) as u8;
        }
        Ok(())
    })
}

fn server(socket: SocketType) -> Settings {
    let keys = CurveServer::new(secret(1), random());
    Settings::new(socket).with_mechanism(Mechanism::CurveServer(keys))
}

fn client(socket: SocketType) -> Settings {
    let keys = CurveClient::new(secret(2), secret(1).public_key(), random());
    Settings::new(socket).with_mechanism(Mechanism::CurveClient(keys))
}

/// One side with its events, and the bytes that it wrote.
struct Side {
    connection: Connection,
    input: Input,
    out: Outbox,
    events: Vec<Event>,
    error: Option<ProtocolError>,
}

impl Side {
    fn new(settings: Settings) -> Side {
        let mut out = Outbox::new();
        let connection = Connection::new(Arc::new(settings), &mut out);
        Side { connection, input: Input::default(), out, events: Vec::new(), error: None }
    }

    /// Reads bytes in pieces of `step`, and accepts each key.
    fn read(&mut self, bytes: &[u8], step: usize) {
        for piece in bytes.chunks(step) {
            self.input.extend(piece);
            loop {
                match self.connection.recv(&mut self.input, &mut self.out) {
                    Ok(Some(event)) => {
                        if matches!(event, Event::ClientKey(_)) {
                            let waits = self.connection.recv(&mut self.input, &mut self.out);
                            assert_eq!(waits, Ok(None), "the verdict is not there");
                            self.connection.accept(&mut self.out);
                        }
                        self.events.push(event);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        assert!(self.connection.is_closed());
                        self.error = Some(error);
                        return;
                    }
                }
            }
        }
    }

    /// Reads bytes that it must refuse; returns the error.
    fn refuses(&mut self, bytes: &[u8]) -> ProtocolError {
        let before = self.events.len();
        self.read(bytes, bytes.len());
        assert_eq!(self.events[before..], [], "events of bytes that are refused");
        self.error.clone().expect("an error")
    }

    /// The frames of messages.
    fn frames(&mut self) -> Vec<(Bytes, bool)> {
        let frame = |event| match event {
            Event::Frame { body, more } => (body, more),
            other => panic!("{other:?}"),
        };
        self.events.drain(..).map(frame).collect()
    }
}

/// Two sides before their greetings have arrived.
fn sides(ours: SocketType, theirs: SocketType) -> (Side, Side) {
    (Side::new(client(ours)), Side::new(server(theirs)))
}

/// Exchanges everything that the two sides have written, in pieces of `step` bytes.
fn exchange(one: &mut Side, other: &mut Side, step: usize) {
    loop {
        let (from_one, from_other) = (one.out.take_all(), other.out.take_all());
        if from_one.is_empty() && from_other.is_empty() {
            return;
        }
        other.read(&from_one, step);
        one.read(&from_other, step);
        assert_eq!((&one.error, &other.error), (&None, &None));
    }
}

/// Two sides after the handshake.
fn open(ours: SocketType, theirs: SocketType) -> (Side, Side) {
    let (mut client, mut server) = sides(ours, theirs);
    exchange(&mut client, &mut server, 1000);
    assert!(client.connection.is_open() && server.connection.is_open());
    client.events.clear();
    server.events.clear();
    (client, server)
}

/// Advances two sides up to the command with this number in [`HANDSHAKE`], and returns its bytes.
fn advance(client: &mut Side, server: &mut Side, command: usize) -> Vec<u8> {
    let (ours, theirs) = (client.out.take_all(), server.out.take_all());
    client.read(&theirs, 64);
    server.read(&ours, 64);
    for at in 0..command {
        let (from, to) =
            if at % 2 == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
        let bytes = from.out.take_all();
        to.read(&bytes, bytes.len());
        assert_eq!(to.error, None);
    }
    if command.is_multiple_of(2) { client.out.take_all() } else { server.out.take_all() }
}

#[test]
fn the_handshake_hands_over_the_key_of_the_client() {
    for step in [1, 2, 7, 53, 64, 200, 5000] {
        for version in [Version::V3_0, Version::V3_1] {
            let settings = client(SocketType::Dealer).with_identity("me").unwrap().with_version(version);
            let (mut one, mut other) = (Side::new(settings), Side::new(server(SocketType::Router)));
            exchange(&mut one, &mut other, step);
            let [Event::ClientKey(key), Event::Ready(peer)] = &other.events[..] else {
                panic!("{:?}", other.events)
            };
            assert_eq!(*key, secret(2).public_key());
            assert_eq!((peer.socket, &peer.identity[..]), (SocketType::Dealer, &b"me"[..]));
            assert_eq!(peer.version, version);
            assert!(matches!(&one.events[..], [Event::Ready(peer)] if peer.socket == SocketType::Router));
            assert!(one.connection.is_sealed() && other.connection.is_sealed());
        }
    }
}

#[test]
fn commands_have_the_sizes_of_the_rfc() {
    let sizes: Vec<_> = (0..4)
        .map(|command| {
            let (mut client, mut server) = sides(SocketType::Push, SocketType::Pull);
            let bytes = advance(&mut client, &mut server, command);
            let name = HANDSHAKE[command];
            let at = if bytes[0] == 4 { 2 } else { 9 };
            assert_eq!(bytes[at..=at + name.len()], [&[name.len() as u8], name.as_bytes()].concat());
            bytes.len() - at
        })
        .collect();
    let metadata = property("Socket-Type", b"PUSH").len();
    assert_eq!(sizes, [200, 168, 257 + metadata, 30 + metadata]);
    let (mut client, _) = open(SocketType::Push, SocketType::Pull);
    assert!(client.connection.send([&Bytes::from_static(b"job")], &mut client.out));
    assert_eq!(client.out.take_all().len(), 2 + 33 + 3);
}

#[test]
fn messages_of_all_sizes_arrive_in_both_directions() {
    let bodies: Vec<Bytes> = [0, 1, 30, 31, 32, 200, 222, 223, 255, 256, 1000, 8192, 8193, 100_000]
        .into_iter()
        .map(|len: usize| (0..len).map(|at| at as u8).collect::<Vec<_>>().into())
        .collect();
    for step in [1, 100, 4096, 1 << 20] {
        let (mut one, mut other) = open(SocketType::Pair, SocketType::Pair);
        for _ in 0..2 {
            for _ in 0..3 {
                assert!(one.connection.send(&bodies, &mut one.out));
            }
            let bytes = one.out.take_all();
            assert!(!bytes.windows(20).any(|window| window == &bodies[5][..20]), "nothing is readable");
            other.read(&bytes, step);
            let frames = other.frames();
            assert_eq!(frames.len(), 3 * bodies.len());
            for (at, (body, more)) in frames.into_iter().enumerate() {
                let at = at % bodies.len();
                assert_eq!((body == bodies[at], more), (true, at < bodies.len() - 1), "frame {at} by {step}");
            }
            std::mem::swap(&mut one, &mut other);
        }
    }
}

/// A read buffer whose payloads are kept, and one that copies small ones.
#[test]
fn bodies_stay_as_they_are_while_more_is_read() {
    for shares in [true, false] {
        let (mut one, mut other) = open(SocketType::Push, SocketType::Pull);
        other.input = Input::new(bytes::BytesMut::with_capacity(10_000)).sharing(shares);
        for round in 0..50u8 {
            let bodies = [Bytes::from(vec![round; 300]), Bytes::from(vec![round; 2000])];
            assert!(one.connection.send(&bodies, &mut one.out));
            other.read(&one.out.take_all(), 700);
        }
        for (at, (body, more)) in other.frames().into_iter().enumerate() {
            let (len, round) = if more { (300, at / 2) } else { (2000, at / 2) };
            assert_eq!(body, vec![round as u8; len]);
        }
    }
}

#[test]
fn commands_travel_in_boxes() {
    let (mut sub, mut publisher) = open(SocketType::Sub, SocketType::Xpub);
    assert!(sub.connection.subscribe(b"top", &mut sub.out) && sub.connection.cancel(b"top", &mut sub.out));
    assert!(sub.connection.ping(None, b"context", &mut sub.out));
    let bytes = sub.out.take_all();
    assert!(!bytes.windows(3).any(|window| window == b"top"));
    publisher.read(&bytes, 10);
    let topic = Bytes::from_static(b"top");
    let expected = [Event::Subscribe(topic.clone()), Event::Cancel(topic), Event::Ping { ttl: None }];
    assert_eq!(publisher.events, expected);
    sub.read(&publisher.out.take_all(), 10);
    assert_eq!(sub.events, [Event::Pong(Bytes::from_static(b"context"))]);
}

#[test]
fn subscriptions_of_3_0_are_messages() {
    for publisher in [SocketType::Pub, SocketType::Xpub] {
        let mut sub = Side::new(client(SocketType::Sub).with_version(Version::V3_0));
        let mut publisher = Side::new(server(publisher));
        exchange(&mut sub, &mut publisher, 100);
        publisher.events.clear();
        assert!(!sub.connection.ping(None, b"", &mut sub.out), "3.0 has no heartbeats");
        assert!(sub.connection.subscribe(b"a", &mut sub.out) && sub.connection.cancel(b"a", &mut sub.out));
        publisher.read(&sub.out.take_all(), 10);
        let topic = Bytes::from_static(b"a");
        assert_eq!(publisher.events, [Event::Subscribe(topic.clone()), Event::Cancel(topic)]);
    }
}

#[test]
fn frames_that_a_socket_does_not_read_are_skipped() {
    let (mut xsub, mut publisher) = open(SocketType::Xsub, SocketType::Pub);
    let frames = [Bytes::from_static(b"x"), Bytes::from_static(b"\x01y")];
    assert!(xsub.connection.send(&frames, &mut xsub.out));
    assert!(xsub.connection.subscribe(b"t", &mut xsub.out));
    publisher.read(&xsub.out.take_all(), 10);
    assert_eq!(publisher.events, [Event::Subscribe(Bytes::from_static(b"t"))]);
}

#[test]
fn the_peer_decides_the_socket_type_of_a_server() {
    let keys = CurveServer::new(secret(1), random());
    let settings = Settings::by_peer(&[SocketType::Xpub, SocketType::Pull]).unwrap();
    let settings = settings.with_mechanism(Mechanism::CurveServer(keys));
    for (theirs, ours) in [(SocketType::Push, SocketType::Pull), (SocketType::Sub, SocketType::Xpub)] {
        let (mut one, mut other) = (Side::new(client(theirs)), Side::new(settings.clone()));
        exchange(&mut one, &mut other, 64);
        assert_eq!(other.connection.socket(), ours);
        assert!(matches!(&one.events[..], [Event::Ready(peer)] if peer.socket == ours));
    }
    let (mut one, mut other) = (Side::new(client(SocketType::Req)), Side::new(settings));
    let initiate = advance(&mut one, &mut other, 2);
    let error = other.refuses(&initiate);
    assert_eq!(error.message(), "socket type REQ does not talk to XPUB, PULL");
    one.read(&other.out.take_all(), 1000);
    let text = "peer sent ERROR \"socket type REQ does not talk to XPUB, PULL\"";
    assert_eq!(one.error.map(|error| error.message().to_owned()).as_deref(), Some(text));
}

#[test]
fn a_rejected_key_closes_the_connection() {
    let (mut client, mut server) = sides(SocketType::Push, SocketType::Pull);
    let initiate = advance(&mut client, &mut server, 2);
    server.input.extend(&initiate);
    let event = server.connection.recv(&mut server.input, &mut server.out);
    assert_eq!(event, Ok(Some(Event::ClientKey(secret(2).public_key()))));
    server.connection.reject("400", &mut server.out);
    server.connection.accept(&mut server.out);
    assert!(server.connection.is_closed());
    client.read(&server.out.take_all(), 3);
    let error = client.error.unwrap();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Refused, "peer sent ERROR \"400\""));
    assert!(client.out.is_empty(), "clients send no ERROR");
}

#[test]
fn both_mechanisms_are_compared() {
    let (mut one, mut other) =
        (Side::new(client(SocketType::Push)), Side::new(Settings::new(SocketType::Pull)));
    let error = one.refuses(&other.out.take_all());
    assert_eq!(error.message(), "greeting has the mechanism \"NULL\"; this side has CURVE");
    let error = other.refuses(&one.out.take_all());
    assert_eq!(error.message(), "greeting has the mechanism \"CURVE\"; this side has NULL");
}

#[test]
fn a_source_without_random_bytes_ends_the_handshake() {
    let none = Randomness::new(|_| Err("no entropy".to_owned()));
    let keys = CurveClient::new(secret(2), secret(1).public_key(), none.clone());
    let settings = Settings::new(SocketType::Push).with_mechanism(Mechanism::CurveClient(keys));
    let (mut one, mut other) = (Side::new(settings), Side::new(server(SocketType::Pull)));
    let error = one.refuses(&other.out.take_all());
    assert_eq!(error.kind(), ErrorKind::Random);
    assert_eq!(error.message(), "this side has no random bytes for CURVE: no entropy");

    let keys = Mechanism::CurveServer(CurveServer::new(secret(1), none));
    let mut other_settings = Settings::new(SocketType::Pull);
    other_settings = other_settings.with_mechanism(keys);
    let (mut one, mut other) = (Side::new(client(SocketType::Push)), Side::new(other_settings));
    let hello = advance(&mut one, &mut other, 0);
    assert_eq!(other.refuses(&hello).kind(), ErrorKind::Random);
}

#[test]
fn keys_are_read_and_not_written() {
    let public = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    let text = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6";
    let key: SecretKey = text.parse().unwrap();
    assert_eq!(key.public_key().to_string(), public, "the pair of libzmq's manual");
    assert_eq!(public.parse::<PublicKey>(), Ok(key.public_key()));
    assert_eq!(format!("{key:?}"), "SecretKey(..)");
    let error = text[1..].parse::<SecretKey>().unwrap_err().to_string();
    assert_eq!(error, "39 characters of Z85, expected 40");
    let debug = format!("{:?}", client(SocketType::Push));
    assert!(debug.contains("CurveClient") && debug.contains("SecretKey(..)"), "{debug}");
}

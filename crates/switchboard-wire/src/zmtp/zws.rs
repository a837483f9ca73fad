//! ZWS 2.0 (RFC 45): ZMTP in the binary messages of a WebSocket.
//!
//! A message of the WebSocket is one frame: a byte of flags, then the body. There is no greeting; the subprotocol of
//! the WebSocket names the mechanism, whose commands come first, as on TCP. With the subprotocol `ZWS2.0` alone, each
//! side first sends its identity, and no metadata.
//!
//! [`Zws`] translates between these messages and the bytes of a [`Connection`](super::Connection), which is the same as
//! on TCP:
//!
//! ```text
//! messages ─► receive ─► Input ─► Connection ─► Outbox ─► send ─► messages
//! ```
//!
//! The WebSocket itself, with its own limits on messages, is below; the driver closes it if a message is refused.

use super::{
    ErrorKind, Limits, Mechanism, ProtocolError, SocketType, Version,
    frame::{self, Header},
    greeting::{GREETING_BYTES, Greeting},
    properties::{IDENTITY, Properties, SOCKET_TYPE},
};
use crate::{Input, Outbox};
use bytes::{Buf, BufMut, Bytes, BytesMut};

const MORE: u8 = 1;
const COMMAND: u8 = 2;

/// Subprotocol without a handshake.
pub const PLAIN_SUBPROTOCOL: &str = "ZWS2.0";

/// READY with its length, the only command of NULL's handshake.
const READY: &[u8] = b"\x05READY";

/// Returns the subprotocol for a WebSocket whose client offers `offered`, the value of `Sec-WebSocket-Protocol`; `None`
/// if it offers none for this mechanism. NULL is preferred to no handshake.
pub fn subprotocol(offered: &str, mechanism: &Mechanism) -> Option<&'static str> {
    let own: &[&'static str] = match mechanism.name() {
        "NULL" => &["ZWS2.0/NULL", PLAIN_SUBPROTOCOL],
        "PLAIN" => &["ZWS2.0/PLAIN"],
        "CURVE" => &["ZWS2.0/CURVE"],
        _ => &[],
    };
    own.iter().find(|own| offered.split(',').any(|one| one.trim() == **own)).copied()
}

/// Translates the messages of one WebSocket.
#[derive(Debug)]
pub struct Zws {
    /// Socket type of a peer without a handshake, until its identity has arrived.
    peer: Option<SocketType>,
    /// READY of this side becomes its identity.
    hides_ready: bool,
    /// Bytes of the connection's greeting that are not skipped yet.
    greeting_left: usize,
    /// Bytes of the connection that are not a whole frame yet.
    pending: BytesMut,
}

impl Zws {
    /// Creates the translation for a subprotocol with this mechanism. The greeting that the peer does not send is
    /// appended to `into`: read it with the connection at once, so that the handshake begins.
    pub fn new(mechanism: &Mechanism, into: &mut Input) -> Zws {
        Zws::with_version(Version::V3_1, mechanism, into)
    }

    /// Creates the translation for [`PLAIN_SUBPROTOCOL`], on which sides exchange identities and no socket types. The
    /// peer is taken to have the type `peer`. The connection has the mechanism NULL and the version 3.0: subscriptions
    /// are messages, and no PING is sent, as jszmq reads no commands.
    pub fn without_handshake(peer: SocketType, into: &mut Input) -> Zws {
        let zws = Zws::with_version(Version::V3_0, &Mechanism::Null, into);
        Zws { peer: Some(peer), hides_ready: true, ..zws }
    }

    fn with_version(version: Version, mechanism: &Mechanism, into: &mut Input) -> Zws {
        // Either side may be the server of the mechanism.
        Greeting::write(version, mechanism.name(), false, into.buffer());
        Zws { peer: None, hides_ready: false, greeting_left: GREETING_BYTES, pending: BytesMut::new() }
    }

    /// Translates a binary message of the peer: appends to `into` the bytes that the connection would receive on TCP.
    ///
    /// # Errors
    /// Fails on an empty message, and on flags that are reserved or that a command cannot have.
    pub fn receive(&mut self, message: &[u8], into: &mut Input) -> Result<(), ProtocolError> {
        let invalid = |why: String| Err(ProtocolError::new(ErrorKind::Frame, format!("ZWS: {why}")));
        let Some((&flags, body)) = message.split_first() else {
            return invalid("message is empty: it has no flags".to_owned());
        };
        if flags & !(MORE | COMMAND) != 0 || flags == MORE | COMMAND {
            return invalid(format!("message has the flags {flags:#04x}"));
        }
        match self.peer.take() {
            Some(_) if flags != 0 => return invalid(format!("identity has the flags {flags:#04x}")),
            Some(peer) => put_ready(peer, body, into.buffer()),
            None => put_frame(flags, body, into.buffer()),
        }
        Ok(())
    }

    /// Takes the bytes of the connection from `out` and returns the messages for the peer, in order.
    pub fn send(&mut self, out: &mut Outbox) -> Vec<Bytes> {
        self.pending.put_slice(&out.take_all());
        let greeting = self.greeting_left.min(self.pending.len());
        self.pending.advance(greeting);
        self.greeting_left -= greeting;
        let mut messages = Vec::new();
        // The connection writes well-formed frames.
        while let Ok(Some(header)) = Header::read(&self.pending)
            && let Some(bytes) = header.frame_bytes().filter(|bytes| *bytes <= self.pending.len())
        {
            let mut body = self.pending.split_to(bytes);
            body.advance(header.bytes);
            if header.command && std::mem::take(&mut self.hides_ready) {
                body = identity(&body);
                messages.push(message(0, &body));
                continue;
            }
            let command = if header.command { COMMAND } else { 0 };
            messages.push(message(command | u8::from(header.more), &body));
        }
        messages
    }
}

fn message(flags: u8, body: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(1 + body.len());
    message.put_u8(flags);
    message.put_slice(body);
    message.freeze()
}

fn put_frame(flags: u8, body: &[u8], into: &mut BytesMut) {
    let first = into.len();
    frame::write_frame_header(body.len(), flags & MORE != 0, into);
    if flags & COMMAND != 0 {
        into[first] |= frame::COMMAND;
    }
    into.put_slice(body);
}

/// Appends the READY that a peer without a handshake does not send.
fn put_ready(peer: SocketType, identity: &[u8], into: &mut BytesMut) {
    let mut body = BytesMut::from(READY);
    Properties::write(SOCKET_TYPE, peer.name().as_bytes(), &mut body);
    Properties::write(IDENTITY, identity, &mut body);
    put_frame(COMMAND, &body, into);
}

/// Returns the identity in a READY of this side.
fn identity(ready: &[u8]) -> BytesMut {
    let limits = Limits { metadata_bytes_max: u32::MAX, properties_max: u32::MAX, ..Limits::default() };
    let metadata = ready.strip_prefix(READY).unwrap_or_default();
    let mut properties = Properties::read(metadata, "READY", &limits).unwrap_or_default();
    properties.take(IDENTITY).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmtp::{Connection, Credentials, Event, Settings};
    use std::sync::Arc;

    /// One side behind a WebSocket.
    struct Side {
        connection: Connection,
        zws: Zws,
        input: Input,
        out: Outbox,
        events: Vec<Event>,
    }

    impl Side {
        fn new(settings: Settings, peer: Option<SocketType>) -> Side {
            let (mut input, mut out) = (Input::default(), Outbox::new());
            let mechanism = settings.mechanism.clone();
            let connection = Connection::new(Arc::new(settings), &mut out);
            let zws = match peer {
                Some(peer) => Zws::without_handshake(peer, &mut input),
                None => Zws::new(&mechanism, &mut input),
            };
            let mut side = Side { connection, zws, input, out, events: Vec::new() };
            side.read();
            side
        }

        fn read(&mut self) {
            while let Some(event) = self.connection.recv(&mut self.input, &mut self.out).expect("no error") {
                if matches!(event, Event::ClientKey(_) | Event::Credentials(_)) {
                    self.connection.accept(&mut self.out);
                }
                self.events.push(event);
            }
        }

        /// Sends all messages of the WebSocket to the other side, and returns them.
        fn deliver(&mut self, other: &mut Side) -> Vec<Bytes> {
            let messages = self.zws.send(&mut self.out);
            for message in &messages {
                other.zws.receive(message, &mut other.input).expect("a valid message");
                other.read();
            }
            messages
        }
    }

    fn exchange(one: &mut Side, other: &mut Side) {
        while !(one.deliver(other).is_empty() & other.deliver(one).is_empty()) {}
        assert!(one.connection.is_open() && other.connection.is_open());
    }

    fn ready(side: &mut Side) -> Bytes {
        let ready = side.events.drain(..).find_map(|event| match event {
            Event::Ready(peer) => Some(peer.identity),
            _ => None,
        });
        ready.expect("a handshake")
    }

    fn check(one: Settings, other: Settings, types: Option<[SocketType; 2]>) {
        let (mut one, mut other) =
            (Side::new(one, types.map(|types| types[1])), Side::new(other, types.map(|types| types[0])));
        exchange(&mut one, &mut other);
        assert_eq!((ready(&mut other), ready(&mut one)), (Bytes::from_static(b"me"), Bytes::new()));
        let bodies = [Bytes::new(), Bytes::from(vec![7; 255]), Bytes::from(vec![8; 70_000])];
        for _ in 0..2 {
            assert!(one.connection.send(&bodies, &mut one.out));
            let has_pings = types.is_none();
            assert_eq!(one.connection.ping(None, b"context", &mut one.out), has_pings);
            let messages = 3 + usize::from(has_pings);
            assert_eq!(one.deliver(&mut other).len(), messages, "each frame is a message");
            let last = bodies.len() - 1;
            let frame = |(at, body): (usize, &Bytes)| Event::Frame { body: body.clone(), more: at < last };
            let mut expected: Vec<_> = bodies.iter().enumerate().map(frame).collect();
            expected.extend(has_pings.then_some(Event::Ping { ttl: None }));
            assert_eq!(std::mem::take(&mut other.events), expected);
            other.deliver(&mut one);
            let pong = has_pings.then_some(Event::Pong(Bytes::from_static(b"context")));
            assert_eq!(std::mem::take(&mut one.events), Vec::from_iter(pong));
            std::mem::swap(&mut one, &mut other);
        }
    }

    fn pair() -> (Settings, Settings) {
        let dealer = Settings::new(SocketType::Dealer).with_identity("me").expect("an identity");
        (dealer, Settings::new(SocketType::Router))
    }

    #[test]
    fn each_mechanism_works_in_messages() {
        let (dealer, router) = pair();
        check(dealer.clone(), router.clone(), None);
        check(dealer.clone(), router.clone(), Some([SocketType::Dealer, SocketType::Router]));
        let credentials = Credentials::new("user", "password").expect("short");
        check(
            dealer.with_mechanism(Mechanism::PlainClient(credentials)),
            router.with_mechanism(Mechanism::PlainServer),
            None,
        );
    }

    #[cfg(feature = "curve")]
    #[test]
    fn curve_works_in_messages() {
        use crate::zmtp::{CurveClient, CurveServer, Randomness, SecretKey};

        let random = |number| {
            Randomness::new(move |bytes| {
                bytes.fill(number);
                Ok(())
            })
        };
        let (dealer, router) = pair();
        let [client, server] = [1, 2].map(|number| SecretKey::new([number; 32]));
        let client = CurveClient::new(client, server.public_key(), random(3));
        check(
            dealer.with_mechanism(Mechanism::CurveClient(client)),
            router.with_mechanism(Mechanism::CurveServer(CurveServer::new(server, random(4)))),
            None,
        );
    }

    /// The bytes of RFC 45.
    #[test]
    fn a_message_has_flags_and_a_body() {
        let (dealer, router) = pair();
        let mut one = Side::new(dealer.clone(), Some(SocketType::Router));
        assert_eq!(one.zws.send(&mut one.out), [&b"\0me"[..]], "the identity comes first");
        let mut other = Side::new(router, Some(SocketType::Dealer));
        assert_eq!(other.zws.send(&mut other.out), [&b"\0"[..]], "an empty identity");
        other.zws.receive(b"\0me", &mut other.input).expect("an identity");
        other.read();
        assert_eq!(ready(&mut other), "me");
        let frames = [Bytes::from_static(b"a"), Bytes::from_static(b"bc")];
        assert!(other.connection.send(&frames, &mut other.out));
        assert_eq!(other.zws.send(&mut other.out), [&b"\x01a"[..], b"\0bc"]);
        let mut null = Side::new(dealer, None);
        assert!(null.zws.send(&mut null.out)[0].starts_with(b"\x02\x05READY\x0bSocket-Type"));
    }

    #[test]
    fn other_messages_are_refused() {
        let mut input = Input::default();
        let mut zws = Zws::new(&Mechanism::Null, &mut input);
        let before = input.len();
        for (message, text) in [
            (&b""[..], "zmtp: ZWS: message is empty: it has no flags"),
            (b"\x03x", "zmtp: ZWS: message has the flags 0x03"),
            (b"\x04x", "zmtp: ZWS: message has the flags 0x04"),
            (b"\xFF", "zmtp: ZWS: message has the flags 0xff"),
        ] {
            let error = zws.receive(message, &mut input).expect_err(text);
            assert_eq!((error.to_string().as_str(), input.len()), (text, before));
        }
        let mut zws = Zws::without_handshake(SocketType::Dealer, &mut input);
        let error = zws.receive(b"\x01me", &mut input).expect_err("an identity is one frame");
        assert_eq!(error.to_string(), "zmtp: ZWS: identity has the flags 0x01");
    }

    #[test]
    fn the_subprotocol_has_the_mechanism() {
        let plain = Mechanism::PlainServer;
        for (offered, mechanism, expected) in [
            ("ZWS2.0", &Mechanism::Null, Some("ZWS2.0")),
            ("ZWS2.0, ZWS2.0/NULL", &Mechanism::Null, Some("ZWS2.0/NULL")),
            ("other,ZWS2.0/PLAIN", &plain, Some("ZWS2.0/PLAIN")),
            ("ZWS2.0, ZWS2.0/NULL, ZWS2.0/CURVE", &plain, None),
            ("zws2.0", &Mechanism::Null, None),
            ("", &Mechanism::Null, None),
        ] {
            assert_eq!(subprotocol(offered, mechanism), expected, "{offered}");
        }
    }
}

//! Conversations with the server's machine, as bytes.

mod connect;
mod messages;
mod sessions;

use super::{Accept, Limits, ProtocolError, Server, ServerEvent};
use crate::{Input, Outbox};

/// CONNECT of version 3.1.1 with the client identifier `c`, a clean session and keep alive 60.
const CONNECT_V4: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c";
/// CONNECT of version 5 without properties.
const CONNECT_V5: &[u8] = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01c";
/// CONNACK of version 5 with the default limits of the server: receive maximum 100, 256 KiB, 16 aliases.
const CONNACK_V5: &[u8] = b"\x20\x0e\0\0\x0b\x21\0\x64\x27\0\x04\0\0\x22\0\x10";
const CONNACK_V4: &[u8] = b"\x20\x02\0\0";

/// Events, output and error of a machine.
type Outcome = (Vec<ServerEvent>, Vec<u8>, Option<ProtocolError>);

/// Feeds a server with pieces of `step` bytes. It accepts every client.
fn feed(server: &mut Server, bytes: &[u8], step: usize) -> Outcome {
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match server.recv(&mut input, &mut out) {
                Ok(Some(event)) => {
                    server.accept(&Accept::default(), &mut out);
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => {
                    input.extend(b"late");
                    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
                    assert!(input.is_empty() && server.is_closed(), "nothing is kept after an error");
                    return (events, out.take_all(), Some(error));
                }
            }
        }
    }
    (events, out.take_all(), None)
}

/// Feeds a new server in many splits, whose outcome must be equal.
fn served_with(limits: Limits, bytes: &[u8]) -> Outcome {
    let run = |step| feed(&mut Server::new(limits), bytes, step);
    let whole = run(bytes.len());
    for step in [1, 2, 3, 7, 20] {
        assert_eq!(run(step), whole, "by {step}");
    }
    whole
}

/// Feeds a new server with a CONNECT and further bytes; returns the events after it, the output after CONNACK, and the
/// name of the error.
fn served(connect: &[u8], bytes: &[u8]) -> (Vec<ServerEvent>, Vec<u8>, Option<&'static str>) {
    let (mut events, out, error) = served_with(Limits::server(), &[connect, bytes].concat());
    assert!(matches!(events.remove(0), ServerEvent::Connect(_)));
    let connack = if connect == CONNECT_V5 { CONNACK_V5 } else { CONNACK_V4 };
    let rest = out.strip_prefix(connack).expect("CONNACK is the first packet");
    (events, rest.to_vec(), error.map(|error| error.kind().name()))
}

/// Returns the output and the name of the error of a connection that begins with these bytes.
fn refused(bytes: &[u8]) -> (Vec<u8>, &'static str) {
    let (events, out, error) = served_with(Limits::server(), bytes);
    assert_eq!(events, []);
    (out, error.expect("an error").kind().name())
}

/// Returns DISCONNECT with a code and its name.
fn disconnect(code: u8) -> Vec<u8> {
    let name = super::Reason(code).name();
    let lens = [code, name.len() as u8 + 3, 0x1f, 0, name.len() as u8];
    packet(0xe0, &[&lens[..], name.as_bytes()].concat())
}

/// Makes a packet of a first byte and a body.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = bytes::BytesMut::from(&[first][..]);
    super::fields::put_varint(&mut bytes, body.len());
    bytes.extend_from_slice(body);
    bytes.to_vec()
}

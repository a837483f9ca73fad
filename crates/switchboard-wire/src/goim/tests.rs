mod bad_input;
mod client;
mod golden;
mod imcloud;
mod server;

use super::{
    Auth, Client, ClientEvent, ErrorKind, Event, Limits, ProtocolError, Push, PushForm, PushLimits, Refusal,
    Server, Variant, Variants, operation,
};
use crate::{Input, Outbox};
use bytes::{Bytes, BytesMut};

/// Result of a connection: events, output, and the error that ended it.
type Outcome = (Vec<Event>, Vec<u8>, Option<ProtocolError>);

/// Number of connections in every room of these tests.
const ROOM_CONNECTIONS: u32 = 259;

/// Feeds a connection with pieces of `step` bytes. All credentials are accepted.
fn run(variants: Variants, limits: &Limits, bytes: &[u8], step: usize) -> Outcome {
    let mut server = Server::new(variants);
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match server.recv(&mut input, limits, &mut out) {
                Ok(Some(event)) => {
                    if server.is_waiting() {
                        assert_eq!(
                            server.recv(&mut input, limits, &mut out),
                            Ok(None),
                            "waits for the reply"
                        );
                    }
                    match event {
                        Event::Auth(_) => server.accept(&mut out),
                        Event::Heartbeat => server.heartbeat(ROOM_CONNECTIONS, &mut out),
                        _ => {}
                    }
                    assert!(!server.is_waiting());
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(server.is_closed());
                    input.extend(b"late");
                    assert_eq!(server.recv(&mut input, limits, &mut out), Ok(None));
                    assert!(input.is_empty(), "nothing is kept after an error");
                    return (events, out.take_all(), Some(error));
                }
            }
        }
    }
    (events, out.take_all(), None)
}

/// Feeds the same bytes in many splits; the outcome must not depend on them.
fn run_split(variants: Variants, bytes: &[u8]) -> Outcome {
    let limits = Limits::default();
    let whole = run(variants, &limits, bytes, bytes.len());
    for step in [1, 2, 3, 5, 7, 16, 61] {
        assert_eq!(run(variants, &limits, bytes, step), whole, "by {step}");
    }
    whole
}

/// Returns a packet, written independently of the machines.
fn packet(version: i16, operation: i32, sequence: i32, body: &[u8]) -> Vec<u8> {
    let mut packet = (16 + body.len() as i32).to_be_bytes().to_vec();
    packet.extend([0, 16]);
    packet.extend(version.to_be_bytes());
    packet.extend(operation.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(body);
    packet
}

/// Returns the packet of an authentication that every variant accepts.
fn auth_packet() -> Vec<u8> {
    packet(1, operation::AUTH, 1, br#"{"mid":1,"room_id":"live://1","platform":"web","accepts":[1000]}"#)
}

/// Returns the events and the output after an accepted authentication.
fn after_auth(variant: Variant, bytes: &[u8]) -> Outcome {
    let before = run_split(Variants::Only(variant), &auth_packet());
    let (mut events, output, error) = run_split(Variants::Only(variant), &[&auth_packet(), bytes].concat());
    assert!(matches!(events.remove(0), Event::Auth(_)));
    (events, output[before.1.len()..].to_vec(), error)
}

//! Bytes in hexadecimal were written by libzmq 4.3.5.

#[cfg(feature = "curve")]
mod curve;
mod golden;
mod handshake;
mod limits;
mod messages;

use super::{Connection, Event, GREETING_BYTES, Mechanism, ProtocolError, Settings, SocketType, Version};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::sync::Arc;

/// Result of a connection: events, output after the greeting, and the error that ended it.
type Outcome = (Vec<Event>, Vec<u8>, Option<ProtocolError>);

/// Feeds a connection with pieces of `step` bytes. It accepts all credentials.
fn run(settings: Settings, bytes: &[u8], step: usize) -> Outcome {
    let mut out = Outbox::new();
    let mut connection = Connection::new(Arc::new(settings), &mut out);
    assert_eq!(out.take_all().len(), GREETING_BYTES);
    let (mut input, mut events) = (Input::default(), Vec::new());
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match connection.recv(&mut input, &mut out) {
                Ok(Some(event)) => {
                    let is_credentials = matches!(event, Event::Credentials(_));
                    events.push(event);
                    if is_credentials {
                        assert_eq!(connection.recv(&mut input, &mut out), Ok(None), "waits for the verdict");
                        connection.accept(&mut out);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(connection.is_closed());
                    input.extend(b"late");
                    assert_eq!(connection.recv(&mut input, &mut out), Ok(None));
                    assert!(input.is_empty(), "nothing is kept after an error");
                    return (events, out.take_all(), Some(error));
                }
            }
        }
    }
    (events, out.take_all(), None)
}

/// Feeds the same bytes in many splits; the outcome must not depend on them.
fn run_split(settings: &Settings, bytes: &[u8]) -> Outcome {
    let whole = run(settings.clone(), bytes, bytes.len());
    for step in [1, 2, 3, 10, 53, 64, 100] {
        assert_eq!(run(settings.clone(), bytes, step), whole, "by {step}");
    }
    whole
}

/// Runs the handshake and then `bytes`; returns the events after the handshake, the output after it, and the error.
fn traffic(ours: SocketType, theirs: SocketType, bytes: &[u8]) -> Outcome {
    traffic_with(&Settings::new(ours), theirs, bytes)
}

fn traffic_with(settings: &Settings, theirs: SocketType, bytes: &[u8]) -> Outcome {
    let hello = [greeting("NULL", 1), ready(theirs)].concat();
    let (.., written, error) = run(settings.clone(), &hello, hello.len());
    assert_eq!(error, None);
    let (mut events, out, error) = run_split(settings, &[&hello, bytes].concat());
    assert!(matches!(events.remove(0), Event::Ready(_)));
    (events, out[written.len()..].to_vec(), error)
}

/// A greeting of version 3 with this minor version.
fn greeting(mechanism: &str, minor: u8) -> Vec<u8> {
    let mut bytes = vec![0; GREETING_BYTES];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xFF, 0x7F, 3, minor);
    bytes[12..12 + mechanism.len()].copy_from_slice(mechanism.as_bytes());
    bytes
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u32).to_be_bytes();
    [&[name.len() as u8], name.as_bytes(), &len, value].concat()
}

fn command(name: &str, data: &[u8]) -> Vec<u8> {
    frame(4, &[&[name.len() as u8], name.as_bytes(), data].concat())
}

fn ready(socket: SocketType) -> Vec<u8> {
    command("READY", &property("Socket-Type", socket.name().as_bytes()))
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    match u8::try_from(body.len()) {
        Ok(len) => [&[flags, len], body].concat(),
        Err(_) => [&[flags | 2][..], &(body.len() as u64).to_be_bytes(), body].concat(),
    }
}

fn body(body: &[u8], more: bool) -> Event {
    Event::Frame { body: Bytes::copy_from_slice(body), more }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

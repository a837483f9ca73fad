mod bad_input;
mod client;
mod commands;
mod conversation;
mod limits;
mod subscriptions;
mod values;

use super::{
    Client, ClientEvent, ErrorKind, Event, Limits, ProtocolError, ReplyLimits, Server, Settings,
    SubscriptionKind, Value, Version,
};
use crate::{Input, Outbox, Outgoing};
use bytes::Bytes;
use std::sync::Arc;

/// Number of the connection in these tests.
const ID: u64 = 7;

/// Result of a connection: events, output, and the error that ended it.
type Outcome = (Vec<Event>, String, Option<ProtocolError>);

/// Responds to an event as these tests do: everything is accepted, except the user "mallory" and names with "secret".
fn respond(server: &mut Server, event: &Event, out: &mut Outbox) {
    match event {
        Event::Auth(credentials) if credentials.username().is_some_and(|name| name == &b"mallory"[..]) => {
            server.reject(out);
        }
        Event::Subscribe { name, .. } if name.starts_with(b"secret") => {
            server.refuse("NOPERM", "no permission for this channel", out);
        }
        Event::Auth(_) | Event::Subscribe { .. } => server.accept(out),
        Event::Call { payload, .. } => server.called(Ok(payload), out),
        Event::Channels { .. } => server.channels(["a", "b"], out),
        Event::Patterns => server.patterns(3, out),
        Event::Publish { .. } => server.published(2, out),
        Event::Subscribers { .. } => server.subscribers(|channel| channel.len() as u64, out),
        Event::Responded { .. } | Event::Quit | Event::Reset | Event::Unsubscribe { .. } => {}
    }
    assert!(!server.is_waiting(), "{event:?}");
}

/// Feeds a connection with pieces of `step` bytes.
fn run(settings: &Settings, bytes: &[u8], step: usize) -> Outcome {
    let mut server = Server::new(Arc::new(settings.clone()), ID);
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    let mut error = None;
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match server.recv(&mut input, &mut out) {
                Ok(Some(event)) => {
                    if server.is_waiting() {
                        assert_eq!(server.recv(&mut input, &mut out), Ok(None), "waits for the reply");
                    }
                    respond(&mut server, &event, &mut out);
                    events.push(event);
                }
                Ok(None) => break,
                Err(found) => {
                    assert!(server.is_closed());
                    input.extend(b"late");
                    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
                    assert!(input.is_empty(), "nothing is kept after an error");
                    error = Some(found);
                }
            }
        }
    }
    (events, String::from_utf8(out.take_all()).unwrap(), error)
}

/// Feeds the same bytes in many splits; the outcome must not depend on them.
fn run_split(settings: &Settings, bytes: &[u8]) -> Outcome {
    let whole = run(settings, bytes, bytes.len());
    for step in [1, 2, 3, 5, 7, 16, 61] {
        assert_eq!(run(settings, bytes, step), whole, "by {step}");
    }
    whole
}

/// Returns the output for these commands, each a line of words.
fn output(settings: &Settings, commands: &[&str]) -> String {
    let (_, output, error) = run_split(settings, &requests(commands));
    assert_eq!(error, None);
    output
}

fn requests(commands: &[&str]) -> Vec<u8> {
    commands.iter().flat_map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect()
}

fn request(arguments: &[&str]) -> Vec<u8> {
    let mut out = Outbox::new();
    super::write_command(arguments.iter().map(|argument| Outgoing::Lent(argument.as_bytes())), &mut out);
    out.take_all()
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

//! Conversations with one machine, and the bounds of its work.

mod client;
mod limits;
mod server;

use super::{
    Client, ClientEvent, Connect, ErrorKind, Headers, Info, Limits, Message, ProtocolError, SendError,
    Server, ServerEvent,
};
use crate::{Input, Outbox};
use bytes::Bytes;
use std::num::NonZeroU64;

/// Result of a machine: events, output, and the error that ended it.
type Outcome<E> = (Vec<E>, String, Option<ProtocolError>);

/// Feeds a machine with pieces of `step` bytes.
fn feed<E: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    step: usize,
    out: &mut Outbox,
    mut recv: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, ProtocolError>,
) -> Outcome<E> {
    let (mut input, mut events) = (Input::default(), Vec::new());
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match recv(&mut input, out) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    input.extend(b"late");
                    assert_eq!(recv(&mut input, out), Ok(None));
                    assert!(input.is_empty(), "nothing is kept after an error");
                    return (events, text(out), Some(error));
                }
            }
        }
    }
    (events, text(out), None)
}

fn text(out: &mut Outbox) -> String {
    String::from_utf8(out.take_all()).unwrap()
}

/// Feeds a server in many splits, whose outcome must be equal. All credentials are accepted. INFO is not returned.
fn served_with(info: &Info, limits: Limits, bytes: &[u8]) -> Outcome<ServerEvent> {
    let run = |step| {
        let mut out = Outbox::new();
        let mut server = Server::new(info, limits, &mut out);
        assert!(text(&mut out).starts_with("INFO {"));
        feed(bytes, step, &mut out, |input, out| {
            let event = server.recv(input, out)?;
            if info.auth_required && matches!(event, Some(ServerEvent::Connect(_))) {
                assert_eq!(server.recv(input, out), Ok(None), "waits for the verdict");
                server.accept();
            }
            Ok(event)
        })
    };
    let whole = run(bytes.len());
    for step in [1, 2, 3, 7, 20, 64] {
        assert_eq!(run(step), whole, "by {step}");
    }
    whole
}

/// Feeds a server whose client is neither verbose nor pedantic; the event of CONNECT is not returned.
fn served(bytes: &[u8]) -> Outcome<ServerEvent> {
    let connect = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\n";
    let bytes = [&connect[..], bytes].concat();
    let (mut events, out, error) = served_with(&Info::default(), Limits::server(), &bytes);
    assert!(matches!(events.remove(0), ServerEvent::Connect(_)));
    (events, out, error)
}

/// Feeds a client that has sent CONNECT, in many splits, whose outcome must be equal.
fn called(limits: Limits, bytes: &[u8]) -> Outcome<ClientEvent> {
    let run = |step| {
        let mut out = Outbox::new();
        let mut client = connected(limits, &Info { headers: true, max_payload: 100, ..Info::default() });
        feed(bytes, step, &mut out, |input, out| client.recv(input, out))
    };
    let whole = run(bytes.len());
    for step in [1, 2, 3, 7, 20, 64] {
        assert_eq!(run(step), whole, "by {step}");
    }
    whole
}

fn connected(limits: Limits, info: &Info) -> Client {
    let mut out = Outbox::new();
    info.write(&mut out);
    let mut input = Input::default();
    input.extend(&out.take_all());
    let mut client = Client::new(limits);
    assert!(matches!(client.recv(&mut input, &mut out), Ok(Some(ClientEvent::Info(_)))));
    client.connect(&Connect::default(), &mut out).unwrap();
    client
}

fn message(subject: &str, reply: Option<&str>, payload: &str) -> Message {
    let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Message { subject: copy(subject), reply: reply.map(copy), headers: None, payload: copy(payload) }
}

#[test]
fn each_byte_is_examined_once_however_it_arrives() {
    let long = format!("PUB {} 100000\r\n{}\r\n", "a".repeat(1000), "x".repeat(100_000));
    let line = format!("SUB {} 1\r\n", "a".repeat(1000));
    for (bytes, examined_max) in [(&long, 1100), (&line, 1100)] {
        for step in [1, 10, 1000, bytes.len()] {
            let mut out = Outbox::new();
            let mut server = Server::new(&Info::default(), Limits::server(), &mut out);
            crate::work::take();
            let (events, ..) = feed(bytes.as_bytes(), step, &mut out, |input, out| server.recv(input, out));
            let examined = crate::work::take();
            assert_eq!(events.len(), 1);
            assert!(examined <= examined_max, "{examined} bytes by {step}");
        }
    }
}

#[test]
fn sizes_allocate_nothing_before_their_bytes_arrive() {
    let mut out = Outbox::new();
    let limits = Limits { payload_bytes_max: u32::MAX, headers_bytes_max: u32::MAX, ..Limits::server() };
    let mut server = Server::new(&Info::default(), limits, &mut out);
    let mut input = Input::default();
    input.extend(b"HPUB a 4294967295 4294967295\r\nNATS");
    assert_eq!(server.recv(&mut input, &mut out), Ok(None));
    assert!(input.buffer().capacity() < 1000);
}

#[test]
fn one_machine_understands_the_other() {
    let mut out = Outbox::new();
    let info = Info { headers: true, ..Info::default() };
    let mut server = Server::new(&info, Limits::server(), &mut out);
    let mut client = Client::new(Limits::client());
    let (mut at_client, mut at_server) = (Input::default(), Input::default());
    at_client.extend(&out.take_all());
    let event = client.recv(&mut at_client, &mut out).unwrap();
    let expected = Info { max_payload: 1 << 20, ..info };
    assert_eq!(event, Some(ClientEvent::Info(Box::new(expected))));

    let options = Connect { verbose: false, headers: true, no_responders: true, ..Connect::default() };
    client.connect(&options, &mut out).unwrap();
    client.subscribe(b"a.*", Some(b"workers"), b"7", &mut out).unwrap();
    client.unsubscribe(b"7", NonZeroU64::new(u64::MAX), &mut out).unwrap();
    client.unsubscribe(b"7", None, &mut out).unwrap();
    let headers = Headers::new([("A", &b"1"[..])]).unwrap();
    let published = Message { headers: Some(headers), ..message("a.b", Some("_INBOX.1"), "hello") };
    client.publish(&published.outgoing(), &mut out).unwrap();
    assert!(client.ping(&mut out));
    at_server.extend(&out.take_all());
    let mut next = |out: &mut Outbox| server.recv(&mut at_server, out).unwrap();
    let copy = Bytes::from_static;
    assert_eq!(next(&mut out), Some(ServerEvent::Connect(Box::new(options))));
    let subscribed =
        ServerEvent::Subscribe { pattern: copy(b"a.*"), queue: Some(copy(b"workers")), sid: copy(b"7") };
    assert_eq!(next(&mut out), Some(subscribed));
    let max = NonZeroU64::new(u64::MAX);
    assert_eq!(next(&mut out), Some(ServerEvent::Unsubscribe { sid: copy(b"7"), max }));
    assert_eq!(next(&mut out), Some(ServerEvent::Unsubscribe { sid: copy(b"7"), max: None }));
    assert_eq!(next(&mut out), Some(ServerEvent::Publish(published.clone())));
    assert_eq!(next(&mut out), Some(ServerEvent::Ping));
    assert_eq!(next(&mut out), None);

    server.send(b"7", &published.outgoing(), &mut out).unwrap();
    assert_eq!(server.no_responders(b"8", b"_INBOX.1", &mut out), Ok(true));
    server.deny(ErrorKind::PublishDenied, b"a.b", &mut out);
    server.close(ErrorKind::SlowConsumer, &mut out);
    at_client.extend(&out.take_all());
    let mut next = |out: &mut Outbox| client.recv(&mut at_client, out).unwrap();
    assert_eq!(next(&mut out), Some(ClientEvent::Pong));
    assert_eq!(next(&mut out), Some(ClientEvent::Message { sid: copy(b"7"), message: published }));
    let Some(ClientEvent::Message { sid, message }) = next(&mut out) else { panic!("a message") };
    assert_eq!((&sid[..], &message.subject[..], message.payload.len()), (&b"8"[..], &b"_INBOX.1"[..], 0));
    assert_eq!(message.headers.and_then(|headers| headers.status()), Some(503));
    let Some(ClientEvent::Error(error)) = next(&mut out) else { panic!("an error") };
    assert_eq!(error.text, "Permissions Violation for Publish to \"a.b\"");
    assert_eq!((error.kind, error.closes()), (Some(ErrorKind::PublishDenied), false));
    let Some(ClientEvent::Error(error)) = next(&mut out) else { panic!("an error") };
    assert_eq!((error.kind, error.closes()), (Some(ErrorKind::SlowConsumer), true));
    assert!(client.is_closed() && server.is_closed());
}

//! The machines of NATS against arbitrary bytes and against each other.

use super::{Choices, feed::pieces};
use crate::{
    Input, Outbox,
    nats::{
        Client, ClientEvent, Connect, Credentials, ErrorKind, Headers, Info, Limits, Message, ProtocolError,
        Server, ServerEvent, subject,
    },
};
use bytes::Bytes;
use std::{fmt::Debug, num::NonZeroU64};

/// Bytes that a machine writes at most for one event or error: `-ERR` with its text.
const WRITTEN_MAX: usize = 64;

/// Events, output and error of a machine.
type Outcome<E> = (Vec<E>, Vec<u8>, Option<ProtocolError>);

/// Feeds a server and a client with any bytes. Checks that they do not panic, that the events do not depend on the
/// split, that they respect the limits, and that the output is bounded.
///
/// # Panics
/// If the property does not hold.
pub fn nats_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    // Limits that most inputs of this size respect, or any.
    let least = if choices.one_in(4) { 0 } else { 100 };
    let limits = Limits {
        control_line_bytes_max: least + u32::from(choices.byte()),
        headers_bytes_max: least + u32::from(choices.byte()),
        headers_max: u32::from(choices.byte() % 8),
        info_bytes_max: 2 * least + u32::from(choices.byte()),
        payload_bytes_max: least + u32::from(choices.short() % 1000),
        sid_bytes_max: 1 + u32::from(choices.byte() % 20),
        subject_bytes_max: 1 + u32::from(choices.byte() % 60),
    };
    let flags = choices.byte();
    let info = Info { auth_required: flags & 3 == 3, tls_required: flags & 28 == 28, ..Info::default() };
    let accepts = flags & 96 != 96;
    let denies = flags & 128 != 0;
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    if choices.one_in(2) {
        let tls: &[u8] = if info.tls_required && !choices.one_in(4) { &[0x16] } else { &[] };
        let bytes = [tls, &lines(&CLIENT_VERBS, &mut choices)].concat();
        let run = |steps: &[u8]| served(&info, limits, accepts, denies, &bytes, steps);
        assert_eq!(run(&steps), run(&[]));
    } else {
        let bytes = lines(&SERVER_VERBS, &mut choices);
        let run = |steps: &[u8]| called(limits, &bytes, steps);
        assert_eq!(run(&steps), run(&[]));
    }
}

/// Runs a server. Every command of a client is answered at random, but in every run in the same way.
fn served(
    info: &Info,
    limits: Limits,
    accepts: bool,
    denies: bool,
    bytes: &[u8],
    steps: &[u8],
) -> Outcome<ServerEvent> {
    let mut out = Outbox::new();
    let mut server = Server::new(info, limits, &mut out);
    out.take_all();
    feed(&limits, bytes, steps, |input, out| {
        let event = server.recv(input, out)?;
        match &event {
            Some(ServerEvent::Connect(_)) if info.auth_required => {
                assert_eq!(server.recv(input, out), Ok(None));
                if accepts {
                    server.accept();
                } else {
                    server.reject(out);
                }
            }
            Some(ServerEvent::Tls) => {
                assert_eq!((server.recv(input, out), input.rest().first()), (Ok(None), Some(&0x16)));
                input.skip(1);
                server.secured();
            }
            Some(ServerEvent::Publish(message)) => {
                check_message(message, &limits);
                assert!(subject::check_subject(&message.subject).is_ok());
                assert!(subject::topic_of(&message.subject).is_ok());
                if denies {
                    server.deny(ErrorKind::PublishDenied, b"x", out);
                }
            }
            Some(ServerEvent::Subscribe { pattern, queue, sid }) => {
                assert!(subject::topics_of(pattern).is_ok());
                assert!(pattern.len() <= limits.subject_bytes_max as usize);
                assert!(queue.as_ref().is_none_or(|queue| queue.len() <= limits.subject_bytes_max as usize));
                assert!(sid.len() <= limits.sid_bytes_max as usize);
            }
            _ => {}
        }
        Ok(event)
    })
}

fn called(limits: Limits, bytes: &[u8], steps: &[u8]) -> Outcome<ClientEvent> {
    let mut client = Client::new(limits);
    feed(&limits, bytes, steps, |input, out| {
        let event = client.recv(input, out)?;
        if let Some(ClientEvent::Message { message, .. }) = &event {
            check_message(message, &limits);
        }
        Ok(event)
    })
}

fn check_message(message: &Message, limits: &Limits) {
    let block = message.headers.as_ref().map_or(0, |headers| headers.block().len());
    assert!(message.payload.len() + block <= limits.payload_bytes_max as usize);
    assert!(block <= limits.headers_bytes_max as usize);
    if let Some(headers) = &message.headers {
        assert!(headers.iter().count() <= limits.headers_max as usize);
        let _ = (headers.status(), headers.status_text());
    }
}

/// Feeds a machine with pieces of the bytes.
fn feed<E: Debug>(
    limits: &Limits,
    bytes: &[u8],
    steps: &[u8],
    mut recv: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, ProtocolError>,
) -> Outcome<E> {
    let line_max = limits.control_line_bytes_max.max(limits.info_bytes_max) as usize + 2;
    let kept_max = line_max + limits.payload_bytes_max as usize + 2;
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut written) = (Vec::new(), Vec::new());
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        loop {
            let received = recv(&mut input, &mut out);
            assert!(out.len() <= 2 * WRITTEN_MAX, "{} bytes for one event", out.len());
            written.extend(out.take_all());
            match received {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, written, Some(error)),
            }
        }
        assert!(input.len() < kept_max, "{} bytes are kept", input.len());
    }
    (events, written, None)
}

const CLIENT_VERBS: [&str; 9] =
    ["PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "connect {}", "CONNECT {\"verbose\":false}", "MSG"];
const SERVER_VERBS: [&str; 9] =
    ["MSG", "HMSG", "PING", "pong", "+OK", "-ERR", "INFO {}", "INFO {\"max_payload\":9}", "PUB"];

/// Mostly well-formed commands, sometimes only noise.
fn lines(verbs: &[&str; 9], choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    if !choices.one_in(8) {
        bytes.extend(verbs[6 + usize::from(choices.byte() % 2)].as_bytes());
        bytes.extend(b"\r\n");
    }
    while !choices.is_over() {
        let verb = usize::from(choices.byte()) % if choices.one_in(16) { 9 } else { 6 };
        let with_sid = verbs[0] == "MSG";
        if choices.one_in(32) {
            bytes.extend(choices.bytes(10));
        }
        bytes.extend(verbs[verb].as_bytes());
        match verb {
            0 | 1 => {
                field(choices, &mut bytes);
                if with_sid {
                    bytes.extend(b" 7");
                }
                if choices.one_in(3) {
                    field(choices, &mut bytes);
                }
                let block = if verb == 1 { block(choices) } else { Vec::new() };
                let payload = choices.bytes(40).repeat(if choices.one_in(8) { 30 } else { 1 });
                if verb == 1 {
                    bytes.extend(format!(" {}", damaged(block.len(), choices)).as_bytes());
                }
                bytes.extend(format!(" {}", damaged(block.len() + payload.len(), choices)).as_bytes());
                end(choices, &mut bytes);
                bytes.extend(block);
                bytes.extend(payload);
            }
            2 | 3 => {
                for _ in 0..choices.byte() % 4 {
                    field(choices, &mut bytes);
                }
                bytes.extend(format!(" {}", choices.byte() % 8).as_bytes());
            }
            5 => {
                let texts = ["", "", " 'Slow Consumer'", " 'Invalid Subject'", " x"];
                bytes.extend(texts[usize::from(choices.byte()) % texts.len()].as_bytes());
            }
            _ => {}
        }
        end(choices, &mut bytes);
    }
    bytes
}

fn field(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    bytes.push(if choices.one_in(8) { b'\t' } else { b' ' });
    let fields = ["a", "a.b", "a.*", "foo.bar.>", "_INBOX.x.1", "a..b", "*", "a%2Eb/c", "1"];
    match choices.byte() {
        index @ 0..200 => bytes.extend(fields[usize::from(index) % fields.len()].as_bytes()),
        _ => bytes.extend(choices.bytes(80)),
    }
}

fn block(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut block = b"NATS/1.0".to_vec();
    if choices.one_in(4) {
        block.extend([" 503", " 100 Flow", " 1", "x"][usize::from(choices.byte() % 4)].as_bytes());
    }
    block.extend(b"\r\n");
    for _ in 0..choices.byte() % 4 {
        block.extend(b"A: ");
        block.extend(if choices.one_in(4) { choices.bytes(20) } else { b"b" });
        block.extend(b"\r\n");
    }
    block.extend(b"\r\n");
    block
}

fn damaged(size: usize, choices: &mut Choices<'_>) -> usize {
    if choices.one_in(32) { size.wrapping_add_signed(isize::from(choices.byte() as i8)) } else { size }
}

fn end(choices: &mut Choices<'_>, bytes: &mut Vec<u8>) {
    bytes.extend(if choices.one_in(8) { &b"\n"[..] } else { b"\r\n" });
}

/// Checks that each side receives what the other one sends, for any split of the bytes, and that names are converted
/// into each other in both directions.
///
/// # Panics
/// If the property does not hold.
pub fn nats_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let flags = choices.byte();
    let info = Info {
        server_name: String::from_utf8_lossy(choices.bytes(20)).into_owned(),
        headers: flags & 1 == 0,
        auth_required: flags & 2 != 0,
        ..Info::default()
    };
    let options = Connect {
        verbose: flags & 4 != 0,
        headers: flags & 8 != 0,
        no_responders: flags & 16 != 0,
        name: Some(String::from_utf8_lossy(choices.bytes(20)).into_owned()),
        credentials: Credentials {
            pass: Some(String::from_utf8_lossy(choices.bytes(20)).into_owned()),
            ..Credentials::default()
        },
        ..Connect::default()
    };
    let limits = Limits { payload_bytes_max: 70_000, ..Limits::server() };
    let mut out = Outbox::new();
    let mut pair = Pair {
        server: Server::new(&info, limits, &mut out),
        client: Client::new(Limits::client()),
        at_server: Input::default(),
        at_client: Input::default(),
        out,
        steps,
    };
    let expected = Info { max_payload: limits.payload_bytes_max.into(), ..info.clone() };
    assert_eq!(pair.deliver_to_client(), [ClientEvent::Info(Box::new(expected))]);
    pair.client.connect(&options, &mut pair.out).expect("after INFO");
    assert_eq!(pair.deliver_to_server(), [ServerEvent::Connect(Box::new(options.clone()))]);
    let accepted = if options.verbose { vec![ClientEvent::Ok] } else { Vec::new() };
    assert_eq!(pair.deliver_to_client(), accepted);
    while !choices.is_over() {
        let (subject, sid) = (name(&mut choices), Bytes::copy_from_slice(choices.bytes(4)));
        check_names(&subject);
        let command = choices.byte() % 6;
        let (written, expected) = match command {
            0 => {
                assert!(pair.client.ping(&mut pair.out));
                (Ok(()), ServerEvent::Ping)
            }
            1 => {
                let max = NonZeroU64::new(u64::from(choices.byte()));
                let written = pair.client.unsubscribe(&sid, max, &mut pair.out);
                (written, ServerEvent::Unsubscribe { sid, max })
            }
            2 => {
                let queue = choices.one_in(2).then(|| Bytes::copy_from_slice(choices.bytes(10)));
                let written = pair.client.subscribe(&subject, queue.as_deref(), &sid, &mut pair.out);
                (written, ServerEvent::Subscribe { pattern: subject, queue, sid })
            }
            3 => {
                let message = message(subject, &mut choices);
                let written = pair.client.publish(&message.outgoing(), &mut pair.out);
                (written, ServerEvent::Publish(message))
            }
            _ => {
                let message = message(subject, &mut choices);
                let written = pair.server.send(&sid, &message.outgoing(), &mut pair.out);
                let headers = message.headers.clone().filter(|_| options.headers);
                let expected =
                    written.map(|()| ClientEvent::Message { sid, message: Message { headers, ..message } });
                assert_eq!(pair.deliver_to_client(), expected.into_iter().collect::<Vec<_>>());
                continue;
            }
        };
        assert_eq!(pair.deliver_to_server(), written.map(|()| expected).into_iter().collect::<Vec<_>>());
        let replies = match (written, command) {
            (Ok(()), 0) => vec![ClientEvent::Pong],
            (Ok(()), _) if options.verbose => vec![ClientEvent::Ok],
            _ => Vec::new(),
        };
        assert_eq!(pair.deliver_to_client(), replies);
    }
}

/// A server and a client, with the bytes between them.
struct Pair {
    server: Server,
    client: Client,
    at_server: Input,
    at_client: Input,
    out: Outbox,
    steps: [u8; 3],
}

impl Pair {
    /// Delivers the written bytes to the server, which accepts all credentials.
    fn deliver_to_server(&mut self) -> Vec<ServerEvent> {
        let mut events = Vec::new();
        for piece in pieces(&self.out.take_all(), &self.steps) {
            self.at_server.extend(piece);
            while let Some(event) = self.server.recv(&mut self.at_server, &mut self.out).expect("no error") {
                self.server.accept();
                events.push(event);
            }
        }
        assert!(self.at_server.is_empty());
        events
    }

    fn deliver_to_client(&mut self) -> Vec<ClientEvent> {
        let mut events = Vec::new();
        for piece in pieces(&self.out.take_all(), &self.steps) {
            self.at_client.extend(piece);
            while let Some(event) = self.client.recv(&mut self.at_client, &mut self.out).expect("no error") {
                events.push(event);
            }
        }
        assert!(self.at_client.is_empty());
        events
    }
}

fn message(subject: Bytes, choices: &mut Choices<'_>) -> Message {
    let reply = choices.one_in(2).then(|| Bytes::copy_from_slice(choices.bytes(10)));
    let headers = choices.one_in(2).then(|| {
        let value = choices.bytes(20);
        let entries = (0..choices.byte() % 4).map(|_| ("X-Name", value));
        if choices.one_in(4) { Headers::with_status(503, "", entries) } else { Headers::new(entries) }
    });
    Message { subject, reply, headers: headers.and_then(Result::ok), payload: choices.message() }
}

/// Draws a name of any bytes, or of those that the conversion of names distinguishes.
fn name(choices: &mut Choices<'_>) -> Bytes {
    const PARTS: [&[u8]; 16] = [
        b"a", b"b", b".", b".", b"%", b"%25", b"25", b"2E", b"2F", b"%2F", b"/", b"*", b">", b" ", b"20",
        b"E",
    ];
    if choices.one_in(4) {
        return Bytes::copy_from_slice(choices.bytes(30));
    }
    let parts = choices.bytes(12).iter().map(|byte| PARTS[usize::from(byte % 16)]);
    parts.collect::<Vec<_>>().concat().into()
}

/// Checks that a subject and its topic are converted into each other, and a topic and its subject.
fn check_names(name: &[u8]) {
    if let Ok(topic) = subject::topic_of(name) {
        assert_eq!(subject::subject_of(&topic).as_deref().map(str::as_bytes), Ok(name), "{topic}");
    }
    if let Ok(topics) = subject::topics_of(name) {
        assert_eq!(subject::subjects_of(&topics).as_deref().map(str::as_bytes), Ok(name), "{topics}");
    }
    let Ok(topic) = std::str::from_utf8(name) else { return };
    if let Ok(subject) = subject::subject_of(topic) {
        assert_eq!(subject::topic_of(subject.as_bytes()).as_deref(), Ok(topic), "{subject}");
    }
    if let Ok(subjects) = subject::subjects_of(topic) {
        assert_eq!(subject::topics_of(subjects.as_bytes()).as_deref(), Ok(topic), "{subjects}");
    }
}

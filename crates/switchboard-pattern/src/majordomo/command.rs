//! Commands of MDP/0.2 and 0.1, and the frames that they are made of.

use crate::{
    route::GONE,
    session::{FromBroker, Protocol},
};
use bytes::{BufMut, Bytes, BytesMut};
use switchboard_socket::Message;

/// Longest name of a service.
pub(super) const SERVICE_BYTES_MAX: usize = 255;

const CLIENT_1: &[u8] = b"MDPC01";
const CLIENT_2: &[u8] = b"MDPC02";
const WORKER_1: &[u8] = b"MDPW01";
const WORKER_2: &[u8] = b"MDPW02";

/// Version of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    /// MDP/0.1: an empty frame comes first, and a request has one reply.
    V1,
    /// MDP/0.2.
    V2,
    /// MDP/0.2 with an empty frame before each message, as peers with a REQ socket and some libraries send it.
    V2Delimited,
}

/// Fields of a request in the extension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Extension {
    pub(super) priority: u8,
    /// 0 means 1.
    pub(super) deliveries_max: u8,
    /// 0 means the limit of the broker.
    pub(super) wait_ms: u32,
    pub(super) tag: u64,
}

/// Tag of a request, and the code of its reply: a number of [`Code`](switchboard_wire::Code).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Tagged {
    pub(super) code: u8,
    pub(super) tag: u64,
}

/// Command that a broker receives.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum ToBroker {
    Disconnect,
    Gone,
    Heartbeat { version: Version },
    Ready { version: Version, service: Bytes },
    Reply { version: Version, is_final: bool, client: Bytes, body: Vec<Bytes> },
    Request { version: Version, service: Bytes, extension: Option<Extension>, body: Vec<Bytes> },
}

/// Reply that a client receives.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct ToClient {
    pub(super) is_final: bool,
    pub(super) tagged: Option<Tagged>,
    pub(super) body: Vec<Bytes>,
}

impl ToClient {
    /// Returns the size of the body in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.body.iter().map(Bytes::len).fold(0, usize::saturating_add)
    }
}

/// Reads a command to a broker, without the routing id of its peer.
///
/// # Errors
/// Returns the rule that the frames violate.
pub(super) fn read_to_broker(mut frames: Vec<Bytes>) -> Result<ToBroker, &'static str> {
    if matches!(&*frames, [only] if &**only == GONE) {
        return Ok(ToBroker::Gone);
    }
    let is_delimited = frames.first().is_some_and(Bytes::is_empty);
    if is_delimited {
        frames.remove(0);
    }
    let version_2 = if is_delimited { Version::V2Delimited } else { Version::V2 };
    let Some(header) = frames.first() else { return Err("message has no header") };
    match (&**header, is_delimited) {
        (CLIENT_2, _) => read_request(frames, version_2),
        (CLIENT_1, true) => read_request_1(frames),
        (WORKER_2, _) => read_from_worker(frames, version_2),
        (WORKER_1, true) => read_from_worker(frames, Version::V1),
        _ => Err("header is not MDPC01, MDPC02, MDPW01 or MDPW02"),
    }
}

fn read_request(mut frames: Vec<Bytes>, version: Version) -> Result<ToBroker, &'static str> {
    let [_, command, service, _, ..] = &*frames else { return Err("request has less than 4 frames") };
    let extension = match **command {
        [1] => None,
        [1, ref rest @ ..] => Some(read_extension(rest).ok_or("extension of the request is not 14 bytes")?),
        _ => return Err("command of the client is not REQUEST"),
    };
    let service = check_service(service)?;
    frames.drain(..3);
    Ok(ToBroker::Request { version, service, extension, body: frames })
}

fn read_request_1(mut frames: Vec<Bytes>) -> Result<ToBroker, &'static str> {
    let [_, service, _, ..] = &*frames else { return Err("request has less than 4 frames") };
    let service = check_service(service)?;
    frames.drain(..2);
    Ok(ToBroker::Request { version: Version::V1, service, extension: None, body: frames })
}

fn read_extension(bytes: &[u8]) -> Option<Extension> {
    let (&[priority, deliveries_max], rest) = bytes.split_first_chunk()?;
    let (wait_ms, tag) = rest.split_first_chunk()?;
    let tag = u64::from_be_bytes(tag.try_into().ok()?);
    Some(Extension { priority, deliveries_max, wait_ms: u32::from_be_bytes(*wait_ms), tag })
}

fn read_from_worker(mut frames: Vec<Bytes>, version: Version) -> Result<ToBroker, &'static str> {
    let [_, command, rest @ ..] = &*frames else { return Err("message of a worker has no command") };
    let &[number] = &**command else { return Err("command of a worker is not 1 byte") };
    // MDP/0.1 has no PARTIAL; its later commands have lower numbers.
    let number = if version == Version::V1 && number >= 3 { number.saturating_add(1) } else { number };
    match (number, rest) {
        (1, [service]) => Ok(ToBroker::Ready { version, service: check_service(service)? }),
        (3 | 4, [client, empty, _, ..]) if empty.is_empty() => {
            let client = client.clone();
            frames.drain(..4);
            Ok(ToBroker::Reply { version, is_final: number == 4, client, body: frames })
        }
        (5, []) => Ok(ToBroker::Heartbeat { version }),
        (6, []) => Ok(ToBroker::Disconnect),
        (1 | 3..=6, _) => Err("command of a worker has other frames than the protocol says"),
        _ => Err("command of a worker has an unknown number"),
    }
}

/// Returns the name, if it is 1 to 255 bytes of printable UTF-8.
fn check_service(name: &Bytes) -> Result<Bytes, &'static str> {
    is_service(name)
        .then(|| name.clone())
        .ok_or("name of the service is not 1 to 255 bytes of printable text")
}

/// Returns true for 1 to 255 bytes of printable UTF-8.
pub(crate) fn is_service(name: &[u8]) -> bool {
    (1..=SERVICE_BYTES_MAX).contains(&name.len())
        && std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control))
}

/// Reads a reply to a client of MDP/0.2.
///
/// # Errors
/// Returns the rule that the frames violate.
pub(super) fn read_to_client(mut frames: Vec<Bytes>) -> Result<ToClient, &'static str> {
    let [header, command, _, _, ..] = &*frames else { return Err("reply has less than 4 frames") };
    if &**header != CLIENT_2 {
        return Err("header is not MDPC02");
    }
    let (&number @ (2 | 3), rest) = command.split_first().ok_or("reply has an empty command")? else {
        return Err("command to a client is not PARTIAL or FINAL");
    };
    let tagged = match rest {
        [] => None,
        [code, tag @ ..] => {
            let tag = tag.try_into().map_err(|_| "extension of the reply is not 9 bytes")?;
            Some(Tagged { code: *code, tag: u64::from_be_bytes(tag) })
        }
    };
    frames.drain(..3);
    Ok(ToClient { is_final: number == 3, tagged, body: frames })
}

/// Builds a REQUEST of a client.
pub(super) fn client_request(service: Bytes, extension: Option<Extension>, body: Vec<Bytes>) -> Message {
    let mut command = BytesMut::with_capacity(15);
    command.put_u8(1);
    if let Some(extension) = extension {
        command.put_u8(extension.priority);
        command.put_u8(extension.deliveries_max);
        command.put_u32(extension.wait_ms);
        command.put_u64(extension.tag);
    }
    prefixed([Bytes::from_static(CLIENT_2), command.freeze(), service], body)
}

/// Builds a reply to a client, behind its routing id. MDP/0.1 has no partial ones.
pub(super) fn client_reply(
    (route, version): (Bytes, Version),
    is_final: bool,
    tagged: Option<Tagged>,
    service: Bytes,
    body: Vec<Bytes>,
) -> Message {
    if version == Version::V1 {
        return prefixed([route, Bytes::new(), Bytes::from_static(CLIENT_1), service], body);
    }
    let command = match tagged {
        None => Bytes::from_static(if is_final { &[3] } else { &[2] }),
        Some(Tagged { code, tag }) => {
            let mut command = BytesMut::with_capacity(10);
            command.put_u8(if is_final { 3 } else { 2 });
            command.put_u8(code);
            command.put_u64(tag);
            command.freeze()
        }
    };
    let header = Bytes::from_static(CLIENT_2);
    match version {
        Version::V2Delimited => prefixed([route, Bytes::new(), header, command, service], body),
        _ => prefixed([route, header, command, service], body),
    }
}

/// Builds a REQUEST to a worker, behind its routing id.
pub(super) fn worker_request(route: Bytes, version: Version, client: Bytes, body: Vec<Bytes>) -> Message {
    let (header, command) = (worker_header(version), Bytes::from_static(&[2]));
    match version {
        Version::V2 => prefixed([route, header, command, client, Bytes::new()], body),
        _ => prefixed([route, Bytes::new(), header, command, client, Bytes::new()], body),
    }
}

/// Builds a HEARTBEAT to a worker, behind its routing id.
pub(super) fn worker_heartbeat(route: Bytes, version: Version) -> Message {
    bare(route, version, if version == Version::V1 { &[4] } else { &[5] })
}

/// Builds a DISCONNECT to a worker, behind its routing id.
pub(super) fn worker_disconnect(route: Bytes, version: Version) -> Message {
    bare(route, version, if version == Version::V1 { &[5] } else { &[6] })
}

fn bare(route: Bytes, version: Version, command: &'static [u8]) -> Message {
    let (header, command) = (worker_header(version), Bytes::from_static(command));
    match version {
        Version::V2 => Message::from([route, header, command]),
        _ => Message::from([route, Bytes::new(), header, command]),
    }
}

fn worker_header(version: Version) -> Bytes {
    Bytes::from_static(if version == Version::V1 { WORKER_1 } else { WORKER_2 })
}

/// The commands of a worker of MDP/0.2 for a service.
#[derive(Debug)]
pub(super) struct WorkerProtocol(pub(super) Bytes);

impl Protocol for WorkerProtocol {
    fn ready(&self) -> Message {
        Message::from([Bytes::from_static(WORKER_2), Bytes::from_static(&[1]), self.0.clone()])
    }

    fn heartbeat(&self, _is_busy: bool) -> Option<Message> {
        Some(Message::from([Bytes::from_static(WORKER_2), Bytes::from_static(&[5])]))
    }

    fn disconnect(&self) -> Option<Message> {
        Some(Message::from([Bytes::from_static(WORKER_2), Bytes::from_static(&[6])]))
    }

    fn is_silent_allowed(&self) -> bool {
        false
    }

    fn read(&self, mut frames: Vec<Bytes>) -> Result<FromBroker, &'static str> {
        let [header, command, rest @ ..] = &*frames else { return Err("message has less than 2 frames") };
        if &**header != WORKER_2 {
            return Err("header is not MDPW02");
        }
        match (&**command, rest) {
            ([2], [client, empty, _, ..]) if empty.is_empty() => {
                let envelope = vec![client.clone()];
                frames.drain(..4);
                Ok(FromBroker::Request { envelope, body: frames })
            }
            ([5], []) => Ok(FromBroker::Heartbeat),
            ([6], []) => Ok(FromBroker::Disconnect),
            _ => Err("command to a worker is not REQUEST, HEARTBEAT or DISCONNECT"),
        }
    }

    fn reply(&self, is_final: bool, envelope: &[Bytes], body: Vec<Bytes>) -> Message {
        let command = Bytes::from_static(if is_final { &[4] } else { &[3] });
        let client = envelope.first().cloned().unwrap_or_default();
        prefixed([Bytes::from_static(WORKER_2), command, client, Bytes::new()], body)
    }
}

/// Returns the frames in one message. A body has at least one frame.
fn prefixed<const N: usize>(prefix: [Bytes; N], body: Vec<Bytes>) -> Message {
    let mut frames = Vec::with_capacity(N.saturating_add(body.len()).saturating_add(1));
    frames.extend(prefix);
    if body.is_empty() {
        frames.push(Bytes::new());
    }
    frames.extend(body);
    Message::from(frames)
}

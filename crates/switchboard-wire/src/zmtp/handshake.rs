//! Handshake: the commands of a mechanism between the greeting and the first message.
//!
//! ```text
//! NULL    both   ── READY ─►
//! PLAIN   client ── HELLO ─► server ── WELCOME ─► client ── INITIATE ─► server ── READY ─► client
//! ```
//!
//! READY and INITIATE have the metadata of their sender. Either side may send ERROR at any time instead. CURVE has the
//! steps of PLAIN, and its commands are in `curve`.

use super::{
    Credentials, ErrorKind, Event, Mechanism, Peer, Properties, ProtocolError, Settings, SocketType, Version,
    command::{self, Command, Name},
    properties::{self, IDENTITY, SOCKET_TYPE},
    settings::check_identity,
};
use crate::Outbox;
use bytes::{Bytes, BytesMut};

/// The step that completes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handshake {
    /// A server of CURVE has sent READY.
    #[cfg(feature = "curve")]
    Accepted,
    /// Waits for READY of the other side, which decides the socket type of this one.
    Choice,
    /// A server of PLAIN or CURVE waits for HELLO.
    Hello,
    /// A server of PLAIN or CURVE waits for INITIATE.
    Initiate,
    /// Waits for READY of the other side.
    Ready,
    /// A server waits for the verdict of its driver on the credentials of PLAIN or the key of CURVE.
    Verdict,
    /// A client of PLAIN or CURVE waits for WELCOME.
    Welcome,
}

/// Result of a command.
#[derive(Debug)]
pub(super) enum Progress {
    /// The handshake is complete.
    Done(Box<Peer>, SocketType),
    More,
    /// The driver decides on the credentials or the key of this event.
    Verdict(Event),
}

impl Handshake {
    /// Begins the handshake once the greeting of the peer was accepted.
    pub(super) fn begin(settings: &Settings, out: &mut Outbox) -> Handshake {
        match &settings.mechanism {
            Mechanism::Null if settings.choices.is_empty() => {
                write_metadata(Name::Ready, settings, settings.socket, out);
                Handshake::Ready
            }
            Mechanism::Null => Handshake::Choice,
            Mechanism::PlainClient(credentials) => {
                let (username, password) = (credentials.username(), credentials.password());
                let lens = [username, password].map(|text| [text.len() as u8]);
                command::write(Name::Hello, &[&lens[0], username, &lens[1], password], out);
                Handshake::Welcome
            }
            Mechanism::PlainServer => Handshake::Hello,
            // `Curve::begin` begins these.
            #[cfg(feature = "curve")]
            Mechanism::CurveClient(_) | Mechanism::CurveServer(_) => Handshake::Hello,
        }
    }

    /// Processes a command of the peer.
    pub(super) fn command(
        &mut self,
        command: &Command,
        version: Version,
        settings: &Settings,
        out: &mut Outbox,
    ) -> Result<Progress, ProtocolError> {
        let data = &command.data[..];
        match (*self, command.name) {
            (_, Name::Error) => {
                let reason = command::read_error(data)?;
                Err(ProtocolError::new(ErrorKind::Refused, format!("peer sent ERROR \"{reason}\"")))
            }
            (Handshake::Hello, Name::Hello) => {
                let credentials = read_hello(data)?;
                *self = Handshake::Verdict;
                Ok(Progress::Verdict(Event::Credentials(credentials)))
            }
            (Handshake::Initiate, Name::Initiate) => {
                let (peer, socket) = read_peer(data, "INITIATE", version, settings)?;
                write_metadata(Name::Ready, settings, socket, out);
                Ok(Progress::Done(peer, socket))
            }
            (Handshake::Ready, Name::Ready) => {
                let (peer, socket) = read_peer(data, "READY", version, settings)?;
                Ok(Progress::Done(peer, socket))
            }
            (Handshake::Choice, Name::Ready) => {
                let (peer, socket) = read_peer(data, "READY", version, settings)?;
                write_metadata(Name::Ready, settings, socket, out);
                Ok(Progress::Done(peer, socket))
            }
            (Handshake::Welcome, Name::Welcome) if !data.is_empty() => Err(ProtocolError::new(
                ErrorKind::Command,
                format!("WELCOME has {} bytes of data; it has none in PLAIN", data.len()),
            )),
            (Handshake::Welcome, Name::Welcome) => {
                write_metadata(Name::Initiate, settings, settings.socket, out);
                *self = Handshake::Ready;
                Ok(Progress::More)
            }
            (_, name) => Err(self.unexpected(name.text())),
        }
    }

    /// Returns the error for something else than the command that completes this step.
    pub(super) fn unexpected(self, arrived: &str) -> ProtocolError {
        let expected = match self {
            Handshake::Hello => "HELLO",
            Handshake::Initiate => "INITIATE",
            Handshake::Choice | Handshake::Ready => "READY",
            Handshake::Verdict => "nothing before the response of this side",
            #[cfg(feature = "curve")]
            Handshake::Accepted => "nothing before the response of this side",
            Handshake::Welcome => "WELCOME",
        };
        let message = format!("handshake: {arrived} arrived, expected {expected}");
        ProtocolError::new(ErrorKind::Command, message)
    }
}

/// Appends a command with the metadata of this side.
fn write_metadata(name: Name, settings: &Settings, socket: SocketType, out: &mut Outbox) {
    command::write(name, &[&metadata(settings, socket)], out);
}

/// Returns the metadata of this side. The names have the case that libzmq compares.
pub(super) fn metadata(settings: &Settings, socket: SocketType) -> BytesMut {
    let mut metadata = BytesMut::new();
    Properties::write(SOCKET_TYPE, socket.name().as_bytes(), &mut metadata);
    if socket.has_identity() {
        Properties::write(IDENTITY, &settings.identity, &mut metadata);
    }
    for (name, value) in settings.properties.iter() {
        Properties::write(name, value, &mut metadata);
    }
    metadata
}

fn read_hello(data: &[u8]) -> Result<Credentials, ProtocolError> {
    let malformed = |why: &str| ProtocolError::new(ErrorKind::Command, format!("HELLO of PLAIN {why}"));
    let (username, rest) =
        properties::split(data, 1).ok_or_else(|| malformed("has an incomplete username"))?;
    let (password, rest) =
        properties::split(rest, 1).ok_or_else(|| malformed("has an incomplete password"))?;
    if !rest.is_empty() {
        return Err(malformed(&format!("has {} bytes after the password", rest.len())));
    }
    let [username, password] = [username, password].map(Bytes::copy_from_slice);
    Credentials::new(username, password).map_err(|why| malformed(&why))
}

/// Reads the metadata of the peer and checks that the two sockets may talk.
pub(super) fn read_peer(
    data: &[u8],
    command: &str,
    version: Version,
    settings: &Settings,
) -> Result<(Box<Peer>, SocketType), ProtocolError> {
    let mut properties = Properties::read(data, command, &settings.limits)?;
    let invalid =
        |why: String| ProtocolError::new(ErrorKind::Metadata, format!("metadata of {command}: {why}"));
    let Some(name) = properties.take(SOCKET_TYPE) else {
        return Err(invalid(format!("property \"{SOCKET_TYPE}\" is missing")));
    };
    let Some(socket) = SocketType::from_name(&name) else {
        let name = &name[..name.len().min(40)];
        return Err(invalid(format!("socket type \"{}\" is unknown", name.escape_ascii())));
    };
    let Some(ours) = settings.socket_for(socket) else {
        let names = |types: &mut dyn Iterator<Item = SocketType>| {
            types.map(SocketType::name).collect::<Vec<_>>().join(", ")
        };
        let message = match (&settings.mapping[..], &settings.choices[..]) {
            ([], []) => format!("socket type {socket} does not talk to {}", settings.socket),
            ([], choices) => {
                format!("socket type {socket} does not talk to {}", names(&mut choices.iter().copied()))
            }
            (mapping, _) => {
                let served = names(&mut mapping.iter().map(|(peer, _)| *peer));
                format!("socket type {socket} is not served here; expected one of {served}")
            }
        };
        return Err(ProtocolError::new(ErrorKind::SocketType, message));
    };
    let identity = properties.take(IDENTITY).unwrap_or_default();
    check_identity(&identity).map_err(invalid)?;
    Ok((Box::new(Peer { socket, identity, version, properties }), ours))
}

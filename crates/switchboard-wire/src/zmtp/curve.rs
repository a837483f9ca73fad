//! CURVE (RFC 26): both sides prove the possession of a secret key, and everything after the handshake is encrypted.
//!
//! ```text
//! client ── HELLO: C', box of zeros (C'→S) ─────────────────────────► server, makes s', then forgets it
//!        ◄─ WELCOME: box (S→C') of S', cookie ──────────────────────        cookie = box of C', s' by a key that
//! client ── INITIATE: cookie, box (C'→S') of C, vouch, metadata ────► server      only this connection has
//!        ◄─ READY: box (S'→C') of metadata ─────────────────────────        after the verdict on C
//!        ◄─ MESSAGE: box of a flags byte and a frame or a command ──►
//! ```
//!
//! C and S are the permanent public keys, C' and S' those of the connection. A server keeps a key for its cookie and a
//! counter before INITIATE, and no other state. A cookie opens on its own connection only, so a recorded handshake
//! cannot be replayed.
//!
//! Nonces are counters that begin with 1, for HELLO, INITIATE and MESSAGE of the client, and for READY and MESSAGE of
//! the server. A nonce that is not above the last one of the peer is refused, so boxes cannot be repeated or reordered.
//! Gaps are accepted, as in libzmq.
//!
//! Frames are sealed in the outbox and opened in the read buffer. A key of a direction is derived once from the shared
//! key of the connection and the fixed part of the nonce.

mod boxes;
mod client;
mod keys;
mod server;
mod session;
mod traffic;

pub use keys::{CurveClient, CurveServer, Randomness, SecretKey};

use super::{
    ErrorKind, Mechanism, Peer, ProtocolError, Settings, SocketType, Version,
    command::{self, Command, Name},
    handshake::{Handshake, Progress},
};
use crate::Outbox;
use client::{AwaitsReady, AwaitsWelcome};
use server::{AwaitsInitiate, AwaitsVerdict};
use session::Session;
use std::fmt;

/// Name of an error's subject, and of the mechanism.
pub(super) const NAME: &str = "CURVE";

/// State of a connection with CURVE.
pub(super) enum Curve {
    /// A server waits for HELLO.
    Hello,
    /// A client waits for WELCOME.
    Welcome(AwaitsWelcome),
    /// A server waits for INITIATE.
    Initiate(AwaitsInitiate),
    /// A server waits for the verdict of its driver on the key of the client.
    Verdict(AwaitsVerdict),
    /// A client waits for READY.
    Ready(AwaitsReady),
    /// A server has accepted the client, whose event is next.
    Accepted(Session, Box<Peer>, SocketType),
    /// The handshake is complete.
    Open(Session),
    /// An error ended the handshake.
    Failed,
}

impl Curve {
    /// Begins the handshake; `None` unless the mechanism is CURVE.
    pub(super) fn begin(
        settings: &Settings,
        out: &mut Outbox,
    ) -> Result<Option<(Curve, Handshake)>, ProtocolError> {
        Ok(match &settings.mechanism {
            Mechanism::CurveClient(keys) => {
                let curve = Curve::Welcome(AwaitsWelcome::hello(keys, out)?);
                Some((curve, Handshake::Welcome))
            }
            Mechanism::CurveServer(_) => Some((Curve::Hello, Handshake::Hello)),
            Mechanism::Null | Mechanism::PlainClient(_) | Mechanism::PlainServer => None,
        })
    }

    /// Processes a command of the peer during the handshake.
    pub(super) fn command(
        &mut self,
        handshake: &mut Handshake,
        command: &Command,
        version: Version,
        settings: &Settings,
        out: &mut Outbox,
    ) -> Result<Progress, ProtocolError> {
        let data = &command.data[..];
        let stage = std::mem::replace(self, Curve::Failed);
        let progress = match (stage, command.name, &settings.mechanism) {
            (_, Name::Error, _) => {
                let reason = command::read_error(data)?;
                return Err(ProtocolError::new(ErrorKind::Refused, format!("peer sent ERROR \"{reason}\"")));
            }
            (Curve::Hello, Name::Hello, Mechanism::CurveServer(keys)) => {
                *self = Curve::Initiate(AwaitsInitiate::welcome(keys, data, out)?);
                *handshake = Handshake::Initiate;
                Progress::More
            }
            (Curve::Welcome(stage), Name::Welcome, Mechanism::CurveClient(keys)) => {
                *self = Curve::Ready(stage.initiate(keys, data, settings, out)?);
                *handshake = Handshake::Ready;
                Progress::More
            }
            (Curve::Initiate(stage), Name::Initiate, Mechanism::CurveServer(keys)) => {
                let (key, stage) = stage.open(keys, data, version, settings)?;
                *self = Curve::Verdict(stage);
                *handshake = Handshake::Verdict;
                Progress::Verdict(super::Event::ClientKey(key))
            }
            (Curve::Ready(stage), Name::Ready, _) => {
                let (session, peer, socket) = stage.open(data, version, settings)?;
                *self = Curve::Open(session);
                Progress::Done(peer, socket)
            }
            (_, name, _) => return Err(handshake.unexpected(name.text())),
        };
        Ok(progress)
    }

    /// Accepts the key of the client: READY is appended to `out`.
    pub(super) fn accept(&mut self, settings: &Settings, out: &mut Outbox) {
        *self = match std::mem::replace(self, Curve::Failed) {
            Curve::Verdict(stage) => {
                let (session, peer, socket) = stage.ready(settings, out);
                Curve::Accepted(session, peer, socket)
            }
            other => other,
        };
    }

    /// Completes the handshake of an accepted client.
    pub(super) fn complete(&mut self) -> Option<Progress> {
        match std::mem::replace(self, Curve::Failed) {
            Curve::Accepted(session, peer, socket) => {
                *self = Curve::Open(session);
                Some(Progress::Done(peer, socket))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the keys of the traffic once the handshake is complete.
    pub(super) fn session(&mut self) -> Option<&mut Session> {
        match self {
            Curve::Open(session) => Some(session),
            _ => None,
        }
    }
}

/// Writes the state without its keys.
impl fmt::Debug for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Curve::Hello => "Hello",
            Curve::Welcome(_) => "Welcome",
            Curve::Initiate(_) => "Initiate",
            Curve::Verdict(_) => "Verdict",
            Curve::Ready(_) => "Ready",
            Curve::Accepted(..) => "Accepted",
            Curve::Open(_) => "Open",
            Curve::Failed => "Failed",
        })
    }
}

/// Returns an error for a command of the handshake, or for a MESSAGE.
fn refused(name: &str, why: &str) -> ProtocolError {
    ProtocolError::new(ErrorKind::Curve, format!("{name} of {NAME} {why}"))
}

/// Returns an error for a command of another size than `expected`, which is for instance "194".
fn misshapen(name: &str, len: usize, expected: &str) -> ProtocolError {
    let message = format!("{name} of {NAME} has {len} bytes after its name, expected {expected}");
    ProtocolError::new(ErrorKind::Command, message)
}

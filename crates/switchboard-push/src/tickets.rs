//! Signed tickets, and resume tokens: credentials that the hub itself, or another server with its keys, has issued.
//!
//! A ticket is `payload.signature`, both URL-safe base64; the payload is JSON, and the signature HMAC-SHA256. The kind
//! is
//! signed as well, so that one is not accepted in place of another.

use crate::{
    identity::{Credentials, Identity},
    verifier::{Verifier, Verify},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use switchboard::{Result, Status};
use switchboard_core::clock;
use switchboard_message::{Position, Topic};

/// Kind of a resume token.
pub(crate) const RESUME: &str = "resume token";
/// Bytes of a key, at least.
const KEY_BYTES_MIN: usize = 32;
/// Bytes of a ticket, at most.
const TICKET_BYTES_MAX: usize = 16 << 10;

/// Signed tickets. A server of the application issues them, and a hub with the same keys accepts them as the tokens of
/// devices, without a call. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use switchboard_push::{Hub, Identity, Tickets};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard::Result<()> {
/// let tickets = Tickets::new([[7; 32]]);
/// let hub = Hub::builder().auth(tickets.clone()).build().await?;
/// let ticket = tickets.issue(&Identity::new("ali").room("live/7"), Duration::from_secs(60))?;
/// # let _ = (hub, ticket);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tickets {
    keys: Arc<[hmac::Key]>,
    is_short: bool,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Payload {
    pub(crate) user: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roles: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rooms: Vec<String>,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub(crate) claims: serde_json::Value,
    /// Time at which the ticket expires, in seconds since 1970.
    pub(crate) exp: u64,
    /// Time at which the identity expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<u64>,
    /// Names, epochs and offsets of topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) positions: Vec<(String, u64, u64)>,
}

/// The content of a resume token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resumed {
    /// The owner of the device, with its key.
    pub identity: Identity,
    /// Names of topics, such as `room/live/7`, each with the position that the device had.
    pub positions: Vec<(String, Position)>,
}

impl Resumed {
    /// Returns the position in a topic.
    pub fn position(&self, topic: &Topic) -> Option<Position> {
        self.positions.iter().find(|(name, _)| name == topic.name()).map(|(_, position)| *position)
    }
}

impl Tickets {
    /// Creates tickets that are signed with the first of these keys, and accepted from all: a new key is added as the
    /// last one on all servers first, and then becomes the first. Each needs at least 32 bytes, which is checked when a
    /// hub is built.
    pub fn new(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Tickets {
        let mut is_short = false;
        let keys = keys.into_iter().map(|key| {
            is_short |= key.as_ref().len() < KEY_BYTES_MIN;
            hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
        });
        let keys: Arc<[hmac::Key]> = keys.collect();
        Tickets { is_short: is_short || keys.is_empty(), keys }
    }

    /// Creates tickets with a key of this process.
    pub(crate) fn random() -> Tickets {
        let random = ring::rand::SystemRandom::new();
        match hmac::Key::generate(hmac::HMAC_SHA256, &random) {
            Ok(key) => Tickets { keys: Arc::new([key]), is_short: false },
            // Without random bytes of the system, no token is valid.
            Err(_) => Tickets { keys: Arc::new([]), is_short: false },
        }
    }

    /// Issues a ticket for a device, which is valid for this time. The device stays connected until the identity
    /// expires.
    ///
    /// # Errors
    /// `FailedPrecondition` without a key, `ResourceExhausted` for an identity with over 8 KiB.
    pub fn issue(&self, identity: &Identity, valid_for: Duration) -> Result<String> {
        self.sign("ticket", &payload(identity, valid_for))
    }

    pub(crate) fn sign(&self, kind: &str, payload: &Payload) -> Result<String> {
        let Some(key) = self.keys.first() else {
            return Err(Status::failed_precondition("tickets have no key; configure one"));
        };
        let text = BASE64.encode(serde_json::to_vec(payload).unwrap_or_default());
        let tag = hmac::sign(key, signed(kind, &text).as_bytes());
        let ticket = format!("{text}.{}", BASE64.encode(tag));
        if ticket.len() > TICKET_BYTES_MAX {
            let bytes = ticket.len();
            let status = format!("the {kind} has {bytes} bytes; the limit is {TICKET_BYTES_MAX}");
            return Err(Status::resource_exhausted(status));
        }
        Ok(ticket)
    }

    /// Checks the signature and the time of a ticket.
    pub(crate) fn read(&self, kind: &str, ticket: &str) -> Result<Payload> {
        let invalid = || Status::unauthenticated(format!("the {kind} is not valid"));
        let (text, tag) =
            ticket.split_once('.').filter(|_| ticket.len() <= TICKET_BYTES_MAX).ok_or_else(invalid)?;
        let tag = BASE64.decode(tag).map_err(|_| invalid())?;
        let signed = signed(kind, text);
        if !self.keys.iter().any(|key| hmac::verify(key, signed.as_bytes(), &tag).is_ok()) {
            return Err(invalid());
        }
        let payload = BASE64.decode(text).map_err(|_| invalid())?;
        let payload: Payload = serde_json::from_slice(&payload).map_err(|_| invalid())?;
        if payload.exp <= seconds(clock::time_of_day()) {
            return Err(Status::unauthenticated(format!("the {kind} has expired")));
        }
        Ok(payload)
    }
}

fn signed(kind: &str, text: &str) -> String {
    format!("switchboard-push-1 {kind} {text}")
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(crate) fn payload(identity: &Identity, valid_for: Duration) -> Payload {
    Payload {
        user: identity.user.clone(),
        roles: identity.roles.clone(),
        key: identity.key.clone(),
        rooms: identity.rooms.clone(),
        claims: identity.claims.clone(),
        exp: seconds(clock::time_of_day()).saturating_add(valid_for.as_secs()),
        until: identity.expires_at.map(seconds),
        positions: Vec::new(),
    }
}

impl From<Payload> for Identity {
    fn from(payload: Payload) -> Identity {
        let mut identity = Identity::new(payload.user);
        identity.roles = payload.roles;
        identity.key = payload.key;
        identity.rooms = payload.rooms;
        identity.claims = payload.claims;
        identity.expires_at =
            payload.until.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        identity
    }
}

impl Verifier for Tickets {
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        // A token with three parts is a JSON Web Token.
        if credentials.token.split('.').count() != 2 {
            return None;
        }
        let identity = self.read("ticket", &credentials.token).map(Identity::from);
        Some(Box::pin(std::future::ready(identity)))
    }

    fn check(&self) -> Result<()> {
        if self.is_short {
            let text = format!("a key of tickets needs at least {KEY_BYTES_MIN} bytes");
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets({} keys)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_valid_with_its_key_its_kind_and_in_its_time() {
        let (old, new) = (Tickets::new([[1; 32]]), Tickets::new([[2; 32], [1; 32]]));
        let ali = Identity::new("ali").role("chat").room("live/*").key("phone");
        let ticket = old.issue(&ali, Duration::from_secs(60)).unwrap();
        let read: Identity = new.read("ticket", &ticket).unwrap().into();
        assert_eq!((read.user, read.roles, read.key), (ali.user.clone(), ali.roles.clone(), ali.key.clone()));
        assert!(new.read("resume token", &ticket).is_err(), "another kind");
        assert!(Tickets::new([[2; 32]]).read("ticket", &ticket).is_err(), "another key");
        assert!(old.read("ticket", &old.issue(&ali, Duration::ZERO).unwrap()).is_err(), "expired");
        for bit in 0..ticket.len() * 8 {
            let mut changed = ticket.clone().into_bytes();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The last character of base64 has bits that mean nothing, which are refused as well.
            let changed = String::from_utf8_lossy(&changed).into_owned();
            assert!(old.read("ticket", &changed).is_err(), "bit {bit}");
        }
        assert!(Tickets::new([[0; 31]]).check().is_err() && new.check().is_ok());
    }
}

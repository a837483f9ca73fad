//! Credentials of devices, and who they belong to.

use serde_json::Value;
use std::{fmt, sync::Arc, time::SystemTime};
use switchboard::{Caller, Peer};
use switchboard_message::Pattern;
use switchboard_wire::Metadata;

/// The verified owner of a device.
///
/// Names of rooms in the claim `rooms` of a token are joined at the connection; those with wildcards permit
/// [`Access::token`](crate::Access::token) to join and to publish.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Identity {
    /// Id of the user; empty for a device without a user.
    pub user: String,
    /// Roles, which [`Access::roles`](crate::Access::roles) names.
    pub roles: Vec<String>,
    /// Claims of the token, or any object; null if there are none.
    pub claims: Value,
    /// Time at which the device is disconnected unless its credentials are refreshed. `None`: never.
    pub expires_at: Option<SystemTime>,
    /// Key of the device; `None` if the device chooses it, or the hub.
    pub key: Option<String>,
    /// Rooms that the device joins at once, and patterns of rooms that it may join.
    pub rooms: Vec<String>,
}

impl Identity {
    /// Creates the identity of a user without roles.
    pub fn new(user: impl Into<String>) -> Identity {
        Identity { user: user.into(), ..Identity::default() }
    }

    /// Adds a role.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Identity {
        self.roles.push(role.into());
        self
    }

    /// Sets the key of the device.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Identity {
        self.key = Some(key.into());
        self
    }

    /// Adds a room that the device joins at once, or a pattern of rooms that it may join.
    #[must_use]
    pub fn room(mut self, room: impl Into<String>) -> Identity {
        self.rooms.push(room.into());
        self
    }

    /// Sets the time at which the device is disconnected.
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Identity {
        self.expires_at = Some(time);
        self
    }

    /// Returns whether the rooms of the token include this one.
    pub(crate) fn names_room(&self, room: &str) -> bool {
        self.rooms
            .iter()
            .any(|known| *known == room || Pattern::new(known).is_ok_and(|pattern| pattern.matches(room)))
    }

    /// Returns the rooms that the device joins at once: names without wildcards.
    pub fn rooms_to_join(&self) -> impl Iterator<Item = &str> {
        let is_name = |name: &&str| !name.split('/').any(|level| matches!(level, "*" | "+" | ">" | "#"));
        self.rooms.iter().map(String::as_str).filter(is_name)
    }
}

impl From<&str> for Identity {
    fn from(user: &str) -> Identity {
        Identity::new(user)
    }
}

impl From<&Caller> for Identity {
    fn from(caller: &Caller) -> Identity {
        let mut identity = Identity::new(&caller.name);
        identity.roles.clone_from(&caller.roles);
        let claims = &caller.claims;
        identity.key = claims.get("key").and_then(Value::as_str).map(str::to_owned);
        if let Some(rooms) = claims.get("rooms").and_then(Value::as_array) {
            identity.rooms.extend(rooms.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        identity.expires_at = claims.get("exp").and_then(Value::as_f64).and_then(|seconds| {
            let since = std::time::Duration::try_from_secs_f64(seconds).ok()?;
            SystemTime::UNIX_EPOCH.checked_add(since)
        });
        identity.claims = claims.clone();
        identity
    }
}

/// Credentials that a device sent, for a [`Verifier`](crate::Verifier).
#[derive(Clone)]
#[non_exhaustive]
pub struct Credentials {
    /// Name of the protocol: `goim`, `mqtt`, `centrifuge`, `sse`.
    pub protocol: &'static str,
    /// The token, ticket or password; empty if there is none.
    pub token: String,
    /// Claims of the device about itself. Only an [open](crate::HubBuilder::open) hub believes it.
    pub claimed: Identity,
    /// Further names and values, such as headers of the request.
    pub metadata: Metadata,
    /// The other end of the connection.
    pub peer: Arc<Peer>,
}

impl Credentials {
    /// Creates credentials without a token.
    pub fn new(protocol: &'static str, peer: Arc<Peer>) -> Credentials {
        let (token, claimed, metadata) = (String::new(), Identity::default(), Metadata::new());
        Credentials { protocol, token, claimed, metadata, peer }
    }

    /// Sets the token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Credentials {
        self.token = token.into();
        self
    }

    /// Sets what the device says about itself.
    #[must_use]
    pub fn claimed(mut self, claimed: Identity) -> Credentials {
        self.claimed = claimed;
        self
    }

    /// Sets further names and values.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Credentials {
        self.metadata = metadata;
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("Credentials")
            .field("protocol", &self.protocol)
            .field("peer", &self.peer.address)
            .finish_non_exhaustive()
    }
}

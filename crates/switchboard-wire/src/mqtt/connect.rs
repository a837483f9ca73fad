//! CONNECT and CONNACK.

use super::{Properties, PropertyId, QoS, Reason, Version};
use bytes::Bytes;
use std::fmt;

/// CONNECT.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Connect {
    /// Version of the protocol.
    pub version: Version,
    /// Earlier state of the session is discarded: "clean session" in version 3, "clean start" in version 5.
    pub clean_start: bool,
    /// Seconds within which the client sends something; 0 without a limit.
    pub keep_alive: u16,
    /// Properties of version 5.
    pub properties: Properties,
    /// Client identifier: UTF-8. Empty if the server is to choose one.
    pub client_id: Bytes,
    /// Message that is published if the connection ends without DISCONNECT.
    pub will: Option<Will>,
    /// User name: UTF-8.
    pub user_name: Option<Bytes>,
    /// Password.
    pub password: Option<Bytes>,
}

impl Connect {
    /// Returns the credentials in the form of the metadata `authorization`: `Basic` with the user name and the
    /// password, or `Bearer` with the password alone, if the user name is missing or empty. `None` without both, and
    /// for a token that is not ASCII.
    pub fn authorization(&self) -> Option<String> {
        let password = self.password.as_deref().unwrap_or_default();
        match self.user_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => {
                let pair = [name, b":", password].concat();
                Some(format!("Basic {}", crate::base64::encode(&pair)))
            }
            None => {
                let token = std::str::from_utf8(password).ok().filter(|token| token.is_ascii());
                token.filter(|token| !token.is_empty()).map(|token| format!("Bearer {token}"))
            }
        }
    }

    /// Returns the seconds that the session is kept after the connection: `None` for ever. In version 3, a session
    /// without "clean session" is kept for ever.
    pub fn session_expiry(&self) -> Option<u32> {
        match self.version {
            Version::V5 => match self.properties.number(PropertyId::SessionExpiry) {
                Some(u32::MAX) => None,
                seconds => Some(seconds.unwrap_or(0)),
            },
            _ if self.clean_start => Some(0),
            _ => None,
        }
    }

    /// Returns the receive maximum of the client.
    pub fn receive_max(&self) -> u16 {
        self.properties.number(PropertyId::ReceiveMaximum).map_or(u16::MAX, |max| max as u16)
    }
}

/// Writes no secrets.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("properties", &self.properties.iter().count())
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("has_password", &self.password.is_some())
            .finish()
    }
}

/// Message that is published if a connection ends without DISCONNECT.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Will {
    /// QoS.
    pub qos: QoS,
    /// RETAIN.
    pub retain: bool,
    /// Properties of version 5.
    pub properties: Properties,
    /// Topic name: UTF-8.
    pub topic: Bytes,
    /// Payload.
    pub payload: Bytes,
}

impl Will {
    /// Returns the seconds between the end of the connection and the will.
    pub fn delay(&self) -> u32 {
        self.properties.number(PropertyId::WillDelay).unwrap_or(0)
    }
}

/// CONNACK.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConnAck {
    /// The server has state of the session.
    pub session_present: bool,
    /// Reason code.
    pub reason: Reason,
    /// Properties of version 5.
    pub properties: Properties,
}

/// Content of the CONNACK that accepts a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Accept {
    /// The server has state of the session.
    pub session_present: bool,
    /// Client identifier, if the server has chosen it.
    pub assigned_client_id: Option<Bytes>,
    /// Keep alive in seconds, if it is not that of the client.
    pub keep_alive: Option<u16>,
    /// Seconds that the session is kept, if it differs from that of CONNECT.
    pub session_expiry: Option<u32>,
    /// User properties, for clients of version 5.
    pub user: Vec<(Bytes, Bytes)>,
}

//! Reason codes of version 5, and the codes of earlier versions.

use std::fmt;

/// Reason code of version 5. From 0x80 on it is an error.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Reason(pub u8);

/// Defines the reason codes, and their names in messages and counters.
macro_rules! reasons {
    ($($code:literal $constant:ident $name:literal)+) => {
        impl Reason {
            $(
                #[doc = concat!("Code ", stringify!($code), ": ", $name, ".")]
                pub const $constant: Reason = Reason($code);
            )+

            /// Returns the name of the code; `unknown` for a code that the standard does not define.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($code => $name,)+
                    _ => "unknown",
                }
            }
        }
    };
}

reasons! {
    0x00 SUCCESS "success"
    0x01 GRANTED_QOS_1 "granted QoS 1"
    0x02 GRANTED_QOS_2 "granted QoS 2"
    0x04 DISCONNECT_WITH_WILL "disconnect with will"
    0x10 NO_MATCHING_SUBSCRIBERS "no matching subscribers"
    0x11 NO_SUBSCRIPTION_EXISTED "no subscription existed"
    0x18 CONTINUE_AUTHENTICATION "continue authentication"
    0x19 RE_AUTHENTICATE "re-authenticate"
    0x80 UNSPECIFIED "unspecified error"
    0x81 MALFORMED_PACKET "malformed packet"
    0x82 PROTOCOL_ERROR "protocol error"
    0x83 IMPLEMENTATION_SPECIFIC "implementation specific error"
    0x84 UNSUPPORTED_VERSION "unsupported protocol version"
    0x85 CLIENT_ID_NOT_VALID "client identifier not valid"
    0x86 BAD_CREDENTIALS "bad user name or password"
    0x87 NOT_AUTHORIZED "not authorized"
    0x88 SERVER_UNAVAILABLE "server unavailable"
    0x89 SERVER_BUSY "server busy"
    0x8B SERVER_SHUTTING_DOWN "server shutting down"
    0x8C BAD_AUTHENTICATION_METHOD "bad authentication method"
    0x8D KEEP_ALIVE_TIMEOUT "keep alive timeout"
    0x8E SESSION_TAKEN_OVER "session taken over"
    0x8F TOPIC_FILTER_INVALID "topic filter invalid"
    0x90 TOPIC_NAME_INVALID "topic name invalid"
    0x91 PACKET_ID_IN_USE "packet identifier in use"
    0x92 PACKET_ID_NOT_FOUND "packet identifier not found"
    0x93 RECEIVE_MAXIMUM_EXCEEDED "receive maximum exceeded"
    0x94 TOPIC_ALIAS_INVALID "topic alias invalid"
    0x95 PACKET_TOO_LARGE "packet too large"
    0x96 MESSAGE_RATE_TOO_HIGH "message rate too high"
    0x97 QUOTA_EXCEEDED "quota exceeded"
    0x98 ADMINISTRATIVE_ACTION "administrative action"
    0x99 PAYLOAD_FORMAT_INVALID "payload format invalid"
    0x9A RETAIN_NOT_SUPPORTED "retain not supported"
    0x9B QOS_NOT_SUPPORTED "QoS not supported"
    0x9C USE_ANOTHER_SERVER "use another server"
    0x9D SERVER_MOVED "server moved"
    0x9E SHARED_SUBSCRIPTIONS_NOT_SUPPORTED "shared subscriptions not supported"
    0x9F CONNECTION_RATE_EXCEEDED "connection rate exceeded"
    0xA0 MAXIMUM_CONNECT_TIME "maximum connect time"
    0xA1 SUBSCRIPTION_IDS_NOT_SUPPORTED "subscription identifiers not supported"
    0xA2 WILDCARDS_NOT_SUPPORTED "wildcard subscriptions not supported"
}

/// Code of SUBACK in version 3 for a filter that the server refuses.
pub(super) const SUBACK_REFUSED_V3: u8 = 0x80;

impl Reason {
    /// Returns true from 0x80 on.
    pub fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// Returns the code of CONNACK in version 3: 1 for an unsupported version, 2 for a client identifier, 4 for
    /// credentials, 5 for rights, and 3, unavailable, for every other error.
    pub(super) fn connack_v3(self) -> u8 {
        match self {
            Reason::SUCCESS => 0,
            Reason::UNSUPPORTED_VERSION => 1,
            Reason::CLIENT_ID_NOT_VALID => 2,
            Reason::BAD_CREDENTIALS => 4,
            Reason::NOT_AUTHORIZED | Reason::BAD_AUTHENTICATION_METHOD => 5,
            _ => 3,
        }
    }

    /// Returns the reason of a code of CONNACK in version 3.
    pub(super) fn from_connack_v3(code: u8) -> Reason {
        match code {
            0 => Reason::SUCCESS,
            1 => Reason::UNSUPPORTED_VERSION,
            2 => Reason::CLIENT_ID_NOT_VALID,
            4 => Reason::BAD_CREDENTIALS,
            5 => Reason::NOT_AUTHORIZED,
            _ => Reason::SERVER_UNAVAILABLE,
        }
    }

    /// Returns the code of SUBACK in version 3: the granted QoS, or 0x80.
    pub(super) fn suback_v3(self) -> u8 {
        if self.is_error() { SUBACK_REFUSED_V3 } else { self.0 }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.0)
    }
}

//! The variants of the protocol.

use super::Auth;

/// Variant of the protocol: the same packets with other bodies.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
// closed: these two products exist
pub enum Variant {
    /// goim: heartbeats have the number of connections in the room, pushes have their operation.
    #[default]
    Goim,
    /// im-cloud: heartbeats and authentications have JSON, pushes have the operation 9.
    ImCloud,
}

impl Variant {
    /// Returns the name in options and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Goim => "goim",
            Variant::ImCloud => "im-cloud",
        }
    }
}

/// Variants that a connection may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: a connection has a variant, or its first packet selects it
pub enum Variants {
    /// The authentication selects: `"protocol": "im-cloud"` in its body. Without this member it is goim, because the
    /// bodies of both have the same members otherwise.
    ByAuth,
    /// Only this one, whatever the authentication says.
    Only(Variant),
}

impl Default for Variants {
    fn default() -> Variants {
        Variants::Only(Variant::Goim)
    }
}

impl Variants {
    /// Returns the variant of a connection with this authentication.
    pub(super) fn of(self, auth: &Auth) -> Variant {
        match self {
            Variants::Only(variant) => variant,
            Variants::ByAuth if auth.protocol.as_deref() == Some(Variant::ImCloud.name()) => Variant::ImCloud,
            Variants::ByAuth => Variant::Goim,
        }
    }
}

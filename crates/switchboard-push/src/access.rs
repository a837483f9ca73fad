//! Who may use a room.

use crate::identity::Identity;

/// Devices that may join a room, publish to it, or list its members.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Access(Kind);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Kind {
    All,
    None,
    Roles(Vec<String>),
    Token,
    Members,
}

impl Access {
    /// Admits every device that the hub has verified.
    pub fn all() -> Access {
        Access(Kind::All)
    }

    /// Admits no device: the server joins devices and publishes.
    pub fn none() -> Access {
        Access(Kind::None)
    }

    /// Admits devices with one of these roles.
    pub fn roles(roles: impl IntoIterator<Item = impl Into<String>>) -> Access {
        Access(Kind::Roles(roles.into_iter().map(Into::into).collect()))
    }

    /// Admits devices whose token names the room, or a pattern that matches it, in its claim `rooms`.
    pub fn token() -> Access {
        Access(Kind::Token)
    }

    /// Admits members of the room. For joins, it admits no device.
    pub fn members() -> Access {
        Access(Kind::Members)
    }

    /// Returns whether a device is admitted.
    pub(crate) fn admits(&self, identity: &Identity, room: &str, is_member: bool) -> bool {
        match &self.0 {
            Kind::All => true,
            Kind::None => false,
            Kind::Roles(roles) => roles.iter().any(|role| identity.roles.contains(role)),
            Kind::Token => identity.names_room(room),
            Kind::Members => is_member,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_admit_devices_by_role_token_and_membership() {
        let ali = Identity::new("ali").role("chat").room("live/*").room("home");
        for (access, room, is_member, admits) in [
            (Access::all(), "x", false, true),
            (Access::none(), "x", true, false),
            (Access::roles(["chat"]), "x", false, true),
            (Access::roles(["admin"]), "x", true, false),
            (Access::token(), "live/7", false, true),
            (Access::token(), "home", false, true),
            (Access::token(), "live/7/x", false, false),
            (Access::members(), "x", true, true),
            (Access::members(), "x", false, false),
        ] {
            assert_eq!(access.admits(&ali, room, is_member), admits, "{access:?} {room}");
        }
        assert_eq!(ali.rooms_to_join().collect::<Vec<_>>(), ["home"]);
    }
}

//! Settings of the server side.

use super::Limits;
use bytes::Bytes;
use std::fmt;

/// Settings of the server side, shared by its connections.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) limits: Limits,
    pub(super) inline: bool,
    pub(super) requires_auth: bool,
    pub(super) name: String,
    pub(super) redis_version: String,
}

impl Settings {
    /// Creates settings: the default limits, no inline commands, no authentication, the commands of Redis 7.0.
    pub fn new() -> Settings {
        Settings {
            limits: Limits::default(),
            inline: false,
            requires_auth: false,
            name: "switchboard".to_owned(),
            redis_version: "7.0.0".to_owned(),
        }
    }

    /// Enables or disables inline commands. Keep them disabled on a port that has other protocols: any text is an
    /// inline command.
    #[must_use]
    pub fn with_inline(mut self, enabled: bool) -> Settings {
        self.inline = enabled;
        self
    }

    /// Sets the limits on the input.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Settings {
        self.limits = limits;
        self
    }

    /// Sets the name of the server and the version of Redis whose commands it has, as `HELLO` and `INFO` report them.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>, redis_version: impl Into<String>) -> Settings {
        (self.name, self.redis_version) = (name.into(), redis_version.into());
        self
    }

    /// Sets whether clients authenticate before they use other commands, see
    /// [`Event::Auth`](super::Event::Auth).
    #[must_use]
    pub fn with_auth(mut self, required: bool) -> Settings {
        self.requires_auth = required;
        self
    }

    /// Returns the limits on the input.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

/// Username and password of `AUTH` or of `HELLO`.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    username: Option<Bytes>,
    password: Bytes,
}

impl Credentials {
    /// Creates credentials. Without a username they are those of the user `default`.
    pub fn new(username: Option<Bytes>, password: Bytes) -> Credentials {
        Credentials { username, password }
    }

    /// Returns the username, which may be any bytes, if the client sent one.
    pub fn username(&self) -> Option<&Bytes> {
        self.username.as_ref()
    }

    /// Returns the password. Compare it in constant time.
    pub fn password(&self) -> &Bytes {
        &self.password
    }
}

/// Writes the username only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let username = self.username.as_deref().unwrap_or(b"default");
        write!(f, "Credentials {{ username: \"{}\", .. }}", username.escape_ascii())
    }
}

//! Who calls, as far as a server knows.

/// An authenticated caller.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Caller {
    /// Name: as configured, or the subject of a JWT or of a certificate.
    pub name: String,
    /// Roles, which rules refer to by name.
    pub roles: Vec<String>,
    /// Claims of a JWT as a JSON object; null for other credentials.
    pub claims: serde_json::Value,
}

impl Caller {
    /// Creates a caller with this name and without roles.
    pub fn new(name: impl Into<String>) -> Caller {
        Caller { name: name.into(), ..Caller::default() }
    }

    /// Adds a role.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Caller {
        self.roles.push(role.into());
        self
    }
}

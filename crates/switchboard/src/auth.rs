//! Who calls: tokens, API keys, passwords, certificates, JWT, signatures, or what the application says.
//!
//! A server asks each [`Auth`] that it was [given](crate::Server::auth), in order, on every call: the first that finds
//! credentials of its kind says who calls, or that they are wrong. Who it is goes to the handler with
//! [`Cx::caller`](crate::Cx::caller); what they may is said by [rules](crate::guard::Rule). Every refusal is a line of
//! the log target `switchboard::audit`. Secrets are compared in constant time and told to nobody.

#[cfg(feature = "auth")]
mod basic;
#[cfg(feature = "auth")]
pub mod jwt;
mod secrets;
#[cfg(feature = "auth")]
mod signature;

#[cfg(feature = "auth")]
pub use basic::Basic;
#[cfg(feature = "auth")]
pub(crate) use basic::authorization;
#[cfg(feature = "auth")]
pub use jwt::Jwt;
pub use secrets::{ApiKeys, Tokens};
#[cfg(feature = "auth")]
pub use signature::{Signatures, sign};

use crate::{Call, Metadata, Peer, Result, Status, layer::BoxFuture};
use std::{fmt, sync::Arc};

/// Somebody whose credentials were good.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Caller {
    /// Their name: as configured, the subject of a JWT or of a certificate.
    pub name: String,
    /// What they may, by names that [rules](crate::guard::Rule::roles) know.
    pub roles: Vec<String>,
    /// The claims of a JWT, an object; null of others.
    pub claims: serde_json::Value,
}

impl Caller {
    /// Somebody of this name without roles.
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

/// Finds out who calls, from one kind of credentials.
pub trait Auth: Send + Sync + 'static {
    /// What it is, for the audit log: `token`, `jwt`.
    fn name(&self) -> &str;

    /// Whether it looks at the [message](Credentials::message), which is then decompressed for it.
    fn reads_message(&self) -> bool {
        false
    }

    /// Says who calls. It runs in the turn of the connection: what takes time is for [`Checked::Later`].
    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_>;
}

/// What an [`Auth`] says.
pub enum Checked<'a> {
    /// There are no credentials of this kind: the next one is asked.
    Absent,
    /// It is them.
    Caller(Arc<Caller>),
    /// The same, somebody whom the [`Auth`] knows: calls of theirs that follow each other share one reference.
    Known(&'a Arc<Caller>),
    /// There are credentials, and they are wrong. The text goes to the caller and to the audit log: no secret in it.
    Wrong(&'static str),
    /// It takes time: an error is what the caller gets.
    Later(BoxFuture<'static, Result<Arc<Caller>>>),
}

/// What is known of a call before it is known who calls.
pub struct Credentials<'a> {
    call: &'a Call,
    method: &'a str,
}

impl<'a> Credentials<'a> {
    pub(crate) fn new(call: &'a Call, method: &'a str) -> Credentials<'a> {
        Credentials { call, method }
    }

    /// The full name of the method, `package.Service/Method`.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// What the caller added to the call.
    pub fn metadata(&self) -> &'a Metadata {
        self.call.cx().metadata()
    }

    /// The connection.
    pub fn peer(&self) -> &'a Peer {
        self.call.cx().peer()
    }

    /// The request message, encoded; none of a stream of them, and of one that is compressed unless
    /// [asked for](Auth::reads_message).
    pub fn message(&self) -> Option<&'a [u8]> {
        self.call.message().filter(|_| !self.call.is_compressed()).map(|message| &message[..])
    }

    /// What follows `scheme` in the metadata `authorization`; schemes are the same in any case.
    pub fn authorization(&self, scheme: &str) -> Option<&'a str> {
        self.authorization_bytes(scheme).and_then(|rest| std::str::from_utf8(rest).ok())
    }

    /// The same for those who only compare it.
    fn authorization_bytes(&self, scheme: &str) -> Option<&'a [u8]> {
        let value = self.metadata().value("authorization")?;
        let (found, rest) = value.split_at_checked(scheme.len())?;
        let rest = rest.strip_prefix(b" ")?;
        // As nearly everybody writes it, which one comparison sees.
        let is_it = found == scheme.as_bytes() || found.eq_ignore_ascii_case(scheme.as_bytes());
        is_it.then(|| rest.trim_ascii_start())
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what is secret.
        f.debug_struct("Credentials")
            .field("method", &self.method)
            .field("peer", self.peer())
            .finish_non_exhaustive()
    }
}

/// Believes the certificate that a peer has shown and TLS has verified: its subject is the caller's name.
///
/// ```
/// let server = switchboard::Server::new().auth(switchboard::auth::Certificates::default());
/// ```
#[derive(Debug, Default)]
pub struct Certificates {
    roles: Vec<(String, String)>,
}

impl Certificates {
    /// Gives this role to certificates with this subject, `CN=alice,O=example`, or one of whose alternative names is
    /// this, `uri:spiffe://example/alice`.
    #[must_use]
    pub fn role(mut self, name: impl Into<String>, role: impl Into<String>) -> Certificates {
        self.roles.push((name.into(), role.into()));
        self
    }
}

impl Auth for Certificates {
    fn name(&self) -> &str {
        "certificate"
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(identity) = &credentials.peer().identity else { return Checked::Absent };
        let mut caller = Caller::new(&identity.subject);
        for (name, role) in &self.roles {
            if *name == identity.subject || identity.names.contains(name) {
                caller.roles.push(role.clone());
            }
        }
        Checked::Caller(Arc::new(caller))
    }
}

/// Credentials that a function checks.
///
/// ```
/// use std::sync::Arc;
/// use switchboard::{Status, auth::{self, Caller, Checked}};
///
/// let sessions = auth::from_fn("session", |credentials| {
///     let Some(session) = credentials.metadata().text("x-session").map(str::to_owned) else {
///         return Checked::Absent;
///     };
///     Checked::Later(Box::pin(async move {
///         // Ask whoever knows.
///         match session.as_str() {
///             "open-sesame" => Ok(Arc::new(Caller::new("ali"))),
///             _ => Err(Status::unauthenticated("no such session")),
///         }
///     }))
/// });
/// let server = switchboard::Server::new().auth(sessions);
/// ```
pub fn from_fn<F>(name: &'static str, check: F) -> FromFn<F>
where
    F: Fn(&Credentials<'_>) -> Checked<'static> + Send + Sync + 'static,
{
    FromFn { name, check }
}

/// What [`from_fn`] makes.
#[derive(Clone)]
pub struct FromFn<F> {
    name: &'static str,
    check: F,
}

impl<F> Auth for FromFn<F>
where
    F: Fn(&Credentials<'_>) -> Checked<'static> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        (self.check)(credentials)
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromFn").field(&self.name).finish()
    }
}

/// Why nobody is known, for a call without any credentials that somebody here understands.
pub(crate) fn wrong(text: &str) -> Status {
    Status::unauthenticated(text)
}

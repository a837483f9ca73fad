//! Authentication of callers by tokens, API keys, passwords, certificates, JWT, signatures, or a function of
//! the application.
//!
//! On every call, a server runs each configured `Auth` in order. The first one that
//! finds credentials of its kind identifies the caller or rejects the call. Handlers read the caller with
//! [`Cx::caller`](switchboard_core::Cx::caller); rules define what callers may do.
//! Every rejection
//! is logged to the target `switchboard::audit`. Secrets are compared in constant time and never logged or
//! sent.

#[cfg(feature = "auth")]
mod basic;
mod credential;
mod curve;
#[cfg(feature = "auth")]
pub mod jwt;
mod secrets;
#[cfg(feature = "auth")]
mod signature;

#[cfg(feature = "auth")]
pub use basic::Basic;
#[doc(hidden)]
pub use credential::Accepted;
pub use credential::Credential;
pub use curve::CurveKeys;
#[cfg(feature = "auth")]
pub use jwt::Jwt;
pub use secrets::{ApiKeys, Tokens};
#[cfg(feature = "auth")]
pub use signature::{Signatures, sign};

use std::{fmt, sync::Arc};
pub use switchboard_core::call::Caller;
use switchboard_core::{Call, Peer, Result, layer::BoxFuture};
use switchboard_wire::{Metadata, Status};

/// Authenticates callers by one kind of credentials.
pub trait Auth: Send + Sync + 'static {
    /// Name of the method in the audit log: `token`, `jwt`.
    fn name(&self) -> &str;

    /// Returns whether it reads the [message](Credentials::message), which is then decompressed before the
    /// check.
    fn reads_message(&self) -> bool {
        false
    }

    /// Returns the kind of credentials that it reads. Errors, `WWW-Authenticate` and the OpenAPI document
    /// list it for callers without credentials.
    fn credential(&self) -> Option<Credential> {
        None
    }

    /// Authenticates the caller. It runs in the poll of the connection: return [`Checked::Later`] for checks
    /// that take time.
    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_>;
}

/// Result of a check by an [`Auth`].
// closed: the server decides for each outcome, so that none admits a call by default
pub enum Checked<'a> {
    /// The call has no credentials of this kind: the server tries the next [`Auth`].
    Absent,
    /// The credentials are valid and belong to this caller.
    Caller(Arc<Caller>),
    /// The credentials are valid and belong to a caller that the [`Auth`] stores: consecutive calls by the
    /// same caller share one reference.
    CachedCaller(&'a Arc<Caller>),
    /// The call has credentials of this kind and they are invalid. The text is sent to the caller and written
    /// to the audit log; it must not contain secrets.
    Unauthenticated(&'static str),
    /// The check continues asynchronously. An error is sent to the caller.
    Later(BoxFuture<'static, Result<Arc<Caller>>>),
}

/// The parts of a call that authentication may read.
pub struct Credentials<'a> {
    call: &'a Call,
    method: &'a str,
}

impl<'a> Credentials<'a> {
    #[doc(hidden)]
    pub fn new(call: &'a Call, method: &'a str) -> Credentials<'a> {
        Credentials { call, method }
    }

    /// The full name of the method, `package.Service/Method`.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// Returns the metadata that the caller sent with the call.
    pub fn metadata(&self) -> &'a Metadata {
        self.call.cx().metadata()
    }

    /// Returns the peer of the connection.
    pub fn peer(&self) -> &'a Peer {
        self.call.cx().peer()
    }

    /// Returns the encoded request message. It is `None` for streams of requests, and for compressed messages
    /// unless [`Auth::reads_message`] returns true.
    pub fn message(&self) -> Option<&'a [u8]> {
        self.call.message().filter(|_| !self.call.is_compressed()).map(|message| &message[..])
    }

    /// Returns the credentials after `scheme` in the metadata `authorization`; schemes are compared
    /// case-insensitively.
    pub fn authorization(&self, scheme: &str) -> Option<&'a str> {
        self.authorization_bytes(scheme).and_then(|rest| std::str::from_utf8(rest).ok())
    }

    /// Like `authorization`, but returns bytes, for checks that only compare them.
    fn authorization_bytes(&self, scheme: &str) -> Option<&'a [u8]> {
        let value = self.metadata().value("authorization")?;
        let (found, rest) = value.split_at_checked(scheme.len())?;
        let rest = rest.strip_prefix(b" ")?;
        // Most clients write the scheme in this case, and an exact comparison is faster.
        let is_it = found == scheme.as_bytes() || found.eq_ignore_ascii_case(scheme.as_bytes());
        is_it.then(|| rest.trim_ascii_start())
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Metadata and messages may contain secrets.
        f.debug_struct("Credentials")
            .field("method", &self.method)
            .field("peer", self.peer())
            .finish_non_exhaustive()
    }
}

/// Accepts the client certificate that TLS has verified: the caller's name is the certificate's subject, or
/// its first alternative name if the subject is empty. A certificate without either does not identify a
/// caller.
///
/// ```
/// let server = switchboard::Server::new().auth(switchboard::auth::Certificates::default());
/// ```
#[derive(Debug, Default)]
pub struct Certificates {
    roles: Vec<(String, String)>,
}

impl Certificates {
    /// Gives a role to certificates with this subject, `CN=alice,O=example`, or with this alternative name,
    /// `uri:spiffe://example/alice`.
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

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Certificate)
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(identity) = &credentials.peer().identity else { return Checked::Absent };
        let subject = Some(&identity.subject).filter(|subject| !subject.is_empty());
        let Some(name) = subject.or(identity.names.first()) else { return Checked::Absent };
        let mut caller = Caller::new(name);
        for (name, role) in &self.roles {
            if *name == identity.subject || identity.names.contains(name) {
                caller.roles.push(role.clone());
            }
        }
        Checked::Caller(Arc::new(caller))
    }
}

/// Creates an [`Auth`] from a function that checks credentials.
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
///         // Look the session up in a store.
///         match session.as_str() {
///             "open-sesame" => Ok(Arc::new(Caller::new("ali"))),
///             _ => Err(Status::unauthenticated("no such session")),
///         }
///     }))
/// });
/// // Errors and the OpenAPI document name the header.
/// let sessions = sessions.reads(auth::Credential::Metadata("x-session".into()));
/// let server = switchboard::Server::new().auth(sessions);
/// ```
pub fn from_fn<F>(name: &'static str, check: F) -> FromFn<F>
where
    F: Fn(&Credentials<'_>) -> Checked<'static> + Send + Sync + 'static,
{
    FromFn { name, credential: None, check }
}

/// The [`Auth`] that [`from_fn`] returns.
#[derive(Clone)]
pub struct FromFn<F> {
    name: &'static str,
    credential: Option<Credential>,
    check: F,
}

impl<F> FromFn<F> {
    /// Sets the kind of credentials that the function reads, which errors and OpenAPI name.
    #[must_use]
    pub fn reads(mut self, credential: Credential) -> FromFn<F> {
        self.credential = Some(credential);
        self
    }
}

impl<F> Auth for FromFn<F>
where
    F: Fn(&Credentials<'_>) -> Checked<'static> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn credential(&self) -> Option<Credential> {
        self.credential.clone()
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

/// Creates the error for a call without any credentials that this server accepts.
#[doc(hidden)]
pub fn unauthenticated(text: &str) -> Status {
    Status::unauthenticated(text)
}

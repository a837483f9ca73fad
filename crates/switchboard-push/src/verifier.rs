//! Verification of devices.

use crate::identity::{Credentials, Identity};
use bytes::Bytes;
use std::{future::Future, path::Path, pin::Pin, sync::Arc};
use switchboard::{
    Call, Codec, Cx, Error, Kind, MethodInfo, Result, ServiceInfo, Status,
    auth::{self, Auth, Checked},
    call::RequestBody,
};
use switchboard_wire::Metadata;

/// The result of a verification, which may take time.
pub type Verify = Pin<Box<dyn Future<Output = Result<Identity>> + Send>>;

/// Verifies the credentials of devices, once for each connection. Several verifiers are tried in order: one that finds
/// no credentials of its kind returns `None`.
pub trait Verifier: Send + Sync + 'static {
    /// Begins a verification. `None` if the device has no credentials of this kind.
    ///
    /// The future fails with `Unauthenticated` for invalid credentials. Its text is sent to the device and must not
    /// contain secrets.
    fn verify(&self, credentials: &Credentials) -> Option<Verify>;

    /// Checks the configuration, when the hub is built.
    ///
    /// # Errors
    /// The hub is not built.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Creates a verifier of a function.
///
/// ```
/// use switchboard::Status;
/// use switchboard_push::{Hub, Identity, from_fn};
///
/// let sessions = from_fn(|credentials| async move {
///     match credentials.token.as_str() {
///         "open-sesame" => Ok(Identity::new("ali")),
///         _ => Err(Status::unauthenticated("no such session")),
///     }
/// });
/// let hub = Hub::builder().auth(sessions);
/// ```
pub fn from_fn<F, R>(verify: F) -> impl Verifier
where
    F: Fn(Credentials) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Identity>> + Send + 'static,
{
    FromFn(verify)
}

struct FromFn<F>(F);

impl<F, R> Verifier for FromFn<F>
where
    F: Fn(Credentials) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Identity>> + Send + 'static,
{
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        Some(Box::pin(self.0(credentials.clone())))
    }
}

/// Accepts every device as what it says it is.
pub(crate) struct Open {
    /// The key that a device names is verified as well: it then may belong to another user.
    pub(crate) keeps_keys: bool,
}

impl Verifier for Open {
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        let mut claimed = credentials.claimed.clone();
        if !self.keeps_keys {
            claimed.key = None;
        }
        Some(Box::pin(std::future::ready(Ok(claimed))))
    }
}

/// JSON Web Tokens: `sub` is the user, `exp` ends the connection, `key` names the device, and `rooms` the rooms that it
/// joins or may join. See [`switchboard::auth::Jwt`] for the algorithms and the cache.
///
/// An error of the key is reported when the hub is built.
#[derive(Debug)]
pub struct Jwt(Result<auth::Jwt, Error>);

impl Jwt {
    /// Verifies tokens that are signed with this shared secret of at least 32 bytes.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Jwt {
        Jwt(auth::Jwt::secret(secret.as_ref()))
    }

    /// Verifies tokens with the public key in this PEM file.
    pub fn key_file(path: impl AsRef<Path>) -> Jwt {
        Jwt(auth::Jwt::key_file(path))
    }

    /// Verifies tokens with the key set in this file.
    pub fn jwks_file(path: impl AsRef<Path>) -> Jwt {
        Jwt(auth::Jwt::jwks_file(path))
    }

    /// Verifies tokens with the key set at this URL.
    #[cfg(feature = "web")]
    pub fn jwks_url(url: &str) -> Jwt {
        Jwt(auth::Jwt::jwks_url(url, None))
    }

    /// Accepts only tokens with this `iss`.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Jwt {
        Jwt(self.0.map(|jwt| jwt.issuer(issuer)))
    }

    /// Accepts only tokens whose `aud` is or contains this audience.
    #[must_use]
    pub fn audience(self, audience: impl Into<String>) -> Jwt {
        Jwt(self.0.map(|jwt| jwt.audience(audience)))
    }
}

impl Verifier for Jwt {
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        match &self.0 {
            Ok(jwt) => with_auth(jwt, credentials),
            Err(error) => {
                let status = Status::internal(format!("the keys of tokens cannot be used: {error}"));
                Some(Box::pin(std::future::ready(Err(status))))
            }
        }
    }

    fn check(&self) -> Result<()> {
        match &self.0 {
            Ok(_) => Ok(()),
            Err(error) => Err(Status::invalid_argument(format!("keys of JSON Web Tokens: {error}"))),
        }
    }
}

/// A verifier that checks tokens as a check of calls does.
pub(crate) struct WithAuth<A>(pub(crate) A);

impl<A: Auth> Verifier for WithAuth<A> {
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        with_auth(&self.0, credentials)
    }
}

/// Service that checks of calls see.
static CONNECTION: ServiceInfo = ServiceInfo {
    name: "switchboard.push.Connection",
    methods: &[MethodInfo::new("Connect", Kind::Unary)],
    descriptor: &[],
};

fn with_auth(auth: &dyn Auth, credentials: &Credentials) -> Option<Verify> {
    let mut metadata: Metadata = credentials.metadata.clone();
    if !credentials.token.is_empty() {
        // The token is that of the device; a header may be that of a gateway before it.
        metadata.remove("authorization");
        let value = format!("Bearer {}", credentials.token);
        if metadata.insert("authorization", value).is_err() {
            let status = Status::unauthenticated("the token has characters that a header cannot have");
            return Some(Box::pin(std::future::ready(Err(status))));
        }
    }
    let cx = Cx::new(&credentials.peer, &CONNECTION, &CONNECTION.methods[0], None, metadata);
    let call = Call::new(0, Codec::Json, RequestBody::One(Bytes::new()), cx);
    let ready = |result: Result<Identity>| -> Option<Verify> { Some(Box::pin(std::future::ready(result))) };
    let checked = auth.check(&auth::Credentials::new(&call, "switchboard.push.Connection/Connect"));
    match checked {
        Checked::Absent => None,
        Checked::Caller(caller) => ready(Ok(Identity::from(&*caller))),
        Checked::CachedCaller(caller) => ready(Ok(Identity::from(&**caller))),
        Checked::Unauthenticated(why) => ready(Err(Status::unauthenticated(why))),
        Checked::Later(check) => {
            Some(Box::pin(async move { check.await.map(|caller| Identity::from(&*caller)) }))
        }
    }
}

/// Runs verifiers in order.
pub(crate) fn verify(verifiers: &Arc<[Box<dyn Verifier>]>, credentials: &Credentials) -> Verify {
    let text = if verifiers.is_empty() {
        "this hub has no verifier and refuses every device; configure one, or open() it"
    } else {
        "the device has no credentials that this hub accepts"
    };
    let found = verifiers.iter().find_map(|verifier| verifier.verify(credentials));
    found.unwrap_or_else(|| Box::pin(std::future::ready(Err(Status::unauthenticated(text)))))
}

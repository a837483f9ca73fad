//! JSON Web Tokens, RFC 7519, signed as RFC 7518 says: HS256, RS256, ES256 and EdDSA.
//!
//! The key determines the algorithm, never the token. Verified tokens are cached until they expire, so
//! further calls with the same token need no signature verification.

mod claims;
mod keys;
#[cfg(feature = "web")]
mod remote;

use super::{Auth, Caller, Checked, Credential, Credentials, secrets::same, signature::seconds};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use claims::Claims;
use keys::Keys;
use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};
use switchboard_core::{Error, clock};

/// JSON Web Tokens, sent as `authorization: Bearer TOKEN`.
///
/// A token needs `sub`, which becomes the [caller's](Caller) name, and `exp`. `nbf` is checked if present;
/// `iss` and `aud` are checked if they are configured here. Roles are the words of `scope` and the entries of
/// `roles`.
///
/// ```no_run
/// # fn main() -> Result<(), switchboard::Error> {
/// use switchboard::auth::Jwt;
///
/// let jwt = Jwt::jwks_file("jwks.json")?.issuer("https://login.example").audience("chat");
/// let server = switchboard::Server::new().auth(jwt);
/// # Ok(())
/// # }
/// ```
pub struct Jwt {
    /// Shared with asynchronous checks that wait for keys.
    verifier: Arc<Verifier>,
}

struct Verifier {
    keys: RwLock<Arc<Keys>>,
    source: Source,
    issuer: Option<String>,
    audience: Option<String>,
    leeway: Duration,
    secret: RandomState,
    /// Cache of verified tokens, by hash.
    cache: Mutex<HashMap<u64, CachedToken>>,
}

/// Source of the keys.
enum Source {
    /// Fixed keys.
    Fixed,
    File(File),
    #[cfg(feature = "web")]
    Remote(Box<remote::Remote>),
}

struct CachedToken {
    token: Box<str>,
    claims: Claims,
    caller: Arc<Caller>,
}

struct File {
    path: PathBuf,
    read: fn(&Path) -> Result<Keys, Error>,
    state: Mutex<(Instant, Option<SystemTime>)>,
}

/// Maximum length of a token in bytes; longer ones are rejected without parsing.
const TOKEN_MAX: usize = 8 << 10;
/// Maximum number of cached tokens.
const CACHED_MAX: usize = 4096;
/// Interval between checks for a changed key file.
const LOOK: Duration = Duration::from_secs(5);

impl Jwt {
    /// Verifies tokens that are signed with this shared secret (HS256). The secret needs at least 32 bytes;
    /// shorter ones can be guessed from any token.
    ///
    /// # Errors
    /// Fails if the secret is too short.
    pub fn secret(secret: &[u8]) -> Result<Jwt, Error> {
        Ok(Jwt::new(Keys::secret(secret)?, Source::Fixed))
    }

    /// Verifies tokens with the public key in this PEM file: RS256, ES256 or EdDSA, depending on the key. The
    /// key is reloaded when the file changes.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no such key.
    pub fn key_file(path: impl AsRef<Path>) -> Result<Jwt, Error> {
        Jwt::of_file(path.as_ref(), Keys::read_pem)
    }

    /// Verifies tokens with the keys of the key set (RFC 7517) in this file. The set is reloaded when the
    /// file changes; unsupported keys are skipped.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no supported key.
    pub fn jwks_file(path: impl AsRef<Path>) -> Result<Jwt, Error> {
        Jwt::of_file(path.as_ref(), Keys::read_jwks)
    }

    /// Verifies tokens with the key set at this URL, as OpenID providers publish it (`jwks_uri`). `ca`
    /// contains the trusted roots for `https`; without it the roots of the machine are used.
    ///
    /// The set is fetched with the first token, again after 5 min if calls arrive, and when a token names a
    /// key that is not in the set, but at most every 10 s. If a fetch fails, the current keys remain valid
    /// and a warning is logged; calls before the first successful fetch are rejected with `Unavailable`. A
    /// response is limited to 256 KiB and 5 s. Calls wait for a fetch only if the key of their token is not
    /// in the set.
    ///
    /// # Errors
    /// Fails if the URL is not `http` or `https`, or if the roots cannot be used.
    #[cfg(feature = "web")]
    pub fn jwks_url(url: &str, ca: Option<&Path>) -> Result<Jwt, Error> {
        Ok(Jwt::new(Keys::none(), Source::Remote(Box::new(remote::Remote::new(url, ca)?))))
    }

    /// Sets the minimum time between two fetches of keys by URL, also for tokens with unknown keys; default
    /// 10 s.
    #[cfg(feature = "web")]
    #[must_use]
    pub fn jwks_pause(mut self, pause: Duration) -> Jwt {
        if let Source::Remote(remote) = &mut self.settings().source {
            remote.pause = pause;
        }
        self
    }

    fn of_file(path: &Path, read: fn(&Path) -> Result<Keys, Error>) -> Result<Jwt, Error> {
        let changed = changed(path);
        let file = File { path: path.into(), read, state: Mutex::new((clock::now(), changed)) };
        Ok(Jwt::new(read(path)?, Source::File(file)))
    }

    fn new(keys: Keys, source: Source) -> Jwt {
        let verifier = Verifier {
            keys: RwLock::new(Arc::new(keys)),
            source,
            issuer: None,
            audience: None,
            leeway: Duration::from_secs(30),
            secret: RandomState::new(),
            cache: Mutex::default(),
        };
        Jwt { verifier: Arc::new(verifier) }
    }

    fn settings(&mut self) -> &mut Verifier {
        Arc::get_mut(&mut self.verifier).expect("only checks share it, and they start later")
    }

    /// Accepts only tokens with this `iss`.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> Jwt {
        self.settings().issuer = Some(issuer.into());
        self
    }

    /// Accepts only tokens whose `aud` is or contains this audience.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Jwt {
        self.settings().audience = Some(audience.into());
        self
    }

    /// Sets the tolerated clock difference; default 30 s.
    #[must_use]
    pub fn leeway(mut self, leeway: Duration) -> Jwt {
        self.settings().leeway = leeway;
        self
    }

    /// Verifies a token at `now`, in seconds since 1970, and returns its caller.
    #[cfg(test)]
    fn verify(&self, token: &str, now: u64) -> Result<Arc<Caller>, &'static str> {
        self.verifier.verify(token, now)
    }
}

impl Verifier {
    /// Verifies a token at `now`, in seconds since 1970, and returns its caller.
    fn verify(&self, token: &str, now: u64) -> Result<Arc<Caller>, &'static str> {
        if token.len() > TOKEN_MAX {
            return Err("the token is too long");
        }
        self.look();
        let hash = self.secret.hash_one(token);
        if let Some(cached) =
            self.cache().get(&hash).filter(|cached| same(cached.token.as_bytes(), token.as_bytes()))
        {
            cached.claims.check_time(now, self.leeway.as_secs())?;
            return Ok(cached.caller.clone());
        }
        let (signed, signature) = token.rsplit_once('.').ok_or("the token is not a JWT")?;
        let (header, payload) = signed.split_once('.').ok_or("the token is not a JWT")?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| "the token is not a JWT");
        let (header, signature) = (decode(header)?, decode(signature)?);
        self.keys().verify(&header, signed.as_bytes(), &signature)?;
        let (claims, caller) = Claims::read(&decode(payload)?)?;
        claims.check(&caller, self.issuer.as_deref(), self.audience.as_deref())?;
        claims.check_time(now, self.leeway.as_secs())?;
        let caller = Arc::new(caller);
        let mut cache = self.cache();
        if cache.len() >= CACHED_MAX {
            // Clearing the whole cache is enough: tokens in use return with their next call.
            cache.clear();
        }
        cache.insert(hash, CachedToken { token: token.into(), claims, caller: caller.clone() });
        Ok(caller)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, HashMap<u64, CachedToken>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the keys if their file has changed. A file that cannot be used is ignored with a warning.
    fn look(&self) {
        let Source::File(file) = &self.source else { return };
        // Concurrent calls continue with the current keys.
        let Ok(mut state) = file.state.try_lock() else { return };
        if state.0.elapsed() < LOOK {
            return;
        }
        state.0 = clock::now();
        let now = changed(&file.path);
        if now == state.1 {
            return;
        }
        state.1 = now;
        match (file.read)(&file.path) {
            Ok(keys) => self.replace(keys),
            Err(error) => tracing::warn!("keeping the previous keys: {error}"),
        }
    }
}

impl Verifier {
    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the keys and clears the cache of verified tokens.
    fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        self.cache().clear();
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

impl Auth for Jwt {
    fn name(&self) -> &str {
        "jwt"
    }

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Authorization("Bearer".into()))
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(token) = credentials.authorization("Bearer") else { return Checked::Absent };
        // A token without three parts is not a JWT and may belong to another [`Auth`].
        if token.split('.').count() != 3 {
            return Checked::Absent;
        }
        #[cfg(feature = "web")]
        if let Some(later) = remote::check_later(&self.verifier, token) {
            return Checked::Later(later);
        }
        match self.verifier.verify(token, seconds()) {
            Ok(caller) => Checked::Caller(caller),
            Err(why) => Checked::Unauthenticated(why),
        }
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Jwt");
        match &self.verifier.source {
            Source::Fixed => {}
            Source::File(file) => {
                debug.field("file", &file.path);
            }
            #[cfg(feature = "web")]
            Source::Remote(remote) => {
                debug.field("url", &remote.url);
            }
        }
        debug.field("issuer", &self.verifier.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! JSON Web Tokens, RFC 7519, signed as RFC 7518 says: HS256, RS256, ES256 and EdDSA.
//!
//! The key says which algorithm is meant, never the token. Tokens that were good are remembered until they expire, so
//! that a caller's second call costs no signature.

mod claims;
mod keys;
#[cfg(feature = "web")]
mod remote;

use super::{Auth, Caller, Checked, Credentials, secrets::same, signature::seconds};
use crate::Error;
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

/// JSON Web Tokens, sent as `authorization: Bearer TOKEN`.
///
/// A token needs `sub`, who becomes the [caller's](Caller) name, and `exp`; `nbf` is looked at, `iss` and `aud` if
/// they are set here. Roles are the words of `scope` and the entries of `roles`.
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
    /// Shared with checks that wait for keys.
    verifier: Arc<Verifier>,
}

struct Verifier {
    keys: RwLock<Arc<Keys>>,
    source: Source,
    issuer: Option<String>,
    audience: Option<String>,
    leeway: Duration,
    secret: RandomState,
    /// Tokens that were good.
    known: Mutex<HashMap<u64, Known>>,
}

/// Where the keys came from.
enum Source {
    /// They do not change.
    Fixed,
    File(File),
    #[cfg(feature = "web")]
    Remote(Box<remote::Remote>),
}

struct Known {
    token: Box<str>,
    claims: Claims,
    caller: Arc<Caller>,
}

struct File {
    path: PathBuf,
    read: fn(&Path) -> Result<Keys, Error>,
    state: Mutex<(Instant, Option<SystemTime>)>,
}

/// Longer tokens are refused unread.
const TOKEN_MAX: usize = 8 << 10;
/// Tokens that are remembered.
const KNOWN_MAX: usize = 4096;
/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(5);

impl Jwt {
    /// Tokens signed with this shared secret, HS256; of at least 32 bytes, or it can be guessed from any token.
    ///
    /// # Errors
    /// A secret that is too short.
    pub fn secret(secret: &[u8]) -> Result<Jwt, Error> {
        Ok(Jwt::new(Keys::secret(secret)?, Source::Fixed))
    }

    /// Tokens signed with the private key that belongs to the public key in this PEM file: RS256, ES256 or EdDSA, as
    /// the key is. When the file changes its new key holds.
    ///
    /// # Errors
    /// A file that cannot be read or has no such key.
    pub fn key_file(path: impl AsRef<Path>) -> Result<Jwt, Error> {
        Jwt::of_file(path.as_ref(), Keys::read_pem)
    }

    /// Tokens signed with one of the keys of this set (RFC 7517). When the file changes its new keys hold; keys that
    /// cannot be used here are left out.
    ///
    /// # Errors
    /// A file that cannot be read or has no key that can be used.
    pub fn jwks_file(path: impl AsRef<Path>) -> Result<Jwt, Error> {
        Jwt::of_file(path.as_ref(), Keys::read_jwks)
    }

    /// Tokens signed with one of the keys of the set at this URL, as OpenID providers publish it (`jwks_uri`). `ca` are
    /// the roots to trust with `https`, those of the machine without.
    ///
    /// The set is fetched with the first token, again after 5 min of calls, and when a token names a key that is not in
    /// it, but every 10 s at most. While it cannot be fetched, known keys go on to hold, and a warning says
    /// so; calls before the first fetch are refused with `Unavailable`. An answer has 256 KiB at most, within 5 s.
    /// Callers wait for a fetch only when the key of their token is not known.
    ///
    /// # Errors
    /// A URL that is none of `http` and `https`, and roots that cannot be used.
    #[cfg(feature = "web")]
    pub fn jwks_url(url: &str, ca: Option<&Path>) -> Result<Jwt, Error> {
        Ok(Jwt::new(Keys::none(), Source::Remote(Box::new(remote::Remote::new(url, ca)?))))
    }

    /// How long it is between two fetches at least, whatever tokens name; 10 s unless set. Of keys by URL.
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
        let file = File { path: path.into(), read, state: Mutex::new((Instant::now(), changed)) };
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
            known: Mutex::default(),
        };
        Jwt { verifier: Arc::new(verifier) }
    }

    fn settings(&mut self) -> &mut Verifier {
        Arc::get_mut(&mut self.verifier).expect("it is shared by checks alone, which come later")
    }

    /// Only tokens with this `iss`.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> Jwt {
        self.settings().issuer = Some(issuer.into());
        self
    }

    /// Only tokens with this `aud`, or one of them.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Jwt {
        self.settings().audience = Some(audience.into());
        self
    }

    /// How far clocks may be off; 30 s unless set.
    #[must_use]
    pub fn leeway(mut self, leeway: Duration) -> Jwt {
        self.settings().leeway = leeway;
        self
    }

    /// Whose token it is, at `now` in seconds since 1970.
    #[cfg(test)]
    fn verify(&self, token: &str, now: u64) -> Result<Arc<Caller>, &'static str> {
        self.verifier.verify(token, now)
    }
}

impl Verifier {
    /// Whose token it is, at `now` in seconds since 1970.
    fn verify(&self, token: &str, now: u64) -> Result<Arc<Caller>, &'static str> {
        if token.len() > TOKEN_MAX {
            return Err("the token is too long");
        }
        self.look();
        let hash = self.secret.hash_one(token);
        if let Some(known) =
            self.known().get(&hash).filter(|known| same(known.token.as_bytes(), token.as_bytes()))
        {
            known.claims.check_time(now, self.leeway.as_secs())?;
            return Ok(known.caller.clone());
        }
        let (signed, signature) = token.rsplit_once('.').ok_or("the token is no JWT")?;
        let (header, payload) = signed.split_once('.').ok_or("the token is no JWT")?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| "the token is no JWT");
        let (header, signature) = (decode(header)?, decode(signature)?);
        self.keys().verify(&header, signed.as_bytes(), &signature)?;
        let (claims, caller) = Claims::read(&decode(payload)?)?;
        claims.check(&caller, self.issuer.as_deref(), self.audience.as_deref())?;
        claims.check_time(now, self.leeway.as_secs())?;
        let caller = Arc::new(caller);
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            // All at once: those in use are back with their next call.
            known.clear();
        }
        known.insert(hash, Known { token: token.into(), claims, caller: caller.clone() });
        Ok(caller)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the keys again if their file has changed; what cannot be used changes nothing.
    fn look(&self) {
        let Source::File(file) = &self.source else { return };
        // Whoever comes meanwhile goes on with the keys that are there.
        let Ok(mut state) = file.state.try_lock() else { return };
        if state.0.elapsed() < LOOK {
            return;
        }
        state.0 = Instant::now();
        let now = changed(&file.path);
        if now == state.1 {
            return;
        }
        state.1 = now;
        match (file.read)(&file.path) {
            Ok(keys) => self.replace(keys),
            Err(error) => tracing::warn!("going on with the keys from before: {error}"),
        }
    }
}

impl Verifier {
    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these keys hold.
    fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        self.known().clear();
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

impl Auth for Jwt {
    fn name(&self) -> &str {
        "jwt"
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(token) = credentials.authorization("Bearer") else { return Checked::Absent };
        // A token that is not even of three parts may be known to somebody else.
        if token.split('.').count() != 3 {
            return Checked::Absent;
        }
        #[cfg(feature = "web")]
        if let Some(later) = remote::check_later(&self.verifier, token) {
            return Checked::Later(later);
        }
        match self.verifier.verify(token, seconds()) {
            Ok(caller) => Checked::Caller(caller),
            Err(why) => Checked::Wrong(why),
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

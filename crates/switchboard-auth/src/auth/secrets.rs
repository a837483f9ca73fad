//! Secrets that callers send unmodified: tokens and API keys.

use super::{Auth, Caller, Checked, Credential, Credentials};
use foldhash::quality::RandomState;
use std::{
    cell::Cell,
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hasher},
    hint::black_box,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Tokens, sent as `authorization: Bearer TOKEN`.
///
/// ```
/// use switchboard::auth::{Caller, Tokens};
///
/// let tokens = Tokens::default().token("s3cr3t-of-alice", Caller::new("alice").role("admin"));
/// let server = switchboard::Server::new().auth(tokens);
/// ```
#[derive(Debug, Default)]
pub struct Tokens {
    secrets: Secrets,
}

impl Tokens {
    /// Maps this token to a caller.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>, caller: Caller) -> Tokens {
        self.secrets.insert(token.into(), caller);
        self
    }
}

impl Auth for Tokens {
    fn name(&self) -> &str {
        "token"
    }

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Authorization("Bearer".into()))
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        match credentials.authorization_bytes("Bearer") {
            None => Checked::Absent,
            Some(token) => self.secrets.check(token, "the token is not valid"),
        }
    }
}

/// API keys, sent in a metadata entry of their own; its default name is `x-api-key`.
#[derive(Debug)]
pub struct ApiKeys {
    name: String,
    secrets: Secrets,
}

impl Default for ApiKeys {
    fn default() -> ApiKeys {
        ApiKeys { name: "x-api-key".into(), secrets: Secrets::default() }
    }
}

impl ApiKeys {
    /// Reads keys from the metadata entry `name`.
    pub fn in_metadata(name: impl Into<String>) -> ApiKeys {
        ApiKeys { name: name.into().to_ascii_lowercase(), secrets: Secrets::default() }
    }

    /// Maps this key to a caller.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>, caller: Caller) -> ApiKeys {
        self.secrets.insert(key.into(), caller);
        self
    }
}

impl Auth for ApiKeys {
    fn name(&self) -> &str {
        "api key"
    }

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Metadata(self.name.clone().into()))
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        match credentials.metadata().value(&self.name) {
            None => Checked::Absent,
            Some(key) => self.secrets.check(key, "the API key is not valid"),
        }
    }
}

/// Secrets with their callers. The lookup uses a hash with a key of this process, so its duration reveals
/// nothing about the stored secrets; the candidate is then compared in constant time.
#[derive(Default)]
pub(super) struct Secrets {
    key: RandomState,
    entries: Vec<(String, SharedCaller)>,
    by_hash: HashMap<u64, Vec<usize>, RandomState>,
}

/// A caller in several copies, one for each group of threads. Each call increments and decrements the
/// reference count of one copy, so that cores do not contend for one cache line.
struct SharedCaller {
    caller: Caller,
    copies: [OnceLock<Arc<Caller>>; COPIES],
}

const COPIES: usize = 8;

// Of the thread: a copy that each call chose anew would not stay in the cache of its core.
thread_local! {
    /// Index of the copy that this thread uses.
    static COPY: usize = NEXT.fetch_add(1, Ordering::Relaxed) % COPIES;
    /// Index of the secret that this thread found last: consecutive calls often send the same secret.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl SharedCaller {
    fn of(caller: Caller) -> SharedCaller {
        SharedCaller { caller, copies: Default::default() }
    }

    fn shared(&self) -> &Arc<Caller> {
        // A thread that is shutting down uses the first copy.
        let copy = COPY.try_with(|copy| *copy).unwrap_or(0);
        self.copies[copy].get_or_init(|| Arc::new(self.caller.clone()))
    }
}

impl Secrets {
    pub(super) fn insert(&mut self, secret: String, caller: Caller) {
        let hash = self.hash(secret.as_bytes());
        self.by_hash.entry(hash).or_default().push(self.entries.len());
        self.entries.push((secret, SharedCaller::of(caller)));
    }

    pub(super) fn find(&self, secret: &[u8]) -> Option<&Arc<Caller>> {
        let whose = |at: usize| {
            let (stored, caller) = self.entries.get(at)?;
            same(stored.as_bytes(), secret).then_some(caller)
        };
        let caller = whose(LAST.get()).or_else(|| {
            let all = self.by_hash.get(&self.hash(secret))?;
            all.iter().find_map(|at| whose(*at).inspect(|_| LAST.set(*at)))
        });
        caller.map(SharedCaller::shared)
    }

    fn hash(&self, secret: &[u8]) -> u64 {
        let mut hasher = self.key.build_hasher();
        hasher.write(secret);
        hasher.finish()
    }

    fn check(&self, secret: &[u8], otherwise: &'static str) -> Checked<'_> {
        self.find(secret).map_or(Checked::Unauthenticated(otherwise), Checked::CachedCaller)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.entries.len())
    }
}

/// Compares in a time that depends only on the lengths.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (Some(one_last), Some(other_last)) = (one.last_chunk::<8>(), other.last_chunk()) else {
        return one.iter().zip(other).fold(0, |differs, (one, other)| black_box(differs | (one ^ other)))
            == 0;
    };
    let words = one.as_chunks().0.iter().zip(other.as_chunks().0);
    // The last word may overlap the previous one, so that no bytes remain.
    let differs = words.chain([(one_last, other_last)]).fold(0, |differs, (one, other)| {
        black_box(differs | (u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other)))
    });
    differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_and_not_shown() {
        let mut secrets = Secrets::default();
        for n in 0..100 {
            secrets.insert(format!("secret-{n}"), Caller::new(format!("caller-{n}")));
        }
        for n in [42, 42, 7, 0] {
            assert_eq!(secrets.find(format!("secret-{n}").as_bytes()).unwrap().name, format!("caller-{n}"));
        }
        for wrong in ["", "secret-", "secret-420", "Secret-42"] {
            assert!(secrets.find(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert_eq!(format!("{secrets:?}"), "100 secrets");
        assert!(same(b"", b"") && same(b"ab", b"ab") && !same(b"ab", b"ac") && !same(b"a", b"ab"));
        let long = *b"a secret of twenty-one";
        for at in 0..long.len() {
            let mut other = long;
            other[at] ^= 1;
            assert!(same(&long, &long) && !same(&long, &other) && !same(&long, &long[..at]), "{at}");
        }
    }
}

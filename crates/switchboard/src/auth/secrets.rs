//! Secrets that are sent as they are: tokens and API keys.

use super::{Auth, Caller, Checked, Credentials};
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
    /// Whoever sends this token is this caller.
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

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        match credentials.authorization_bytes("Bearer") {
            None => Checked::Absent,
            Some(token) => self.secrets.check(token, "the token is not known here"),
        }
    }
}

/// API keys, sent in metadata of their own, `x-api-key` unless another name is set.
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
    /// Keys that are sent in the metadata `name`.
    pub fn in_metadata(name: impl Into<String>) -> ApiKeys {
        ApiKeys { name: name.into().to_ascii_lowercase(), secrets: Secrets::default() }
    }

    /// Whoever sends this key is this caller.
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

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        match credentials.metadata().value(&self.name) {
            None => Checked::Absent,
            Some(key) => self.secrets.check(key, "the API key is not known here"),
        }
    }
}

/// Secrets and whose they are. They are found by a hash with a key of this process, so that how long it takes says
/// nothing of those that are known, and then compared in constant time.
#[derive(Default)]
pub(super) struct Secrets {
    key: RandomState,
    known: Vec<(String, Known)>,
    by_hash: HashMap<u64, Vec<usize>, RandomState>,
}

/// A caller, once for each of a few groups of threads: each call counts its reference to one up and down, and cores
/// that did so in the same place would wait for each other.
struct Known {
    caller: Caller,
    copies: [OnceLock<Arc<Caller>>; COPIES],
}

const COPIES: usize = 8;

thread_local! {
    /// Which copy this thread takes.
    static COPY: usize = NEXT.fetch_add(1, Ordering::Relaxed) % COPIES;
    /// Which secret this thread found last: whoever calls sends the same again and again.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

impl Known {
    fn of(caller: Caller) -> Known {
        Known { caller, copies: Default::default() }
    }

    fn shared(&self) -> &Arc<Caller> {
        // Threads that end take any.
        let copy = COPY.try_with(|copy| *copy).unwrap_or(0);
        self.copies[copy].get_or_init(|| Arc::new(self.caller.clone()))
    }
}

impl Secrets {
    pub(super) fn insert(&mut self, secret: String, caller: Caller) {
        let hash = self.hash(secret.as_bytes());
        self.by_hash.entry(hash).or_default().push(self.known.len());
        self.known.push((secret, Known::of(caller)));
    }

    pub(super) fn find(&self, secret: &[u8]) -> Option<&Arc<Caller>> {
        let whose = |at: usize| {
            let (known, caller) = self.known.get(at)?;
            same(known.as_bytes(), secret).then_some(caller)
        };
        let caller = whose(LAST.get()).or_else(|| {
            let all = self.by_hash.get(&self.hash(secret))?;
            all.iter().find_map(|at| whose(*at).inspect(|_| LAST.set(*at)))
        });
        caller.map(Known::shared)
    }

    fn hash(&self, secret: &[u8]) -> u64 {
        let mut hasher = self.key.build_hasher();
        hasher.write(secret);
        hasher.finish()
    }

    fn check(&self, secret: &[u8], otherwise: &'static str) -> Checked<'_> {
        self.find(secret).map_or(Checked::Wrong(otherwise), Checked::Known)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.known.len())
    }
}

/// Compares in a time that depends on the lengths alone.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (Some(one_last), Some(other_last)) = (one.last_chunk::<8>(), other.last_chunk()) else {
        return one.iter().zip(other).fold(0, |differs, (one, other)| black_box(differs | (one ^ other)))
            == 0;
    };
    let words = one.as_chunks().0.iter().zip(other.as_chunks().0);
    // The last word overlaps the one before it, unless that ends where it does.
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

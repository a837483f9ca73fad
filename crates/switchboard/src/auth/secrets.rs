//! Secrets that are sent as they are: tokens and API keys.

use super::{Auth, Caller, Checked, Credentials};
use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    hint::black_box,
    sync::Arc,
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

    fn check(&self, credentials: &Credentials<'_>) -> Checked {
        match credentials.authorization("bearer") {
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

    fn check(&self, credentials: &Credentials<'_>) -> Checked {
        match credentials.metadata().text(&self.name) {
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
    by_hash: HashMap<u64, Vec<(String, Arc<Caller>)>>,
}

impl Secrets {
    pub(super) fn insert(&mut self, secret: String, caller: Caller) {
        let hash = self.key.hash_one(&secret);
        self.by_hash.entry(hash).or_default().push((secret, Arc::new(caller)));
    }

    pub(super) fn find(&self, secret: &str) -> Option<&Arc<Caller>> {
        let known = self.by_hash.get(&self.key.hash_one(secret))?;
        known.iter().find(|(known, _)| same(known.as_bytes(), secret.as_bytes())).map(|(_, caller)| caller)
    }

    fn check(&self, secret: &str, otherwise: &'static str) -> Checked {
        self.find(secret).map_or(Checked::Wrong(otherwise), |caller| Checked::Caller(caller.clone()))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.by_hash.len())
    }
}

/// Compares in a time that depends on the lengths alone.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differs, (one, other)| black_box(differs | (one ^ other))) == 0
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
        assert_eq!(secrets.find("secret-42").unwrap().name, "caller-42");
        for wrong in ["", "secret-", "secret-420", "Secret-42"] {
            assert!(secrets.find(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{secrets:?}"), "100 secrets");
        assert!(same(b"", b"") && same(b"ab", b"ab") && !same(b"ab", b"ac") && !same(b"a", b"ab"));
    }
}

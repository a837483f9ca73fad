//! Calls signed with a shared secret that is never sent: HMAC-SHA256 over method, time, nonce and body.

use super::{Auth, Caller, Checked, Credential, Credentials};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{digest, hmac};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};
use switchboard_core::clock;

/// Signatures, sent as `authorization: Switchboard-HMAC key=ID,time=SECONDS,nonce=ANY,signature=BASE64URL`.
///
/// The signed text has five lines: `switchboard-hmac-1`, the full name of the method, the time in seconds
/// since 1970, the nonce, and the SHA-256 of the request message in base64url. For a stream of requests the
/// hash is that of the empty string: streamed messages are not protected. The message is the one that the
/// method takes; on JSON-RPC it is the parameters as an object.
///
/// A signature is valid once, within the [window](Self::window) around its time. Nonces are kept for that
/// long; when the table is full, further calls are rejected, so that no replay is accepted.
///
/// ```
/// use switchboard::auth::{Caller, Signatures, sign};
///
/// let signatures = Signatures::default().key("alice-1", b"a long secret", Caller::new("alice"));
/// let server = switchboard::Server::new().auth(signatures);
/// // Value that a client sends as `authorization` of one call:
/// let value = sign("alice-1", b"a long secret", "demo.Chat/Say", b"the encoded request");
/// assert!(value.starts_with("Switchboard-HMAC key=alice-1,time="));
/// ```
pub struct Signatures {
    keys: HashMap<String, (hmac::Key, Arc<Caller>)>,
    window: Duration,
    secret: RandomState,
    seen: Mutex<Seen>,
}

/// Nonces of the current span of time and of the previous one.
#[derive(Default)]
struct Seen {
    span: u64,
    now: HashSet<u64>,
    before: HashSet<u64>,
    /// Number of nonces of this span by key id; the number of keys is limited by the configuration.
    of_key: HashMap<String, usize>,
}

const SCHEME: &str = "Switchboard-HMAC";
/// Maximum number of nonces of one span, 16 bytes each.
const NONCES_MAX: usize = 1 << 20;
/// Maximum number of nonces of one of several keys: half of the table, so that one key cannot block the
/// others.
const NONCES_OF_KEY_MAX: usize = NONCES_MAX / 2;
/// Maximum length of a part of the value in bytes; longer ones are rejected without parsing.
const PART_MAX: usize = 256;

impl Default for Signatures {
    fn default() -> Signatures {
        Signatures {
            keys: HashMap::new(),
            window: Duration::from_secs(120),
            secret: RandomState::new(),
            seen: Mutex::default(),
        }
    }
}

impl Signatures {
    /// Maps signatures with this secret and this id to a caller. The id must not contain a comma.
    #[must_use]
    pub fn key(mut self, id: impl Into<String>, secret: &[u8], caller: Caller) -> Signatures {
        self.keys.insert(id.into(), (hmac::Key::new(hmac::HMAC_SHA256, secret), Arc::new(caller)));
        self
    }

    /// Sets the tolerated difference to the clocks of callers in both directions; default 2 min, at least 1
    /// s.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Signatures {
        self.window = window.max(Duration::from_secs(1));
        self
    }

    /// Verifies a signature at `now`, in seconds since 1970, and returns its caller.
    fn verify(
        &self,
        value: &str,
        method: &str,
        message: &[u8],
        now: u64,
    ) -> Result<Arc<Caller>, &'static str> {
        let part = |name: &str| {
            let mut parts = value.split(',').filter_map(|part| part.trim().split_once('='));
            parts
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
                .filter(|value| value.len() <= PART_MAX)
        };
        let (Some(id), Some(time), Some(nonce), Some(signature)) =
            (part("key"), part("time"), part("nonce"), part("signature"))
        else {
            return Err("a signature has key, time, nonce and signature");
        };
        let wrong = "the signature is wrong";
        let (key, caller) = self.keys.get(id).ok_or(wrong)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| wrong)?;
        hmac::verify(key, text(method, time, nonce, message).as_bytes(), &signature).map_err(|_| wrong)?;
        // The time is checked after the signature: a caller without the secret learns nothing about the clock
        // and cannot fill the table.
        let signed_at = time.parse::<u64>().map_err(|_| "the time of the signature is not a number")?;
        let window = self.window.as_secs();
        if signed_at.abs_diff(now) > window {
            return Err("the signature is too old, or from the future: look at the clocks");
        }
        let nonce = self.secret.hash_one((id, time, nonce));
        let span = now / (2 * window + 1);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(
            nonce,
            span,
            id,
            self.keys.len() > 1,
        )?;
        Ok(caller.clone())
    }
}

impl Seen {
    /// Records a nonce of this key. `shares` states whether the table serves other keys as well.
    fn insert(&mut self, nonce: u64, span: u64, key: &str, shares: bool) -> Result<(), &'static str> {
        if span > self.span {
            let before = std::mem::take(&mut self.now);
            self.before = if span == self.span + 1 { before } else { HashSet::new() };
            self.span = span;
            self.of_key.clear();
        }
        if self.now.contains(&nonce) || self.before.contains(&nonce) {
            return Err("the signature was used before");
        }
        if self.now.len() >= NONCES_MAX {
            return Err("the table of nonces is full, so replays cannot be detected; retry later");
        }
        match self.of_key.get_mut(key) {
            Some(count) if shares && *count >= NONCES_OF_KEY_MAX => {
                return Err(
                    "the table of nonces is full for this key, so replays cannot be detected; retry later",
                );
            }
            Some(count) => *count += 1,
            None => _ = self.of_key.insert(key.to_owned(), 1),
        }
        self.now.insert(nonce);
        Ok(())
    }
}

impl Auth for Signatures {
    fn name(&self) -> &str {
        "signature"
    }

    fn credential(&self) -> Option<Credential> {
        Some(Credential::Authorization(SCHEME.into()))
    }

    fn reads_message(&self) -> bool {
        true
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(value) = credentials.authorization(SCHEME) else { return Checked::Absent };
        let message = credentials.message().unwrap_or_default();
        match self.verify(value, credentials.method(), message, seconds()) {
            Ok(caller) => Checked::Caller(caller),
            Err(why) => Checked::Unauthenticated(why),
        }
    }
}

/// Returns the value of `authorization` for one call of `method` (`package.Service/Method`) with this encoded
/// request message; pass an empty message for a stream of requests.
pub fn sign(id: &str, secret: &[u8], method: &str, message: &[u8]) -> String {
    let nonce = URL_SAFE_NO_PAD.encode(RandomState::new().hash_one(0).to_le_bytes());
    signed(id, secret, method, message, seconds(), &nonce)
}

fn signed(id: &str, secret: &[u8], method: &str, message: &[u8], time: u64, nonce: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = hmac::sign(&key, text(method, &time.to_string(), nonce, message).as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
    format!("{SCHEME} key={id},time={time},nonce={nonce},signature={signature}")
}

/// Builds the text that is signed.
fn text(method: &str, time: &str, nonce: &str, message: &[u8]) -> String {
    let digest = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, message));
    format!("switchboard-hmac-1\n{method}\n{time}\n{nonce}\n{digest}")
}

pub(super) fn seconds() -> u64 {
    clock::time_of_day().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for Signatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signatures({} keys)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_leaves_room_for_the_others() {
        let mut seen = Seen::default();
        let taken =
            (0..NONCES_MAX as u64).filter(|nonce| seen.insert(*nonce, 1, "greedy", true).is_ok()).count();
        assert_eq!(taken, NONCES_OF_KEY_MAX);
        seen.insert(u64::MAX, 1, "other", true).unwrap();
        assert!(seen.insert(u64::MAX - 1, 1, "greedy", true).is_err());
        seen.insert(u64::MAX - 1, 2, "greedy", true).expect("in the next span");
    }

    #[test]
    fn signatures_are_valid_once_within_their_window() {
        let signatures = Signatures::default().key("a", b"secret", Caller::new("alice"));
        let now = 1_800_000_000;
        let sign = |time, nonce: &str| {
            let value = signed("a", b"secret", "x.Y/Z", b"message", time, nonce);
            value.strip_prefix("Switchboard-HMAC ").unwrap().to_owned()
        };
        let verify = |value: &str, now| signatures.verify(value, "x.Y/Z", b"message", now);
        let value = sign(now, "1");
        assert_eq!(verify(&value, now + 100).unwrap().name, "alice");
        assert_eq!(verify(&value, now + 100), Err("the signature was used before"));
        // Replays are detected as long as the signature would be valid, regardless of span boundaries.
        for later in 0..=20 {
            assert_eq!(verify(&value, now + 100 + later), Err("the signature was used before"));
        }
        let late = "the signature is too old, or from the future: look at the clocks";
        assert_eq!(verify(&sign(now, "2"), now + 121), Err(late));
        assert_eq!(verify(&sign(now, "2"), now - 121), Err(late));
        let fresh = sign(now, "3");
        for (method, message) in [("x.Y/W", &b"message"[..]), ("x.Y/Z", b"massage")] {
            assert_eq!(signatures.verify(&fresh, method, message, now), Err("the signature is wrong"));
        }
        for (wanted, put) in [("key=a", "key=b"), ("nonce=3", "nonce=4"), ("time=18", "time=19")] {
            assert_eq!(verify(&fresh.replace(wanted, put), now), Err("the signature is wrong"), "{put}");
        }
        for odd in ["", "key=a", "key=a,time=1,nonce=1,signature=!", "=,,=,"] {
            assert!(verify(odd, now).is_err(), "{odd}");
        }
        verify(&fresh, now).unwrap();
    }
}

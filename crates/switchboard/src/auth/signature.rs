//! Calls signed with a shared secret, which itself is never sent: HMAC-SHA256 over method, time, nonce and body.

use super::{Auth, Caller, Checked, Credentials};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{digest, hmac};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Signatures, sent as `authorization: Switchboard-HMAC key=ID,time=SECONDS,nonce=ANY,signature=BASE64URL`.
///
/// Signed are five lines: `switchboard-hmac-1`, the full name of the method, the time in seconds since 1970, the nonce,
/// and the SHA-256 of the request message in base64url; of a stream of requests that of nothing, so what streams is
/// not protected. The message is the one that the method takes: on JSON-RPC its parameters as an object.
///
/// A signature is good for the [window](Self::window) around its time, and once: nonces are kept that long, and when
/// there are too many of them calls are refused rather than replays let in.
///
/// ```
/// use switchboard::auth::{Caller, Signatures, sign};
///
/// let signatures = Signatures::default().key("alice-1", b"a long secret", Caller::new("alice"));
/// let server = switchboard::Server::new().auth(signatures);
/// // What a client sends as `authorization` of one call:
/// let value = sign("alice-1", b"a long secret", "demo.Chat/Say", b"the encoded request");
/// assert!(value.starts_with("Switchboard-HMAC key=alice-1,time="));
/// ```
pub struct Signatures {
    keys: HashMap<String, (hmac::Key, Arc<Caller>)>,
    window: Duration,
    secret: RandomState,
    seen: Mutex<Seen>,
}

/// Nonces of this span of time, and of the one before.
#[derive(Default)]
struct Seen {
    span: u64,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

const SCHEME: &str = "Switchboard-HMAC";
/// Nonces of one span, 16 bytes each.
const NONCES_MAX: usize = 1 << 20;
/// Longer parts of the value are not looked at.
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
    /// Whoever signs with this secret under this id, which has no comma, is this caller.
    #[must_use]
    pub fn key(mut self, id: impl Into<String>, secret: &[u8], caller: Caller) -> Signatures {
        self.keys.insert(id.into(), (hmac::Key::new(hmac::HMAC_SHA256, secret), Arc::new(caller)));
        self
    }

    /// How far the clocks of callers may be off, either way; 2 min unless set, at least 1 s.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Signatures {
        self.window = window.max(Duration::from_secs(1));
        self
    }

    /// Who signed, at `now` in seconds since 1970.
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
        // Only now: who cannot sign learns nothing of the clock, and fills no table.
        let signed_at = time.parse::<u64>().map_err(|_| "the time of the signature is no number")?;
        let window = self.window.as_secs();
        if signed_at.abs_diff(now) > window {
            return Err("the signature is too old, or from the future: look at the clocks");
        }
        let nonce = self.secret.hash_one((id, time, nonce));
        let span = now / (2 * window + 1);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce, span)?;
        Ok(caller.clone())
    }
}

impl Seen {
    fn insert(&mut self, nonce: u64, span: u64) -> Result<(), &'static str> {
        if span > self.span {
            let before = std::mem::take(&mut self.now);
            self.before = if span == self.span + 1 { before } else { HashSet::new() };
            self.span = span;
        }
        if self.now.contains(&nonce) || self.before.contains(&nonce) {
            return Err("the signature was used before");
        }
        if self.now.len() >= NONCES_MAX {
            return Err("too many signed calls to tell a replay from a call");
        }
        self.now.insert(nonce);
        Ok(())
    }
}

impl Auth for Signatures {
    fn name(&self) -> &str {
        "signature"
    }

    fn reads_message(&self) -> bool {
        true
    }

    fn check(&self, credentials: &Credentials<'_>) -> Checked<'_> {
        let Some(value) = credentials.authorization(SCHEME) else { return Checked::Absent };
        let message = credentials.message().unwrap_or_default();
        match self.verify(value, credentials.method(), message, seconds()) {
            Ok(caller) => Checked::Caller(caller),
            Err(why) => Checked::Wrong(why),
        }
    }
}

/// What a caller sends as `authorization` of one call of `method`, `package.Service/Method`, with this encoded request
/// message; an empty one for a stream of them.
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

/// What is signed.
fn text(method: &str, time: &str, nonce: &str, message: &[u8]) -> String {
    let digest = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, message));
    format!("switchboard-hmac-1\n{method}\n{time}\n{nonce}\n{digest}")
}

pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
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
    fn signatures_are_good_once_in_their_window_for_what_they_sign() {
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
        // Not forgotten for as long as it would be good, whenever spans end.
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

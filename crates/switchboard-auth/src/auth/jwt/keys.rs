//! The keys that verify tokens, from PEM files and key sets.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    signature::{self, RsaPublicKeyComponents, UnparsedPublicKey},
};
use serde_json::Value;
use std::path::Path;
use switchboard_core::Error;
use switchboard_net::net::tls;

/// Set of keys of one issuer.
pub(super) struct Keys(Vec<Key>);

struct Key {
    /// Key id that tokens refer to, if the key has one.
    id: Option<String>,
    verifier: Verifier,
}

enum Verifier {
    Ed25519(Vec<u8>),
    P256(Vec<u8>),
    /// Encoded as in RFC 8017.
    Rsa(Vec<u8>),
    RsaParts {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    Secret(hmac::Key),
}

/// Maximum number of keys that are tried for one token.
const KEYS_MAX: usize = 64;
const SECRET_LEAST: usize = 32;
/// Key types, as OIDs: rsaEncryption, id-ecPublicKey, id-Ed25519.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
/// Length of an uncompressed point of P-256.
const POINT: usize = 65;

impl Keys {
    pub(super) fn secret(secret: &[u8]) -> Result<Keys, Error> {
        if secret.len() < SECRET_LEAST {
            let text = format!(
                "jwt: a secret of {} bytes is too short: use {SECRET_LEAST} random ones",
                secret.len()
            );
            return Err(Error::config(text));
        }
        let verifier = Verifier::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret));
        Ok(Keys(vec![Key { id: None, verifier }]))
    }

    pub(super) fn read_pem(path: &Path) -> Result<Keys, Error> {
        let config_error = |why: &str| Error::config(format!("jwt: {}: {why}", path.display()));
        let der = tls::public_key_file(path).map_err(|why| config_error(&why))?;
        let (kind, bits) = tls::public_key(&der).ok_or_else(|| config_error("the public key is broken"))?;
        let verifier = match kind {
            RSA => Verifier::Rsa(bits.to_vec()),
            EC if bits.len() == POINT => Verifier::P256(bits.to_vec()),
            ED25519 => Verifier::Ed25519(bits.to_vec()),
            _ => return Err(config_error("the key type is not supported: use RSA, P-256 or Ed25519")),
        };
        Ok(Keys(vec![Key { id: None, verifier }]))
    }

    pub(super) fn read_jwks(path: &Path) -> Result<Keys, Error> {
        let text = std::fs::read(path)
            .map_err(|error| Error::config(format!("jwt: {}: {error}", path.display())))?;
        Keys::of_jwks(&text, &path.display().to_string())
    }

    /// Parses a key set; `source` is its origin, for errors.
    pub(super) fn of_jwks(text: &[u8], source: &str) -> Result<Keys, Error> {
        let config_error = |why: &str| Error::config(format!("jwt: {source}: {why}"));
        let set: Value = serde_json::from_slice(text).map_err(|error| config_error(&error.to_string()))?;
        let keys = set
            .get("keys")
            .and_then(Value::as_array)
            .ok_or_else(|| config_error("not a key set: the member keys is missing"))?;
        let keys: Vec<_> = keys.iter().filter_map(Key::of_jwk).take(KEYS_MAX).collect();
        match keys.is_empty() {
            true => Err(config_error("no key for RS256, ES256 or EdDSA in it")),
            false => Ok(Keys(keys)),
        }
    }

    /// Creates an empty set, which rejects every token.
    #[cfg(feature = "web")]
    pub(super) fn none() -> Keys {
        Keys(Vec::new())
    }

    /// Returns whether one of the keys matches the key id in the header of a token.
    #[cfg(feature = "web")]
    pub(super) fn knows(&self, header: &[u8]) -> bool {
        let header: Value = serde_json::from_slice(header).unwrap_or_default();
        match header.get("kid").and_then(Value::as_str) {
            Some(id) => self.0.iter().any(|key| key.id.is_none() || key.id.as_deref() == Some(id)),
            None => !self.0.is_empty(),
        }
    }

    /// Checks that one of the keys has signed `signed`: the key that the header names, or any key if it names
    /// none.
    pub(super) fn verify(&self, header: &[u8], signed: &[u8], signature: &[u8]) -> Result<(), &'static str> {
        let header: Value = serde_json::from_slice(header).map_err(|_| "the token is not a JWT")?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        if header.get("crit").is_some() {
            return Err("the token has unknown extensions (crit)");
        }
        let (algorithm, id) = (text("alg").unwrap_or_default(), text("kid"));
        let fits = |key: &&Key| {
            key.verifier.algorithm() == algorithm
                && (key.id.is_none() || id.is_none() || key.id.as_deref() == id)
        };
        let mut fitting = self.0.iter().filter(fits).peekable();
        if fitting.peek().is_none() {
            return Err("the token is signed with an unknown key");
        }
        match fitting.any(|key| key.verifier.verify(signed, signature)) {
            true => Ok(()),
            false => Err("the signature of the token is wrong"),
        }
    }
}

impl Key {
    /// Returns `None` for keys with another purpose and for unsupported keys.
    fn of_jwk(jwk: &Value) -> Option<Key> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|used| used != "sig") {
            return None;
        }
        let verifier = match (text("kty")?, text("crv")) {
            ("RSA", _) => Verifier::RsaParts { n: bytes("n")?, e: bytes("e")? },
            ("EC", Some("P-256")) => {
                let point = [vec![4], bytes("x")?, bytes("y")?].concat();
                (point.len() == POINT).then_some(Verifier::P256(point))?
            }
            ("OKP", Some("Ed25519")) => Verifier::Ed25519(bytes("x")?),
            _ => return None,
        };
        if text("alg").is_some_and(|algorithm| algorithm != verifier.algorithm()) {
            return None;
        }
        Some(Key { id: text("kid").map(str::to_owned), verifier })
    }
}

impl Verifier {
    fn algorithm(&self) -> &'static str {
        match self {
            Verifier::Ed25519(_) => "EdDSA",
            Verifier::P256(_) => "ES256",
            Verifier::Rsa(_) | Verifier::RsaParts { .. } => "RS256",
            Verifier::Secret(_) => "HS256",
        }
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Verifier::Ed25519(key) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(signed, signature).is_ok()
            }
            Verifier::P256(key) => {
                let key = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, key);
                key.verify(signed, signature).is_ok()
            }
            Verifier::Rsa(key) => {
                let key = UnparsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, key);
                key.verify(signed, signature).is_ok()
            }
            Verifier::RsaParts { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            Verifier::Secret(key) => hmac::verify(key, signed, signature).is_ok(),
        }
    }
}

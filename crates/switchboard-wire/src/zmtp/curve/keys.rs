//! Permanent keys of the two sides, and the source of random bytes.

use crate::zmtp::{ErrorKind, KEY_BYTES, ProtocolError, PublicKey, Z85Error, z85};
use curve25519_dalek::MontgomeryPoint;
use std::{fmt, str::FromStr, sync::Arc};
use zeroize::{Zeroize, Zeroizing};

/// Secret key of CURVE, 32 random bytes. Its memory is overwritten when it is dropped. Its text is Z85; nothing writes
/// it.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_BYTES]>);

impl SecretKey {
    /// Creates a key from its bytes, which are random or were random when the key was made.
    pub fn new(bytes: [u8; KEY_BYTES]) -> SecretKey {
        SecretKey(Zeroizing::new(bytes))
    }

    /// Computes the public key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::new(MontgomeryPoint::mul_base_clamped(*self.0).to_bytes())
    }

    /// Computes the shared point with a public key; `None` if the key is one of the few that give the same point with
    /// each secret key.
    pub(super) fn shared_point(&self, public: &PublicKey) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
        let mut point = MontgomeryPoint(public.to_bytes()).mul_clamped(*self.0);
        let bytes = Zeroizing::new(point.to_bytes());
        point.0.zeroize();
        let any_bit = bytes.iter().fold(0, |all, byte| all | byte);
        (any_bit != 0).then_some(bytes)
    }

    /// Returns the bytes, for instance to write a file of keys. A copy of them is not overwritten when it is dropped.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// Reads Z85.
impl FromStr for SecretKey {
    type Err = Z85Error;

    fn from_str(text: &str) -> Result<SecretKey, Z85Error> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        z85::decode_into(text, &mut bytes[..])?;
        Ok(SecretKey(bytes))
    }
}

/// Writes no part of the key.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// Source of random bytes, which the application hands in: this crate has none.
#[derive(Clone)]
pub struct Randomness(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) -> Result<(), String> + Send + Sync;

impl Randomness {
    /// Creates a source. `fill` overwrites all bytes with output of a cryptographic random generator, such as that of
    /// the operating system; the security of every connection depends on it. An error closes the connection.
    pub fn new(fill: impl Fn(&mut [u8]) -> Result<(), String> + Send + Sync + 'static) -> Randomness {
        Randomness(Arc::new(fill))
    }

    /// Returns `N` random bytes.
    pub(super) fn bytes<const N: usize>(&self) -> Result<Zeroizing<[u8; N]>, ProtocolError> {
        let mut bytes = Zeroizing::new([0; N]);
        (self.0)(&mut bytes[..]).map_err(|why| {
            ProtocolError::new(ErrorKind::Random, format!("this side has no random bytes for CURVE: {why}"))
        })?;
        Ok(bytes)
    }

    /// Returns a new secret key.
    pub(super) fn secret_key(&self) -> Result<SecretKey, ProtocolError> {
        Ok(SecretKey(self.bytes()?))
    }
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness")
    }
}

/// Keys of a client of CURVE.
#[derive(Clone, Debug)]
pub struct CurveClient {
    pub(super) secret: SecretKey,
    pub(super) public: PublicKey,
    pub(super) server: PublicKey,
    pub(super) random: Randomness,
}

impl CurveClient {
    /// Creates the keys of a client: its own, and the public key of the server, without which a client cannot know who
    /// it talks to.
    pub fn new(secret: SecretKey, server: PublicKey, random: Randomness) -> CurveClient {
        CurveClient { public: secret.public_key(), secret, server, random }
    }
}

/// Keys of a server of CURVE.
#[derive(Clone, Debug)]
pub struct CurveServer {
    pub(super) secret: SecretKey,
    pub(super) public: PublicKey,
    pub(super) random: Randomness,
}

impl CurveServer {
    /// Creates the keys of a server.
    pub fn new(secret: SecretKey, random: Randomness) -> CurveServer {
        CurveServer { public: secret.public_key(), secret, random }
    }

    /// Returns the public key, which clients must know.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }
}

//! Public keys of CURVE.

use super::z85::{self, Z85Error};
use std::{fmt, str::FromStr};

/// Size of a key of CURVE in bytes.
pub const KEY_BYTES: usize = 32;

/// Public key of CURVE. Its text is Z85, 40 characters, as in the files and tools of ZeroMQ.
///
/// ```
/// use switchboard_wire::zmtp::PublicKey;
///
/// let key: PublicKey = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7".parse()?;
/// assert_eq!(key.to_bytes()[..2], [0x54, 0xfc]);
/// assert_eq!(key.to_string(), "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7");
/// # Ok::<(), switchboard_wire::zmtp::Z85Error>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Creates a key from its bytes.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> PublicKey {
        PublicKey(bytes)
    }

    /// Returns the bytes.
    pub const fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<PublicKey> for [u8; KEY_BYTES] {
    fn from(key: PublicKey) -> [u8; KEY_BYTES] {
        key.0
    }
}

/// Reads Z85.
impl FromStr for PublicKey {
    type Err = Z85Error;

    fn from_str(text: &str) -> Result<PublicKey, Z85Error> {
        let mut bytes = [0; KEY_BYTES];
        z85::decode_into(text, &mut bytes).map(|()| PublicKey(bytes))
    }
}

/// Writes Z85.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&z85::encode(&self.0).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

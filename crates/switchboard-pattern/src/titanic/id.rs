//! Numbers of stored requests.

use std::{fmt, fs::File, io::Read, str::FromStr};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Number of a stored request: 128 random bits, written as 32 hexadecimal characters. A client that knows it can fetch
/// and delete the reply.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(u128);

impl RequestId {
    /// Creates a number from the random source of the system.
    pub(super) fn random() -> Result<RequestId> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).map_err(|error| {
            Status::internal(format!("the random source /dev/urandom cannot be read: {error}"))
        })?;
        Ok(RequestId(u128::from_be_bytes(bytes)))
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> RequestId {
        RequestId(u128::from_be_bytes(bytes))
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for RequestId {
    type Err = Status;

    fn from_str(text: &str) -> Result<RequestId> {
        let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hexadecimal.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(RequestId).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            Status::invalid_argument(format!(
                "request number \"{}\" is not valid; it has 32 hexadecimal characters",
                text.escape_debug()
            ))
        })
    }
}

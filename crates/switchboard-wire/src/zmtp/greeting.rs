//! Greeting: the first 64 bytes of each side, with the version and the mechanism.
//!
//! libzmq sends it in steps of 10, 1 and 53 bytes and waits for as many bytes of the other side before each further
//! step. A side that sends its whole greeting at once never makes such a peer wait.

use super::{ErrorKind, ProtocolError};
use crate::spec::{Verdict, starts};
use bytes::{BufMut, BytesMut};

/// Size of a greeting in bytes.
pub const GREETING_BYTES: usize = 64;

/// Size in bytes of the part of a greeting that libzmq sends before it has received anything: enough for [`sniff`].
pub const SIGNATURE_BYTES: usize = 10;

/// Size in bytes of the name of a mechanism, padded with zeros.
const MECHANISM_BYTES: usize = 20;

/// Position of the name of the mechanism.
const MECHANISM_AT: usize = 12;

/// Version of the protocol. All later versions are read as 3.1.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
// closed: later versions are read as 3.1
pub enum Version {
    /// 3.0 (RFC 23): subscriptions are messages, and there are no heartbeats.
    V3_0,
    /// 3.1 (RFC 37): subscriptions and heartbeats are commands.
    V3_1,
}

/// The content of a peer's greeting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Greeting {
    pub(super) version: Version,
    mechanism: [u8; MECHANISM_BYTES],
}

/// Matches the first bytes of a connection of ZMTP 2.0 or later, within [`SIGNATURE_BYTES`]. The second byte is the
/// highest one of a length in libzmq, and zero in all known peers.
pub fn sniff(prefix: &[u8]) -> Verdict {
    match prefix.get(SIGNATURE_BYTES - 1) {
        Some(last) if last & 1 == 0 => Verdict::No,
        Some(_) => starts(&prefix[..2], b"\xFF\0"),
        None if starts(prefix, b"\xFF\0") == Verdict::No => Verdict::No,
        None => Verdict::More,
    }
}

impl Greeting {
    /// Reads a greeting; `None` if more bytes are needed. An error is returned as soon as its byte has arrived.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Greeting>, ProtocolError> {
        let refuse = |message: String| Err(ProtocolError::new(ErrorKind::Greeting, message));
        if let Some(first) = bytes.first().filter(|first| **first != 0xFF) {
            return refuse(format!(
                "greeting begins with {first:#04x} instead of 0xff: ZMTP 1.0 and other protocols are not supported"
            ));
        }
        if bytes.get(SIGNATURE_BYTES - 1).is_some_and(|last| last & 1 == 0) {
            return refuse("greeting has no signature: ZMTP 1.0 is not supported".to_owned());
        }
        if let Some(major) = bytes.get(SIGNATURE_BYTES).filter(|major| **major < 3) {
            return refuse(format!(
                "greeting has the version {major}: versions before 3.0 are not supported"
            ));
        }
        let Some(bytes) = bytes.first_chunk::<GREETING_BYTES>() else { return Ok(None) };
        let version =
            if (bytes[SIGNATURE_BYTES], bytes[11]) == (3, 0) { Version::V3_0 } else { Version::V3_1 };
        let mut mechanism = [0; MECHANISM_BYTES];
        mechanism.copy_from_slice(&bytes[MECHANISM_AT..MECHANISM_AT + MECHANISM_BYTES]);
        Ok(Some(Greeting { version, mechanism }))
    }

    /// Checks that the peer has the mechanism `name`: all bytes of the field are compared.
    pub(super) fn check_mechanism(&self, name: &str) -> Result<(), ProtocolError> {
        let (start, padding) = self.mechanism.split_at(name.len());
        if start == name.as_bytes() && padding.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let end = self.mechanism.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let theirs = self.mechanism[..end].escape_ascii();
        let message = format!("greeting has the mechanism \"{theirs}\"; this side has {name}");
        Err(ProtocolError::new(ErrorKind::Mechanism, message))
    }

    /// Appends the greeting of this side.
    pub(super) fn write(version: Version, mechanism: &str, as_server: bool, into: &mut BytesMut) {
        let mut bytes = [0; GREETING_BYTES];
        bytes[0] = 0xFF;
        // The length of an identity plus one, for peers that read a frame of ZMTP 1.0 here.
        bytes[8] = 1;
        bytes[9] = 0x7F;
        bytes[10] = 3;
        bytes[11] = u8::from(version == Version::V3_1);
        bytes[MECHANISM_AT..MECHANISM_AT + mechanism.len()].copy_from_slice(mechanism.as_bytes());
        bytes[MECHANISM_AT + MECHANISM_BYTES] = u8::from(as_server);
        into.put_slice(&bytes);
    }
}

//! Metadata of the handshake: a list of properties, each a name and a value.

use super::{ErrorKind, Limits, ProtocolError};
use bytes::{BufMut, Bytes, BytesMut};

/// Property with the socket type.
pub(super) const SOCKET_TYPE: &str = "Socket-Type";
/// Property with the identity.
pub(super) const IDENTITY: &str = "Identity";

/// Properties of a peer or for a peer, in order. Names are unique, compared without case.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Properties {
    entries: Vec<(Box<str>, Bytes)>,
}

impl Properties {
    /// Creates an empty list.
    pub fn new() -> Properties {
        Properties::default()
    }

    /// Adds a property.
    ///
    /// # Errors
    /// Fails on a name that is empty, has more than 255 bytes or other characters than letters, digits, `-`, `_`, `.`
    /// and `+`, and on one that exists.
    pub fn insert(&mut self, name: &str, value: impl Into<Bytes>) -> Result<(), String> {
        if !is_name(name.as_bytes()) || name.len() > usize::from(u8::MAX) {
            return Err(format!(
                "name \"{}\" is not 1 to 255 letters, digits, \"-\", \"_\", \".\" and \"+\"",
                name.escape_debug()
            ));
        }
        if self.find(name).is_some() {
            return Err(format!("name \"{name}\" is repeated"));
        }
        self.entries.push((name.into(), value.into()));
        Ok(())
    }

    /// Returns the value of a property; the case of the name does not matter.
    pub fn find(&self, name: &str) -> Option<&Bytes> {
        self.entries.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the properties in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.entries.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the number of properties.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes a property and returns its value.
    pub(super) fn take(&mut self, name: &str) -> Option<Bytes> {
        let at = self.entries.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(self.entries.remove(at).1)
    }

    /// Reads the metadata of `command`. Values are copied: a slice would keep the whole read buffer for as long as the
    /// connection.
    pub(super) fn read(bytes: &[u8], command: &str, limits: &Limits) -> Result<Properties, ProtocolError> {
        if bytes.len() > limits.metadata_bytes_max as usize {
            let (what, len) = (format!("metadata of {command}"), bytes.len() as u64);
            let limit = u64::from(limits.metadata_bytes_max);
            return Err(ProtocolError::over(&what, len, "bytes", limit, "metadata_bytes_max"));
        }
        let mut properties = Properties::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (count, limit) = (properties.len() as u64, u64::from(limits.properties_max));
            if count >= limit {
                let what = format!("metadata of {command}");
                let unit = "properties or more";
                return Err(ProtocolError::over(&what, count + 1, unit, limit, "properties_max"));
            }
            rest = properties.read_one(rest).map_err(|why| {
                let at = bytes.len() - rest.len();
                let message = format!("metadata of {command}: property {} at byte {at}: {why}", count + 1);
                ProtocolError::new(ErrorKind::Metadata, message)
            })?;
        }
        Ok(properties)
    }

    /// Reads the property at the start of `bytes` and returns the bytes after it.
    fn read_one<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], String> {
        let (name, rest) = split(bytes, 1).ok_or("the name is incomplete")?;
        let (value, rest) = split(rest, 4).ok_or("the value is incomplete")?;
        let name = std::str::from_utf8(name).map_err(|_| "the name is not ASCII")?;
        self.insert(name, Bytes::copy_from_slice(value))?;
        Ok(rest)
    }

    /// Appends a property in its wire form.
    pub(super) fn write(name: &str, value: &[u8], into: &mut BytesMut) {
        into.put_u8(name.len() as u8);
        into.put_slice(name.as_bytes());
        into.put_u32(value.len() as u32);
        into.put_slice(value);
    }
}

/// Splits off a field whose size is in the first `len_bytes` bytes, big-endian; `None` if it is incomplete.
pub(super) fn split(bytes: &[u8], len_bytes: usize) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_at_checked(len_bytes)?;
    let len = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    rest.split_at_checked(len)
}

fn is_name(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

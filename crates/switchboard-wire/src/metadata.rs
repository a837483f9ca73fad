//! Metadata: names and values that accompany the messages of a call.

mod parts;

use bytes::{BufMut, Bytes, BytesMut};
use parts::{Entry, Parts, named};
use std::{borrow::Cow, fmt};

/// Ordered list of names and values; names may repeat.
///
/// Names are lower case `[0-9a-z_.-]`; values of names that end in `-bin` are any bytes, all others are text of the
/// characters 20 to 7E. An empty list costs no allocation.
///
/// Beside the list there may be one [attachment](Self::attachment).
#[derive(Default)]
pub struct Metadata {
    /// One pointer that is null for the usual call: each call moves four lists, and each of them is dropped.
    parts: Option<Box<Parts>>,
}

/// Name of an entry, which was checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name(Cow<'static, str>);

impl Name {
    /// Checks a name and a value of it; `None` if they are not metadata.
    pub(crate) fn checked(name: &[u8], value: &[u8]) -> Option<Name> {
        let name = std::str::from_utf8(name).ok()?;
        check(name, value).ok()?;
        Some(Name(named(name.into())))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reason why a name or value was rejected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidMetadata {
    text: String,
    /// The list exceeds a limit of the receiver; names and values are valid.
    too_many: bool,
}

impl Metadata {
    /// Creates an empty list.
    pub const fn new() -> Metadata {
        Metadata { parts: None }
    }

    /// Appends an entry; the name is converted to lower case.
    ///
    /// # Errors
    /// Returns an error for a name with other characters than `[0-9a-z_.-]`, and for a value that its name does not
    /// allow.
    pub fn insert(&mut self, name: &str, value: impl Into<Bytes>) -> Result<(), InvalidMetadata> {
        let name = match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(name.to_ascii_lowercase()),
            false => Cow::Borrowed(name),
        };
        let value = value.into();
        check(&name, &value)?;
        self.push((named(name), value));
        Ok(())
    }

    /// Returns the first value of `name`, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Returns the first value of `name`.
    pub fn value(&self, name: &str) -> Option<&Bytes> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Removes every entry of `name`.
    pub fn remove(&mut self, name: &str) {
        if let Some(parts) = &mut self.parts {
            parts.entries.retain(|(known, _)| known != name);
        }
    }

    /// Appends the entries of `other`; its attachment replaces this one's.
    pub fn extend(&mut self, mut other: Metadata) {
        match (&mut self.parts, other.parts.take()) {
            (_, None) => {}
            (Some(parts), Some(mut others)) => {
                parts.entries.append(&mut others.entries);
                parts.attachment = others.attachment.take().or(parts.attachment.take());
                parts.undeclared_name = others.undeclared_name.take().or(parts.undeclared_name.take());
                others.recycle();
            }
            (none, others) => *none = others,
        }
    }

    /// Bytes that accompany the only message of a request or reply, with the size limit of a message. They are not an
    /// entry. Most wires cannot carry them; baidu_std can.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.parts.as_ref().and_then(|parts| parts.attachment.as_ref())
    }

    /// Replaces the [attachment](Self::attachment); empty bytes remove it.
    pub fn set_attachment(&mut self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        if !bytes.is_empty() || self.parts.is_some() {
            self.parts.get_or_insert_with(Parts::fresh).attachment =
                Some(bytes).filter(|bytes| !bytes.is_empty());
        }
    }

    /// Full name of the called method, if no service of the server declares it. It is not an entry: wires send it only
    /// as the name of the method.
    pub fn undeclared_name(&self) -> Option<&crate::UndeclaredName> {
        self.parts.as_ref().and_then(|parts| parts.undeclared_name.as_ref())
    }

    /// Replaces the name of the [called method](Self::undeclared_name).
    pub fn set_undeclared_name(&mut self, name: Option<crate::UndeclaredName>) {
        if name.is_some() || self.parts.is_some() {
            self.parts.get_or_insert_with(Parts::fresh).undeclared_name = name;
        }
    }

    /// Iterates over the entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.entries().iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns true if there is no entry and no attachment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty() && self.attachment().is_none()
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        match &self.parts {
            None => &[],
            Some(parts) => &parts.entries,
        }
    }

    /// Appends an entry whose name and value were checked together.
    pub(crate) fn append(&mut self, name: &Name, value: &Bytes) {
        self.push((name.0.clone(), value.clone()));
    }

    fn push(&mut self, entry: Entry) {
        self.parts.get_or_insert_with(Parts::fresh).entries.push(entry);
    }

    /// Returns the size in bytes of the block that [`encode`](Self::encode) writes.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        self.entries().iter().map(|(name, value)| 3 + name.len() + value.len()).sum()
    }

    /// Writes the block of the native wire: for each entry the length of the name (u8), the length of the value
    /// (u16, little endian), the name, the value.
    pub fn encode(&self, into: &mut BytesMut) {
        into.reserve(self.encoded_len());
        for (name, value) in self.entries() {
            into.put_u8(name.len() as u8);
            into.put_u16_le(value.len() as u16);
            into.put_slice(name.as_bytes());
            into.put_slice(value);
        }
    }

    /// Reads a block that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// Returns an error for truncated blocks, invalid names or values, and more entries than `entries_max`.
    pub fn decode(mut block: &[u8], entries_max: usize) -> Result<Metadata, InvalidMetadata> {
        crate::work::add(block.len());
        let mut metadata = Metadata::new();
        while let Some((head, rest)) = block.split_first_chunk::<3>() {
            let (name_len, value_len) =
                (usize::from(head[0]), usize::from(u16::from_le_bytes([head[1], head[2]])));
            let Some(value) = rest.get(name_len..name_len + value_len) else { break };
            let name =
                std::str::from_utf8(&rest[..name_len]).map_err(|_| invalid("a metadata name is not text"))?;
            check(name, value)?;
            if metadata.len() == entries_max {
                let text = format!("more than {entries_max} metadata entries (limit metadata_entries_max)");
                return Err(InvalidMetadata { text, too_many: true });
            }
            metadata.push((named(name.into()), Bytes::copy_from_slice(value)));
            block = &rest[name_len + value_len..];
        }
        if block.is_empty() { Ok(metadata) } else { Err(invalid("a metadata block is cut short")) }
    }
}

fn invalid(text: impl Into<String>) -> InvalidMetadata {
    InvalidMetadata { text: text.into(), too_many: false }
}

/// Bytes that names may contain.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = matches!(byte as u8, b'0'..=b'9' | b'a'..=b'z' | b'_' | b'.' | b'-');
        byte += 1;
    }
    table
};

/// Checks that the name is a token, and that the value is text unless the name ends in `-bin`.
fn check(name: &str, value: &[u8]) -> Result<(), InvalidMetadata> {
    // The loop examines all bytes without a branch for each, since every call with metadata pays for it.
    let is_token = name.bytes().fold(true, |so_far, byte| so_far & TOKEN[usize::from(byte)]);
    let is_text = || value.iter().fold(true, |so_far, byte| so_far & (byte.wrapping_sub(0x20) < 0x5F));
    if name.is_empty() || name.len() > 255 || !is_token {
        return Err(invalid(format!(
            "{name:?} is not a metadata name; use 1 to 255 characters of 0-9 a-z _ . -"
        )));
    }
    if value.len() > usize::from(u16::MAX) {
        return Err(invalid(format!("the value of {name} has {} bytes, the limit is 65535", value.len())));
    }
    if !name.ends_with("-bin") && !is_text() {
        return Err(invalid(format!(
            "the value of {name} is not plain text; end the name in -bin for bytes"
        )));
    }
    Ok(())
}

impl Clone for Metadata {
    fn clone(&self) -> Metadata {
        Metadata { parts: self.parts.as_ref().map(|parts| parts.copied()) }
    }
}

impl Drop for Metadata {
    #[inline]
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            parts.recycle();
        }
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.entries() == other.entries() && self.attachment() == other.attachment()
    }
}

impl Eq for Metadata {}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for InvalidMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for InvalidMetadata {}

impl From<InvalidMetadata> for crate::Status {
    fn from(error: InvalidMetadata) -> Self {
        if error.too_many {
            return crate::Status::resource_exhausted(error.text);
        }
        crate::Status::invalid_argument(error.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_survives_the_round_trip_with_order_and_repeats() {
        let mut metadata = Metadata::new();
        metadata.insert("Tenant", "a").unwrap();
        metadata.insert("tenant", "b").unwrap();
        metadata.insert("trace-bin", &[0u8, 255][..]).unwrap();
        let mut block = BytesMut::new();
        metadata.encode(&mut block);
        assert_eq!(block.len(), metadata.encoded_len());
        let back = Metadata::decode(&block, 3).unwrap();
        assert_eq!(back, metadata);
        assert_eq!(back.text("tenant"), Some("a"));
        assert!(Metadata::decode(&block, 2).unwrap_err().to_string().contains("metadata_entries_max"));
        for end in 1..block.len() {
            // Truncation between entries gives a shorter list, any other an error; none panics.
            let _ = Metadata::decode(&block[..end], 3);
        }
    }

    #[test]
    fn attachment_is_no_entry() {
        let mut metadata = Metadata::new();
        metadata.set_attachment("");
        assert!(metadata.is_empty() && metadata.attachment().is_none());
        metadata.set_attachment(vec![7; 100_000]);
        assert!(!metadata.is_empty());
        assert_eq!((metadata.len(), metadata.encoded_len()), (0, 0));
        let mut other = Metadata::new();
        other.insert("a", "b").unwrap();
        other.extend(metadata.clone());
        assert_eq!((other.len(), other.attachment()), (1, metadata.attachment()));
        assert_ne!(other, metadata);
        other.set_attachment("");
        assert!(other.attachment().is_none());
    }

    #[test]
    fn odd_names_and_values_are_refused() {
        let mut metadata = Metadata::new();
        assert!(metadata.insert("", "a").is_err());
        assert!(metadata.insert("a b", "a").is_err());
        assert!(metadata.insert("a", "line\nbreak").is_err());
        assert!(metadata.insert("a", vec![b'x'; 70_000]).is_err());
        assert!(metadata.is_empty());
    }
}

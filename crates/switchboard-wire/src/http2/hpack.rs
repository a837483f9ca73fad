//! Compression of header fields (HPACK, RFC 7541), in both directions.
//!
//! A [`Decoder`] and an [`Encoder`] belong to one connection each, and see every header block of their direction in
//! order, because blocks change the table of the connection. Both are bounded: the table by its size, which the
//! receiver announces, and a block by [`ListLimits`].

mod caches;
mod decode;
mod encode;
pub mod huffman;
mod integer;
mod statics;
mod table;

pub use caches::Blocks;
pub use decode::{Decoder, ListLimits, Listed};
pub use encode::{Encoder, Indexing};

/// Bytes that a field counts for in addition to its name and value (RFC 7541, section 4.1).
pub const FIELD_OVERHEAD: usize = 32;

/// Size of the table before a setting changes it, in bytes (RFC 9113, section 6.5.2).
pub const TABLE_BYTES: usize = 4096;

/// One header field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Field<'a> {
    /// The name, in lower case on a valid connection; the decoder does not check it.
    pub name: &'a [u8],
    /// The value, any bytes.
    pub value: &'a [u8],
    /// No hop may index the field, because its value is a secret (RFC 7541, section 7.1.3).
    pub never_indexed: bool,
}

impl Field<'_> {
    /// Size of the field in a table and in a list, in bytes (RFC 7541, section 4.1).
    pub fn size(&self) -> usize {
        self.name.len() + self.value.len() + FIELD_OVERHEAD
    }
}

/// Reason why a block cannot be decoded. The table is then unknown, so the connection ends with `COMPRESSION_ERROR`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends inside a field.
    Truncated,
    /// An integer is larger than any valid one.
    Integer,
    /// An index is zero where it must not be, or beyond the table; has the index.
    Index(usize),
    /// A size update comes after a field, or is larger than the announced size.
    SizeUpdate,
    /// A string has an invalid Huffman code or invalid padding.
    Huffman,
    /// The peer lowered the size of the table and the next block did not begin with the update.
    MissingSizeUpdate,
    /// The fields are far larger than the limit of a list: reading on would only cost time.
    ListTooLarge,
}

impl std::fmt::Display for HpackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HpackError::Truncated => f.write_str("the header block ends inside a field"),
            HpackError::Integer => f.write_str("an integer in the header block is too large"),
            HpackError::Index(index) => write!(f, "index {index} of a header field is not in the table"),
            HpackError::SizeUpdate => f.write_str("invalid update of the table's size in the header block"),
            HpackError::Huffman => f.write_str("a string in the header block is no valid Huffman code"),
            HpackError::MissingSizeUpdate => {
                f.write_str("the header block does not begin with the update of the table's size")
            }
            HpackError::ListTooLarge => f.write_str("the header block has far more fields than the limit"),
        }
    }
}

impl std::error::Error for HpackError {}

#[cfg(test)]
mod tests;

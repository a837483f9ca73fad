//! Encoding of header blocks (RFC 7541, section 6).

use super::{Field, TABLE_BYTES, huffman, integer, table::Table};
use bytes::BytesMut;

/// How a field that is not in the table is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the representations of RFC 7541, section 6.2
pub enum Indexing {
    /// It recurs: it is inserted into the table as long as there is room. Nothing is evicted, so an index that was used
    /// once stays right, and whole blocks can be stored and repeated.
    Recurring,
    /// It is different each time.
    Once,
    /// It is a secret, which no hop may index (RFC 7541, section 7.1.3).
    Never,
}

/// The sending side of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Smallest and last size since the last block, to be written at the front of the next.
    updates: Option<(usize, usize)>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// Creates the encoder of a connection, with a table of 4096 bytes until the peer announces another size.
    pub fn new() -> Encoder {
        Encoder { table: Table::new(TABLE_BYTES), updates: None }
    }

    /// Applies the peer's `SETTINGS_HEADER_TABLE_SIZE`; more than 4096 bytes are not used.
    pub fn limit(&mut self, size: usize) {
        let size = size.min(TABLE_BYTES);
        if size == self.table.size_max() && self.updates.is_none() {
            return;
        }
        let smallest = self.updates.map_or(size, |(smallest, _)| smallest.min(size));
        self.updates = Some((smallest, size));
        self.table.resize(size);
    }

    /// Number that changes with the table: a stored block is valid while it is the same.
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Returns true if the next block begins with a size update, so that no stored block can be used for it.
    #[inline]
    pub fn is_update_due(&self) -> bool {
        self.updates.is_some()
    }

    /// Begins a block: writes size updates that are due (RFC 7541, section 4.2).
    pub fn begin(&mut self, into: &mut BytesMut) {
        if let Some((smallest, last)) = self.updates.take() {
            if smallest < last {
                integer::put(smallest, 0x20, 5, into);
            }
            integer::put(last, 0x20, 5, into);
        }
    }

    /// Appends a field that is different in each block, as it is: not indexed, and without a search of the table. A
    /// secret is marked, so that no hop indexes it (RFC 7541, section 7.1.3).
    pub fn literal(name: &[u8], value: &[u8], is_secret: bool, into: &mut BytesMut) {
        into.extend_from_slice(&[if is_secret { 0x10 } else { 0 }]);
        integer::put(name.len(), 0, 7, into);
        into.extend_from_slice(name);
        integer::put(value.len(), 0, 7, into);
        into.extend_from_slice(value);
    }

    /// Appends a field.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, into: &mut BytesMut) {
        let found = self.table.find(name, value);
        let index = match found {
            Some((index, true)) if indexing != Indexing::Never => return integer::put(index, 0x80, 7, into),
            Some((index, _)) => index,
            None => 0,
        };
        let field = Field { name, value, never_indexed: false };
        let (flags, bits, inserted) = match indexing {
            Indexing::Recurring if self.table.has_room(&field) => (0x40, 6, true),
            Indexing::Recurring | Indexing::Once => (0, 4, false),
            Indexing::Never => (0x10, 4, false),
        };
        integer::put(index, flags, bits, into);
        if index == 0 {
            string(name, into);
        }
        string(value, into);
        if inserted {
            self.table.insert(name, value, ());
        }
    }
}

/// Appends a string, in its Huffman code if that is shorter.
fn string(text: &[u8], into: &mut BytesMut) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::put(len, 0x80, 7, into);
        huffman::encode(text, into);
    } else {
        integer::put(text.len(), 0, 7, into);
        into.extend_from_slice(text);
    }
}

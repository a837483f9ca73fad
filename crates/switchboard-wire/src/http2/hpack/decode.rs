//! Decoding of header blocks (RFC 7541, section 6).

use super::{Field, HpackError, caches::Literals, huffman, integer, table::Table};

/// A block may have this many times the fields and bytes of its limits before the connection ends: such a block is
/// refused for its stream, and still changes the table.
const EXCESS: usize = 4;

/// Limits on the fields of one block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListLimits {
    /// Largest size of all fields, each with its overhead of 32 bytes: `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub bytes_max: usize,
    /// Largest number of fields.
    pub fields_max: usize,
}

/// Result of decoding a block whose bytes are valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: a list is within the limits or not
pub enum Listed {
    /// Every field was passed on.
    Complete,
    /// The fields are over a limit; those within it were passed on. The stream is refused.
    OverLimit,
}

/// The receiving side of one direction of a connection.
///
/// Its user may decode each field further, to a `T`: that is stored with the field in the table, and with the last
/// literals that are not indexed, so that a repeated field is decoded once.
#[derive(Debug)]
pub struct Decoder<T = ()> {
    table: Table<T>,
    literals: Literals<T>,
    /// Largest size of the table that this side has announced.
    announced: usize,
    /// The size was lowered, and the next block must begin with an update.
    needs_update: bool,
    /// Decoded name and value, where they are not bytes of the block.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// Creates the decoder of a connection whose table may have `size` bytes.
    pub fn new(size: usize) -> Decoder {
        Decoder::of_values(size)
    }

    /// Decodes a whole block and passes each field to `visit`, which sees a field before the next is read.
    ///
    /// # Errors
    /// Returns an error for a block after which the table is unknown; the connection ends with `COMPRESSION_ERROR`.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        limits: ListLimits,
        mut visit: impl FnMut(Field<'_>),
    ) -> Result<Listed, HpackError> {
        self.size_updates(&mut block)?;
        let mut list = List::new(limits);
        while !block.is_empty() {
            let (field, indexed) = self.field(&mut block)?;
            if list.add(field.size())? {
                visit(field);
            }
            if indexed {
                self.table.insert(&self.name, &self.value, ());
            }
        }
        Ok(list.listed())
    }
}

impl<T: Clone> Decoder<T> {
    /// Creates the decoder of a connection whose table may have `size` bytes, for a user that decodes fields further.
    pub fn of_values(size: usize) -> Decoder<T> {
        Decoder {
            table: Table::new(size),
            literals: Literals::default(),
            announced: size,
            needs_update: false,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Changes the announced size of the table, when the peer has acknowledged the setting.
    pub fn announce(&mut self, size: usize) {
        self.needs_update |= size < self.table.size_max();
        self.announced = size;
    }

    /// Bytes of the table's fields, with their overhead.
    pub fn table_bytes(&self) -> usize {
        self.table.size()
    }

    /// Number that changes with the table: a block that was decoded at one number has the same fields at it again.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Returns true if the next block must begin with a size update.
    #[inline]
    pub fn needs_update(&self) -> bool {
        self.needs_update
    }

    /// Decodes a whole block. `read` decodes a field further; its result is passed to `visit`, and so is what it
    /// returned for the same field before. Fields over the limits are not passed on.
    ///
    /// # Errors
    /// Returns an error for a block after which the table is unknown; the connection ends with `COMPRESSION_ERROR`.
    pub fn decode_values(
        &mut self,
        mut block: &[u8],
        limits: ListLimits,
        read: impl Fn(Field<'_>) -> T,
        mut visit: impl FnMut(&T),
    ) -> Result<Listed, HpackError> {
        self.size_updates(&mut block)?;
        let mut list = List::new(limits);
        while let Some(first) = block.first() {
            let (before, generation) = (block, self.table.generation());
            if first & 0x80 != 0 {
                let index = integer::take(&mut block, 7)?;
                if let Some((decoded, size)) = self.table.decoded(index) {
                    if list.add(size)? {
                        visit(decoded);
                    }
                } else {
                    let (name, value) = self.table.get(index)?;
                    let field = Field { name, value, never_indexed: false };
                    if list.add(field.size())? {
                        visit(&read(field));
                    }
                }
                continue;
            }
            if first & 0xf0 == 0
                && let Some((len, size, decoded)) = self.literals.find(before, generation)
            {
                block = &before[len..];
                if list.add(size)? {
                    visit(decoded);
                }
                continue;
            }
            let (field, indexed) = self.field(&mut block)?;
            let (size, never_indexed) = (field.size(), field.never_indexed);
            let is_listed = list.add(size)?;
            if !is_listed && !indexed {
                continue;
            }
            let decoded = read(field);
            if is_listed {
                visit(&decoded);
            }
            if indexed {
                self.table.insert(&self.name, &self.value, decoded);
            } else if !never_indexed {
                let literal = &before[..before.len() - block.len()];
                self.literals.add(literal, generation, size, decoded);
            }
        }
        Ok(list.listed())
    }

    /// Takes the size updates at the front of a block; elsewhere they are errors.
    fn size_updates(&mut self, block: &mut &[u8]) -> Result<(), HpackError> {
        while let Some(first) = block.first()
            && first & 0xe0 == 0x20
        {
            let size = integer::take(block, 5)?;
            if size > self.announced {
                return Err(HpackError::SizeUpdate);
            }
            self.table.resize(size);
            self.needs_update = false;
        }
        if self.needs_update { Err(HpackError::MissingSizeUpdate) } else { Ok(()) }
    }

    /// Takes one field; returns true if the table stores it.
    fn field(&mut self, block: &mut &[u8]) -> Result<(Field<'_>, bool), HpackError> {
        let first = block[0];
        if first & 0x80 != 0 {
            let index = integer::take(block, 7)?;
            let (name, value) = self.table.get(index)?;
            return Ok((Field { name, value, never_indexed: false }, false));
        }
        let (bits, indexed, never_indexed) = match first >> 4 {
            4..=7 => (6, true, false),
            0 => (4, false, false),
            1 => (4, false, true),
            _ => return Err(HpackError::SizeUpdate),
        };
        let index = integer::take(block, bits)?;
        self.name.clear();
        self.value.clear();
        if index == 0 {
            string(block, &mut self.name)?;
        } else {
            self.name.extend_from_slice(self.table.get(index)?.0);
        }
        string(block, &mut self.value)?;
        Ok((Field { name: &self.name, value: &self.value, never_indexed }, indexed))
    }
}

/// Size of the fields of a block so far.
struct List {
    limits: ListLimits,
    bytes: usize,
    fields: usize,
}

impl List {
    fn new(limits: ListLimits) -> List {
        List { limits, bytes: 0, fields: 0 }
    }

    /// Adds a field; returns true if the list is within its limits.
    #[inline]
    fn add(&mut self, size: usize) -> Result<bool, HpackError> {
        self.bytes += size;
        self.fields += 1;
        if self.bytes > self.limits.bytes_max.saturating_mul(EXCESS)
            || self.fields > self.limits.fields_max.saturating_mul(EXCESS)
        {
            return Err(HpackError::ListTooLarge);
        }
        Ok(self.is_within())
    }

    fn is_within(&self) -> bool {
        self.bytes <= self.limits.bytes_max && self.fields <= self.limits.fields_max
    }

    fn listed(&self) -> Listed {
        if self.is_within() { Listed::Complete } else { Listed::OverLimit }
    }
}

/// Takes a string and appends it (RFC 7541, section 5.2). No more is stored than the block has bytes for.
fn string(block: &mut &[u8], into: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::take(block, 7)?;
    let (text, rest) = block.split_at_checked(len).ok_or(HpackError::Truncated)?;
    *block = rest;
    if is_huffman {
        return huffman::decode(text, into);
    }
    into.extend_from_slice(text);
    Ok(())
}

//! Access to messages whose types are known only at run time: values as bytes at positions.
//!
//! The caller accounts for the memory that it uses.

use super::{Malformed, Position, Slot, Table, Writer};

impl<'a> Position<'a> {
    /// Returns the items of the vector that begins here, `size` bytes each, as contiguous bytes.
    ///
    /// # Errors
    /// Returns an error if the vector extends past the end of the message.
    pub fn items(self, size: usize) -> Result<&'a [u8], Malformed> {
        let (len, first) = self.vector(size, 0)?;
        Ok(&self.bytes[first..first + len * size])
    }

    /// Returns the positions to which the items of the vector that begins here refer.
    ///
    /// # Errors
    /// Returns an error if the vector extends past the end of the message, or if an item points out of the message.
    pub fn positions(
        self,
    ) -> Result<impl ExactSizeIterator<Item = Result<Position<'a>, Malformed>>, Malformed> {
        let (len, first) = self.vector(4, 0)?;
        Ok((0..len).map(move |item| self.follow(first + 4 * item)))
    }
}

impl<'a> Table<'a> {
    /// Returns the bytes of a field of this size that is stored in the table, if it is present.
    ///
    /// # Errors
    /// Returns an error if the field extends past the end of the message.
    pub fn bytes(&self, number: usize, size: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let Some(at) = self.field(number) else { return Ok(None) };
        let end = at.checked_add(size);
        let bytes = end.and_then(|end| self.position.bytes.get(at..end));
        bytes.map(Some).ok_or_else(|| Malformed::new(format!("the message ends within the value at {at}")))
    }
}

impl Writer {
    /// Returns the number of bytes written so far.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// Writes a field in place, aligned to `align` bytes.
    pub fn bytes(&mut self, number: usize, align: usize, bytes: &[u8]) {
        self.begin_field(number, align);
        self.out.extend_from_slice(bytes);
    }

    /// Makes the field of `slot` refer to the position `at`.
    pub fn point_at(&mut self, slot: Slot, at: usize) {
        if let Some(slot) = slot {
            self.set_offset(slot, at);
        }
    }

    /// Appends a vector of `len` in-place items, aligned to `align` bytes, and returns its position.
    pub fn items(&mut self, len: usize, align: usize, bytes: &[u8]) -> usize {
        let at = self.begin_vector(len, align);
        self.out.extend_from_slice(bytes);
        at
    }
}

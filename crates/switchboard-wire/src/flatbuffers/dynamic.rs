//! Messages whose types are known while a program runs, and not before: what lies where, as bytes.
//!
//! Who reads so counts the memory that it takes itself.

use super::{Malformed, Place, Slot, Table, Writer};

impl<'a> Place<'a> {
    /// The items, of so many bytes each, of the vector that begins here, one behind the other.
    ///
    /// # Errors
    /// It goes on behind the message.
    pub fn items(self, size: usize) -> Result<&'a [u8], Malformed> {
        let (len, first) = self.vector(size, 0)?;
        Ok(&self.bytes[first..first + len * size])
    }

    /// What the items of the vector that begins here refer to.
    ///
    /// # Errors
    /// It goes on behind the message; items lead out of the message.
    pub fn places(self) -> Result<impl ExactSizeIterator<Item = Result<Place<'a>, Malformed>>, Malformed> {
        let (len, first) = self.vector(4, 0)?;
        Ok((0..len).map(move |item| self.follow(first + 4 * item)))
    }
}

impl<'a> Table<'a> {
    /// The bytes of a field of this size that lies in the table, if it is there.
    ///
    /// # Errors
    /// It goes on behind the message.
    pub fn bytes(&self, number: usize, size: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let Some(at) = self.field(number) else { return Ok(None) };
        let end = at.checked_add(size);
        let bytes = end.and_then(|end| self.place.bytes.get(at..end));
        bytes.map(Some).ok_or_else(|| Malformed(format!("the message ends within the value at {at}")))
    }
}

impl Writer {
    /// Bytes of the message so far.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// A field that lies in the table, at a multiple of `align`.
    pub fn bytes(&mut self, number: usize, align: usize, bytes: &[u8]) {
        self.begin_field(number, align);
        self.out.extend_from_slice(bytes);
    }

    /// Has a field refer to what was appended at this position.
    pub fn point_at(&mut self, slot: Slot, at: usize) {
        if let Some(slot) = slot {
            self.set_offset(slot, at);
        }
    }

    /// Appends a vector of what lies in place, `len` items at multiples of `align`; its position.
    pub fn items(&mut self, len: usize, align: usize, bytes: &[u8]) -> usize {
        let at = self.begin_vector(len, align);
        self.out.extend_from_slice(bytes);
        at
    }
}

//! Writes messages front to back: a table with slots for its offsets, then the values that they refer to.

use super::{Inline, Referred, Union};
use std::convert::Infallible;

/// Number of recent vtables that are searched for an identical one.
const VTABLES_KEPT: usize = 16;
/// Bytes of an offset.
const OFFSET: usize = 4;

/// Position at which an offset is written later, if its field is present.
pub type Slot = Option<usize>;

/// The part of a message that is written.
#[derive(Debug, Default)]
pub struct Writer {
    pub(super) out: Vec<u8>,
    /// Start of the current table, and the offsets of its fields in it.
    table: usize,
    fields: Vec<u16>,
    /// Positions of the last vtables.
    vtables: Vec<usize>,
}

impl Writer {
    /// Writes a complete message.
    ///
    /// # Errors
    /// Returns the errors of `write`, which appends the table and returns its position.
    pub fn message<E>(write: impl FnOnce(&mut Writer) -> Result<usize, E>) -> Result<Vec<u8>, E> {
        let mut writer = Writer::default();
        writer.out.resize(OFFSET, 0);
        let at = write(&mut writer)?;
        writer.set_offset(0, at);
        Ok(writer.out)
    }

    /// Begins a table; its in-place fields follow, the widest first.
    pub fn begin(&mut self) {
        self.align(OFFSET, 0);
        self.table = self.out.len();
        self.out.resize(self.table + OFFSET, 0);
        self.fields.clear();
    }

    /// Writes a field, unless it has its default value.
    #[inline]
    pub fn inline<T: Inline>(&mut self, number: usize, value: T, default: T) {
        if value != default {
            self.put(number, value);
        }
    }

    /// Writes a field that may be missing.
    #[inline]
    pub fn optional<T: Inline>(&mut self, number: usize, value: Option<T>) {
        if let Some(value) = value {
            self.put(number, value);
        }
    }

    /// Reserves a slot for the offset of a field, if `is_there` is true.
    #[inline]
    pub fn refer(&mut self, number: usize, is_there: bool) -> Slot {
        is_there.then(|| self.put(number, 0u32))
    }

    fn put<T: Inline>(&mut self, number: usize, value: T) -> usize {
        let at = self.begin_field(number, T::ALIGN);
        value.put(&mut self.out);
        at
    }

    /// Registers the bytes that are appended next as a field of the table, and returns their position.
    #[inline]
    pub(super) fn begin_field(&mut self, number: usize, align: usize) -> usize {
        self.align(align, 0);
        let at = self.out.len();
        if self.fields.len() <= number {
            self.fields.resize(number + 1, 0);
        }
        self.fields[number] = (at - self.table) as u16;
        at
    }

    /// Ends the in-place fields and returns the position of the table.
    pub fn end(&mut self) -> usize {
        let (table, size) = (self.table, self.out.len() - self.table);
        let mut vtable = Vec::with_capacity(4 + 2 * self.fields.len());
        vtable.extend_from_slice(&(4 + 2 * self.fields.len() as u16).to_le_bytes());
        vtable.extend_from_slice(&(size as u16).to_le_bytes());
        self.fields.iter().for_each(|field| vtable.extend_from_slice(&field.to_le_bytes()));
        let same = self.vtables.iter().find(|known| self.out[**known..].starts_with(&vtable));
        let at = same.copied().unwrap_or_else(|| {
            self.align(2, 0);
            let at = self.out.len();
            self.out.extend_from_slice(&vtable);
            if self.vtables.len() == VTABLES_KEPT {
                self.vtables.remove(0);
            }
            self.vtables.push(at);
            at
        });
        let back = table as i64 - at as i64;
        self.out[table..table + OFFSET].copy_from_slice(&(back as i32).to_le_bytes());
        table
    }

    /// Writes the value to which a field refers.
    pub fn point<T: Referred>(&mut self, slot: Slot, value: Option<&T>) {
        if let (Some(slot), Some(value)) = (slot, value) {
            let at = value.write(self);
            self.set_offset(slot, at);
        }
    }

    /// Writes the union to which a field refers.
    pub fn point_to_union<T: Union>(&mut self, slot: Slot, value: Option<&T>) {
        if let (Some(slot), Some(value)) = (slot, value) {
            let at = value.write(self);
            self.set_offset(slot, at);
        }
    }

    /// Writes a vector of in-place values.
    pub fn point_to_inlines<T: Inline>(&mut self, slot: Slot, items: &[T]) {
        let Some(slot) = slot else { return };
        let at = self.begin_vector(items.len(), T::ALIGN);
        self.set_offset(slot, at);
        self.out.reserve(T::SIZE * items.len());
        items.iter().for_each(|item| item.put(&mut self.out));
    }

    /// Writes a vector of referred values.
    pub fn point_to_all<T: Referred>(&mut self, slot: Slot, items: &[T]) {
        let Some(slot) = slot else { return };
        let Ok(at) =
            self.referred_items(items.len(), |out, item| Ok::<_, Infallible>(items[item].write(out)));
        self.set_offset(slot, at);
    }

    /// Writes a vector of unions, and before it the vector of their numbers.
    pub fn point_to_unions<T: Union>(&mut self, tags: Slot, slot: Slot, items: &[T]) {
        self.point_to_inlines(tags, &items.iter().map(Union::tag).collect::<Vec<_>>());
        let Some(slot) = slot else { return };
        let Ok(at) =
            self.referred_items(items.len(), |out, item| Ok::<_, Infallible>(items[item].write(out)));
        self.set_offset(slot, at);
    }

    /// Appends a vector of offsets and the values to which they refer, and returns its position.
    ///
    /// # Errors
    /// Returns the errors of `write`, which appends the item with the given index and returns its position.
    pub fn referred_items<E>(
        &mut self,
        len: usize,
        mut write: impl FnMut(&mut Writer, usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.begin_vector(len, OFFSET);
        let first = self.out.len();
        self.out.resize(first + OFFSET * len, 0);
        for item in 0..len {
            let written = write(self, item)?;
            self.set_offset(first + OFFSET * item, written);
        }
        Ok(at)
    }

    /// Appends the length of a vector, with the first item aligned to `align` bytes; returns the position of the
    /// vector.
    pub(super) fn begin_vector(&mut self, len: usize, align: usize) -> usize {
        self.align(align.max(OFFSET), OFFSET);
        let at = self.out.len();
        self.out.extend_from_slice(&(len as u32).to_le_bytes());
        at
    }

    /// Appends a text and returns its position.
    pub fn text(&mut self, text: &str) -> usize {
        let at = self.begin_vector(text.len(), 1);
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
        at
    }

    /// Pads the output until the position `later` bytes ahead is a multiple of `to`.
    #[inline]
    fn align(&mut self, to: usize, later: usize) {
        let end = (self.out.len() + later).next_multiple_of(to) - later;
        self.out.resize(end, 0);
    }

    /// Writes an offset at `slot`. Offsets are relative to their own position.
    pub(super) fn set_offset(&mut self, slot: usize, at: usize) {
        self.out[slot..slot + OFFSET].copy_from_slice(&((at - slot) as u32).to_le_bytes());
    }
}

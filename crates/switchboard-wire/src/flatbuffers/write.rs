//! Writes front to back: a table with places for its offsets, then what they lead to.

use super::{Inline, Referred, Union};
use std::convert::Infallible;

/// How many of the vtables written last are looked at for one that is the same.
const VTABLES_KEPT: usize = 16;
/// Bytes of the offset from a table to its vtable, and of every other.
const OFFSET: usize = 4;

/// Where an offset is to be written, if its field is there.
pub type Slot = Option<usize>;

/// What is written of a message.
#[derive(Debug, Default)]
pub struct Writer {
    pub(super) out: Vec<u8>,
    /// Of the table under way: where it begins, and where in it its fields are.
    table: usize,
    fields: Vec<u16>,
    /// The last vtables.
    vtables: Vec<usize>,
}

impl Writer {
    /// A whole message.
    ///
    /// # Errors
    /// Those of `write`, which appends the table and gives its position.
    pub fn message<E>(write: impl FnOnce(&mut Writer) -> Result<usize, E>) -> Result<Vec<u8>, E> {
        let mut writer = Writer::default();
        writer.out.resize(OFFSET, 0);
        let at = write(&mut writer)?;
        writer.set_offset(0, at);
        Ok(writer.out)
    }

    /// Begins a table, whose fields in place come next, the widest first.
    pub fn begin(&mut self) {
        self.align(OFFSET, 0);
        self.table = self.out.len();
        self.out.resize(self.table + OFFSET, 0);
        self.fields.clear();
    }

    /// A field that is left out when it has its default.
    #[inline]
    pub fn inline<T: Inline>(&mut self, number: usize, value: T, default: T) {
        if value != default {
            self.put(number, value);
        }
    }

    /// A field that may be missing.
    #[inline]
    pub fn optional<T: Inline>(&mut self, number: usize, value: Option<T>) {
        if let Some(value) = value {
            self.put(number, value);
        }
    }

    /// Makes place for the offset of a field, if it `is_there`.
    #[inline]
    pub fn refer(&mut self, number: usize, is_there: bool) -> Slot {
        is_there.then(|| self.put(number, 0u32))
    }

    fn put<T: Inline>(&mut self, number: usize, value: T) -> usize {
        let at = self.begin_field(number, T::ALIGN);
        value.put(&mut self.out);
        at
    }

    /// Says that what is appended next is a field of the table; its position.
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

    /// Ends the fields in place; the position of the table.
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

    /// Writes what a field refers to.
    pub fn point<T: Referred>(&mut self, slot: Slot, value: Option<&T>) {
        if let (Some(slot), Some(value)) = (slot, value) {
            let at = value.write(self);
            self.set_offset(slot, at);
        }
    }

    /// Writes the one of several that a field refers to.
    pub fn point_to_union<T: Union>(&mut self, slot: Slot, value: Option<&T>) {
        if let (Some(slot), Some(value)) = (slot, value) {
            let at = value.write(self);
            self.set_offset(slot, at);
        }
    }

    /// Writes a vector of what lies in place.
    pub fn point_to_inlines<T: Inline>(&mut self, slot: Slot, items: &[T]) {
        let Some(slot) = slot else { return };
        let at = self.begin_vector(items.len(), T::ALIGN);
        self.set_offset(slot, at);
        self.out.reserve(T::SIZE * items.len());
        items.iter().for_each(|item| item.put(&mut self.out));
    }

    /// Writes a vector of what is referred to.
    pub fn point_to_all<T: Referred>(&mut self, slot: Slot, items: &[T]) {
        let Some(slot) = slot else { return };
        let Ok(at) = self.places(items.len(), |out, item| Ok::<_, Infallible>(items[item].write(out)));
        self.set_offset(slot, at);
    }

    /// Writes a vector of unions, and before it that of their numbers.
    pub fn point_to_unions<T: Union>(&mut self, tags: Slot, slot: Slot, items: &[T]) {
        self.point_to_inlines(tags, &items.iter().map(Union::tag).collect::<Vec<_>>());
        let Some(slot) = slot else { return };
        let Ok(at) = self.places(items.len(), |out, item| Ok::<_, Infallible>(items[item].write(out)));
        self.set_offset(slot, at);
    }

    /// Appends a vector of offsets, and what they lead to; its position.
    ///
    /// # Errors
    /// Those of `write`, which appends an item, named by its place in the vector, and gives its position.
    pub fn places<E>(
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

    /// Appends how many items come next, the first of them at a multiple of `align`; the position of the vector.
    pub(super) fn begin_vector(&mut self, len: usize, align: usize) -> usize {
        self.align(align.max(OFFSET), OFFSET);
        let at = self.out.len();
        self.out.extend_from_slice(&(len as u32).to_le_bytes());
        at
    }

    /// Appends a text; its position.
    pub fn text(&mut self, text: &str) -> usize {
        let at = self.begin_vector(text.len(), 1);
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
        at
    }

    /// Goes on where a position so many bytes later is a multiple of `to`.
    #[inline]
    fn align(&mut self, to: usize, later: usize) {
        let end = (self.out.len() + later).next_multiple_of(to) - later;
        self.out.resize(end, 0);
    }

    /// Offsets go on from where they are.
    pub(super) fn set_offset(&mut self, slot: usize, at: usize) {
        self.out[slot..slot + OFFSET].copy_from_slice(&((at - slot) as u32).to_le_bytes());
    }
}

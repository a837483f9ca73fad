//! Bounds-checked reading of tables, vectors and texts.

use super::{DEPTH_MAX, GROWTH_MAX, Inline, Referred, Union};
use std::{cell::Cell, fmt};

/// Longest path in an error, in bytes.
const PATH_BYTES_MAX: usize = 256;

/// Reason why bytes are not a valid message, with the path of the field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Malformed(Box<Reason>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Reason {
    /// Path of the field, `orders[3].customer`; empty for the message itself.
    path: String,
    why: String,
}

impl Malformed {
    /// Creates an error with this reason.
    pub fn new(why: impl Into<String>) -> Malformed {
        Malformed(Box::new(Reason { path: String::new(), why: why.into() }))
    }

    /// Creates the error for a missing field that the schema requires.
    pub fn missing(field: &str) -> Malformed {
        Malformed::new(format!("required field {field} is missing"))
    }

    /// Adds the field of a table in which the value lies.
    #[cold]
    #[must_use]
    pub fn in_field(mut self, name: &str) -> Malformed {
        let path = &mut self.0.path;
        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        *path = format!("{name}{dot}{path}");
        self
    }

    /// Adds the item of a vector in which the value lies.
    #[cold]
    #[must_use]
    pub fn in_item(self, index: usize) -> Malformed {
        self.in_field(&format!("[{index}]"))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { path, why } = &*self.0;
        match path.len() {
            0 => f.write_str(why),
            _ => write!(f, "field {}: {why}", &path[..path.floor_char_boundary(PATH_BYTES_MAX)]),
        }
    }
}

impl std::error::Error for Malformed {}

/// Position at which a value begins.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    pub(super) bytes: &'a [u8],
    at: usize,
    /// Number of tables around the value.
    depth: u32,
    /// Bytes of memory that decoding the message may still use.
    budget: &'a Cell<usize>,
}

/// A table, whose fields are numbered from 0.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    pub(super) position: Position<'a>,
    /// The field offsets of the vtable.
    fields: &'a [u8],
}

impl<'a> Position<'a> {
    pub(super) fn root(bytes: &'a [u8], budget: &'a Cell<usize>) -> Result<Position<'a>, Malformed> {
        Position { bytes, at: 0, depth: 0, budget }.follow(0)
    }

    /// Follows the offset at `at`.
    pub(super) fn follow(self, at: usize) -> Result<Position<'a>, Malformed> {
        let offset: u32 = self.inline(at)?;
        let to = at.checked_add(offset as usize).filter(|to| *to < self.bytes.len());
        let to = to.ok_or_else(|| Malformed::new(format!("the offset at {at} leads out of the message")))?;
        Ok(Position { at: to, ..self })
    }

    #[inline]
    fn inline<T: Inline>(self, at: usize) -> Result<T, Malformed> {
        let bytes = self.bytes.get(at..).filter(|bytes| bytes.len() >= T::SIZE);
        bytes.map(T::take).ok_or_else(|| Malformed::new(format!("the message ends within the value at {at}")))
    }

    /// Charges memory for a value.
    fn spend(self, bytes: usize) -> Result<(), Malformed> {
        let left = self.budget.get().checked_sub(bytes).ok_or_else(|| {
            Malformed::new(format!("decoding would use more than {GROWTH_MAX} times the size of the message"))
        })?;
        self.budget.set(left);
        Ok(())
    }

    /// Reads the table that begins here and is decoded to a `T`.
    ///
    /// # Errors
    /// Returns the errors of [`table_of`](Self::table_of).
    pub fn table<T>(self) -> Result<Table<'a>, Malformed> {
        self.table_of(size_of::<T>())
    }

    /// Reads the table that begins here and uses `memory` bytes once it is decoded.
    ///
    /// # Errors
    /// Returns an error if there is no table, if it is nested too deep, or if it exceeds the memory limit of the
    /// message.
    pub fn table_of(self, memory: usize) -> Result<Table<'a>, Malformed> {
        let position = Position { depth: self.depth + 1, ..self };
        if position.depth > DEPTH_MAX {
            return Err(Malformed::new(format!("tables lie deeper than {DEPTH_MAX} in one another")));
        }
        self.spend(memory)?;
        let back: i32 = self.inline(self.at)?;
        let vtable = usize::try_from(self.at as i64 - i64::from(back)).ok();
        let fields = vtable.and_then(|vtable| {
            let len: u16 = self.inline(vtable).ok()?;
            self.bytes.get(vtable + 4..vtable.checked_add(usize::from(len))?)
        });
        let fields =
            fields.ok_or_else(|| Malformed::new(format!("the table at {} has no vtable", self.at)))?;
        Ok(Table { position, fields })
    }

    /// Returns the number of items of the vector here and the position of the first. Each item has `size` bytes, and
    /// uses `memory` bytes once it is decoded.
    pub(super) fn vector(self, size: usize, memory: usize) -> Result<(usize, usize), Malformed> {
        let len: u32 = self.inline(self.at)?;
        let (len, first) = (len as usize, self.at + 4);
        let end = len.checked_mul(size).and_then(|bytes| first.checked_add(bytes));
        if end.is_none_or(|end| end > self.bytes.len()) {
            return Err(Malformed::new(format!(
                "the vector at {} of {len} extends past the end of the message",
                self.at
            )));
        }
        self.spend(len.saturating_mul(memory))?;
        Ok((len, first))
    }

    /// Reads the text that begins here.
    ///
    /// # Errors
    /// Returns an error if there is no text, or if it exceeds the memory limit of the message.
    pub fn text(self) -> Result<&'a str, Malformed> {
        let (len, first) = self.vector(1, 1)?;
        let text = std::str::from_utf8(&self.bytes[first..first + len]);
        text.map_err(|why| Malformed::new(format!("the text at {} is invalid: {why}", self.at)))
    }
}

impl<'a> Table<'a> {
    /// Returns the position of a field, if it is present.
    #[inline]
    pub(super) fn field(&self, number: usize) -> Option<usize> {
        let offset = u16::take(self.fields.get(2 * number..2 * number + 2)?);
        (offset > 0).then(|| self.position.at + usize::from(offset))
    }

    /// Returns the position to which a field refers, if it is present.
    ///
    /// # Errors
    /// Returns an error if the offset points out of the message.
    pub fn position(&self, number: usize) -> Result<Option<Position<'a>>, Malformed> {
        self.field(number).map(|at| self.position.follow(at)).transpose()
    }

    /// Reads a field that is stored in the table.
    ///
    /// # Errors
    /// Returns an error if the field extends past the end of the message.
    #[inline]
    pub fn inline<T: Inline>(&self, number: usize) -> Result<Option<T>, Malformed> {
        self.field(number).map(|at| self.position.inline(at)).transpose()
    }

    /// Reads a field to which the table refers.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`] for the value and the values below it.
    pub fn referred<T: Referred>(&self, number: usize) -> Result<Option<T>, Malformed> {
        self.position(number)?.map(T::read).transpose()
    }

    /// Reads a vector of in-place values.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`].
    pub fn inlines<T: Inline>(&self, number: usize) -> Result<Option<Vec<T>>, Malformed> {
        let Some(position) = self.position(number)? else { return Ok(None) };
        let (len, first) = position.vector(T::SIZE, size_of::<T>())?;
        let items = position.bytes[first..first + len * T::SIZE].chunks_exact(T::SIZE);
        Ok(Some(items.map(T::take).collect()))
    }

    /// Reads a vector of referred values.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`].
    pub fn all<T: Referred>(&self, number: usize) -> Result<Option<Vec<T>>, Malformed> {
        let Some(position) = self.position(number)? else { return Ok(None) };
        let (len, first) = position.vector(4, size_of::<T>())?;
        let read = |item| {
            let read = position.follow(first + 4 * item).and_then(T::read);
            read.map_err(|error| error.in_item(item))
        };
        (0..len).map(read).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a union, whose number is in the field before; `None` if it is missing or its number is unknown.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`].
    pub fn union<T: Union>(&self, number: usize) -> Result<Option<T>, Malformed> {
        let tag = self.inline::<u8>(number - 1)?.unwrap_or(0);
        match self.position(number)? {
            Some(position) if tag > 0 => T::read(tag, position),
            _ => Ok(None),
        }
    }

    /// Reads a vector of unions, whose numbers are in the vector before. Unknown numbers are skipped.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`], and an error if the two vectors have different lengths.
    pub fn unions<T: Union>(&self, number: usize) -> Result<Option<Vec<T>>, Malformed> {
        let Some(position) = self.position(number)? else { return Ok(None) };
        let tags = self.inlines::<u8>(number - 1)?.unwrap_or_default();
        let (len, first) = position.vector(4, size_of::<T>())?;
        if tags.len() != len {
            let text = format!("the vector at {} has {len} unions and {} tags", position.at, tags.len());
            return Err(Malformed::new(text));
        }
        let items = tags.into_iter().enumerate().filter(|(_, tag)| *tag > 0);
        let read = items.filter_map(|(item, tag)| {
            let read = position.follow(first + 4 * item).and_then(|position| T::read(tag, position));
            read.map_err(|error| error.in_item(item)).transpose()
        });
        read.collect::<Result<_, _>>().map(Some)
    }
}

//! FlatBuffers: messages that are tables of a `.fbs` file.
//!
//! A message is the offset to its table, followed by the table, as in <https://flatbuffers.dev/internals/>. Types that
//! `switchboard-build` generates implement [`Inline`] (values stored in place: numbers, enums and structs),
//! [`Referred`] (tables) or [`Union`].
//!
//! Offsets may point anywhere. A short message can therefore refer to the same value a thousand times, and nest tables
//! without end. Reading is bounded: to [`DEPTH_MAX`] nested tables, and to [`GROWTH_MAX`] times the size of the message
//! in memory.

mod dynamic;
mod read;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod sample;
mod write;

pub use read::{Malformed, Position, Table};
use std::{cell::Cell, convert::Infallible};
pub use write::{Slot, Writer};

/// Largest nesting of tables that is read, the limit of the verifiers in other languages.
pub const DEPTH_MAX: u32 = 64;
/// Largest ratio of the memory of a decoded message to the size of the message. Tables with few of their fields set,
/// and values to which several offsets point, grow by much.
pub const GROWTH_MAX: usize = 64;
/// Memory that every message may use regardless of its size, in bytes.
const ALLOWANCE: usize = 64 << 10;

/// A value that is stored in place.
pub trait Inline: Copy + PartialEq {
    /// Size in bytes.
    const SIZE: usize;
    /// Alignment of its position in bytes.
    const ALIGN: usize;

    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the value from the first [`SIZE`](Self::SIZE) bytes.
    ///
    /// # Panics
    /// If there are fewer bytes.
    fn take(bytes: &[u8]) -> Self;
}

/// A value that is referred to by an offset.
pub trait Referred: Sized {
    /// Appends the value and returns its position.
    fn write(&self, out: &mut Writer) -> usize;

    /// Reads the value at `at`.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a value, or if the value exceeds the limits.
    fn read(at: Position<'_>) -> Result<Self, Malformed>;
}

/// One of several tables, with a number that selects the table.
pub trait Union: Sized {
    /// Number of the table; never 0.
    fn tag(&self) -> u8;

    /// Appends the table and returns its position.
    fn write(&self, out: &mut Writer) -> usize;

    /// Reads the table with this number; `None` for an unknown number.
    ///
    /// # Errors
    /// Returns the errors of [`Referred::read`].
    fn read(tag: u8, at: Position<'_>) -> Result<Option<Self>, Malformed>;
}

/// Writes a complete message.
pub fn write<T: Referred>(message: &T) -> Vec<u8> {
    let Ok(bytes) = Writer::message(|out| Ok::<_, Infallible>(message.write(out)));
    bytes
}

/// Reads a complete message.
///
/// # Errors
/// Returns the errors of [`Referred::read`].
pub fn read<T: Referred>(bytes: &[u8]) -> Result<T, Malformed> {
    read_with(bytes, T::read)
}

/// Reads a complete message by calling `read` with its table.
///
/// # Errors
/// Returns the errors of `read`, and an error for bytes that have no table.
pub fn read_with<T>(
    bytes: &[u8],
    read: impl FnOnce(Position<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let budget = Cell::new(bytes.len().saturating_mul(GROWTH_MAX).saturating_add(ALLOWANCE));
    read(Position::root(bytes, &budget)?)
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Inline for $number {
            const SIZE: usize = size_of::<$number>();
            const ALIGN: usize = size_of::<$number>();

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn take(bytes: &[u8]) -> $number {
                <$number>::from_le_bytes(*bytes.first_chunk().expect("the caller passes SIZE bytes"))
            }
        })*
    };
}

numbers!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

impl Inline for bool {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(bytes: &[u8]) -> bool {
        bytes[0] != 0
    }
}

/// A fixed-length array in a struct.
impl<T: Inline, const N: usize> Inline for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const ALIGN: usize = T::ALIGN;

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn take(bytes: &[u8]) -> [T; N] {
        std::array::from_fn(|at| T::take(&bytes[at * T::SIZE..]))
    }
}

impl Referred for String {
    fn write(&self, out: &mut Writer) -> usize {
        out.text(self)
    }

    fn read(at: Position<'_>) -> Result<String, Malformed> {
        at.text().map(str::to_owned)
    }
}

impl<T: Referred> Referred for Box<T> {
    fn write(&self, out: &mut Writer) -> usize {
        T::write(self, out)
    }

    fn read(at: Position<'_>) -> Result<Box<T>, Malformed> {
        T::read(at).map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        sample::{Either, Node},
        *,
    };

    fn node(number: i16) -> Node {
        Node { number, ..Node::default() }
    }

    #[test]
    fn tables_are_written_as_they_are_read() {
        let leaf = Node { name: Some("häy".to_owned()), wide: 2.5, ..node(7) };
        let tree = Node {
            next: Some(Box::new(leaf.clone())),
            children: vec![leaf, node(1), node(7)],
            bytes: vec![1, 2, 3],
            some: vec![Either::Node(Box::new(node(4))), Either::Node(Box::default())],
            ..node(-2)
        };
        for message in [node(7), node(0), tree] {
            assert_eq!(read::<Node>(&write(&message)).unwrap(), message);
        }
    }

    /// Bytes that `flatc` writes of `{ number: 300, name: "ab" }` for this schema, with the vtable before the table.
    #[test]
    fn bytes_of_other_writers_are_read_wherever_things_lie() {
        let bytes = [
            12, 0, 0, 0, // the table is at 12
            8, 0, 12, 0, 4, 0, 8, 0, // vtable: itself 8, the table 12, number at 4, name at 8
            8, 0, 0, 0, // the vtable is 8 before
            0x2C, 1, 0, 0, // 300
            4, 0, 0, 0, // the name is 4 further
            2, 0, 0, 0, b'a', b'b', 0, 0,
        ];
        let read = read::<Node>(&bytes).unwrap();
        assert_eq!(read, Node { name: Some("ab".to_owned()), ..node(300) });
    }

    /// The layout of `flatc`: numbers and offsets in two vectors of the same length.
    #[test]
    fn unknown_unions_are_left_out_of_vectors() {
        let either = |number| Either::Node(Box::new(node(number)));
        let bytes = write(&Node { some: vec![either(1), either(2), either(3)], ..node(7) });
        let tags = bytes.windows(7).position(|window| window == [3, 0, 0, 0, 1, 1, 1]).unwrap();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[tags + at] = value;
            read::<Node>(&bytes)
        };
        assert_eq!(with(4 + 1, 9).unwrap().some, [either(1), either(3)]);
        assert_eq!(with(4 + 2, 0).unwrap().some, [either(1), either(2)]);
        let why = with(0, 2).unwrap_err().to_string();
        assert!(why.contains("has 3 unions and 2 tags"), "{why}");
    }

    #[test]
    fn errors_name_the_field_and_the_byte() {
        let named = |name: &str| Node { name: Some(name.to_owned()), ..node(1) };
        let mut inner = Node { next: Some(Box::new(named("lost"))), ..node(2) };
        inner.some = vec![Either::Node(Box::default()), Either::Node(Box::new(named("gone")))];
        let bytes = write(&Node { children: vec![node(7), inner], ..named("here") });
        for (name, path) in
            [("here", "name"), ("lost", "children[1].next.name"), ("gone", "children[1].some[1].name")]
        {
            let at = bytes.windows(4).position(|window| window == name.as_bytes()).unwrap();
            let mut bytes = bytes.clone();
            bytes[at] = 0xFF;
            let why = read::<Node>(&bytes).unwrap_err().to_string();
            assert!(why.starts_with(&format!("field {path}: the text at {} is invalid: ", at - 4)), "{why}");
        }
    }

    #[test]
    fn vtables_are_shared_and_everything_is_aligned() {
        let message = Node { children: vec![Node { wide: 1.0, ..node(3) }; 50], ..node(7) };
        let bytes = write(&message);
        // 8 bytes of a double, 4 of the offset to the vtable, 2 of a short and 2 to align the next, and its offset.
        assert!(bytes.len() < 50 * (8 + 4 + 4 + 4 + 4) + 60, "{} bytes", bytes.len());
        let at = bytes.windows(8).position(|window| window == 1f64.to_le_bytes()).unwrap();
        assert_eq!(at % 8, 0);
    }

    #[test]
    fn deep_and_wide_messages_are_refused() {
        let deep = |tables: usize| {
            let mut node = node(1);
            for _ in 1..tables {
                node = Node { next: Some(Box::new(node)), ..Node::default() };
            }
            write(&node)
        };
        assert!(read::<Node>(&deep(64)).is_ok());
        let why = read::<Node>(&deep(65)).unwrap_err().to_string();
        assert!(why.contains("deeper than 64"), "{why}");
        // Each of 30 tables has two children, which are the same table: a billion tables in total.
        let mut bytes = vec![0; 4];
        let mut first = None;
        for _ in 0..30 {
            let at = bytes.len() + 12;
            bytes.extend_from_slice(&[12, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
            bytes.extend_from_slice(&12i32.to_le_bytes());
            bytes.extend_from_slice(&4u32.to_le_bytes());
            bytes.extend_from_slice(&2u32.to_le_bytes());
            // Both offsets point behind themselves and the next vtable.
            bytes.extend_from_slice(&(8u32 + 12).to_le_bytes());
            bytes.extend_from_slice(&(4u32 + 12).to_le_bytes());
            first.get_or_insert(at);
        }
        bytes.extend_from_slice(&[4, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&12i32.to_le_bytes());
        bytes[..4].copy_from_slice(&(first.unwrap() as u32).to_le_bytes());
        let why = read::<Node>(&bytes).unwrap_err().to_string();
        assert!(why.contains("64 times"), "{why}");
    }

    #[test]
    fn offsets_out_of_the_message_are_rejected() {
        let good = write(&Node {
            name: Some("abc".to_owned()),
            children: vec![node(1)],
            some: vec![Either::Node(Box::new(node(5)))],
            ..node(2)
        });
        for at in 0..good.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut bad = good.clone();
                bad[at] = value;
                // Reading may fail but must not panic.
                let _ = read::<Node>(&bad);
            }
            let _ = read::<Node>(&good[..at]);
        }
        for bytes in [&b""[..], b"\0", b"\xFF\xFF\xFF\xFF", b"\x04\0\0\0", b"\x04\0\0\0\xFF\xFF\xFF\x7F"] {
            assert!(read::<Node>(bytes).is_err(), "{bytes:?}");
        }
    }
}

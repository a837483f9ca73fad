//! FlatBuffers: messages that are tables of a `.fbs` file.
//!
//! A message is the offset to its table, and the table behind it, as <https://flatbuffers.dev/internals/> has it. Types
//! that `switchboard-build` generates implement [`Inline`] (what lies in place: numbers, enums and structs),
//! [`Referred`] (tables) or [`Union`].
//!
//! Offsets may point anywhere, so that a short message can say the same thing a thousand times, and tables in one
//! another as deep as memory goes. What is read is therefore bounded: [`DEPTH_MAX`] tables deep, and as large as the
//! message times [`GROWTH_MAX`].

mod dynamic;
mod read;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod sample;
mod write;

pub use read::{Malformed, Place, Table};
use std::{cell::Cell, convert::Infallible};
pub use write::{Slot, Writer};

/// Tables in one another that are read, as the verifiers of other languages have it.
pub const DEPTH_MAX: u32 = 64;
/// How many times larger than its message what is read of it may be in memory. Tables with few of their fields are many
/// times larger, and so is what several offsets lead to.
pub const GROWTH_MAX: usize = 64;
/// What every message may take in memory, in bytes.
const ALLOWANCE: usize = 64 << 10;

/// A value that lies in place.
pub trait Inline: Copy + PartialEq {
    /// Bytes that it takes.
    const SIZE: usize;
    /// What its position is a multiple of.
    const ALIGN: usize;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it from the first [`SIZE`](Self::SIZE) bytes.
    ///
    /// # Panics
    /// If there are fewer.
    fn take(bytes: &[u8]) -> Self;
}

/// A value that others refer to by an offset.
pub trait Referred: Sized {
    /// Appends it; its position.
    fn write(&self, out: &mut Writer) -> usize;

    /// Reads it.
    ///
    /// # Errors
    /// What lies there is no such value, or larger than it may be.
    fn read(at: Place<'_>) -> Result<Self, Malformed>;
}

/// One of several tables, with a number that says which.
pub trait Union: Sized {
    /// Which it is; never 0.
    fn tag(&self) -> u8;

    /// Appends it; its position.
    fn write(&self, out: &mut Writer) -> usize;

    /// Reads the one with this number; none for one that is not known here.
    ///
    /// # Errors
    /// Those of [`Referred::read`].
    fn read(tag: u8, at: Place<'_>) -> Result<Option<Self>, Malformed>;
}

/// A whole message.
pub fn write<T: Referred>(message: &T) -> Vec<u8> {
    let Ok(bytes) = Writer::message(|out| Ok::<_, Infallible>(message.write(out)));
    bytes
}

/// Reads a whole message.
///
/// # Errors
/// Those of [`Referred::read`].
pub fn read<T: Referred>(bytes: &[u8]) -> Result<T, Malformed> {
    read_with(bytes, T::read)
}

/// Reads a whole message, whose table `read` is told of.
///
/// # Errors
/// Those of `read`, and bytes that have no table.
pub fn read_with<T>(
    bytes: &[u8],
    read: impl FnOnce(Place<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let budget = Cell::new(bytes.len().saturating_mul(GROWTH_MAX).saturating_add(ALLOWANCE));
    read(Place::root(bytes, &budget)?)
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
                <$number>::from_le_bytes(*bytes.first_chunk().expect("as many as it says it takes"))
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

/// An array in a struct.
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

    fn read(at: Place<'_>) -> Result<String, Malformed> {
        at.text().map(str::to_owned)
    }
}

impl<T: Referred> Referred for Box<T> {
    fn write(&self, out: &mut Writer) -> usize {
        T::write(self, out)
    }

    fn read(at: Place<'_>) -> Result<Box<T>, Malformed> {
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

    /// What `flatc` writes of `{ number: 300, name: "ab" }` for this schema, its vtable before the table.
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
    fn unions_that_are_not_known_are_left_out_of_vectors() {
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
        assert!(why.contains("has 3 unions and 2 numbers of them"), "{why}");
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
        // Each of 30 tables has two children, which are the same one: a billion of them.
        let mut bytes = vec![0; 4];
        let mut first = None;
        for _ in 0..30 {
            let at = bytes.len() + 12;
            bytes.extend_from_slice(&[12, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
            bytes.extend_from_slice(&12i32.to_le_bytes());
            bytes.extend_from_slice(&4u32.to_le_bytes());
            bytes.extend_from_slice(&2u32.to_le_bytes());
            // Both lead behind the two offsets and the next vtable.
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
    fn what_points_outside_is_refused() {
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
                // Read or refused, but no panic.
                let _ = read::<Node>(&bad);
            }
            let _ = read::<Node>(&good[..at]);
        }
        for bytes in [&b""[..], b"\0", b"\xFF\xFF\xFF\xFF", b"\x04\0\0\0", b"\x04\0\0\0\xFF\xFF\xFF\x7F"] {
            assert!(read::<Node>(bytes).is_err(), "{bytes:?}");
        }
    }
}

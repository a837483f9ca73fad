//! Decoded literals and blocks by their bytes. They belong to one connection, so that no peer can observe another.

use super::{integer, statics};

/// Number of literals, and the longest, in bytes.
const LITERALS: usize = 16;
const LITERAL_BYTES_MAX: usize = 128;
/// Number of blocks, and the longest, in bytes.
const BLOCKS: usize = 4;
const BLOCK_BYTES_MAX: usize = 128;

/// The last literals that are not indexed. Some clients never index the path, and send its Huffman code each time.
#[derive(Debug)]
pub(super) struct Literals<T> {
    known: Vec<Literal<T>>,
    /// Where the search for a place of the next literal begins.
    next: usize,
}

#[derive(Debug)]
struct Literal<T> {
    bytes: Box<[u8]>,
    /// Generation of the table, if the literal refers to it.
    generation: Option<u64>,
    size: usize,
    decoded: T,
    /// It was found since the search for a place passed it.
    used: bool,
}

impl<T> Default for Literals<T> {
    fn default() -> Literals<T> {
        Literals { known: Vec::new(), next: 0 }
    }
}

impl<T> Literals<T> {
    /// Finds the literal at the front of `block`: the number of its bytes, the size of its field, and what was decoded
    /// from it.
    #[inline]
    pub(super) fn find(&mut self, block: &[u8], generation: u64) -> Option<(usize, usize, &T)> {
        let found = self.known.iter_mut().find(|literal| {
            block.starts_with(&literal.bytes)
                && literal.generation.is_none_or(|its_own| its_own == generation)
        })?;
        found.used = true;
        Some((found.bytes.len(), found.size, &found.decoded))
    }

    /// Stores a literal, in the place of one that was not found for a while.
    pub(super) fn add(&mut self, bytes: &[u8], generation: u64, size: usize, decoded: T) {
        if bytes.len() > LITERAL_BYTES_MAX {
            return;
        }
        let is_dynamic = integer::take(&mut { bytes }, 4).is_ok_and(|index| index > statics::FIELDS.len());
        let generation = is_dynamic.then_some(generation);
        let literal = Literal { bytes: bytes.into(), generation, size, decoded, used: false };
        if self.known.len() < LITERALS {
            self.known.push(literal);
            return;
        }
        while std::mem::take(&mut self.known[self.next].used) {
            self.next = (self.next + 1) % LITERALS;
        }
        self.known[self.next] = literal;
        self.next = (self.next + 1) % LITERALS;
    }
}

/// The last whole blocks. Callers whose heads are constant send the same bytes each time, once the table has settled.
#[derive(Debug)]
pub struct Blocks<T> {
    known: Vec<(Box<[u8]>, T)>,
    next: usize,
    /// Generation of the table for which the blocks are valid.
    generation: u64,
}

impl<T> Default for Blocks<T> {
    fn default() -> Blocks<T> {
        Blocks { known: Vec::new(), next: 0, generation: 0 }
    }
}

impl<T> Blocks<T> {
    /// Finds a block at this [generation](super::Decoder::generation) of the table.
    #[inline]
    pub fn find(&self, block: &[u8], generation: u64) -> Option<&T> {
        if generation != self.generation {
            return None;
        }
        self.known.iter().find(|(bytes, _)| **bytes == *block).map(|(_, decoded)| decoded)
    }

    /// Stores a block that did not change the table.
    pub fn add(&mut self, block: &[u8], generation: u64, decoded: T) {
        if block.len() > BLOCK_BYTES_MAX {
            return;
        }
        if generation != self.generation {
            *self = Blocks { generation, ..Blocks::default() };
        }
        if self.known.len() < BLOCKS {
            self.known.push((block.into(), decoded));
            return;
        }
        self.known[self.next] = (block.into(), decoded);
        self.next = (self.next + 1) % BLOCKS;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Decoder, Encoder, Indexing, ListLimits, Listed},
        *,
    };
    use bytes::BytesMut;
    use std::cell::Cell;

    const LIMITS: ListLimits = ListLimits { bytes_max: 4096, fields_max: 64 };

    type Pair = (Vec<u8>, Vec<u8>);

    /// Decodes with a decoder that remembers and with one that does not; returns the number of fields that were read.
    fn decode(decoder: &mut Decoder<Pair>, plain: &mut Decoder, block: &[u8]) -> usize {
        let (reads, mut found, mut expected) = (Cell::new(0), Vec::new(), Vec::new());
        let listed = decoder.decode_values(
            block,
            LIMITS,
            |field| {
                reads.set(reads.get() + 1);
                (field.name.to_vec(), field.value.to_vec())
            },
            |pair| found.push(pair.clone()),
        );
        let plainly =
            plain.decode(block, LIMITS, |field| expected.push((field.name.to_vec(), field.value.to_vec())));
        assert_eq!(listed, plainly);
        assert_eq!(found, expected);
        reads.get()
    }

    #[test]
    fn remembered_fields_are_those_that_are_decoded() {
        let (mut decoder, mut plain) = (Decoder::of_values(300), Decoder::new(300));
        let mut encoder = Encoder::new();
        encoder.limit(300);
        let mut read = 0;
        for step in 0..5000usize {
            let mut block = BytesMut::new();
            encoder.begin(&mut block);
            if step % 700 == 699 {
                encoder.limit([0, 100, 300][step % 3]);
                block.clear();
                encoder.begin(&mut block);
            }
            encoder.field(b":path", format!("/a.B/C{}", step % 3).as_bytes(), Indexing::Once, &mut block);
            encoder.field(b"grpc-timeout", format!("{step}m").as_bytes(), Indexing::Once, &mut block);
            encoder.field(b"x-own", b"1", Indexing::Recurring, &mut block);
            encoder.field(b"x-own", format!("{}", step % 5).as_bytes(), Indexing::Once, &mut block);
            encoder.field(b"authorization", b"secret", Indexing::Never, &mut block);
            read += decode(&mut decoder, &mut plain, &block);
        }
        // The timeout differs each time, and a secret is never remembered.
        assert!(read < 5000 * 5 / 2, "{read} fields were read");
    }

    #[test]
    fn literals_that_refer_to_the_table_are_forgotten_when_it_changes() {
        let (mut decoder, mut plain) = (Decoder::of_values(4096), Decoder::new(4096));
        let (insert_a, insert_b) = (b"\x40\x01a\x01x", b"\x40\x01b\x01x");
        let newest = b"\x0f\x2f\x01y";
        for block in [&insert_a[..], newest, newest, insert_b, newest] {
            decode(&mut decoder, &mut plain, block);
        }
    }

    #[test]
    fn only_indexed_fields_over_the_limit_are_read() {
        let small = ListLimits { bytes_max: 60, fields_max: 2 };
        let mut decoder = Decoder::of_values(4096);
        let block = b"\x00\x01a\x01x\x40\x01b\x01y\x00\x01c\x01z";
        let reads = Cell::new(0);
        let read = |_: super::super::Field<'_>| reads.set(reads.get() + 1);
        assert_eq!(decoder.decode_values(block, small, read, |()| {}), Ok(Listed::OverLimit));
        assert_eq!((reads.get(), decoder.table_bytes()), (2, 34));
    }

    #[test]
    fn blocks_are_found_at_their_generation_only() {
        let mut blocks = Blocks::default();
        for at in 0..6u8 {
            blocks.add(&[at], 7, at);
        }
        assert_eq!(
            (blocks.find(&[5], 7), blocks.find(&[0], 7), blocks.find(&[5], 8)),
            (Some(&5), None, None)
        );
        blocks.add(&[5], 8, 55);
        assert_eq!((blocks.find(&[5], 7), blocks.find(&[5], 8)), (None, Some(&55)));
        blocks.add(&[0; BLOCK_BYTES_MAX + 1], 8, 1);
        assert_eq!(blocks.find(&[0; BLOCK_BYTES_MAX + 1], 8), None);
    }
}

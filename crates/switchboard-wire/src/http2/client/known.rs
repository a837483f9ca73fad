//! Header blocks that servers repeat: the last plain heads and the last plain trailers, by their bytes.

use crate::Codec;

/// Number of blocks that are stored of each kind.
const BLOCKS: usize = 4;
/// Longest block that is stored, in bytes.
const BYTES_MAX: usize = 128;

/// Stored blocks of one kind. The decoder's table has not changed since a block was stored, so equal bytes mean equal
/// fields.
#[derive(Debug, Default)]
pub(super) struct KnownBlocks {
    blocks: [Option<Known>; BLOCKS],
    next: usize,
    /// Where the last block was found.
    last: usize,
}

#[derive(Debug)]
struct Known {
    generation: u64,
    codec: Codec,
    bytes: Box<[u8]>,
}

impl KnownBlocks {
    /// Returns the codec that the block names, if it is stored; `generation` is that of the decoder.
    #[inline]
    pub(super) fn find(&mut self, block: &[u8], generation: u64) -> Option<Codec> {
        let is_it = |known: &Known| known.generation == generation && *known.bytes == *block;
        if let Some(known) = self.blocks[self.last].as_ref().filter(|known| is_it(known)) {
            return Some(known.codec);
        }
        self.last = self.blocks.iter().position(|known| known.as_ref().is_some_and(is_it))?;
        self.blocks[self.last].as_ref().map(|known| known.codec)
    }

    /// Stores a block that names only `codec`, and that did not change the table.
    pub(super) fn store(&mut self, block: &[u8], generation: u64, codec: Codec) {
        let changes_size = block.first().is_some_and(|first| first & 0xe0 == 0x20);
        if block.len() > BYTES_MAX || changes_size {
            return;
        }
        self.blocks[self.next] = Some(Known { generation, codec, bytes: block.into() });
        self.next = (self.next + 1) % BLOCKS;
    }
}

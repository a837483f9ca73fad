//! Snappy and LZ4: block formats that start with the decompressed length.
//!
//! Each thread keeps the match tables and the output space, so that a message costs one allocation, of its
//! compressed size. The length in a message is accepted only up to the maximum expansion of the received
//! bytes: otherwise a few bytes could make the receiver reserve `message_bytes_max`.

use super::algorithms::Unreadable;
use bytes::Bytes;
use std::cell::RefCell;

/// Maximum size in bytes of the output space that is kept for the next message.
const SPACE_KEPT: usize = 64 << 10;
/// A Snappy copy element of 3 bytes expands to 64 bytes at most.
const SNAPPY_RATIO_MAX: usize = 22;
/// Each continuation byte of an LZ4 length adds 255 at most.
const LZ4_RATIO_MAX: usize = 255;
/// Bytes of the length field before an LZ4 block.
const LENGTH: usize = 4;

thread_local! {
    static WORKSHOP: RefCell<Workshop> = RefCell::new(Workshop {
        snappy: snap::raw::Encoder::new(),
        lz4: lz4_flex::block::CompressTable::default(),
        space: Vec::new(),
    });
}

struct Workshop {
    snappy: snap::raw::Encoder,
    lz4: lz4_flex::block::CompressTable,
    space: Vec<u8>,
}

/// Compresses to the raw Snappy format; returns `None` if the message is too large for it.
pub(super) fn snappy(message: &[u8]) -> Option<Bytes> {
    let room = match snap::raw::max_compress_len(message.len()) {
        0 => return None,
        room => room,
    };
    written(room, |workshop, space| workshop.snappy.compress(message, space).ok())
}

/// Compresses to an LZ4 block after its length; returns `None` if the message is too large for it.
pub(super) fn lz4(message: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(message.len()).ok()?;
    let room = LENGTH + lz4_flex::block::get_maximum_output_size(message.len());
    written(room, |workshop, space| {
        let (head, block) = space.split_at_mut(LENGTH);
        head.copy_from_slice(&length.to_le_bytes());
        let written = lz4_flex::block::compress_into_with_table(message, block, &mut workshop.lz4);
        written.ok().map(|bytes| LENGTH + bytes)
    })
}

/// Returns a copy of the bytes that `write` has written to the start of the thread's output space.
fn written(room: usize, write: impl FnOnce(&mut Workshop, &mut [u8]) -> Option<usize>) -> Option<Bytes> {
    WORKSHOP.with_borrow_mut(|workshop| {
        let mut space = std::mem::take(&mut workshop.space);
        if space.len() < room {
            space.resize(room, 0);
        }
        let written = write(workshop, &mut space[..room]);
        let message = written.map(|bytes| Bytes::copy_from_slice(&space[..bytes]));
        if space.len() <= SPACE_KEPT {
            workshop.space = space;
        }
        message
    })
}

pub(super) fn from_snappy(message: &[u8], bytes_max: u32) -> Result<Bytes, Unreadable> {
    let broken = |error: snap::Error| Unreadable::Broken(error.to_string());
    let length = snap::raw::decompress_len(message).map_err(broken)?;
    let mut space = room(length, message.len(), SNAPPY_RATIO_MAX, bytes_max)?;
    let written = snap::raw::Decoder::new().decompress(message, &mut space).map_err(broken)?;
    whole(space, written)
}

pub(super) fn from_lz4(message: &[u8], bytes_max: u32) -> Result<Bytes, Unreadable> {
    let (length, block) = message
        .split_first_chunk::<LENGTH>()
        .ok_or_else(|| Unreadable::Broken("it is shorter than its length".into()))?;
    let length = u32::from_le_bytes(*length) as usize;
    let mut space = room(length, block.len(), LZ4_RATIO_MAX, bytes_max)?;
    let written = lz4_flex::block::decompress_into(block, &mut space)
        .map_err(|error| Unreadable::Broken(error.to_string()))?;
    whole(space, written)
}

/// Allocates space for a message with the stated decompressed `length` that arrived in `sent` bytes.
fn room(length: usize, sent: usize, ratio_max: usize, bytes_max: u32) -> Result<Vec<u8>, Unreadable> {
    if length > bytes_max as usize {
        return Err(Unreadable::TooLarge);
    }
    if length > sent.saturating_mul(ratio_max) {
        return Err(Unreadable::Broken(format!("{sent} bytes cannot be {length} decompressed")));
    }
    Ok(vec![0; length])
}

fn whole(space: Vec<u8>, written: usize) -> Result<Bytes, Unreadable> {
    if written == space.len() {
        return Ok(space.into());
    }
    Err(Unreadable::Broken(format!("it has {written} bytes instead of {}", space.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Vec<Vec<u8>> {
        let words = |n: usize| (0..n).flat_map(|i| format!("line {} of {n}; ", i * i).into_bytes()).collect();
        vec![b"a".to_vec(), vec![0; 3], vec![7; 100_000], words(10), words(3000), words(20_000)]
    }

    #[test]
    fn messages_of_every_size_come_back() {
        for text in texts() {
            let max = text.len() as u32;
            for (packed, back) in [
                (snappy(&text).unwrap(), from_snappy as fn(&[u8], u32) -> Result<Bytes, Unreadable>),
                (lz4(&text).unwrap(), from_lz4),
            ] {
                assert!(back(&packed, max).ok().unwrap() == text);
                assert!(matches!(back(&packed, max - 1), Err(Unreadable::TooLarge)));
                for cut in [0, 1, packed.len() / 2, packed.len() - 1] {
                    assert!(matches!(back(&packed[..cut], max), Err(Unreadable::Broken(_))), "{cut}");
                }
            }
        }
        WORKSHOP.with_borrow(|workshop| assert!(workshop.space.len() <= SPACE_KEPT));
    }

    #[test]
    fn other_libraries_agree() {
        let text = b"Ada ".repeat(16);
        // A literal of 4 bytes, and a copy of 60 bytes at offset 4.
        let raw = b"\x40\x0cAda \xee\x04\x00";
        assert!(from_snappy(raw, 64).ok().unwrap() == text);
        // The length, a literal of 4 bytes, a copy of 4 + 15 + 36 bytes at offset 4, and the last 5 bytes as literals.
        let block = b"\x40\0\0\0\x4fAda \x04\x00\x24\x50 Ada ";
        assert!(from_lz4(block, 64).ok().unwrap() == text);
    }

    #[test]
    fn lengths_that_cannot_be_reserve_nothing() {
        let snappy = from_snappy(b"\xff\xff\xff\x01\x00x", 100 << 20);
        let lz4 = from_lz4(b"\xff\xff\xff\x01\x10x", 100 << 20);
        for unreadable in [snappy, lz4] {
            assert!(matches!(unreadable, Err(Unreadable::Broken(why)) if why.contains("cannot be")));
        }
        // Shorter than its stated length.
        assert!(matches!(from_lz4(b"\x05\0\0\0\x10x", 100), Err(Unreadable::Broken(_))));
    }
}

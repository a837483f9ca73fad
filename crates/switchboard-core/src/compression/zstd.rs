//! The compression `zstd` (RFC 8878), with a bound on the parts of a message.
//!
//! A message may consist of many frames, and a frame of many blocks, and none of them has to contain data: an empty
//! frame has 9 bytes, an empty block 3. The decoder works for each of them without output that a limit would stop, so a
//! message within its limit of bytes could occupy a worker. The headers of all parts are read before the message is
//! decoded.

use bytes::Bytes;
use connectrpc::{CompressionProvider, ConnectError, ZstdProvider};
use std::io::Read;

/// Parts that every message may have.
const PARTS: usize = 1024;
/// Average number of compressed bytes of further parts. Encoders end a block after 128 KiB, or when they flush.
const PART_BYTES: usize = 64;
/// Average number of decompressed bytes, of those that are allowed, for further parts.
const PART_OUTPUT_BYTES: usize = 16 << 10;
/// Number of parts that a frame counts as, beside its blocks: the decoder is reset at each.
const FRAME_PARTS: usize = 16;

const MAGIC: u32 = 0xFD2F_B528;
/// The magic numbers of skippable frames differ in the last four bits (section 3.1.2).
const SKIPPABLE: u32 = 0x184D_2A50;

/// The algorithm of `connectrpc`, for messages whose number of frames and blocks is in proportion to their size.
pub(crate) struct Zstd(ZstdProvider);

impl Default for Zstd {
    fn default() -> Zstd {
        Zstd(ZstdProvider::new())
    }
}

impl CompressionProvider for Zstd {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn compress(&self, data: &[u8]) -> Result<Bytes, ConnectError> {
        self.0.compress(data)
    }

    fn decompressor<'a>(&self, data: &'a [u8]) -> Result<Box<dyn Read + 'a>, ConnectError> {
        check(data, 0)?;
        self.0.decompressor(data)
    }

    fn decompress_with_limit(&self, data: &[u8], max_size: usize) -> Result<Bytes, ConnectError> {
        check(data, max_size)?;
        self.0.decompress_with_limit(data, max_size)
    }
}

/// Counts the parts of a message that may have `output_max` decompressed bytes. Malformed data is left to the decoder,
/// which names the fault.
fn check(data: &[u8], output_max: usize) -> Result<(), ConnectError> {
    let parts_max = PARTS + data.len() / PART_BYTES + output_max / PART_OUTPUT_BYTES;
    let (mut parts, mut rest) = (0, data);
    while !rest.is_empty() && parts <= parts_max {
        parts += FRAME_PARTS;
        let Some(after) = frame(rest, &mut parts, parts_max) else { break };
        rest = after;
    }
    if parts <= parts_max {
        return Ok(());
    }
    Err(ConnectError::invalid_argument(format!(
        "zstd decompression failed: a message of {} bytes has more than {parts_max} parts ({FRAME_PARTS} for a frame, 1 for a \
         block); send it as one frame",
        data.len()
    )))
}

/// Counts the blocks of the first frame; returns the data behind it, `None` if it is malformed or has too many.
fn frame<'a>(data: &'a [u8], parts: &mut usize, parts_max: usize) -> Option<&'a [u8]> {
    let (magic, rest) = data.split_first_chunk()?;
    let magic = u32::from_le_bytes(*magic);
    if magic & !0xF == SKIPPABLE {
        let (size, rest) = rest.split_first_chunk()?;
        return rest.get(u32::from_le_bytes(*size) as usize..);
    }
    if magic != MAGIC {
        return None;
    }
    // Section 3.1.1.1: a descriptor, the size of the window, the number of the dictionary and the size of the content.
    let descriptor = *rest.first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        wide => 1 << wide,
    };
    let mut rest = rest.get(1 + usize::from(!is_single_segment) + dictionary + content..)?;
    loop {
        // Section 3.1.1.2: the last block has bit 0, the type is in bits 1 and 2, the size in the others.
        let (header, after) = rest.split_first_chunk::<3>()?;
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        *parts += 1;
        if *parts > parts_max {
            return None;
        }
        // A block of one repeated byte has that byte alone.
        let is_repeated = header >> 1 & 3 == 1;
        rest = after.get(if is_repeated { 1 } else { (header >> 3) as usize }..)?;
        if header & 1 == 1 {
            break;
        }
    }
    let checksum = if descriptor & 4 == 0 { 0 } else { 4 };
    rest.get(checksum..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectrpc::ErrorCode;

    /// A frame without content: an empty window of 1 KiB and one empty last block.
    const EMPTY: [u8; 9] = [0x28, 0xB5, 0x2F, 0xFD, 0, 0, 1, 0, 0];

    fn zstd() -> Zstd {
        Zstd::default()
    }

    fn refused(data: &[u8]) {
        let error = zstd().decompress_with_limit(data, 4 << 20).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument);
        let text = error.message.unwrap_or_default();
        assert!(text.contains("parts") && text.contains("send it as one frame"), "{text}");
        assert!(zstd().decompressor(data).is_err());
    }

    #[test]
    fn floods_of_empty_frames_and_blocks_are_refused() {
        assert_eq!(zstd().decompress_with_limit(&EMPTY, 100).unwrap(), b""[..]);
        refused(&EMPTY.repeat(100_000));
        let skippable = [0x5A, 0x2A, 0x4D, 0x18, 0, 0, 0, 0];
        refused(&skippable.repeat(100_000));
        let mut blocks = EMPTY[..6].to_vec();
        blocks.extend([0, 0, 0].repeat(100_000));
        blocks.extend([1, 0, 0]);
        refused(&blocks);
        // Blocks of a repeated byte without repetitions.
        let mut blocks = EMPTY[..6].to_vec();
        blocks.extend([2, 0, 0, 7].repeat(100_000));
        blocks.extend([1, 0, 0]);
        refused(&blocks);
    }

    /// Messages of encoders pass: any size and content, several frames, and streams that are flushed often.
    #[test]
    fn messages_of_encoders_pass() {
        let mut random = 7_u32;
        let mut noise = |len: usize| -> Vec<u8> {
            let next = || {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 24) as u8
            };
            std::iter::repeat_with(next).take(len).collect()
        };
        for len in [0, 1, 255, 256, 70_000, 3 << 20] {
            for content in [noise(len), vec![7; len]] {
                let compressed = zstd().compress(&content).unwrap();
                assert_eq!(zstd().decompress_with_limit(&compressed, len).unwrap(), content, "{len}");
                let twice = compressed.repeat(2);
                let both = zstd().decompress_with_limit(&twice, 2 * len).unwrap();
                assert_eq!(both.len(), 2 * len);
            }
        }
    }

    /// The headers are read as the decoder reads them: a cut is found by the decoder, and never panics here.
    #[test]
    fn cut_messages_have_the_error_of_the_decoder() {
        let content: Vec<u8> =
            (0..300_000_u32).flat_map(|number| (number.wrapping_mul(number)).to_le_bytes()).collect();
        let compressed = zstd().compress(&content).unwrap();
        for cut in (0..40).chain((40..compressed.len()).step_by(997)) {
            assert!(check(&compressed[..cut], 0).is_ok());
            let result = zstd().decompress_with_limit(&compressed[..cut], content.len());
            assert!(cut == 0 || result.is_err(), "{cut}");
        }
    }
}

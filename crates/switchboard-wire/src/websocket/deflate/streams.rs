//! Compression and decompression of payload, one message at a time.
//!
//! Compressors and decompressors are large, and none is needed between messages: each thread keeps one of both for the
//! next message of any connection. Data of one message cannot leak into another: both are reset between messages.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

/// Bytes that end every flush, and are left out of messages (RFC 7692, section 7.2.1).
const FLUSHED: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// The flush bytes and an empty final block: a message that ends within a block is invalid with it.
const TAIL: [u8; 9] = [0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF];
/// Largest number of bytes that a decompressor returns at once.
pub(in crate::websocket) const OUT_MAX: usize = 8 << 10;
/// Number of final blocks that every message may have, and bytes of content for each further one: a final block costs
/// about as much time as a kilobyte, and can be two bytes.
const LAST_BLOCKS_MAX: u64 = 64;
const LAST_BLOCK_BYTES: u64 = 1 << 10;
/// Largest capacity of a buffer for compressed bytes that is kept, in bytes.
const KEEP_MAX: usize = 256 << 10;

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

#[derive(Default)]
struct Spare {
    compress: Option<(u8, Compress)>,
    compressed: Vec<u8>,
    decompress: Option<Decompress>,
}

/// Compresses `parts`, which have `len` bytes in total, and passes the result to `write` if it is shorter.
pub(super) fn compress(window_bits: u8, parts: &[&[u8]], len: usize, write: impl FnOnce(&[u8])) -> bool {
    let (kept, mut into) = SPARE.with_borrow_mut(|spare| {
        let compress = spare.compress.take_if(|(bits, _)| *bits == window_bits);
        (compress, std::mem::take(&mut spare.compressed))
    });
    let mut compress = kept.map_or_else(
        || Compress::new_with_window_bits(Compression::fast(), false, window_bits),
        |(_, compress)| compress,
    );
    compress.reset();
    into.clear();
    into.reserve(len / 2 + 64);
    let done = parts.iter().all(|part| push(&mut compress, part, FlushCompress::None, len, &mut into))
        && push(&mut compress, &[], FlushCompress::Sync, len, &mut into);
    let shorter = done.then(|| into.strip_suffix(&FLUSHED)).flatten().filter(|shorter| shorter.len() < len);
    if let Some(shorter) = shorter {
        write(shorter);
    }
    let written = shorter.is_some();
    if into.capacity() > KEEP_MAX {
        into = Vec::new();
    }
    SPARE.with_borrow_mut(|spare| (spare.compress, spare.compressed) = (Some((window_bits, compress)), into));
    written
}

/// Compresses all of `part`; returns false if the result is not shorter than `len` bytes.
fn push(compress: &mut Compress, part: &[u8], flush: FlushCompress, len: usize, into: &mut Vec<u8>) -> bool {
    let begin = compress.total_in();
    loop {
        let taken = (compress.total_in() - begin) as usize;
        match compress.compress_vec(&part[taken..], into, flush) {
            Ok(Status::Ok | Status::BufError | Status::StreamEnd) => {}
            Err(_) => return false,
        }
        let taken = (compress.total_in() - begin) as usize;
        // Spare capacity means that all output was written.
        if into.len() < into.capacity() && taken == part.len() {
            return true;
        }
        if into.len() >= len + FLUSHED.len() {
            return false;
        }
        into.reserve(len / 4 + 64);
    }
}

/// A compressed message that is arriving.
#[derive(Debug)]
pub(in crate::websocket) struct Inflate {
    /// `None` only while the value is dropped.
    stream: Option<Decompress>,
    /// At least one byte has arrived.
    begun: bool,
    /// The last byte ended a final block: the message may be complete, or begin another stream.
    ended: bool,
    /// All available output was returned.
    drained: bool,
    /// Number of bytes of [`TAIL`] that were fed.
    tail: usize,
    /// Number of final blocks, and of bytes returned, so far.
    last_blocks: u64,
    produced: u64,
}

/// Result of decompressing some bytes.
#[derive(Debug)]
pub(in crate::websocket) struct Inflated {
    /// Number of bytes consumed.
    pub(in crate::websocket) taken: usize,
    /// Number of bytes produced.
    pub(in crate::websocket) produced: usize,
}

impl Inflate {
    pub(in crate::websocket) fn new() -> Inflate {
        let spare = SPARE.with_borrow_mut(|spare| spare.decompress.take());
        let stream = Some(spare.unwrap_or_else(|| Decompress::new(false)));
        Inflate { stream, begun: false, ended: false, drained: true, tail: 0, last_blocks: 0, produced: 0 }
    }

    /// Returns true if all available output was returned.
    pub(in crate::websocket) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Decompresses bytes of the message until `room` is full; call it again with the rest.
    ///
    /// # Errors
    /// Returns the reason why the bytes are invalid.
    pub(in crate::websocket) fn push(&mut self, bytes: &[u8], room: &mut [u8]) -> Result<Inflated, String> {
        let stream = self.stream.as_mut().ok_or("the decompressor is gone")?;
        if !bytes.is_empty() {
            (self.begun, self.ended) = (true, false);
        }
        let (took, gave) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(bytes, room, FlushDecompress::None)
            // The text of the library depends on the split of the bytes.
            .map_err(|_| "a compressed message is not valid DEFLATE")?;
        let (taken, produced) = ((stream.total_in() - took) as usize, (stream.total_out() - gave) as usize);
        self.drained = produced < room.len();
        self.produced += produced as u64;
        if status == Status::StreamEnd {
            self.last_blocks += 1;
            if self.last_blocks > LAST_BLOCKS_MAX + self.produced / LAST_BLOCK_BYTES {
                return Err(format!(
                    "a compressed message has {} last blocks in {} bytes: {LAST_BLOCKS_MAX} and one for each {LAST_BLOCK_BYTES} bytes are allowed",
                    self.last_blocks, self.produced
                ));
            }
            // A new stream follows (section 7.2.3.5 has an example).
            stream.reset(false);
            (self.ended, self.drained) = (taken == bytes.len(), true);
        } else if taken < bytes.len() && self.drained {
            return Err("a compressed message is not valid DEFLATE".to_owned());
        }
        Ok(Inflated { taken, produced })
    }

    /// Ends the message, once all of its bytes were consumed. Returns the number of bytes produced, and true if there
    /// are no more.
    ///
    /// # Errors
    /// Returns an error if the message ends at an invalid position.
    pub(in crate::websocket) fn finish(&mut self, room: &mut [u8]) -> Result<(usize, bool), String> {
        if self.tail == 0 && self.drained && (self.ended || !self.begun) {
            return Ok((0, true));
        }
        let inflated = self.push(&TAIL[self.tail..], room)?;
        self.tail += inflated.taken;
        if self.drained && !(self.ended && self.tail == TAIL.len()) {
            return Err("a compressed message ends within a block".to_owned());
        }
        Ok((inflated.produced, self.drained))
    }
}

impl Drop for Inflate {
    fn drop(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.reset(false);
            // Has no effect while the thread ends.
            let _ = SPARE.try_with(|spare| spare.borrow_mut().decompress = Some(stream));
        }
    }
}

//! Payload to DEFLATE and back, one message at a time.
//!
//! Compressors and decompressors are large, and none is needed between messages: each thread keeps one of both for the
//! next message of whichever connection. No byte of one message can be found in another: both forget all at a reset.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

/// What ends every flush, and is left out of messages (RFC 7692, section 7.2.1).
const FLUSHED: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// That again, and an empty last block: a message that ends within a block does not end well with it.
const TAIL: [u8; 9] = [0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF];
/// Bytes that come out of a decompressor at once.
pub(in crate::websocket) const OUT_MAX: usize = 8 << 10;
/// A buffer for compressed bytes that grew past this is not kept.
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

/// Compresses `parts`, of `len` bytes together, and hands the result to `write` if it is shorter.
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

/// Compresses all of `part`; false when the result is no shorter than `len` bytes.
fn push(compress: &mut Compress, part: &[u8], flush: FlushCompress, len: usize, into: &mut Vec<u8>) -> bool {
    let begin = compress.total_in();
    loop {
        let taken = (compress.total_in() - begin) as usize;
        match compress.compress_vec(&part[taken..], into, flush) {
            Ok(Status::Ok | Status::BufError | Status::StreamEnd) => {}
            Err(_) => return false,
        }
        let taken = (compress.total_in() - begin) as usize;
        // With room left there is nothing more to come out.
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
    /// Some but while it is dropped.
    stream: Option<Decompress>,
    /// A byte has come.
    begun: bool,
    /// The last byte ended a last block: the message may be whole, or begin a further stream.
    ended: bool,
    /// All that can come out has.
    drained: bool,
    /// Bytes of [`TAIL`] that were fed.
    tail: usize,
}

/// What became of some bytes.
#[derive(Debug)]
pub(in crate::websocket) struct Inflated {
    /// Bytes that were taken.
    pub(in crate::websocket) taken: usize,
    /// Bytes that came out.
    pub(in crate::websocket) came: usize,
}

impl Inflate {
    pub(in crate::websocket) fn new() -> Inflate {
        let spare = SPARE.with_borrow_mut(|spare| spare.decompress.take());
        let stream = Some(spare.unwrap_or_else(|| Decompress::new(false)));
        Inflate { stream, begun: false, ended: false, drained: true, tail: 0 }
    }

    /// Whether all that can come out has.
    pub(in crate::websocket) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Takes bytes of the message until `room` is full; call it again with those that were not taken.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(in crate::websocket) fn push(&mut self, bytes: &[u8], room: &mut [u8]) -> Result<Inflated, String> {
        let stream = self.stream.as_mut().ok_or("the decompressor is gone")?;
        if !bytes.is_empty() {
            (self.begun, self.ended) = (true, false);
        }
        let (took, gave) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(bytes, room, FlushDecompress::None)
            .map_err(|error| format!("a compressed message is no DEFLATE: {error}"))?;
        let (taken, came) = ((stream.total_in() - took) as usize, (stream.total_out() - gave) as usize);
        self.drained = came < room.len();
        if status == Status::StreamEnd {
            // What follows is a stream of its own (section 7.2.3.5 has an example).
            stream.reset(false);
            (self.ended, self.drained) = (taken == bytes.len(), true);
        } else if taken < bytes.len() && self.drained {
            return Err("a compressed message is no DEFLATE".to_owned());
        }
        Ok(Inflated { taken, came })
    }

    /// Ends the message, once all of its bytes were taken: gives bytes until none come, and says whether all have.
    ///
    /// # Errors
    /// The message ends where it cannot.
    pub(in crate::websocket) fn finish(&mut self, room: &mut [u8]) -> Result<(usize, bool), String> {
        if self.tail == 0 && self.drained && (self.ended || !self.begun) {
            return Ok((0, true));
        }
        let inflated = self.push(&TAIL[self.tail..], room)?;
        self.tail += inflated.taken;
        if self.drained && !(self.ended && self.tail == TAIL.len()) {
            return Err("a compressed message ends within a block".to_owned());
        }
        Ok((inflated.came, self.drained))
    }
}

impl Drop for Inflate {
    fn drop(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            stream.reset(false);
            // Without effect while the thread ends.
            let _ = SPARE.try_with(|spare| spare.borrow_mut().decompress = Some(stream));
        }
    }
}

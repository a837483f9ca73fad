//! Splits the bytes of a connection into frames.

use super::{
    GZIP,
    framing::Framing,
    message::{GLANCE_BYTES, Glance},
};
use crate::{Fatal, Input, gzip};
use bytes::Bytes;

/// Length and number of filters.
const FIXED: usize = 5;
/// Number of received bytes from which memory for the whole frame is reserved; the length alone does not make the
/// receiver allocate.
const ROOM_FROM: usize = 32 << 10;

/// Splits the input into frames; skips frames that are too large without buffering them.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// `None` before the first frame, unless it was set.
    framing: Option<Framing>,
    /// Bytes of the first frame from which the framing could not be detected.
    tried: usize,
    skip: usize,
}

/// A message behind length and filters, and whether it used the gzip filter.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) framing: Framing,
    pub(super) payload: Bytes,
    pub(super) gzip: bool,
}

/// A message whose body exceeds the limit.
#[derive(Debug)]
pub(super) struct TooLarge {
    pub(super) framing: Framing,
    pub(super) glance: Glance,
    /// Approximate size in bytes.
    pub(super) bytes: usize,
    pub(super) gzip: bool,
}

#[derive(Debug)]
pub(super) enum Next {
    /// More bytes are needed.
    Wait,
    Frame(Frame),
    TooLarge(TooLarge),
}

impl Frames {
    /// Creates the reader of a connection with a fixed framing.
    pub(super) fn new(framing: Framing) -> Frames {
        Frames { framing: Some(framing), tried: 0, skip: 0 }
    }

    /// Returns the framing of the connection; `None` before its first frame.
    pub(super) fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// Takes the next frame, whose message may have a body of at most `body_max` bytes.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a frame, and for unsupported filters.
    pub(super) fn next(&mut self, input: &mut Input, body_max: usize) -> Result<Next, Fatal> {
        let step = input.len().min(self.skip);
        input.skip(step);
        self.skip -= step;
        let bytes = input.rest();
        let (Some(len), Some(filters)) = (bytes.first_chunk(), bytes.get(4)) else { return Ok(Next::Wait) };
        let (len, gzip, start) = (u32::from_be_bytes(*len), *filters > 0, FIXED + usize::from(*filters));
        match (filters, bytes.get(FIXED)) {
            (0, _) | (1, Some(&GZIP)) => {}
            (1, None) => return Ok(Next::Wait),
            (1, Some(id)) => {
                return Err(Fatal(format!("transfer filter {id} is not supported on erpc; use g")));
            }
            (n, _) => return Err(Fatal(format!("{n} transfer filters on an erpc message; 1 is supported"))),
        }
        let framing = match self.framing {
            Some(framing) => framing,
            // The header of a gzip stream has any length: it is read again once twice as many bytes have arrived.
            None if gzip && bytes.len() < (len as usize).min(2 * self.tried) => return Ok(Next::Wait),
            None => match discover(bytes, 4 + len as usize, start, gzip)? {
                Some(framing) => *self.framing.insert(framing),
                None => {
                    self.tried = bytes.len();
                    return Ok(Next::Wait);
                }
            },
        };
        let end = framing.frame_end(len);
        if end <= start {
            return Err(Fatal(format!("a frame of erpc with a length of {len} has no message")));
        }
        let max = framing.payload_max(body_max);
        if end - start > max {
            let prefix = end.min(start + GLANCE_BYTES);
            if bytes.len() < prefix {
                return Ok(Next::Wait);
            }
            let next = too_large(framing, &bytes[start..prefix], end - start, gzip);
            let step = input.len().min(end);
            input.skip(step);
            self.skip = end - step;
            return next;
        }
        if bytes.len() < end {
            if bytes.len() > ROOM_FROM {
                let missing = end - bytes.len();
                input.buffer().reserve(missing);
            }
            return Ok(Next::Wait);
        }
        input.skip(start);
        let mut payload = input.take(end - start);
        if gzip {
            payload = inflate(&payload, max)?;
            if payload.len() > max {
                return too_large_plain(framing, &payload[..GLANCE_BYTES], payload.len(), gzip);
            }
        }
        Ok(Next::Frame(Frame { framing, payload, gzip }))
    }
}

/// Detects the framing of a connection from its first bytes; `None` if more bytes, up to `end`, are needed.
fn discover(bytes: &[u8], end: usize, start: usize, gzip: bool) -> Result<Option<Framing>, Fatal> {
    let payload = bytes.get(start..end.min(bytes.len())).unwrap_or_default();
    let first = if gzip { gzip::start(payload, 1).first().copied() } else { payload.first().copied() };
    match first.map(Framing::of_first) {
        Some(Some(framing)) => Ok(Some(framing)),
        None if bytes.len() < end => Ok(None),
        _ => Err(Fatal("the first message has no framing of erpc".to_owned())),
    }
}

fn too_large(framing: Framing, prefix: &[u8], bytes: usize, gzip: bool) -> Result<Next, Fatal> {
    match gzip {
        true => too_large_plain(framing, &gzip::start(prefix, GLANCE_BYTES), bytes, gzip),
        false => too_large_plain(framing, prefix, bytes, gzip),
    }
}

fn too_large_plain(framing: Framing, prefix: &[u8], bytes: usize, gzip: bool) -> Result<Next, Fatal> {
    match framing.glance(prefix) {
        Some(glance) => Ok(Next::TooLarge(TooLarge { framing, glance, bytes, gzip })),
        None => Err(Fatal(format!(
            "an erpc message of {bytes} bytes has no readable head in the framing {framing}"
        ))),
    }
}

/// Decompresses a whole gzip stream, at most `max` bytes and one.
fn inflate(bytes: &[u8], max: usize) -> Result<Bytes, Fatal> {
    let plain = gzip::decompress(bytes, max);
    plain.map(Bytes::from).map_err(|why| Fatal(format!("a message of erpc that cannot be inflated: {why}")))
}

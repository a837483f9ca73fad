//! Frames out of the bytes of a connection.

use super::{
    GZIP,
    framing::Framing,
    message::{GLANCE_BYTES, Glance},
};
use crate::{Fatal, Input};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// Length and number of filters.
const FIXED: usize = 5;
/// Room for a whole frame is made once so much of it has come: its length alone costs its sender nothing.
const ROOM_FROM: usize = 32 << 10;

/// Cuts the input into frames; those that are too large are stepped over without being gathered.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Not known before the first frame, unless it was said.
    framing: Option<Framing>,
    skip: usize,
}

/// A message behind length and filters, and whether it came through the filter.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) framing: Framing,
    pub(super) payload: Bytes,
    pub(super) gzip: bool,
}

/// A message whose body is over the limit.
#[derive(Debug)]
pub(super) struct TooLarge {
    pub(super) framing: Framing,
    pub(super) glance: Glance,
    /// About so many bytes.
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
    /// On a connection whose framing is known.
    pub(super) fn new(framing: Framing) -> Frames {
        Frames { framing: Some(framing), skip: 0 }
    }

    /// What the connection speaks; none before its first frame.
    pub(super) fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// Takes the next frame, of a message whose body has `body_max` bytes at most.
    ///
    /// # Errors
    /// Bytes that are no frame, and filters that are not there.
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
            (1, Some(id)) => return Err(Fatal(format!("transfer filter {id} of erpc is not there; g is"))),
            (n, _) => return Err(Fatal(format!("{n} transfer filters on a message of erpc; 1 is read"))),
        }
        let framing = match self.framing {
            Some(framing) => framing,
            None => match discover(bytes, 4 + len as usize, start, gzip)? {
                Some(framing) => *self.framing.insert(framing),
                None => return Ok(Next::Wait),
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

/// The framing of a connection that begins with these bytes; none if more are needed, of those before `end`.
fn discover(bytes: &[u8], end: usize, start: usize, gzip: bool) -> Result<Option<Framing>, Fatal> {
    let payload = bytes.get(start..end.min(bytes.len())).unwrap_or_default();
    let first = if gzip { inflated_start(payload).first().copied() } else { payload.first().copied() };
    match first.map(Framing::of_first) {
        Some(Some(framing)) => Ok(Some(framing)),
        None if bytes.len() < end => Ok(None),
        _ => Err(Fatal("the first message is of no framing of erpc".to_owned())),
    }
}

fn too_large(framing: Framing, prefix: &[u8], bytes: usize, gzip: bool) -> Result<Next, Fatal> {
    match gzip {
        true => too_large_plain(framing, &inflated_start(prefix), bytes, gzip),
        false => too_large_plain(framing, prefix, bytes, gzip),
    }
}

fn too_large_plain(framing: Framing, prefix: &[u8], bytes: usize, gzip: bool) -> Result<Next, Fatal> {
    match framing.glance(prefix) {
        Some(glance) => Ok(Next::TooLarge(TooLarge { framing, glance, bytes, gzip })),
        None => Err(Fatal(format!("a {framing} message of erpc of {bytes} bytes that nobody could answer"))),
    }
}

/// The first bytes of a gzip stream that may be cut short.
fn inflated_start(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // It ends in an error if not all of it is there.
    let _ = MultiGzDecoder::new(bytes).take(GLANCE_BYTES as u64).read_to_end(&mut plain);
    plain
}

/// All of a gzip stream, or `max` bytes and one.
fn inflate(bytes: &[u8], max: usize) -> Result<Bytes, Fatal> {
    let mut plain = Vec::new();
    match MultiGzDecoder::new(bytes).take(max as u64 + 1).read_to_end(&mut plain) {
        Ok(_) => Ok(plain.into()),
        Err(why) => Err(Fatal(format!("a message of erpc that cannot be inflated: {why}"))),
    }
}

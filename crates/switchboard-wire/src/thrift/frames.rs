//! Splits the bytes of a connection into complete messages, in every framing.

use super::{
    AROUND_MAX, Malformed,
    header::{self, Header, Refused},
    message::{COMPACT, Head},
    scan::Scanner,
};
use crate::{Input, Limits};
use bytes::Bytes;

/// Number of received bytes from which memory for the whole frame is reserved; the length alone does not make the
/// receiver allocate.
const ROOM_FROM: usize = 32 << 10;

/// Reader of the messages of a connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// True if messages are framed; `None` before the first byte.
    framed: Option<bool>,
    /// The incomplete unframed message: the position of its struct, and the state of the scanner.
    arriving: Option<(usize, Scanner)>,
}

/// A complete message, and the header around it.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) message: Bytes,
    pub(super) header: Option<Header>,
}

/// Reason why the connection cannot continue. The bytes at fault are still in the input, except for a header.
#[derive(Debug)]
pub(super) enum Broken {
    /// The header of this frame is invalid.
    Header(Bytes, Refused),
    Malformed(Malformed),
    /// A frame has this size in bytes, which exceeds the limit.
    TooLarge(usize),
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Broken {
        Broken::Malformed(malformed)
    }
}

impl Frames {
    /// Creates the reader of a connection whose framing is known.
    pub(super) fn new(framed: bool) -> Frames {
        Frames { framed: Some(framed), arriving: None }
    }

    /// Returns true if messages are framed, once the first byte has arrived.
    #[inline]
    pub(super) fn framed(&self) -> Option<bool> {
        self.framed
    }

    /// Takes the next message, whose struct may have at most `body_max` bytes; `None` if more bytes are needed.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        body_max: usize,
        limits: &Limits,
    ) -> Result<Option<Unit>, Broken> {
        let Some(byte) = input.rest().first() else { return Ok(None) };
        if *self.framed.get_or_insert(!matches!(*byte, 0x80 | COMPACT)) {
            next_frame(input, body_max, limits)
        } else {
            self.next_bare(input, body_max)
        }
    }

    fn next_bare(&mut self, input: &mut Input, body_max: usize) -> Result<Option<Unit>, Broken> {
        let (at, scanner) = match &mut self.arriving {
            Some(arriving) => arriving,
            None => {
                if !matches!(input.rest().first(), None | Some(&COMPACT | &0x80)) {
                    return Err(Malformed("the bytes after a message do not begin another one".into()).into());
                }
                let Some(head) = Head::read(input.rest())? else { return Ok(None) };
                self.arriving.insert((head.len, Scanner::new(head.form.encoded())))
            }
        };
        let Some(len) = scanner.scan(&input.rest()[*at..], body_max)? else { return Ok(None) };
        let message = input.take(*at + len);
        self.arriving = None;
        Ok(Some(Unit { message, header: None }))
    }
}

fn next_frame(input: &mut Input, body_max: usize, limits: &Limits) -> Result<Option<Unit>, Broken> {
    let Some(len) = input.rest().first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes(*len) as usize;
    let max = body_max + AROUND_MAX + limits.metadata_bytes_max as usize;
    if len > max {
        // A few more bytes contain the head of the message, so that the rejection can name it.
        let start = &input.rest()[4..];
        let unnamed = start.len() < AROUND_MAX && matches!(Head::read(start), Ok(None));
        return if unnamed { Ok(None) } else { Err(Broken::TooLarge(len)) };
    }
    if input.len() < 4 + len {
        if input.len() > ROOM_FROM {
            let missing = 4 + len - input.len();
            input.buffer().reserve(missing);
        }
        return Ok(None);
    }
    input.skip(4);
    let frame = input.take(len);
    if !frame.starts_with(&header::MAGIC) {
        return Ok(Some(Unit { message: frame, header: None }));
    }
    let (header, at) = match Header::read(&frame, limits.metadata_entries_max as usize) {
        Ok(read) => read,
        Err(refused) => return Err(Broken::Header(frame, refused)),
    };
    let message = match header.zlib {
        true => header::inflate(&frame[at..], max)?.into(),
        false => frame.slice(at..),
    };
    Ok(Some(Unit { message, header: Some(header) }))
}

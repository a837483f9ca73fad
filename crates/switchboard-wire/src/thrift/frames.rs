//! Whole messages out of the bytes of a connection, whatever separates them.

use super::{
    AROUND_MAX, Malformed,
    header::{self, Header, Refused},
    message::{COMPACT, Head},
    scan::Scanner,
};
use crate::{Input, Limits};
use bytes::Bytes;

/// Room for a whole frame is made once so much of it has come: its length alone costs its sender nothing.
const ROOM_FROM: usize = 32 << 10;

/// What tells one message from the next on a connection.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Whether messages have frames around them; not known before the first byte.
    framed: Option<bool>,
    /// The message without a frame that is arriving: where its struct begins, and how far it was looked at.
    arriving: Option<(usize, Scanner)>,
}

/// A whole message, and the header that came around it.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) message: Bytes,
    pub(super) header: Option<Header>,
}

/// Why the connection cannot go on. The bytes of what is at fault are still in the input, unless it is a header.
#[derive(Debug)]
pub(super) enum Broken {
    /// The header of this frame.
    Header(Bytes, Refused),
    Malformed(Malformed),
    /// A frame of so many bytes.
    TooLarge(usize),
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Broken {
        Broken::Malformed(malformed)
    }
}

impl Frames {
    /// On a connection of which that much is known.
    pub(super) fn new(framed: bool) -> Frames {
        Frames { framed: Some(framed), arriving: None }
    }

    /// Whether messages have frames around them, once the first byte has come.
    #[inline]
    pub(super) fn framed(&self) -> Option<bool> {
        self.framed
    }

    /// Takes the next message, whose struct has `body_max` bytes at most; none if more bytes are needed.
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
                    return Err(Malformed("bytes between messages that begin none".into()).into());
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
        // A few bytes more say whose message it is, and the refusal can name it.
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

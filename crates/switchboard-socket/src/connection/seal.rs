//! Encryption of the messages of a connection with CURVE.
//!
//! Messages are encoded without encryption while they wait, because the keys belong to a connection and messages may
//! outlive it. They are encrypted in chunks just before they are written. A message leaves the batch when its last
//! encrypted byte is written, so that a connection that breaks returns it whole for the next one.

use crate::core::Batch;
use std::{collections::VecDeque, io::IoSlice};
use switchboard_wire::{Outbox, Outgoing, zmtp::Connection};

/// Encrypted bytes from which on no further message is added to a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Flags of a frame.
const MORE: u8 = 1;
const LONG: u8 = 2;
/// Parts of the batch that are looked at first.
const PARTS_MIN: usize = 64;

/// Messages of a batch that are encrypted and not written yet.
#[derive(Debug, Default)]
pub(super) struct Sealer {
    /// Bytes at the front of the batch that are encrypted.
    sealed: usize,
    /// For each encrypted message the position of its end among all bytes of the connection, and its size in the batch.
    ends: VecDeque<(u64, usize)>,
    /// Bytes of the connection that were written.
    position: u64,
}

impl Sealer {
    /// Encrypts the next messages of the batch into `out`, which is empty: the peer expects boxes in the order of their
    /// counters, so commands wait for the messages before them and the other way around.
    ///
    /// # Errors
    /// Returns the reason if the connection has no counters left.
    pub(super) fn seal(
        &mut self,
        batch: &Batch,
        machine: &mut Connection,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let mut count = PARTS_MIN;
        while self.sealed < batch.bytes.len() && out.len() < CHUNK_BYTES {
            let mut parts = vec![IoSlice::new(&[]); count];
            let filled = batch.bytes.fill(&mut parts);
            let mut reader = Reader::new(&parts[..filled], self.sealed);
            let before = self.sealed;
            while out.len() < CHUNK_BYTES {
                let start = reader.position;
                let Some(frames) = reader.message() else { break };
                if !machine.send(frames.iter().map(|frame| Outgoing::Lent(frame)), out) {
                    return Err("the connection has no counters left for CURVE".to_owned());
                }
                let bytes = reader.position - start;
                self.sealed += bytes;
                self.ends.push_back((self.position + out.len() as u64, bytes));
            }
            if self.sealed == before {
                if filled < count {
                    return Err("the batch ends inside of a message".to_owned());
                }
                // The message has more parts.
                count = count.saturating_mul(2);
            }
        }
        Ok(())
    }

    /// Removes the messages whose last byte was written from the batch; returns their number and their bytes.
    pub(super) fn written(&mut self, bytes: usize, batch: &mut Batch) -> (usize, usize) {
        self.position += bytes as u64;
        let mut all = (0, 0);
        while let Some((_, bytes)) = self.ends.front().copied().filter(|(end, _)| *end <= self.position) {
            self.ends.pop_front();
            self.sealed -= bytes;
            all.0 += batch.written(bytes);
            all.1 += bytes;
        }
        all
    }
}

/// Reads the frames of encoded messages from the parts of a batch.
struct Reader<'a> {
    parts: &'a [IoSlice<'a>],
    /// The part that is read, and the position in it.
    part: usize,
    at: usize,
    /// Bytes that were read or skipped.
    position: usize,
}

/// A frame; one in several parts is copied.
type Frame<'a> = std::borrow::Cow<'a, [u8]>;

impl<'a> Reader<'a> {
    fn new(parts: &'a [IoSlice<'a>], skipped: usize) -> Reader<'a> {
        let mut reader = Reader { parts, part: 0, at: 0, position: 0 };
        reader.skip(skipped);
        reader
    }

    fn skip(&mut self, mut bytes: usize) {
        self.position += bytes;
        while let Some(part) = self.parts.get(self.part) {
            let left = part.len() - self.at;
            if bytes < left {
                self.at += bytes;
                return;
            }
            bytes -= left;
            (self.part, self.at) = (self.part + 1, 0);
        }
    }

    /// Returns the next bytes; `None` if there are fewer.
    fn take(&mut self, bytes: usize) -> Option<Frame<'a>> {
        let rest = self.parts.get(self.part).map_or(&[][..], |part| &part[self.at..]);
        if let Some(taken) = rest.get(..bytes) {
            self.skip(bytes);
            return Some(Frame::Borrowed(taken));
        }
        let mut copied = Vec::new();
        while copied.len() < bytes {
            let rest = &self.parts.get(self.part)?[self.at..];
            let taken = rest.len().min(bytes - copied.len());
            copied.extend_from_slice(&rest[..taken]);
            self.skip(taken);
        }
        Some(Frame::Owned(copied))
    }

    /// Returns the frames of the next message; `None` if its end is not among the parts.
    fn message(&mut self) -> Option<Vec<Frame<'a>>> {
        let mut frames = Vec::new();
        loop {
            let flags = *self.take(1)?.first()?;
            let len = match flags & LONG {
                0 => usize::from(*self.take(1)?.first()?),
                _ => usize::try_from(u64::from_be_bytes(*self.take(8)?.first_chunk()?)).ok()?,
            };
            frames.push(self.take(len)?);
            if flags & MORE == 0 {
                return Some(frames);
            }
        }
    }
}

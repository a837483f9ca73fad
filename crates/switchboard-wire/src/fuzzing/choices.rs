//! Arbitrary bytes as a source of decisions.

use crate::{Metadata, Status, status::Code};
use bytes::Bytes;
use std::time::Duration;

/// Decisions drawn from bytes, front to back; zero once they have run out.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Draws decisions from `data`.
    pub fn new(data: &'a [u8]) -> Choices<'a> {
        Choices { rest: data }
    }

    /// Returns true if every byte is used.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// Takes the next two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Takes the next four bytes.
    pub fn long(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// Returns true once in `n` times; never when the bytes have run out.
    pub fn one_in(&mut self, n: u8) -> bool {
        !self.is_over() && self.byte().is_multiple_of(n)
    }

    /// Takes up to `max` of the next bytes.
    pub fn bytes(&mut self, max: usize) -> &'a [u8] {
        let len = (usize::from(self.byte()) % (max + 1)).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        bytes
    }

    /// Draws a message: mostly short, sometimes of any size up to 64 KiB.
    pub fn message(&mut self) -> Bytes {
        if self.one_in(8) {
            let len = usize::from(self.short() >> (self.byte() % 9));
            return Bytes::from(vec![self.byte(); len]);
        }
        Bytes::copy_from_slice(self.bytes(40))
    }

    /// Draws a list of at most `max` entries, with repeated names and binary values.
    pub fn metadata(&mut self, max: u8) -> Metadata {
        let names = ["a", "tenant", "trace-bin", "x.y_z-0"];
        let mut metadata = Metadata::new();
        for _ in 0..self.byte() % (max + 1) {
            let name = names[usize::from(self.byte()) % names.len()];
            let mut value = self.bytes(30).to_vec();
            if !name.ends_with("-bin") {
                value.iter_mut().for_each(|byte| *byte = 0x20 + *byte % 95);
            }
            metadata.insert(name, value).expect("the name and value are valid");
        }
        metadata
    }

    /// Draws an error status with all its optional parts.
    pub fn status(&mut self) -> Status {
        let code = Code::from_number(1 + u16::from(self.byte() % 16));
        let message = String::from_utf8_lossy(self.bytes(60)).into_owned();
        let retry = match self.byte() % 4 {
            0 => crate::Retry::No,
            1 => crate::Retry::Safe,
            2 => crate::Retry::IfIdempotent,
            _ => crate::Retry::After(Duration::from_millis(u64::from(self.long()))),
        };
        let mut status = Status::new(code, message).with_retry(retry).with_metadata(self.metadata(3));
        for _ in 0..self.byte() % 3 {
            status = status.with_detail("google.rpc.Help", Bytes::copy_from_slice(self.bytes(20)));
        }
        status
    }
}

//! Compression options of servers, channels and methods.

use super::{BYTES_MIN, Compression, ENCODINGS, Packing, Worth};
use switchboard_wire::{Encoding, Encodings, MethodId};

/// Compression options of a server.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Accepts compressed requests, and compresses the replies to them.
    pub on: bool,
    pub bytes_min: u32,
    /// Methods whose replies are not compressed.
    pub plain: Vec<MethodId>,
}

impl Default for Serving {
    fn default() -> Serving {
        Serving { on: true, bytes_min: BYTES_MIN, plain: Vec::new() }
    }
}

impl Serving {
    /// Returns the encodings that the server accepts.
    pub fn encodings(&self) -> Encodings {
        if self.on { ENCODINGS } else { Encodings::NONE }
    }

    /// Returns the settings for a call whose requests are in the encoding `received` and whose replies may be in
    /// `encoding`, of the method that is described at this address.
    #[cold]
    pub fn packing(
        &self,
        received: Encoding,
        encoding: Encoding,
        method: MethodId,
        described: usize,
        bytes_max: u32,
    ) -> Packing {
        let packs = encoding != Encoding::Identity && !self.plain.contains(&method);
        let worth = Worth::of(described, encoding, true);
        Packing { encoding, received, packs, serves: true, worth, bytes_min: self.bytes_min, bytes_max }
    }
}

/// Compression options of a channel.
#[derive(Clone, Debug)]
pub struct Calling {
    pub compression: Compression,
    pub bytes_min: u32,
    /// Overrides by full method name.
    pub methods: Vec<(String, Compression)>,
}

impl Default for Calling {
    fn default() -> Calling {
        Calling { compression: Compression::None, bytes_min: BYTES_MIN, methods: Vec::new() }
    }
}

impl Calling {
    /// Returns the compression for calls of this method that do not set their own.
    #[inline]
    pub fn of(&self, method: &str) -> Compression {
        if self.methods.is_empty() { self.compression } else { self.look_up(method) }
    }

    #[cold]
    fn look_up(&self, method: &str) -> Compression {
        let own = self.methods.iter().rev().find(|(name, _)| name == method);
        own.map_or(self.compression, |(_, compression)| *compression)
    }

    /// Returns whether calls may be compressed without setting it themselves.
    pub fn is_on(&self) -> bool {
        self.all().any(|compression| compression != Compression::None)
    }

    /// Returns all configured settings: of the channel and of its methods.
    pub fn all(&self) -> impl Iterator<Item = Compression> {
        [self.compression].into_iter().chain(self.methods.iter().map(|(_, compression)| *compression))
    }
}

//! `wire=rpcx`: servers of rpcx.

use super::Foreign;
use crate::{Codec, Limits};
use switchboard_wire::{rpcx::Client, wire::ClientWire};

/// Options: `codec` is `json`, `msgpack` or `proto`; `names=short` calls `package.Service` as `Service`.
#[derive(Debug, Default)]
pub(super) struct Rpcx {
    codec: Option<Codec>,
    short_names: bool,
}

/// In the list of [`wires`](super).
pub(super) fn make() -> Box<dyn Foreign> {
    Box::new(Rpcx::default())
}

impl Foreign for Rpcx {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", "msgpack") => self.codec = Some(Codec::MsgPack),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", _) => return Err("json, msgpack or proto"),
            ("names", "full") => self.short_names = false,
            ("names", "short") => self.short_names = true,
            ("names", _) => return Err("full or short"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        match (self.codec, preferred) {
            (Some(codec), _) => codec,
            // Postcard is for Rust programs; MessagePack is what clients of rpcx use unless they are told.
            (None, Codec::Postcard) => Codec::MsgPack,
            (None, preferred) => preferred,
        }
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        Box::new(Client::new(limits.wire()).with_short_names(self.short_names))
    }
}

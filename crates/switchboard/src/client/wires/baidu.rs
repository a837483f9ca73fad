//! `wire=baidu_std`: servers of brpc and of its relatives.
//!
//! | option | values | |
//! | --- | --- | --- |
//! | `codec` | `proto` (default), `json` | how messages are written; traits are always JSON |
//! | `names` | `full` (default), `short` | `package.Service`, or `Service` as jprotobuf's and old servers have it |
//! | `checksum` | `none` (default), `crc32c` | of requests, which brpc's servers answer in kind |

use super::Foreign;
use crate::{Codec, Limits};
use switchboard_wire::{
    baidu::{Client, Names},
    wire::ClientWire,
};

#[derive(Debug, Default)]
pub(super) struct BaiduStd {
    codec: Option<Codec>,
    names: Names,
    checksums: bool,
}

impl Foreign for BaiduStd {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", _) => return Err("proto or json"),
            ("names", "full") => self.names = Names::Full,
            ("names", "short") => self.names = Names::Short,
            ("names", _) => return Err("full or short"),
            ("checksum", "none") => self.checksums = false,
            ("checksum", "crc32c") => self.checksums = true,
            ("checksum", _) => return Err("none or crc32c"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        match (preferred, self.codec) {
            (Codec::Proto, Some(codec)) => codec,
            (Codec::Proto, None) => Codec::Proto,
            // What a trait has no protobuf for.
            _ => Codec::Json,
        }
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        Box::new(Client::new(limits.wire()).naming(self.names).checksums(self.checksums))
    }
}

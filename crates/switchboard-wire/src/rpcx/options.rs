//! `wire=rpcx`: servers of rpcx.

use super::{Client, PATH};
use crate::{Codec, Limits, spec::ClientSetup, wire::ClientWire};

/// Options: `codec` is `json`, `msgpack`, `proto`, `raw` or `thrift`; `names=short` calls `package.Service` as
/// `Service`; `network=http` begins with the CONNECT that servers on rpcx's network of this name expect.
#[derive(Debug, Default)]
pub(super) struct Options {
    codec: Option<Codec>,
    short_names: bool,
    over_http: bool,
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", "msgpack") => self.codec = Some(Codec::MsgPack),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", "raw") => self.codec = Some(Codec::Raw),
            ("codec", "thrift") => self.codec = Some(Codec::ThriftStruct),
            ("codec", _) => return Err("json, msgpack, proto, raw or thrift"),
            ("names", "full") => self.short_names = false,
            ("names", "short") => self.short_names = true,
            ("names", _) => return Err("full or short"),
            ("network", "http") => self.over_http = true,
            ("network", "tcp" | "unix") => self.over_http = false,
            ("network", _) => return Err("http, tcp or unix; a WebSocket is in the address, ws://HOST:PORT"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        match (self.codec, preferred) {
            (Some(codec), _) => codec,
            // Postcard is for Rust programs; MessagePack is the default of rpcx clients.
            (None, Codec::Postcard) => Codec::MsgPack,
            (None, Codec::FlatBuffers) => Codec::Json,
            (None, Codec::Thrift) => Codec::ThriftStruct,
            (None, preferred) => preferred,
        }
    }

    fn websocket_path(&self) -> Result<&'static str, &'static str> {
        match self.over_http {
            true => Err("has network=http, which is for tcp:// and tls://: remove it"),
            false => Ok(PATH),
        }
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        let client = Client::new(*limits).with_short_names(self.short_names);
        Box::new(client.over_http(self.over_http))
    }
}

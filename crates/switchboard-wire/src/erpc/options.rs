//! `wire=erpc`: servers of eRPC, or teleport.
//!
//! | option | values | |
//! | --- | --- | --- |
//! | `framing` | `raw` (default), `json`, `proto` | the socket protocol of the server |
//! | `codec` | `proto` (default), `json` | encoding of messages; traits always use JSON |
//! | `filter` | `none` (default), `gzip` | the transfer filter of every message, under the id `g` |
//! | `names` | `path` (default), `rpc`, `full` | `/greeter/say_hello`, `Greeter.SayHello`, `/demo.Greeter/SayHello` |
//! | `prefix` | any | the group of routes: `v1` for `/v1/greeter/say_hello` |

use super::{Client, Framing, Names, Settings};
use crate::{Codec, Limits, spec::ClientSetup, wire::ClientWire};

#[derive(Debug, Default)]
pub(super) struct Options {
    codec: Option<Codec>,
    settings: Settings,
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", _) => return Err("json or proto"),
            ("filter", "gzip") => self.settings.gzip = true,
            ("filter", "none") => self.settings.gzip = false,
            ("filter", _) => return Err("gzip or none"),
            ("framing", "json") => self.settings.framing = Framing::Json,
            ("framing", "proto") => self.settings.framing = Framing::Proto,
            ("framing", "raw") => self.settings.framing = Framing::Raw,
            ("framing", _) => return Err("json, proto or raw"),
            ("names", "full") => self.settings.names = Names::Full,
            ("names", "path") => self.settings.names = Names::Path,
            ("names", "rpc") => self.settings.names = Names::Rpc,
            ("names", _) => return Err("full, path or rpc"),
            ("prefix", _) => value.clone_into(&mut self.settings.prefix),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        match (preferred, self.codec) {
            (Codec::Proto, Some(codec)) => codec,
            (Codec::Proto, None) => Codec::Proto,
            // Traits have no protobuf encoding.
            _ => Codec::Json,
        }
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        Box::new(Client::new(*limits, self.settings.clone()))
    }
}

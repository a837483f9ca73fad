//! `wire=kiss`: servers of kiss-rpc.
//!
//! | option | values | |
//! | --- | --- | --- |
//! | `function` | `package.Service/Method:NUMBER` | the number of a method, for each called method |
//! | `snappy` | `none` (default), `dynamic`, `forced` | compression of messages; dynamic from 200 bytes on |
//! | `heartbeats` | `false` (default), `true` | send heartbeats; old servers do not respond to them |

use super::{Client, Compression};
use crate::{Codec, Limits, spec::ClientSetup, wire::ClientWire};
use std::{collections::HashMap, sync::Arc};

#[derive(Debug, Default)]
pub(super) struct Options {
    functions: Arc<HashMap<String, u64>>,
    compression: Compression,
    heartbeats: bool,
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("function", _) => {
                let expected = "package.Service/Method:NUMBER, where the number is decimal and not 0";
                let (method, number) = value.rsplit_once(':').ok_or(expected)?;
                let number = number.parse().ok().filter(|number| *number > 0).ok_or(expected)?;
                Arc::make_mut(&mut self.functions).insert(method.to_owned(), number);
            }
            ("snappy", "none") => self.compression = Compression::None,
            ("snappy", "dynamic") => self.compression = Compression::Dynamic,
            ("snappy", "forced") => self.compression = Compression::Forced,
            ("snappy", _) => return Err("none, dynamic or forced"),
            ("heartbeats", _) => self.heartbeats = value.parse().map_err(|_| "true or false")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn codec(&self, preferred: Codec) -> Codec {
        match preferred {
            Codec::FlatBuffers | Codec::Proto => preferred,
            // Traits have no shorter encoding.
            _ => Codec::Json,
        }
    }

    fn carries_metadata(&self) -> bool {
        false
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        let client = Client::new(*limits).functions(self.functions.clone());
        Box::new(client.compressing(self.compression).heartbeats(self.heartbeats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_a_method_and_a_number() {
        let mut kiss = Options::default();
        assert_eq!(kiss.set("function", "demo.v1.Greeter/Greet:305419896"), Ok(true));
        assert_eq!(kiss.functions["demo.v1.Greeter/Greet"], 305_419_896);
        for wrong in ["demo.v1.Greeter/Greet", "a:b", "a:0", "a:-1", ":"] {
            assert!(kiss.set("function", wrong).is_err(), "{wrong}");
        }
        assert!(kiss.set("snappy", "always").is_err() && kiss.set("heartbeats", "1").is_err());
        assert_eq!(kiss.set("spin", "1"), Ok(false));
    }
}

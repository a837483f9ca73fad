//! `wire=baidu_std`, `wire=hulu`, `wire=sofa`: servers of brpc and its relatives.
//!
//! | option | values | |
//! | --- | --- | --- |
//! | `names` | `full`, `short` | `package.Service`; or `Service` for old servers, the default of hulu |
//! | `codec` | `proto` (default), `json` | baidu_std: encoding of messages; traits always use JSON |
//! | `checksum` | `none` (default), `crc32c` | baidu_std: checksum of requests; brpc's servers reply with one, too |
//! | `index` | `package.Service/Method:INDEX` | hulu: index in the service, from 0; generated code has it |

use super::{Client, Layout, Names};
use crate::{Codec, Limits, spec::ClientSetup, wire::ClientWire};
use std::{collections::HashMap, sync::Arc};

#[derive(Debug, Default)]
struct Options {
    layout: Layout,
    codec: Option<Codec>,
    names: Names,
    checksums: bool,
    indexes: Arc<HashMap<String, u16>>,
}

pub(super) fn standard() -> Box<dyn ClientSetup> {
    Box::new(Options::default())
}

pub(super) fn hulu() -> Box<dyn ClientSetup> {
    Box::new(Options { layout: Layout::Hulu, names: Names::Short, ..Options::default() })
}

pub(super) fn sofa() -> Box<dyn ClientSetup> {
    Box::new(Options { layout: Layout::Sofa, ..Options::default() })
}

impl ClientSetup for Options {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("index", _) if self.layout == Layout::Hulu => {
                let expected = "package.Service/Method:INDEX, where the index is a number from 0";
                let (method, index) = value.rsplit_once(':').ok_or(expected)?;
                let index = index.parse().map_err(|_| expected)?;
                Arc::make_mut(&mut self.indexes).insert(method.to_owned(), index);
            }
            ("names", "full") => self.names = Names::Full,
            ("names", "short") => self.names = Names::Short,
            ("names", _) => return Err("full or short"),
            _ if self.layout != Layout::Standard => return Ok(false),
            ("codec", "proto") => self.codec = Some(Codec::Proto),
            ("codec", "json") => self.codec = Some(Codec::Json),
            ("codec", _) => return Err("proto or json"),
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
            // Traits have no protobuf encoding.
            _ => Codec::Json,
        }
    }

    fn carries_metadata(&self) -> bool {
        self.layout != Layout::Sofa
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        let client = Client::new(*limits).with_layout(self.layout).indexes(self.indexes.clone());
        Box::new(client.naming(self.names).checksums(self.checksums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_its_own_options() {
        let mut wire = hulu();
        assert_eq!(wire.set("index", "demo.v1.Greeter/Greet:0"), Ok(true));
        for wrong in ["demo.v1.Greeter/Greet", "a:b", "a:-1", ":"] {
            assert!(wire.set("index", wrong).is_err(), "{wrong}");
        }
        assert_eq!((wire.set("names", "full"), wire.set("checksum", "crc32c")), (Ok(true), Ok(false)));
        assert_eq!((sofa().set("index", "a:1"), sofa().set("codec", "json")), (Ok(false), Ok(false)));
        assert_eq!(Options::default().set("index", "a:1"), Ok(false));
    }
}

//! The wires that `--wire` of the benchmark selects: those of the list of wires, and the native one in WebSockets.

use crate::{
    services::kiss,
    wires::{callable, carries_proto_services, expected},
};
use clap::{ValueEnum, builder::PossibleValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::sync::LazyLock;
use switchboard::wire::{WireId, WireSpec};

/// A wire that the callers of the benchmark can use, by its name or an alias.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wire {
    name: &'static str,
    id: WireId,
}

/// All names, sorted.
static ALL: LazyLock<Vec<Wire>> = LazyLock::new(|| {
    let of_list = callable().into_iter().filter(|(_, id)| is_measured(id.spec()));
    let of_list = of_list.map(|(name, id)| Wire { name, id });
    let mut all: Vec<_> = of_list.chain([Wire::WEBSOCKET]).collect();
    all.sort_unstable_by_key(|wire| wire.name);
    all
});

/// Returns true if the benchmark has callers for the wire: its services are those of `.proto` files, and one of a
/// `.thrift` file.
fn is_measured(spec: &WireSpec) -> bool {
    carries_proto_services(spec) || spec.name == Wire::THRIFT.name
}

impl ValueEnum for Wire {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let title = self.id.spec().title;
        Some(PossibleValue::new(self.name).help(match *self {
            Wire::JSON_RPC => format!("{title}, in text messages of a WebSocket"),
            Wire::THRIFT => {
                format!("{title}, in frames and the binary protocol, with messages of a .thrift file")
            }
            Wire::WEBSOCKET => "the native wire, in binary messages of a WebSocket".to_owned(),
            _ => title.to_owned(),
        }))
    }
}

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wire, D::Error> {
        Wire::named(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Wire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl Wire {
    /// JSON-RPC.
    pub const JSON_RPC: Wire = Wire { name: "jsonrpc", id: WireId::JSON_RPC };
    /// The native wire.
    pub const NATIVE: Wire = Wire { name: "native", id: WireId::NATIVE };
    /// Thrift.
    pub const THRIFT: Wire = match WireId::THRIFT {
        Some(id) => Wire { name: "thrift", id },
        None => panic!("the feature `wires` is on"),
    };
    /// The native wire in WebSockets.
    pub const WEBSOCKET: Wire = Wire { name: "websocket", id: WireId::WEBSOCKET };

    /// Returns the wire with this name or alias.
    ///
    /// # Errors
    /// The known names, and the nearest of them.
    pub fn named(name: &str) -> Result<Wire, String> {
        ALL.iter().copied().find(|wire| wire.name == name).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|wire| wire.name).collect();
            format!("unknown wire {name:?}: {}", expected(name, &known))
        })
    }

    /// Returns the name that selects the wire.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the server's address with this wire as an option or the scheme of it.
    pub fn url(self, address: &str) -> String {
        // A registry lists complete addresses.
        if matches!(self, Wire::JSON_RPC | Wire::WEBSOCKET) && !switchboard_registry::is_registry(address) {
            let bare = address.strip_prefix("tcp://").or_else(|| address.strip_prefix("http://"));
            let bare = bare.or((!address.contains("://")).then_some(address));
            return bare.map_or_else(|| address.to_owned(), |bare| format!("ws://{bare}"));
        }
        let join = if address.contains('?') { '&' } else { '?' };
        match self.name {
            "native" => address.to_owned(),
            name => format!("{address}{join}wire={name}{}", self.options()),
        }
    }

    /// Returns the options that the calls of the benchmark need on the wire.
    fn options(self) -> String {
        match self.name {
            // Without its package, `Bench` is two services of the server: one for protobuf, one for Thrift.
            "erpc" | "hulu" => "&names=full".to_owned(),
            "kiss" => kiss::options(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::wire::{Capabilities, ClientSupport, WIRES};

    #[test]
    fn wires_are_those_of_the_list() {
        let names: Vec<_> = Wire::value_variants().iter().map(|wire| wire.name).collect();
        for spec in WIRES.iter().filter(|spec| spec.is_callable()) {
            assert!(names.contains(&spec.name), "{} is not in {names:?}", spec.name);
        }
        for wire in [Wire::JSON_RPC, Wire::NATIVE, Wire::THRIFT, Wire::WEBSOCKET] {
            assert_eq!(Wire::named(wire.name), Ok(wire));
        }
    }

    #[test]
    fn a_new_wire_is_measured_if_it_carries_the_messages() {
        static LINES: WireSpec = WireSpec {
            client: ClientSupport::BuiltIn,
            capabilities: Capabilities { codecs: &[switchboard::Codec::Json], ..Capabilities::NONE },
            ..WireSpec::named("lines")
        };
        static BYTES: WireSpec = WireSpec {
            client: ClientSupport::BuiltIn,
            capabilities: Capabilities { codecs: &[switchboard::Codec::Raw], ..Capabilities::NONE },
            ..WireSpec::named("bytes")
        };
        assert!(is_measured(&LINES) && !is_measured(&BYTES));
    }

    #[test]
    fn unknown_names_are_reported_with_the_known_ones() {
        let error = Wire::named("baidu").unwrap_err();
        assert!(error.starts_with("unknown wire \"baidu\": expected one of baidu_std, connect, "), "{error}");
        assert!(error.ends_with("websocket; did you mean baidu_std?"), "{error}");
        let read = |json: &str| serde_json::from_str::<Wire>(json).map_err(|error| error.to_string());
        let rpcx = read("\"rpcx\"").unwrap();
        assert_eq!((rpcx.name(), serde_json::to_string(&rpcx).unwrap().as_str()), ("rpcx", "\"rpcx\""));
        assert!(read("\"rpx\"").unwrap_err().contains("did you mean rpcx?"));
    }

    #[test]
    fn wires_are_options_of_the_address() {
        let wire = |name: &str| Wire::named(name).unwrap();
        assert_eq!(Wire::NATIVE.url("tcp://a:1"), "tcp://a:1");
        assert_eq!(wire("grpc").url("tcp://a:1"), "tcp://a:1?wire=grpc");
        assert_eq!(wire("grpc-web-text").url("tcp://a:1"), "tcp://a:1?wire=grpc-web-text");
        assert_eq!(Wire::THRIFT.url("tcp://a:1,b:1"), "tcp://a:1,b:1?wire=thrift");
        assert_eq!(wire("connect").url("tcp://a:1?http=1"), "tcp://a:1?http=1&wire=connect");
        assert_eq!(wire("hulu").url("tcp://a:1"), "tcp://a:1?wire=hulu&names=full");
        assert!(wire("kiss").url("tcp://a:1").contains("?wire=kiss&function=demo.v1.Greeter/Greet:1&"));
        for wire in [Wire::JSON_RPC, Wire::WEBSOCKET] {
            for address in ["tcp://a:1/p", "http://a:1/p", "ws://a:1/p", "a:1/p"] {
                assert_eq!(wire.url(address), "ws://a:1/p");
            }
        }
    }
}

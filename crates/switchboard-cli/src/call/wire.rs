//! The wire of a call, chosen by its name.

use crate::wires;
use clap::{ValueEnum, builder::PossibleValue};
use std::sync::LazyLock;
use switchboard::{
    Codec,
    wire::{Capabilities, ClientSupport, WireId},
};

/// A wire that channels can use, by its name or an alias.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wire {
    name: &'static str,
    id: WireId,
}

/// All names, sorted.
static ALL: LazyLock<Vec<Wire>> =
    LazyLock::new(|| wires::callable().into_iter().map(|(name, id)| Wire { name, id }).collect());

impl ValueEnum for Wire {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name))
    }
}

impl Wire {
    pub(super) const GRPC: Wire = Wire::of(WireId::GRPC, "grpc");
    pub(super) const JSON_RPC: Wire = Wire::of(WireId::JSON_RPC, "jsonrpc");
    pub(super) const NATIVE: Wire = Wire::of(WireId::NATIVE, "native");
    pub(super) const THRIFT: Wire = match WireId::THRIFT {
        Some(id) => Wire::of(id, "thrift"),
        None => panic!("the feature `wires` is on"),
    };

    const fn of(id: WireId, name: &'static str) -> Wire {
        Wire { name, id }
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// Returns the name for people.
    pub(super) fn title(self) -> &'static str {
        self.id.spec().title
    }

    pub(super) fn capabilities(self) -> &'static Capabilities {
        &self.id.spec().capabilities
    }

    /// Returns the codec of messages that are sent as they are.
    pub(super) fn usual_codec(self) -> Codec {
        match self.capabilities().codecs {
            [Codec::FlatBuffers, ..] => Codec::FlatBuffers,
            _ => Codec::Proto,
        }
    }

    /// Returns whether servers of the wire commonly support no other wire: then without streams and reflection.
    pub(super) fn is_foreign(self) -> bool {
        matches!(self.id.spec().client, ClientSupport::Machine(_))
    }

    /// Returns whether the wire uses HTTP.
    pub(super) fn is_http(self) -> bool {
        !self.is_foreign() && self != Wire::NATIVE
    }

    /// Returns whether the wire can carry the gRPC reflection service.
    pub(super) fn carries_reflection(self) -> bool {
        self.is_http() && self != Wire::JSON_RPC
    }

    /// Returns whether channels use the wire in WebSockets.
    pub(super) fn is_in_websockets(self) -> bool {
        match self.id.spec().client {
            ClientSupport::BuiltIn => [Wire::JSON_RPC, Wire::NATIVE].contains(&self),
            ClientSupport::Machine(setup) => setup().websocket_path().is_ok(),
            ClientSupport::None => false,
        }
    }

    /// Returns whether tables of FlatBuffers can be sent on the wire.
    pub(super) fn carries_flatbuffers(self) -> bool {
        self.capabilities().codecs.contains(&Codec::FlatBuffers)
    }

    /// # Errors
    /// Returns the known names, and the nearest of them.
    pub(super) fn named(name: &str) -> Result<Wire, String> {
        ALL.iter().copied().find(|wire| wire.name == name).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|wire| wire.name).collect();
            format!("wire={name} in the URL: {}", wires::expected(name, &known))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_names() {
        for wire in [Wire::GRPC, Wire::JSON_RPC, Wire::NATIVE, Wire::THRIFT] {
            assert_eq!(Wire::named(wire.name), Ok(wire));
        }
        let in_websockets: Vec<_> =
            ALL.iter().filter(|wire| wire.is_in_websockets()).map(|wire| wire.name).collect();
        assert_eq!(in_websockets, ["jsonrpc", "native", "rpcx"]);
        let flatbuffers: Vec<_> =
            ALL.iter().filter(|wire| wire.carries_flatbuffers()).map(|wire| wire.name).collect();
        assert_eq!(flatbuffers, ["grpc", "kiss", "native"]);
    }
}

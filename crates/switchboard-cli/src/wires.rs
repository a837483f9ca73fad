//! Wires by name, for flags and URLs. The names come from the list of wires of this build, so that a new wire has its
//! name on every command line.

use crate::near::nearest;
use switchboard::{
    Codec,
    wire::{WireId, WireSpec},
};

/// Returns the name and the aliases of each wire that channels can use, sorted.
pub(crate) fn callable() -> Vec<(&'static str, WireId)> {
    let callable = WireId::all().filter(|id| id.spec().is_callable());
    let mut all: Vec<_> = callable.flat_map(|id| names(id.spec()).map(move |name| (name, id))).collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

/// Returns the name of a wire, then its aliases.
pub(crate) fn names(spec: &'static WireSpec) -> impl Iterator<Item = &'static str> {
    [spec.name].into_iter().chain(spec.aliases.iter().copied())
}

/// Returns true if the wire carries the messages of services from `.proto` files.
pub(crate) fn carries_proto_services(spec: &WireSpec) -> bool {
    spec.capabilities.codecs.iter().any(|codec| matches!(codec, Codec::Json | Codec::Proto))
}

/// Returns the end of an error about an unknown name: the known ones, and the nearest of them.
pub(crate) fn expected(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    format!("expected one of {}{near}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::wire::WIRES;

    #[test]
    fn every_callable_wire_has_its_names() {
        let all = callable();
        assert!(all.is_sorted_by(|one, next| one.0 < next.0), "{all:?}");
        for spec in WIRES {
            for name in names(spec) {
                let found = all.iter().find(|(known, _)| *known == name).map(|(_, id)| id.spec().name);
                assert_eq!(found, spec.is_callable().then_some(spec.name), "{name}");
            }
        }
    }

    #[test]
    fn errors_of_unknown_names_list_the_known_ones_and_suggest_a_near_one() {
        let known = ["baidu_std", "grpc", "rpcx"];
        for (name, expected_text) in [
            ("baidu-std", "expected one of baidu_std, grpc, rpcx; did you mean baidu_std?"),
            ("RPCX", "expected one of baidu_std, grpc, rpcx; did you mean rpcx?"),
            ("zzz", "expected one of baidu_std, grpc, rpcx"),
        ] {
            assert_eq!(expected(name, &known), expected_text);
        }
    }

    #[test]
    fn wires_without_protobuf_messages_have_services_of_their_own() {
        let others = WIRES.iter().filter(|spec| spec.is_callable() && !carries_proto_services(spec));
        assert_eq!(others.map(|spec| spec.name).collect::<Vec<_>>(), ["thrift"]);
    }
}

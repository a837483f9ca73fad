//! The wire of a channel: the descriptor that its `wire=` option selects, with its options.

use std::sync::Arc;
use switchboard_core::Result;
use switchboard_wire::{
    Status, WireId,
    spec::{ClientSetup, ClientSupport, WireSpec},
};

/// A wire of a channel that is a state machine, with its options.
#[derive(Clone, Debug)]
pub(super) struct ClientWireSetup {
    pub(super) spec: &'static WireSpec,
    pub(super) setup: Arc<dyn ClientSetup>,
}

/// Creates the wire that the options of `url` select, `chosen` otherwise, if it is a state machine, and applies its
/// options; the other options go into `rest`.
///
/// # Errors
/// `InvalidArgument` that names the expected values.
pub(super) fn of_options<'a>(
    url: &str,
    chosen: Option<WireId>,
    options: &[(&'a str, &'a str)],
    rest: &mut Vec<(&'a str, &'a str)>,
) -> Result<Option<ClientWireSetup>> {
    let requested = options.iter().rev().find(|(name, _)| *name == "wire");
    let found = match requested {
        Some((_, value)) => WireId::named(value),
        None => chosen,
    };
    let found = found.map(WireId::spec).and_then(|spec| match spec.client {
        ClientSupport::Machine(setup) => Some((spec, setup)),
        ClientSupport::BuiltIn | ClientSupport::None => None,
    });
    let Some((spec, setup)) = found else {
        rest.extend_from_slice(options);
        return Ok(None);
    };
    let (wire, mut wire_config) = (spec.name, setup());
    let (bare, tls) = (url.starts_with("http://"), url.starts_with("https://"));
    // For wires that do not run over HTTP, `https` is another name of `tls`.
    let posts = cfg!(feature = "http") && (bare || tls) && wire_config.set_http();
    if bare && !posts {
        let text = format!("wire={wire} in {url:?} does not run over HTTP: use tcp://");
        return Err(Status::invalid_argument(text));
    }
    for (name, value) in options {
        if *name == "wire" {
            continue;
        }
        match wire_config.set(name, value) {
            Ok(true) => {}
            Ok(false) => rest.push((name, value)),
            Err(expected) => {
                let text = format!("{name}={value} in {url:?}: expected {expected}");
                return Err(Status::invalid_argument(text));
            }
        }
    }
    wire_config.check().map_err(|why| Status::invalid_argument(format!("wire={wire} in {url:?}: {why}")))?;
    Ok(Some(ClientWireSetup { spec, setup: wire_config.into() }))
}

/// Returns the values of `wire=` that `is_usable` accepts, separated by commas.
pub(super) fn names(is_usable: impl Fn(&WireSpec) -> bool) -> String {
    let specs = WireId::all().map(WireId::spec).filter(|spec| spec.is_callable() && is_usable(spec));
    let names: Vec<_> =
        specs.flat_map(|spec| [spec.name].into_iter().chain(spec.aliases.iter().copied())).collect();
    names.join(", ")
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, ClientMethod, Server, StopOptions};
    use bytes::Bytes;
    use std::time::Duration;
    use switchboard_core::{Call, Reply, Service};
    use switchboard_wire::{Codec, Kind, MethodInfo, ServiceInfo};

    static INFO: ServiceInfo = ServiceInfo {
        name: "test.Mirror",
        methods: &[MethodInfo::new("Show", Kind::Unary)],
        descriptor: &[],
    };
    static SHOW: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Mirror/Show" };

    struct Mirror;

    impl Service for Mirror {
        fn info(&self) -> &'static ServiceInfo {
            &INFO
        }

        async fn call(&self, call: Call) -> Result<Reply> {
            let (message, cx) = call.into_one()?;
            Ok(Reply::one(message, cx))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn servers_that_detect_the_wire_close_no_connection_before_its_first_call() {
        for wire in ["baidu_std", "rpcx", "thrift"] {
            for (kind, options) in [("one", ""), ("fleet", "&balance=random")] {
                let address = format!("memory://silent-{wire}-{kind}");
                let running = Server::new().add(Mirror).listen(&address).start().await.unwrap();
                let channel = Channel::connect(&format!("{address}?wire={wire}{options}")).await.unwrap();
                for _ in 0..2 {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    // An empty struct in Thrift.
                    let (codec, message) = (channel.codec(Codec::Proto), Bytes::from_static(&[0]));
                    let call = channel.unary(&SHOW, codec, Ok(message.clone()), |_, reply| Ok(reply));
                    let reply = call.await.unwrap();
                    assert_eq!((&*reply, reply.attempts()), (&message, 1), "{wire}{options}");
                }
                assert_eq!(running.stats().unknown_protocol, 0, "{wire}{options}");
                drop(channel);
                running.stop(StopOptions::new().drain(Duration::ZERO).close(Duration::from_secs(60))).await;
            }
        }
    }
}

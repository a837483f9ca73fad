//! Wires of other frameworks that a channel supports: one file each, and a line in [`WIRES`].

mod baidu;
mod erpc;
mod kiss;
mod rpcx;
mod thrift;

use crate::{Codec, Limits, Result, Status, net::Carries};
use std::{fmt, sync::Arc};
use switchboard_wire::wire::ClientWire;

/// Configuration of a wire, from the options of a URL.
pub(super) trait WireConfig: fmt::Debug + Send + Sync {
    /// Applies an option of the URL; returns false for an unknown one.
    ///
    /// # Errors
    /// The values that were expected instead of `value`.
    fn set(&mut self, name: &str, value: &str) -> std::result::Result<bool, &'static str>;

    /// Checks that the options are compatible with each other.
    ///
    /// # Errors
    /// The conflict, and the fix.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Records that the address is one of HTTP; returns false when the wire does not run over HTTP.
    fn set_http(&mut self) -> bool {
        false
    }

    /// The content of WebSockets with this wire, and their path when the address has none.
    ///
    /// # Errors
    /// The reason why the wire does not run in WebSockets.
    fn in_websockets(&self) -> std::result::Result<(Carries, &'static str), &'static str> {
        Err("does not run in WebSockets: use tcp://, tls://, unix: or memory://")
    }

    /// Settings of Thrift over HTTP POST, when it is used.
    #[cfg(feature = "http")]
    fn posted(&self) -> Option<switchboard_wire::thrift::Settings> {
        None
    }

    /// The codec that calls use where generated code prefers `preferred`.
    fn codec(&self, preferred: Codec) -> Codec;

    /// Returns true when servers see the metadata of a call, including its idempotency key.
    fn carries_metadata(&self) -> bool {
        true
    }

    /// Returns true when servers may send pushes, messages without a request.
    fn receives_pushes(&self) -> bool {
        false
    }

    /// Creates the protocol state machine of a new connection.
    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire>;
}

/// Creates a wire with its default options.
type Make = fn() -> Box<dyn WireConfig>;

/// All wires, by their names for `wire=`.
const WIRES: &[(&str, Make)] = &[
    ("baidu_std", || Box::<baidu::Baidu>::default()),
    ("erpc", || Box::<erpc::Erpc>::default()),
    ("hulu", baidu::hulu),
    ("kiss", || Box::<kiss::Kiss>::default()),
    ("rpcx", rpcx::make),
    ("sofa", baidu::sofa),
    ("thrift", || Box::<thrift::Thrift>::default()),
];

/// Creates the wire that the options of `url` select, if it is one of these, and applies its options; the other options
/// go into `rest`.
///
/// # Errors
/// `InvalidArgument` that names the expected values.
pub(super) fn of_options<'a>(
    url: &str,
    options: &[(&'a str, &'a str)],
    rest: &mut Vec<(&'a str, &'a str)>,
) -> Result<Option<Arc<dyn WireConfig>>> {
    let requested = options.iter().rev().find(|(name, _)| *name == "wire");
    let found = requested.and_then(|(_, value)| WIRES.iter().find(|(name, _)| name == value));
    let Some((wire, make)) = found else {
        rest.extend_from_slice(options);
        return Ok(None);
    };
    let mut wire_config = make();
    let (bare, tls) = (url.starts_with("http://"), url.starts_with("https://"));
    // For wires that do not run over HTTP, `https` is another name of `tls`.
    let posts = (bare || tls) && wire_config.set_http();
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
    Ok(Some(wire_config.into()))
}

/// The names of the wires for `wire=`, each after a comma.
pub(super) fn names() -> String {
    WIRES.iter().map(|(name, _)| format!(", {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Channel, ClientMethod, Kind, MethodInfo, Reply, Server, Service, ServiceInfo};
    use bytes::Bytes;
    use std::time::Duration;

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
                running.stop(Duration::ZERO, Duration::from_secs(60)).await;
            }
        }
    }
}

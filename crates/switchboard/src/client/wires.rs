//! Wires of other frameworks that a channel speaks: one file each, and a line in [`WIRES`].

mod baidu;
mod erpc;
mod kiss;
mod rpcx;
mod thrift;

use crate::{Codec, Limits, Result, Status, net::Carries};
use std::{fmt, sync::Arc};
use switchboard_wire::wire::ClientWire;

/// A wire as a URL asked for it.
pub(super) trait Foreign: fmt::Debug + Send + Sync {
    /// Takes an option of the URL; false for one that it does not know.
    ///
    /// # Errors
    /// What was expected instead of `value`.
    fn set(&mut self, name: &str, value: &str) -> std::result::Result<bool, &'static str>;

    /// Whether the options fit together.
    ///
    /// # Errors
    /// What does not, and what to do.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Takes note that the address is one of HTTP; false where that is no place for the wire.
    fn set_http(&mut self) -> bool {
        false
    }

    /// What WebSockets carry then, and their path where the address has none.
    ///
    /// # Errors
    /// Why the wire goes through none.
    fn in_websockets(&self) -> std::result::Result<(Carries, &'static str), &'static str> {
        Err("does not go through WebSockets: use tcp://, tls://, unix: or memory://")
    }

    /// How Thrift is written, where it goes by POST.
    #[cfg(feature = "http")]
    fn posted(&self) -> Option<switchboard_wire::thrift::Settings> {
        None
    }

    /// How messages are written where generated code would write them as `preferred`.
    fn codec(&self, preferred: Codec) -> Codec;

    /// Whether servers see the metadata of a call, and by its key one that they know.
    fn carries_metadata(&self) -> bool {
        true
    }

    /// Whether servers may send what nobody asked for.
    fn hears_pushes(&self) -> bool {
        false
    }

    /// The machine of a new connection.
    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire>;
}

/// Makes a wire with its usual options.
type Make = fn() -> Box<dyn Foreign>;

/// The one list, by the names that `wire=` takes.
const WIRES: &[(&str, Make)] = &[
    ("baidu_std", || Box::<baidu::Baidu>::default()),
    ("erpc", || Box::<erpc::Erpc>::default()),
    ("hulu", baidu::hulu),
    ("kiss", || Box::<kiss::Kiss>::default()),
    ("rpcx", rpcx::make),
    ("sofa", baidu::sofa),
    ("thrift", || Box::<thrift::Thrift>::default()),
];

/// The wire that the options of `url` ask for, if it is one of these; its own options are set, and the others are in
/// `rest`.
///
/// # Errors
/// `InvalidArgument` that says what was expected instead.
pub(super) fn of_options<'a>(
    url: &str,
    options: &[(&'a str, &'a str)],
    rest: &mut Vec<(&'a str, &'a str)>,
) -> Result<Option<Arc<dyn Foreign>>> {
    let asked = options.iter().rev().find(|(name, _)| *name == "wire");
    let known = asked.and_then(|(_, value)| WIRES.iter().find(|(name, _)| name == value));
    let Some((wire, make)) = known else {
        rest.extend_from_slice(options);
        return Ok(None);
    };
    let mut foreign = make();
    let (bare, tls) = (url.starts_with("http://"), url.starts_with("https://"));
    // For wires that HTTP does not carry, `https` is one more name of `tls`.
    let posts = (bare || tls) && foreign.set_http();
    if bare && !posts {
        let text = format!("wire={wire} in {url:?} does not go over HTTP: use tcp://");
        return Err(Status::invalid_argument(text));
    }
    for (name, value) in options {
        if *name == "wire" {
            continue;
        }
        match foreign.set(name, value) {
            Ok(true) => {}
            Ok(false) => rest.push((name, value)),
            Err(expected) => {
                let text = format!("{name}={value} in {url:?}: expected {expected}");
                return Err(Status::invalid_argument(text));
            }
        }
    }
    foreign.check().map_err(|why| Status::invalid_argument(format!("wire={wire} in {url:?}: {why}")))?;
    Ok(Some(foreign.into()))
}

/// The names that `wire=` takes, each after a comma.
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
    async fn servers_that_ask_who_is_there_cut_no_connection_that_waits_for_its_first_call() {
        for wire in ["baidu_std", "rpcx", "thrift"] {
            for (kind, options) in [("one", ""), ("fleet", "&balance=random")] {
                let address = format!("memory://silent-{wire}-{kind}");
                let running = Server::new().add(Mirror).listen(&address).start().await.unwrap();
                let channel = Channel::connect(&format!("{address}?wire={wire}{options}")).await.unwrap();
                for _ in 0..2 {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    // A struct without fields, in Thrift.
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

//! Engines by their addresses.

use std::sync::Arc;
use switchboard_core::Result;
use switchboard_message::broker::Broker;
use switchboard_wire::Status;

/// Creates the engine at an address, with the default options: `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]…` with
/// the feature `kafka`, `nats://[USER:PASSWORD@]HOST:PORT` with the feature `nats`,
/// `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]` with the feature `redis`. Nothing is sent before it is used.
///
/// # Errors
/// `InvalidArgument` for a malformed address, and for an engine that is not built in.
pub fn connect(url: &str) -> Result<Arc<dyn Broker>> {
    match url.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "kafka")]
        Some("kafka") => Ok(Arc::new(crate::Kafka::connect(url, crate::kafka::Options::new())?)),
        #[cfg(feature = "nats")]
        Some("nats" | "tls") => Ok(Arc::new(crate::Nats::connect(url, crate::nats::Options::new())?)),
        #[cfg(feature = "redis")]
        Some("redis" | "redis+unix" | "unix") => {
            Ok(Arc::new(crate::Redis::connect(url, crate::redis::Options::new())?))
        }
        Some(scheme) => {
            let engines = [
                ("kafka", cfg!(feature = "kafka")),
                ("nats", cfg!(feature = "nats")),
                ("redis", cfg!(feature = "redis")),
            ];
            let built: Vec<_> =
                engines.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect();
            let text = format!(
                "the engine \"{scheme}\" of a bus is not built in; this program has [{}]; use one of them, or build \
                 switchboard-broker with its feature",
                built.join(", ")
            );
            Err(Status::invalid_argument(text))
        }
        None => Err(Status::invalid_argument(
            "the address of an engine has no scheme; write it as redis://HOST:PORT",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_engine_is_named() {
        let status = connect("amqp://127.0.0.1:5672").map(drop).unwrap_err();
        assert!(status.message().contains("the engine \"amqp\" of a bus is not built in"), "{status}");
        let status = connect("127.0.0.1:6379").map(drop).unwrap_err();
        assert!(status.message().contains("has no scheme"), "{status}");
    }
}

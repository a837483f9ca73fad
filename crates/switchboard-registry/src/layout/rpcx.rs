//! The keys and values of rpcx's plug-ins: `BASE/SERVICE/tcp@HOST:PORT`, with metadata as a URL query.

use super::Layout;
use crate::meta::{self, Meta};
use switchboard::{
    Address, Code, Result, Status,
    discover::{Instance, State, escape},
    web,
};

/// The keys and values that rpcx's plug-ins write to etcd, Consul, ZooKeeper and Redis, so that rpcx clients find
/// Switchboard servers and the reverse. `BASE` is used literally, as in rpcx.
///
/// A TCP address is `tcp@HOST:PORT`. So is a TLS address, because in rpcx the client decides about TLS. With
/// `network=http` the address is `http@`, and a WebSocket is `ws@` or `wss@`. Addresses that rpcx servers register get
/// `wire=rpcx`. rpcx's default weight is 1, which is our 100. An instance that is not up, or has no weight, is
/// `state=inactive` in rpcx. In the metadata, `group`, `version` and `zone` are fields and the rest are tags, except
/// for the counters `calls` and `connections`, which servers write repeatedly. Fields that rpcx does not have use names
/// that begin with `switchboard.`.
#[derive(Clone, Debug)]
pub struct RpcxLayout {
    base: String,
}

impl RpcxLayout {
    /// Creates the layout with this base path, used literally.
    pub fn new(base: &str) -> RpcxLayout {
        RpcxLayout { base: base.trim_end_matches('/').to_owned() }
    }
}

impl Layout for RpcxLayout {
    fn folder(&self, service: &str) -> String {
        // Used literally too, except for names that no store accepts as a path.
        match service.split('/').any(str::is_empty) {
            true => format!("{}/{}/", self.base, escape(service)),
            false => format!("{}/{service}/", self.base),
        }
    }

    fn is_name(&self, name: &str) -> bool {
        // rpcx clients treat an address without a network as TCP.
        !name.contains('/') && name.contains(':')
    }

    fn name(&self, instance: &Instance) -> Result<String> {
        let (host, port) = meta::place(&instance.address)?;
        let (address, options) = instance.address.split_once('?').unwrap_or((&instance.address, ""));
        let network = match address.split_once(':').map(|(scheme, _)| scheme) {
            Some("ws") => "ws",
            Some("wss") => "wss",
            _ if options.split('&').any(|option| option == HTTP) => "http",
            _ => "tcp",
        };
        Ok(format!("{network}@{}:{port}", meta::in_url(&host)))
    }

    fn encode(&self, instance: &Instance) -> Result<Vec<u8>> {
        let name = self.name(instance)?;
        let mut meta = meta::write(instance, &address(&name)?)?;
        let is_up = instance.state == State::Up && instance.weight > 0;
        if !is_up {
            meta.insert("state".to_owned(), "inactive".to_owned());
        }
        let weight = (instance.weight / USUAL).max(1);
        if weight != 1 {
            meta.insert("weight".to_owned(), weight.to_string());
        }
        if weight.checked_mul(USUAL) != Some(instance.weight) {
            meta::write_weight(&mut meta, instance.weight);
        }
        let pairs = meta.iter().map(|(name, value)| format!("{}={}", web::encode(name), web::encode(value)));
        Ok(pairs.collect::<Vec<_>>().join("&").into_bytes())
    }

    fn decode(&self, service: &str, name: &str, value: &[u8], bytes_max: usize) -> Result<Instance> {
        let wrong = |why: &str| {
            Status::new(Code::InvalidArgument, format!("{:?} of {service} for rpcx: {why}", name))
        };
        if value.len() > bytes_max {
            return Err(wrong(&format!(
                "{} bytes are more than instance_bytes_max {bytes_max}",
                value.len()
            )));
        }
        let address = address(name)?;
        let text = str::from_utf8(value).map_err(|_| wrong("its metadata is not UTF-8"))?;
        let mut meta: Meta = pairs(text);
        let inactive = meta.remove("state").is_some_and(|state| state == "inactive");
        let weight: u32 = meta.remove("weight").and_then(|weight| weight.parse().ok()).unwrap_or(1);
        let said = meta.contains_key("switchboard.state");
        let mut instance = meta::read(service, address, weight.saturating_mul(USUAL), meta);
        // An instance of ours without weight is inactive in rpcx, but up.
        if inactive && !said && instance.weight > 0 {
            instance.state = State::Down;
        }
        Ok(instance)
    }
}

/// Option of addresses on rpcx's network `http`.
const HTTP: &str = "network=http";

/// Our default weight.
const USUAL: u32 = 100;

/// Converts an rpcx name to an address: `tcp@HOST:PORT`, or `HOST:PORT`.
fn address(name: &str) -> Result<String> {
    let (network, place) = name.split_once('@').unwrap_or(("tcp", name));
    let wrong = |why: &str| Status::new(Code::InvalidArgument, format!("{name:?} for rpcx: {why}"));
    let (scheme, path, option) = match network {
        "tcp" | "tcp4" | "tcp6" | "reuseport" | "iouring" => ("tcp", "", ""),
        "http" => ("tcp", "", HTTP),
        // The path that rpcx clients dial.
        "ws" | "wss" => (network, "/_rpcx_", ""),
        other => return Err(wrong(&format!("the network {other:?} is not supported"))),
    };
    let address = format!("{scheme}://{place}{path}");
    address.parse::<Address>().map_err(|error| wrong(error.message()))?;
    let and = if option.is_empty() { "" } else { "&" };
    Ok(format!("{address}?wire=rpcx{and}{option}"))
}

/// Parses a URL query as Go writes it.
fn pairs(query: &str) -> Meta {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (web::decode_query(name), web::decode_query(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(instance: &Instance) -> (String, String) {
        let layout = RpcxLayout::new("rpcx_test");
        let value = String::from_utf8(layout.encode(instance).unwrap()).unwrap();
        (layout.key(instance).unwrap(), value)
    }

    #[test]
    fn instances_of_rpcx_are_decoded() {
        let layout = RpcxLayout::new("/rpcx_test/");
        assert_eq!(layout.folder("Arith"), "/rpcx_test/Arith/");
        for (name, value, expected) in [
            ("tcp@10.0.0.7:8972", "", Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx")),
            ("10.0.0.7:8972", "", Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx")),
            ("ws@10.0.0.7:8972", "", Instance::new("Arith", "ws://10.0.0.7:8972/_rpcx_?wire=rpcx")),
            ("wss@[::1]:8972", "", Instance::new("Arith", "wss://[::1]:8972/_rpcx_?wire=rpcx")),
            ("http@10.0.0.7:8972", "", Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx&network=http")),
            (
                "tcp@[::1]:8972",
                "calls=1.50&connections=0.10&group=a+b&weight=7&latitude=39.5%2B&state=active",
                Instance::new("Arith", "tcp://[::1]:8972?wire=rpcx")
                    .weight(700)
                    .group("a b")
                    .tag("latitude", "39.5+"),
            ),
            (
                "tcp@10.0.0.7:8972",
                "state=inactive",
                Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").state(State::Down),
            ),
        ] {
            assert_eq!(layout.decode("Arith", name, value.as_bytes(), 1024).unwrap(), expected);
        }
        for (name, value) in [("quic@10.0.0.7:8972", &b""[..]), ("tcp@nowhere", b""), ("tcp@h:1", b"\xff")] {
            layout.decode("Arith", name, value, 1024).unwrap_err();
        }
        assert!(
            layout.decode("Arith", "tcp@h:1", &[b'a'; 9], 8).unwrap_err().message().contains("more than")
        );
        assert!(!layout.is_name("Other/tcp@h:1") && !layout.is_name("Other"));
    }

    #[test]
    fn own_instances_are_encoded_for_rpcx_and_restored_completely() {
        for (instance, key, value) in [
            (Instance::new("Arith", "tcp://10.0.0.7:80?wire=rpcx"), "rpcx_test/Arith/tcp@10.0.0.7:80", ""),
            (
                Instance::new("Arith", "tcp://10.0.0.7:80").weight(300).group("a b").tag("latitude", "1.5"),
                "rpcx_test/Arith/tcp@10.0.0.7:80",
                "group=a%20b&latitude=1.5&switchboard.address=tcp%3A%2F%2F10.0.0.7%3A80&weight=3",
            ),
            (
                Instance::new("Arith", "tcp://h:80?wire=rpcx").weight(50).state(State::Draining).id("one"),
                "rpcx_test/Arith/tcp@h:80",
                "state=inactive&switchboard.id=one&switchboard.state=draining&switchboard.weight=50",
            ),
            (
                Instance::new("Arith", "wss://h:80/_rpcx_?wire=rpcx").weight(0),
                "rpcx_test/Arith/wss@h:80",
                "state=inactive&switchboard.weight=0",
            ),
            (Instance::new("Arith", "tcp://h:80?wire=rpcx&network=http"), "rpcx_test/Arith/http@h:80", ""),
            (
                Instance::new("Arith", "tls://h:80?network=http&wire=rpcx"),
                "rpcx_test/Arith/http@h:80",
                "switchboard.address=tls%3A%2F%2Fh%3A80%3Fnetwork%3Dhttp%26wire%3Drpcx",
            ),
        ] {
            assert_eq!(text(&instance), (key.to_owned(), value.to_owned()));
            let layout = RpcxLayout::new("rpcx_test");
            let name = layout.name(&instance).unwrap();
            assert_eq!(layout.decode("Arith", &name, value.as_bytes(), 1024).unwrap(), instance);
        }
        let layout = RpcxLayout::new("rpcx_test");
        assert!(layout.name(&Instance::new("Arith", "unix:/a")).is_err());
        assert!(layout.encode(&Instance::new("Arith", "tcp://h:1").tag("state", "x")).is_err());
    }
}

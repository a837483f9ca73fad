//! The target of a call: converts a URL and flags to the URL of a channel.

use super::{args::CallArgs, wire::Wire};
use switchboard::Address;

/// Options of the messages and the wire of a call, as opposed to those of its server.
const OF_THE_CALL: &[&str] = &[
    "checksum",
    "codec",
    "compression",
    "deflate",
    "filter",
    "framed",
    "framing",
    "function",
    "get",
    "heartbeats",
    "http",
    "multiplexed",
    "names",
    "network",
    "path",
    "prefix",
    "protocol",
    "snappy",
    "zlib",
];

/// A server, and the options for calling it.
#[derive(Debug)]
pub(super) struct Target {
    address: String,
    /// Options except the wire.
    options: Vec<(String, String)>,
    pub(super) wire: Wire,
}

impl Target {
    pub(super) fn new(args: &CallArgs) -> Result<Target, String> {
        let (address, query) = args.url.split_once('?').unwrap_or((&args.url, ""));
        let is_registry = switchboard_registry::is_registry(&args.url);
        let (address, path) = if is_registry { (address.to_owned(), None) } else { with_scheme(address)? };
        let tls = [&args.ca, &args.cert, &args.key, &args.server_name];
        if tls.iter().any(|flag| flag.is_some()) && !is_tls(&address) && !is_registry {
            return Err(format!(
                "--ca, --cert, --key and --server-name are for tls://HOST:PORT and wss://, not for {address}"
            ));
        }
        let mut options = Vec::new();
        let mut wire = None;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').ok_or_else(|| format!("{option:?} in the URL is not NAME=VALUE"))?;
            match name {
                "wire" => wire = Some(Wire::named(value)?),
                _ => options.push((name.to_owned(), value.to_owned())),
            }
        }
        if let (Some(from_url), Some(flag)) = (wire, args.wire)
            && from_url != flag
        {
            let (from_url, flag) = (from_url.name(), flag.name());
            return Err(format!("the URL says wire={from_url} and the flag --wire {flag}: leave one out"));
        }
        let usual = match args.schema.thrift.is_empty() {
            false => Wire::THRIFT,
            true if is_websocket(&address) => Wire::NATIVE,
            true => Wire::GRPC,
        };
        let wire = args.wire.or(wire).unwrap_or(usual);
        if wire != Wire::THRIFT && !args.schema.thrift.is_empty() {
            return Err(format!("--thrift is for the wire thrift, not for {}", wire.name()));
        }
        if !args.schema.fbs.is_empty() && !args.schema.descriptor_set.is_empty() {
            return Err("--fbs and --descriptor-set are two schemas of one service: leave one out".to_owned());
        }
        if !args.schema.fbs.is_empty() && !wire.carries_flatbuffers() {
            return Err(format!("--fbs is for the wires grpc, kiss and native, not for {}", wire.name()));
        }
        match path {
            // Without the option it is also the address of an HTTP server.
            None if wire == Wire::THRIFT && is_http(&args.url) => {
                options.push(("path".to_owned(), "/".to_owned()));
            }
            Some(path) if [Wire::JSON_RPC, Wire::THRIFT].contains(&wire) => {
                options.push(("path".to_owned(), path));
            }
            Some(_) => {
                return Err(format!(
                    "{:?} has a path: write the method after the address instead",
                    args.url.split('?').next().unwrap_or_default()
                ));
            }
            None => {}
        }
        let mut flag = |name: &str, value: &Option<String>| {
            let Some(value) = value else { return Ok(()) };
            if value.contains(['&', '?']) {
                return Err(format!("{name} {value:?} has a & or ?, which URLs of channels cannot carry"));
            }
            options.push((name.to_owned(), value.clone()));
            Ok(())
        };
        flag("ca", &args.ca)?;
        flag("cert", &args.cert)?;
        flag("key", &args.key)?;
        flag("server_name", &args.server_name)?;
        flag("message_bytes_max", &args.max_message_size)?;
        Ok(Target { address, options, wire })
    }

    /// Returns the URL of a channel for calls on `wire`.
    pub(super) fn url(&self, wire: Wire) -> String {
        // One caller needs one connection.
        let websocket = is_websocket(&self.address);
        let bare = websocket && !wire.is_in_websockets();
        // Wires that WebSockets do not carry are on the TCP or TLS port.
        let address = if bare { beneath(&self.address) } else { self.address.clone() };
        let mut url = format!("{address}?connections=1&wire={}", wire.name());
        for (name, value) in &self.options {
            // The native wire has one codec for protobuf and does not use HTTP.
            let left_out: &[&str] = match wire {
                Wire::NATIVE => &["codec", "get", "http", "path"],
                // These are for the call, and this channel is for its schema.
                wire if wire != self.wire => OF_THE_CALL,
                _ => &[],
            };
            if left_out.contains(&name.as_str()) {
                continue;
            }
            url += &format!("&{name}={value}");
        }
        url
    }

    /// Returns whether calls use HTTP POST on a wire that otherwise has its own connections.
    pub(super) fn is_posted(&self) -> bool {
        self.options.iter().any(|(name, _)| ["http", "path"].contains(&name.as_str()))
    }

    /// Returns whether the options contain this one.
    pub(super) fn has_option(&self, name: &str, value: &str) -> bool {
        self.options.iter().any(|(known, set)| known == name && set == value)
    }

    /// Returns host and port, if the transport has them.
    pub(super) fn host(&self) -> Option<(String, u16)> {
        if self.is_registry() {
            // The servers of a registry are not known here.
            return None;
        }
        let rest = self.address.split_once("://").map_or(self.address.as_str(), |(_, rest)| rest);
        match rest.split(',').next()?.parse() {
            Ok(Address::Tcp(host, port)) => Some((host, port)),
            _ => None,
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether calls use HTTP/1.1.
    pub(super) fn is_http1(&self) -> bool {
        self.has_option("http", "1")
    }

    pub(super) fn is_tls(&self) -> bool {
        is_tls(&self.address)
    }

    /// Returns whether the address is that of a registry, which lists the servers of a service.
    pub(super) fn is_registry(&self) -> bool {
        switchboard_registry::is_registry(&self.address)
    }
}

fn is_tls(address: &str) -> bool {
    address.starts_with("tls://") || address.starts_with("wss://")
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

fn is_websocket(address: &str) -> bool {
    address.starts_with("ws://") || address.starts_with("wss://")
}

/// Returns the address of the transport of a WebSocket.
fn beneath(address: &str) -> String {
    let scheme = if is_tls(address) { "tls" } else { "tcp" };
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    format!("{scheme}://{}", rest.split('/').next().unwrap_or_default())
}

/// Adds the scheme: `localhost:8080` is TCP; `https` URLs mean TLS, and may have a path.
pub(crate) fn with_scheme(address: &str) -> Result<(String, Option<String>), String> {
    let with_port = |scheme: &str, rest: &str, port: u16| {
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port { String::new() } else { format!(":{port}") };
        (format!("{scheme}://{host}{port}"), path.to_owned())
    };
    let with_path = |(address, path): (String, String)| (address, Some(path).filter(|path| path.len() > 1));
    match address.split_once("://") {
        Some(("http", rest)) => Ok(with_path(with_port("tcp", rest, 80))),
        Some(("https", rest)) => Ok(with_path(with_port("tls", rest, 443))),
        Some((scheme @ ("ws" | "wss"), rest)) => {
            let (address, path) = with_port(scheme, rest, if scheme == "ws" { 80 } else { 443 });
            Ok((address + &path, None))
        }
        Some(_) => Ok((address.to_owned(), None)),
        None if address.starts_with("unix:") => Ok((address.to_owned(), None)),
        None if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            Ok((format!("tcp://{address}"), None))
        }
        None => Err(format!("{address:?} is not an address: expected HOST:PORT, as in localhost:8080")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: CallArgs,
    }

    fn target(line: &str) -> Result<Target, String> {
        let words = ["call"].into_iter().chain(line.split(' ')).chain(["list"]);
        Target::new(&Line::try_parse_from(words).expect("only valid flags are tested").args)
    }

    #[test]
    fn urls_and_flags_become_the_url_of_a_channel() {
        for (line, url) in [
            ("localhost:80", "tcp://localhost:80?connections=1&wire=grpc"),
            ("http://a:1/", "tcp://a:1?connections=1&wire=grpc"),
            ("http://a", "tcp://a:80?connections=1&wire=grpc"),
            ("https://a", "tls://a:443?connections=1&wire=grpc"),
            ("unix:/run/a --wire native", "unix:/run/a?connections=1&wire=native"),
            ("http://a/rpc?wire=jsonrpc", "tcp://a:80?connections=1&wire=jsonrpc&path=/rpc"),
            ("ws://a/x", "ws://a:80/x?connections=1&wire=native"),
            ("ws://a:1?wire=rpcx&names=short", "ws://a:1?connections=1&wire=rpcx&names=short"),
            ("wss://a --wire jsonrpc --ca x.pem", "wss://a:443?connections=1&wire=jsonrpc&ca=x.pem"),
            (
                "switchboard://a:1?balance=random --wire native",
                "switchboard://a:1?connections=1&wire=native&balance=random",
            ),
            ("file:a.json", "file:a.json?connections=1&wire=grpc"),
            ("a:1?wire=connect&http=1", "tcp://a:1?connections=1&wire=connect&http=1"),
            ("a:1?wire=rpcx&names=short", "tcp://a:1?connections=1&wire=rpcx&names=short"),
            ("a:1?codec=json --wire baidu_std", "tcp://a:1?connections=1&wire=baidu_std&codec=json"),
            ("http://a --thrift a.thrift", "tcp://a:80?connections=1&wire=thrift&path=/"),
            ("https://a/x?wire=thrift", "tls://a:443?connections=1&wire=thrift&path=/x"),
            ("a:1?framed=false --thrift a.thrift", "tcp://a:1?connections=1&wire=thrift&framed=false"),
            (
                "tls://a:1 --ca x.pem --server-name b --max-message-size 8MiB",
                "tls://a:1?connections=1&wire=grpc&ca=x.pem&server_name=b&message_bytes_max=8MiB",
            ),
        ] {
            let target = target(line).unwrap();
            assert_eq!(target.url(target.wire), url, "{line}");
        }
    }

    #[test]
    fn schemas_come_over_grpc_on_the_port_beneath() {
        for (line, url) in [
            ("ws://a/x?deflate=true", "tcp://a:80?connections=1&wire=grpc"),
            ("wss://a/x --ca x.pem", "tls://a:443?connections=1&wire=grpc&ca=x.pem"),
            ("http://a/rpc?http=2 --wire jsonrpc", "tcp://a:80?connections=1&wire=grpc"),
            ("a:1?network=http&names=short --wire rpcx", "tcp://a:1?connections=1&wire=grpc"),
            ("a:1?framing=json&filter=gzip&prefix=v1 --wire erpc", "tcp://a:1?connections=1&wire=grpc"),
            (
                "a:1?function=a.B/C:1&snappy=forced&heartbeats=true&wire=kiss",
                "tcp://a:1?connections=1&wire=grpc",
            ),
        ] {
            assert_eq!(target(line).unwrap().url(Wire::GRPC), url, "{line}");
        }
    }

    #[test]
    fn errors_name_the_cause() {
        for (line, why) in [
            ("localhost", "expected HOST:PORT"),
            ("http://a:1/x", "has a path"),
            (
                "a:1?wire=soap",
                "expected one of baidu_std, connect, erpc, grpc, grpc-web, grpc-web-text, hulu, jsonrpc, kiss, native, rpcx, sofa, thrift",
            ),
            ("a:1?wire=baidu", "thrift; did you mean baidu_std?"),
            ("a:1?wire=grpc --wire connect", "leave one out"),
            ("a:1?x", "not NAME=VALUE"),
            ("a:1 --wire rpcx --thrift a.thrift", "--thrift is for the wire thrift, not for rpcx"),
            ("a:1 --fbs a.fbs --descriptor-set a.binpb", "two schemas of one service"),
            ("a:1?wire=connect --fbs a.fbs", "--fbs is for the wires grpc, kiss and native, not for connect"),
            ("tls://a:1 --ca a&b", "has a &"),
            ("a:1 --ca a.pem", "are for tls://HOST:PORT"),
        ] {
            assert!(target(line).unwrap_err().contains(why), "{line}");
        }
    }
}

//! Addresses to listen on and to connect to.

use std::{fmt, path::PathBuf, str::FromStr};
use switchboard_wire::Status;

/// Address of any transport, written as a URL: `tcp://127.0.0.1:8080`, `tcp://[::1]:0`, `unix:/run/app.sock`,
/// `memory://name`, `tls://host:8443`; for clients also `ws://127.0.0.1:8080/path` and
/// `wss://host:8443/path`. `http://` and a bare `host:port` mean TCP, `https://` means TLS.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Address {
    /// A pipe pair inside this process, running the real stack.
    Memory(String),
    /// Host name or IP address, and port.
    Tcp(String, u16),
    /// TCP with TLS: host name or IP address, and port.
    Tls(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
    /// A WebSocket: host name or IP address, port, and path. Servers accept WebSockets on their TCP
    /// addresses.
    WebSocket(String, u16, String),
    /// A WebSocket with TLS: host name or IP address, port, and path.
    WebSocketTls(String, u16, String),
}

impl FromStr for Address {
    type Err = Status;

    fn from_str(text: &str) -> Result<Address, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!(
                "{text:?} is not a valid address: {why}; expected tcp://HOST:PORT, tls://HOST:PORT, unix:/PATH or memory://NAME"
            ))
        };
        if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
            return if path.is_empty() {
                Err(wrong("the path is missing"))
            } else {
                Ok(Address::Unix(path.into()))
            };
        }
        if let Some(name) = text.strip_prefix("memory://") {
            return if name.is_empty() {
                Err(wrong("the name is missing"))
            } else {
                Ok(Address::Memory(name.into()))
            };
        }
        let secure = text.strip_prefix("wss://");
        if let Some(rest) = secure.or_else(|| text.strip_prefix("ws://")) {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let path = if path.is_empty() { "/" } else { path };
            if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong("the path has characters that must be percent-encoded"));
            }
            return match format!("tcp://{authority}").parse() {
                Ok(Address::Tcp(host, port)) if secure.is_some() => {
                    Ok(Address::WebSocketTls(host, port, path.to_owned()))
                }
                Ok(Address::Tcp(host, port)) => Ok(Address::WebSocket(host, port, path.to_owned())),
                _ => Err(wrong("host and port are missing behind ws:// or wss://")),
            };
        }
        let tls = text.strip_prefix("tls://").or_else(|| text.strip_prefix("https://"));
        let plain = text.strip_prefix("tcp://").or_else(|| text.strip_prefix("http://"));
        let rest = tls.or(plain).unwrap_or(text);
        if rest.contains("://") {
            return Err(wrong("the scheme is not known"));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let port = port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bare.unwrap_or(host) {
            "" => Err(wrong("the host is missing")),
            host if bare.is_none() && host.contains(':') => Err(wrong("an IPv6 address goes in brackets")),
            host if tls.is_some() => Ok(Address::Tls(host.to_owned(), port)),
            host => Ok(Address::Tcp(host.to_owned(), port)),
        }
    }
}

impl Address {
    /// Returns whether connections to the address use TLS.
    #[doc(hidden)]
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tls(..) | Address::WebSocketTls(..))
    }

    /// Returns host and port as in a URL; `localhost` for transports without a host.
    #[doc(hidden)]
    pub fn authority(&self) -> String {
        match self {
            Address::Tcp(host, port)
            | Address::Tls(host, port)
            | Address::WebSocket(host, port, _)
            | Address::WebSocketTls(host, port, _) => match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            },
            // Neither a path nor a name in this process is a host.
            Address::Memory(_) | Address::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Returns whether connections to the address use a WebSocket.
    #[doc(hidden)]
    pub fn is_websocket(&self) -> bool {
        matches!(self, Address::WebSocket(..) | Address::WebSocketTls(..))
    }

    /// Sets the path of a WebSocket address that has none.
    #[doc(hidden)]
    pub fn or_path(&mut self, usual: &str) {
        if let Address::WebSocket(_, _, path) | Address::WebSocketTls(_, _, path) = self
            && path == "/"
        {
            usual.clone_into(path);
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Memory(name) => write!(f, "memory://{name}"),
            Address::Tcp(host, port) | Address::Tls(host, port) => {
                let scheme = if matches!(self, Address::Tls(..)) { "tls" } else { "tcp" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{open}{host}{close}:{port}")
            }
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::WebSocket(host, port, path) | Address::WebSocketTls(host, port, path) => {
                let scheme = if self.is_tls() { "wss" } else { "ws" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{open}{host}{close}:{port}{path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in [
            "tcp://127.0.0.1:80",
            "tcp://[::1]:0",
            "tcp://localhost:65535",
            "tls://[::1]:8443",
            "tls://a.example:1",
            "unix:/run/a.sock",
            "memory://a",
            "ws://localhost:80/a/b",
            "ws://[::1]:80/",
            "wss://localhost:80/a/b",
            "wss://[::1]:80/",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:1".parse::<Address>().unwrap().to_string(), "tcp://localhost:1");
        assert_eq!("ws://a:1".parse::<Address>().unwrap().to_string(), "ws://a:1/");
        assert_eq!("http://a:1/".parse::<Address>().unwrap().to_string(), "tcp://a:1");
        assert_eq!("https://a:1/".parse::<Address>().unwrap().to_string(), "tls://a:1");
    }

    #[test]
    fn errors_of_invalid_addresses_list_the_valid_forms() {
        for text in [
            "",
            "ws://",
            "ws://a",
            "ws://a:1/ b",
            "wss://a",
            "host",
            "tcp://:1",
            "tcp://a:70000",
            "quic://a:1",
            "unix:",
            "memory://",
            "::1:80",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.message().contains("expected tcp://"), "{text}: {error}");
        }
    }
}

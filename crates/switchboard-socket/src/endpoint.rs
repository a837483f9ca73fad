//! Endpoints in ZeroMQ's notation.

use crate::{Error, ErrorKind, Result};
use std::{fmt, path::PathBuf, str::FromStr};
use switchboard_net::Address;

/// Endpoint of a socket: `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`.
///
/// To bind, `tcp://*:5557` means all IPv4 addresses, and port 0 or `*` means a port that the system chooses.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A name inside this process: messages pass by reference.
    Inproc(String),
    /// A socket in the file system.
    Ipc(PathBuf),
    /// Host name or IP address, and port.
    Tcp(String, u16),
}

/// Transports of libzmq that are not supported, with the text for their users.
const UNSUPPORTED: [(&str, &str); 9] = [
    ("epgm", "the transport epgm (reliable multicast over UDP)"),
    ("norm", "the transport norm (reliable multicast)"),
    ("pgm", "the transport pgm (reliable multicast)"),
    ("tipc", "the transport tipc (cluster IPC of Linux)"),
    ("udp", "the transport udp (RADIO and DISH use tcp)"),
    ("vmci", "the transport vmci (virtual machines of VMware)"),
    ("vsock", "the transport vsock"),
    ("ws", "the transport ws for sockets; a server accepts ZMTP in WebSockets with `switchboard-adapter`"),
    ("wss", "the transport wss for sockets; a server accepts ZMTP in WebSockets with `switchboard-adapter`"),
];

impl Endpoint {
    /// Returns the address of the transport, `None` for `inproc`.
    pub(crate) fn address(&self) -> Option<Address> {
        match self {
            Endpoint::Inproc(_) => None,
            Endpoint::Ipc(path) => Some(Address::Unix(path.clone())),
            Endpoint::Tcp(host, port) => {
                let host = if host == "*" { "0.0.0.0" } else { host };
                Some(Address::Tcp(host.to_owned(), *port))
            }
        }
    }

    /// Returns true if both mean one address: `*` is all IPv4 addresses.
    pub(crate) fn is_same(&self, other: &Endpoint) -> bool {
        self == other || self.address().is_some_and(|address| other.address() == Some(address))
    }

    /// Returns the endpoint of a bound address.
    pub(crate) fn of(address: Address) -> Option<Endpoint> {
        match address {
            Address::Tcp(host, port) => Some(Endpoint::Tcp(host, port)),
            Address::Unix(path) => Some(Endpoint::Ipc(path)),
            _ => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint> {
        let invalid = |why: &str| {
            let usage = "expected tcp://HOST:PORT, ipc://PATH or inproc://NAME";
            Error::new(ErrorKind::InvalidInput, format!("endpoint {text:?} is not valid: {why}; {usage}"))
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(invalid("the transport is missing"));
        };
        match scheme {
            "inproc" if rest.is_empty() => Err(invalid("the name is missing")),
            "inproc" => Ok(Endpoint::Inproc(rest.to_owned())),
            "ipc" if rest.is_empty() || rest == "*" => {
                Err(invalid("the path is missing, and no path is chosen for it"))
            }
            "ipc" if rest.starts_with('@') => {
                let text = format!("endpoint {text:?}: abstract names of ipc are not supported; use a path");
                Err(Error::new(ErrorKind::Unsupported, text))
            }
            "ipc" => Ok(Endpoint::Ipc(rest.into())),
            "tcp" => {
                // libzmq puts the address of the own side before a semicolon.
                if rest.contains(';') {
                    let text = format!("endpoint {text:?}: the address of the own side is not supported");
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
                let (host, port) = rest.rsplit_once(':').ok_or_else(|| invalid("the port is missing"))?;
                let port = match port {
                    "*" => 0,
                    port => port.parse().map_err(|_| invalid("the port is not a number from 0 to 65535"))?,
                };
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                match bare.unwrap_or(host) {
                    "" => Err(invalid("the host is missing")),
                    host if bare.is_none() && host.contains(':') => {
                        Err(invalid("an IPv6 address is in brackets"))
                    }
                    host => Ok(Endpoint::Tcp(host.to_owned(), port)),
                }
            }
            _ => Err(match UNSUPPORTED.iter().find(|(name, _)| *name == scheme) {
                Some((_, feature)) => {
                    let text = format!("endpoint {text:?}: {feature} is not supported");
                    Error::new(ErrorKind::Unsupported, text)
                }
                None => invalid("the transport is unknown"),
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Inproc(name) => write!(f, "inproc://{name}"),
            Endpoint::Ipc(path) => write!(f, "ipc://{}", path.display()),
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_written() {
        for text in
            ["tcp://127.0.0.1:5557", "tcp://[::1]:0", "tcp://*:9", "ipc:///run/a.sock", "inproc://a/b"]
        {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("tcp://h:*".parse::<Endpoint>().unwrap(), Endpoint::Tcp("h".to_owned(), 0));
    }

    #[test]
    fn a_star_is_all_addresses() {
        let endpoint = |text: &str| text.parse::<Endpoint>().unwrap();
        assert!(endpoint("tcp://*:9").is_same(&endpoint("tcp://0.0.0.0:9")));
        assert!(!endpoint("tcp://*:9").is_same(&endpoint("tcp://0.0.0.0:8")));
        assert!(!endpoint("inproc://a").is_same(&endpoint("inproc://b")));
    }

    #[test]
    fn unsupported_transports_are_named() {
        for (scheme, _) in UNSUPPORTED {
            let error = format!("{scheme}://127.0.0.1:1").parse::<Endpoint>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(&format!("transport {scheme}")), "{error}");
        }
        for text in ["ipc://@name", "tcp://eth0;127.0.0.1:1"] {
            assert_eq!(text.parse::<Endpoint>().unwrap_err().kind(), ErrorKind::Unsupported);
        }
        for text in [
            "",
            "tcp://",
            "tcp://h",
            "tcp://h:70000",
            "tcp://:1",
            "tcp://::1:1",
            "ipc://",
            "inproc://",
            "x://y",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}

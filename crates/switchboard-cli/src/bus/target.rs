//! The protocol and the address of the server or peer.

use super::args::Common;
use crate::call::Failure;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Protocol of an address.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// A server with the service of topics.
    Native,
    Nats(Remote),
    Redis(Remote),
    /// Endpoint in ZeroMQ's notation, such as `tcp://HOST:PORT`.
    Zmq(String),
}

/// Server of NATS or Redis.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Remote {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// Text behind the slash after the port: the number of a Redis database.
    pub(super) path: String,
}

impl Target {
    /// Reads the address of a command, and checks that `--bind` is of ZeroMQ.
    pub(super) fn of(common: &Common) -> Result<Target, Failure> {
        let target = Target::parse(&common.address).map_err(Failure::Usage)?;
        if common.bind && !matches!(target, Target::Zmq(_)) {
            let address = without_login(&common.address);
            let text = format!("--bind is of ZeroMQ, and {address} is an address to connect to");
            return Err(Failure::Usage(text));
        }
        Ok(target)
    }

    pub(super) fn parse(address: &str) -> Result<Target, String> {
        let Some((scheme, rest)) = address.split_once("://") else { return Ok(Target::Native) };
        match scheme {
            "nats" => Remote::parse(address, rest, 4222).map(Target::Nats),
            "redis" => Remote::parse(address, rest, 6379).map(Target::Redis),
            "zmq+tcp" | "zmq+ipc" => Ok(Target::Zmq(address.trim_start_matches("zmq+").to_owned())),
            "nats+tls" | "rediss" | "tls+nats" | "valkeys" => Err(format!(
                "{}: TLS with NATS and Redis is not supported; use a tunnel to nats:// or redis://",
                without_login(address)
            )),
            _ if scheme.starts_with("zmq") => Err(format!(
                "{address}: ZeroMQ has the addresses zmq+tcp://HOST:PORT and zmq+ipc://PATH here"
            )),
            _ => Ok(Target::Native),
        }
    }
}

/// Returns an address as messages show it: passwords are not repeated.
pub(super) fn without_login(address: &str) -> String {
    match address.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, place)) => format!("{scheme}://{place}"),
        None => address.to_owned(),
    }
}

impl Remote {
    /// Creates the address of a server without a login; no port means 0.
    pub(crate) fn at(place: &str) -> Remote {
        let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
        Remote {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: port.parse().unwrap_or_default(),
            user: None,
            password: None,
            path: String::new(),
        }
    }

    /// Reads `[USER[:PASSWORD]@]HOST[:PORT][/PATH]`.
    fn parse(address: &str, rest: &str, default_port: u16) -> Result<Remote, String> {
        let invalid = |why: &str| {
            // Passwords are not repeated.
            let (scheme, shown) = (address.split("://").next().unwrap_or_default(), rest.rsplit('@').next());
            format!("{scheme}://{}: {why}; expected [USER:PASSWORD@]HOST:PORT", shown.unwrap_or_default())
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) =
            place.rsplit_once('@').map_or((None, place), |(login, place)| (Some(login), place));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| invalid("the port is not a number from 0 to 65535"))?)
            }
            _ => (place, default_port),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bare.unwrap_or(host) {
            "" => return Err(invalid("the host is missing")),
            host if bare.is_none() && host.contains(':') => {
                return Err(invalid("an IPv6 address is in brackets"));
            }
            _ => {}
        }
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(Cow::into_owned).map_err(|_| invalid("the login is not UTF-8"))
        };
        let (user, password) = match login.map(|login| {
            login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)))
        }) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?), password.map(decoded).transpose()?),
        };
        let host = bare.unwrap_or(host).to_owned();
        Ok(Remote { host, port, user, password, path: path.to_owned() })
    }

    /// Returns the address without the login.
    pub(super) fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Refuses options that a protocol has no counterpart of: the name of each, true if it was given, and the reason.
pub(super) fn refuse(options: &[(&str, bool, &str)]) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given, _)| *is_given) {
        Some((name, _, reason)) => Err(Failure::Usage(format!("{name} is not supported here: {reason}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_protocols() {
        let remote = |host: &str, port, user: Option<&str>, password: Option<&str>, path: &str| Remote {
            host: host.to_owned(),
            port,
            user: user.map(str::to_owned),
            password: password.map(str::to_owned),
            path: path.to_owned(),
        };
        for (address, target) in [
            ("localhost:8080", Target::Native),
            ("tls://localhost:8080?ca=x", Target::Native),
            ("unix:/tmp/x", Target::Native),
            ("nats://h", Target::Nats(remote("h", 4222, None, None, ""))),
            ("nats://a:b%40c@[::1]:9", Target::Nats(remote("::1", 9, Some("a"), Some("b@c"), ""))),
            ("nats://t0ken@h", Target::Nats(remote("h", 4222, Some("t0ken"), None, ""))),
            ("redis://:s3cret@h:1/2", Target::Redis(remote("h", 1, Some(""), Some("s3cret"), "2"))),
            ("zmq+tcp://*:1", Target::Zmq("tcp://*:1".to_owned())),
            ("zmq+ipc:///a", Target::Zmq("ipc:///a".to_owned())),
        ] {
            assert_eq!(Target::parse(address), Ok(target), "{address}");
        }
        for (address, why) in [
            ("rediss://h", "TLS"),
            ("zmq+udp://h:1", "zmq+tcp://HOST:PORT"),
            ("nats://h:x", "nats://h:x: the port is not a number"),
            ("redis://u:s3cret@:1", "redis://:1: the host is missing"),
            ("nats://::1:1", "in brackets"),
        ] {
            let error = Target::parse(address).unwrap_err();
            assert!(error.contains(why) && !error.contains("s3cret"), "{address}: {error}");
        }
    }
}

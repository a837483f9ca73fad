//! Setters of a server by topic: services, listeners and limits. Those of wires and HTTP are in `wires.rs`, of calls
//! and access in `calls.rs`, and of the operation in `operation.rs`. Those whose argument implements a trait are beside
//! the type.

mod calls;
mod operation;
mod wires;

use super::{Server, listening::Listening};
use std::time::Duration;
use switchboard_core::{Error, Flag, Limit, Limits, limits::Source};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::Tls;

/// Services: what the server serves, and under which names.
impl Server {
    /// Also serves the method `name` under `alias`, both `package.Service/Method`: for callers that use a
    /// previous name of the method.
    pub fn alias(mut self, alias: impl Into<String>, name: impl Into<String>) -> Server {
        self.guards.aliases.push((alias.into(), name.into()));
        self
    }

    /// Serves only the matching methods, `package.Service/Method`, in which a star matches any text; other
    /// methods are unknown to callers. Descriptions from reflection still list them.
    pub fn expose(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.exposed.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Excludes the matching methods from serving, even if they are exposed.
    pub fn hide(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.hidden.extend(methods.into_iter().map(Into::into));
        self
    }
}

/// Listeners: the addresses at which the server accepts connections.
impl Server {
    /// Listens at `address`: `tcp://0.0.0.0:8080`, `tcp://[::]:0`, `unix:/run/app.sock`, `memory://name`,
    /// `tls://0.0.0.0:8443?cert=cert.pem&key=key.pem`. A wire of a [`plugin`](Server::plugin) whose servers speak first
    /// has a listener of its own, `NAME://0.0.0.0:4222`.
    ///
    /// Options of the listener can follow a `?`, separated by `&`: limits by name, and for TLS `cert=FILE`,
    /// `key=FILE`, `client_ca=FILE`, `client=required|optional` and `tls=only|optional`, where `optional`
    /// serves connections without TLS too. See `Tls` for their meaning.
    pub fn listen(self, address: impl Into<String>) -> Server {
        self.listen_with(address, [])
    }

    /// Listens at `address` with its own limits.
    pub fn listen_with(mut self, address: impl Into<String>, limits: impl Into<Vec<(Limit, u64)>>) -> Server {
        self.listeners.push(Listening::new(address.into(), limits.into()));
        self
    }

    /// Accepts connections from `listener`, a transport of the application. `address` is its public address, with the
    /// options of [`listen`](Self::listen); nothing is bound at it. Connections at an address of `tcp://` or `tls://`
    /// may use TLS.
    pub fn listen_on(
        mut self,
        address: impl Into<String>,
        listener: impl switchboard_net::transport::Listener,
    ) -> Server {
        self.listeners.push(Listening::new(address.into(), Vec::new()).on(Box::new(listener)));
        self
    }

    /// Listens at `address`, `tcp://HOST:PORT` or `tls://HOST:PORT`, with TLS.
    #[cfg(feature = "tls")]
    pub fn listen_tls(mut self, address: impl Into<String>, tls: Tls) -> Server {
        self.listeners.push(Listening::new(address.into(), Vec::new()).tls(tls));
        self
    }
}

/// Limits of the server, of its methods, and of the time of calls.
impl Server {
    /// Sets a limit for all listeners, in its [unit](Limit::unit).
    pub fn limit(mut self, limit: Limit, value: u64) -> Server {
        if let Err(error) = self.limits.set(limit, value, Source::Server) {
            self.config_errors.push(error);
        }
        self
    }

    /// Replaces all limits, including their sources.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Sets a limit of one method, `package.Service/Method`, above or below the one of the server and its
    /// listeners. The only limit per method is [`Limit::MessageBytesMax`], for request messages.
    pub fn method_limit(mut self, method: impl Into<String>, limit: Limit, value: u64) -> Server {
        let method = method.into();
        let mut checked = Limits::default();
        if limit != Limit::MessageBytesMax {
            let text = format!(
                "{} cannot be set for one method ({method}): only message_bytes_max can",
                limit.name()
            );
            self.config_errors.push(Error::config(text));
        } else if let Err(error) = checked.set(limit, value, Source::Server) {
            self.config_errors.push(error);
        }
        self.method_limits.push((method, checked.get(Limit::MessageBytesMax) as u32));
        self
    }

    /// Limits the duration of calls and streams, regardless of the caller's deadline.
    pub fn deadline_max(mut self, most: Duration) -> Server {
        self.guards.deadline = Some(most);
        self
    }

    /// Limits the duration of calls to the current value of the flag, in milliseconds; 0 is no limit. A limit
    /// that is set by [`deadline_max`](Self::deadline_max) or for a method takes precedence.
    ///
    /// ```
    /// use switchboard::{Flag, Server, limits::Unit};
    ///
    /// let most = Flag::new("deadline_max", Unit::Milliseconds, 30_000, 0..=3_600_000, "the longest call");
    /// let server = Server::new().flag(&most).deadline_max_by_flag(&most);
    /// ```
    pub fn deadline_max_by_flag(mut self, most: &Flag) -> Server {
        self.guards.deadline_flag = Some(most.clone());
        self
    }

    /// Limits the duration of calls to the matching methods, `package.Service/Method`, in which a star
    /// matches any text; shorter or longer than the limit of the server.
    pub fn method_deadline_max(mut self, methods: impl Into<String>, most: Duration) -> Server {
        self.guards.deadlines.push((methods.into(), most));
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    const FILES: [&str; 5] = [
        include_str!("../server.rs"),
        include_str!("setters.rs"),
        include_str!("setters/calls.rs"),
        include_str!("setters/operation.rs"),
        include_str!("setters/wires.rs"),
    ];

    /// Returns the names of the public functions that take a server and return one.
    fn setters(file: &'static str) -> impl Iterator<Item = &'static str> {
        file.split("\n    pub fn ").skip(1).filter_map(|function| {
            let (signature, _) = function.split_once('{')?;
            let (name, parameters) = signature.split_once(['(', '<'])?;
            // Types such as `ServerStats` begin alike.
            let mut returned = parameters.split(") -> ").skip(1);
            let returns = returned.any(|after| after.split_whitespace().next() == Some("Server"));
            (parameters.contains("self") && returns).then_some(name)
        })
    }

    #[test]
    fn the_documentation_of_the_server_lists_every_setter_once() {
        let (_, list) = include_str!("../server.rs").split_once("/// - Services: ").unwrap();
        let (list, _) = list.split_once("/// ```").unwrap();
        let listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        let setters: BTreeSet<_> = FILES.into_iter().flat_map(setters).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), setters);
        assert_eq!(listed.len(), setters.len(), "a name is listed twice");
    }
}

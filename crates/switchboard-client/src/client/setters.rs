//! Setters of the channel builder, by topic; those of fleets are in `fleet/builder.rs`.

use super::{ChannelBuilder, ConnectionAborter, address_list};
#[cfg(feature = "auth")]
use base64::{Engine as _, engine::general_purpose::STANDARD};
#[cfg(feature = "tls")]
use std::path::Path;
use std::{sync::Arc, time::Duration};
use switchboard_core::{Compression, Limit, Pushes, Result, limits::Source};
use switchboard_net::net::transport::{self, ConnectorHandle};
use switchboard_wire::{Status, WireId, WireSpec};

/// Connections: how many, how they are opened, and when they end.
impl ChannelBuilder {
    /// Sets the number of connections to each address, shared by all callers; 1 to 1024, by default one per worker
    /// thread.
    pub fn connections(mut self, connections: usize) -> ChannelBuilder {
        self.options.connections = connections.clamp(1, 1024);
        self
    }

    /// Sets the time limit for opening a connection; the default is 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> ChannelBuilder {
        self.options.connect_timeout = timeout;
        self
    }

    /// Sets the longest pause between attempts to reconnect. Pauses begin at 50 ms and double, less a random part; the
    /// default is 5 s.
    pub fn backoff_max(mut self, pause: Duration) -> ChannelBuilder {
        self.options.backoff_max = pause;
        self
    }

    /// Sets the keepalive time: with calls in flight and no data received for this time, the client pings the server,
    /// and closes the connection when no data arrives within the same time again; the default is 20 s.
    pub fn keepalive(mut self, silence: Duration) -> ChannelBuilder {
        self.options.keepalive = silence.max(Duration::from_millis(10));
        self
    }

    /// Opens the pipes of this channel with `connector`, a transport of the application, to the addresses of the URL.
    /// TLS and WebSockets run inside them, if the address says so.
    pub fn connector(mut self, connector: impl transport::Connector) -> ChannelBuilder {
        self.options.dialling.connector = Some(ConnectorHandle(Arc::new(connector)));
        self
    }

    /// Lets `aborter` abort the connections, at any time and also after the channel was dropped.
    pub fn aborted_by(mut self, aborter: &ConnectionAborter) -> ChannelBuilder {
        self.options.aborter = Some(aborter.clone());
        self
    }
}

/// The wire, and options of URLs.
impl ChannelBuilder {
    /// Uses this wire, such as [`GRPC`](switchboard_core::wire::GRPC), unless the URL selects one, and registers it in
    /// this process if it is not one of [`WIRES`](switchboard_core::wire::WIRES); options of the URL apply to it. A
    /// wire that cannot be registered is an error of [`connect`](Self::connect).
    pub fn wire(mut self, spec: &'static WireSpec) -> ChannelBuilder {
        match WireId::register(spec) {
            Ok(wire) if spec.is_callable() => self.wire = Some(wire),
            Ok(wire) => {
                let text = format!("channels cannot use the wire {wire}: it has no client");
                self.config_error.get_or_insert(Status::invalid_argument(text));
            }
            Err(why) => {
                self.config_error.get_or_insert(Status::invalid_argument(why));
            }
        }
        self
    }

    /// Sets options in the syntax after the `?` of a URL: `balance=round_robin&timeout=1s`. For channels without a URL,
    /// such as a [fleet](crate::Channel::fleet).
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown option or an invalid value.
    pub fn url_options(mut self, options: &str) -> Result<ChannelBuilder> {
        for (name, value) in address_list::options(options, options)? {
            self.option(name, value)?;
        }
        Ok(self)
    }
}

/// TLS, for addresses that ask for it.
#[cfg(feature = "tls")]
impl ChannelBuilder {
    /// Trusts only servers with a certificate issued by one of those in this PEM file; by default those of the system's
    /// roots. This file and those of [`identity`](Self::identity) are read again before a new connection when they have
    /// changed.
    pub fn ca(mut self, roots: impl AsRef<Path>) -> ChannelBuilder {
        self.tls.ca = Some(roots.as_ref().into());
        self
    }

    /// Presents this certificate to servers that request one; PEM files.
    pub fn identity(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> ChannelBuilder {
        self.tls.certificate = Some(certificate.as_ref().into());
        self.tls.key = Some(key.as_ref().into());
        self
    }

    /// Sets the name that the servers' certificates must have, which is also sent to the servers (SNI); by default the
    /// host of each address.
    pub fn server_name(mut self, name: impl Into<String>) -> ChannelBuilder {
        self.tls.server_name = Some(name.into());
        self
    }
}

/// Calls: what they have unless they set their own, and what servers send beside replies.
impl ChannelBuilder {
    /// Sets the timeout of calls that do not set their own; by default there is none.
    pub fn timeout(mut self, timeout: Duration) -> ChannelBuilder {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sets a limit, in its [unit](Limit::unit).
    pub fn limit(mut self, limit: Limit, value: u64) -> ChannelBuilder {
        if let Err(error) = self.options.limits.set(limit, value, Source::Channel) {
            self.config_error.get_or_insert(error.into());
        }
        self
    }

    /// Adds metadata to every call. A rejected name or value is an error of [`connect`](Self::connect).
    pub fn meta(mut self, name: &str, value: impl Into<bytes::Bytes>) -> ChannelBuilder {
        if let Err(refused) = self.options.metadata.0.insert(name, value) {
            self.config_error.get_or_insert(refused.into());
        }
        self
    }

    /// Sends this token with every call, as `authorization: Bearer TOKEN`; see the module `auth` for servers.
    pub fn token(self, token: &str) -> ChannelBuilder {
        self.meta("authorization", format!("Bearer {token}"))
    }

    /// Sends this name and password with every call, as `authorization: Basic …` (RFC 7617). A name has no colon.
    #[cfg(feature = "auth")]
    pub fn basic(self, name: &str, password: &str) -> ChannelBuilder {
        let credentials = STANDARD.encode(format!("{name}:{password}"));
        self.meta("authorization", format!("Basic {credentials}"))
    }

    /// Delivers pushes of servers, messages without a request, into `pushes`; they are dropped otherwise. Only servers
    /// of rpcx and eRPC, and Switchboard to such clients, send pushes: for other wires this is an error of
    /// [`connect`](Self::connect).
    pub fn pushes(mut self, pushes: &Pushes) -> ChannelBuilder {
        self.options.pushes = Some(pushes.clone());
        self
    }

    /// Allows rpcx servers to name these hosts, IP addresses or names, for files and streams. Without
    /// it they may name only the hosts of this channel, because the address comes from the server, and this process
    /// connects to it from inside its own network.
    pub fn file_hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> ChannelBuilder {
        self.options.file_hosts = hosts.into_iter().map(Into::into).collect();
        self
    }
}

/// Compression of calls.
impl ChannelBuilder {
    /// Sets the compression of calls; by default none. On the native wire, servers advertise the algorithms that they
    /// support; messages to a server without this one go uncompressed. On HTTP the caller must know, and
    /// [`Lz4`](Compression::Lz4) and [`Snappy`](Compression::Snappy) are rejected: no wire on HTTP has them.
    ///
    /// A connection of such a channel waits for the settings of its server before its first call.
    pub fn compression(mut self, compression: Compression) -> ChannelBuilder {
        self.options.compression.compression = compression;
        self
    }

    /// Sets the compression of one method, `package.Service/Method`, instead of that of the channel.
    pub fn method_compression(
        mut self,
        method: impl Into<String>,
        compression: Compression,
    ) -> ChannelBuilder {
        self.options.compression.methods.push((method.into(), compression));
        self
    }

    /// Sets the minimum size of a compressed request in bytes on the native wire; the default is 512.
    pub fn compression_bytes_min(mut self, bytes: u32) -> ChannelBuilder {
        self.options.compression.bytes_min = bytes;
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::client::options::OPTIONS;
    use std::collections::BTreeSet;

    /// The names in the documentation of the builder, by where they can be set.
    #[derive(Default)]
    struct Listed {
        both: Vec<&'static str>,
        code: Vec<&'static str>,
        url: Vec<&'static str>,
    }

    fn listed() -> Listed {
        let (_, list) = include_str!("options.rs").split_once("/// - Connections: ").unwrap();
        let (list, _) = list.split_once("#[derive").unwrap();
        let mut listed = Listed::default();
        for part in list.split([';', ':']) {
            let names = part.split('`').skip(1).step_by(2);
            match part.trim_start_matches([' ', '/', '\n']) {
                part if part.starts_with("in code") => listed.code.extend(names),
                part if part.starts_with("in a URL") => listed.url.extend(names),
                _ => listed.both.extend(names),
            }
        }
        listed
    }

    #[test]
    fn the_documentation_of_the_builder_lists_every_setter_and_every_option() {
        let listed = listed();
        let files = [include_str!("setters.rs"), include_str!("fleet/builder.rs")];
        let setters = files.iter().flat_map(|file| file.lines()).filter_map(|line| {
            line.strip_prefix("    pub fn ")?.split_once(['(', '<']).map(|(name, _)| name)
        });
        let setters: BTreeSet<_> = setters.collect();
        assert_eq!(listed.both.iter().chain(&listed.code).copied().collect::<BTreeSet<_>>(), setters);
        let options: BTreeSet<_> = listed.both.iter().chain(&listed.url).copied().collect();
        assert_eq!(options, OPTIONS.into_iter().collect());
        let count = listed.both.len() + listed.code.len() + listed.url.len();
        assert_eq!(count, setters.union(&options).count(), "a name is listed twice");
    }
}

//! Options of a channel: a builder for code, whose setters are in `setters.rs`, and a URL for configuration, both of
//! which set the same struct.

mod build;

#[cfg(feature = "http")]
use super::http::Dialect;
use super::{
    ConnectionAborter,
    connection::PingBackoff,
    fleet::Policy,
    layered::RequiredCallShape,
    wires::{self, ClientWireSetup},
};
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::{
    Limit, Limits, Pushes, Result, compression::Calling, limits::Source, near::nearest, runtime,
};
use switchboard_discovery::discover::Registry;
use switchboard_net::net::Dialling;
#[cfg(feature = "tls")]
use switchboard_net::net::tls::TlsOptions;
#[cfg(not(feature = "http"))]
use switchboard_wire::WireSpec;
use switchboard_wire::{Codec, Metadata, Status, WireId};

/// Sets the options of a [`Channel`](super::Channel). Most have the same name in its URL, which takes precedence.
///
/// - Connections: `connections`, `connect_timeout`, `backoff_max`, `keepalive`; in code `connector`, `aborted_by`.
/// - Wire: `wire`; in code `url_options`; in a URL `http`, `codec`, `get`, `path`, `deflate`, and those of the wire.
/// - TLS: `ca`, `server_name`; in code `identity`; in a URL `cert`, `key`.
/// - Calls: `timeout`; in code `limit`, `meta`, `token`, `basic`, `pushes`, `file_hosts`; in a URL the names of limits.
/// - Compression: `compression`, `compression_bytes_min`; in code `method_compression`.
/// - Choice of a server: `balance`, `zone`, `group`, `tag`, `subset`, `slow_start`; in code `hash_by`;
///   in a URL `hash`, `sticky`, `points`, `latitude`, `longitude`.
/// - Failed and slow calls: `retries`, `hedge`, `idempotency_keys`; in code `fail_mode`, `retry_budget`;
///   in a URL `fail`, `budget`.
/// - Failing servers: `breaker`, `eject`, `min_working`.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` or `lazy`"]
pub struct ChannelBuilder {
    pub(super) url: String,
    pub(super) options: Options,
    #[cfg(feature = "tls")]
    pub(super) tls: TlsOptions,
    pub(super) config_error: Option<Status>,
    /// The wire unless the URL selects one.
    pub(super) wire: Option<WireId>,
    /// Options of fleets; for a single server `None` unless one of them was set.
    pub(super) fleet: Option<Box<Policy>>,
    /// The registry of the servers; the URL is then the name of the service.
    pub(super) registry: Option<RegistryHandle>,
}

/// The registry of a fleet.
#[derive(Clone)]
pub(super) struct RegistryHandle(pub(super) Arc<dyn Registry>);

impl fmt::Debug for RegistryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) connections: usize,
    pub(super) connect_timeout: Duration,
    pub(super) backoff_max: Duration,
    pub(super) keepalive: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) limits: Limits,
    pub(super) compression: Calling,
    pub(super) metadata: DefaultMetadata,
    /// Queue for the pushes of servers.
    pub(super) pushes: Option<Pushes>,
    /// Hosts beside its own to which rpcx servers may direct their callers.
    #[cfg_attr(
        not(feature = "auth"),
        allow(dead_code, reason = "rpcx files and streams need the feature auth")
    )]
    pub(super) file_hosts: Vec<String>,
    /// Aborts its connections on request.
    pub(super) aborter: Option<ConnectionAborter>,
    /// The wire, if it is a state machine; `None` for the native one and those on HTTP.
    pub(super) wire_config: Option<ClientWireSetup>,
    pub(super) ping_backoff: PingBackoff,
    #[cfg(feature = "http")]
    pub(super) http: super::http::Settings,
    pub(super) dialling: Dialling,
}

/// Metadata of every call; its values may be secret and are not printed.
#[derive(Clone, Default)]
pub(super) struct DefaultMetadata(pub(super) Metadata);

impl fmt::Debug for DefaultMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(feature = "tls")]
impl Options {
    /// Protocol names for ALPN.
    fn alpn(&self) -> &'static [u8] {
        #[cfg(feature = "http")]
        if self.http.dialect.is_some() {
            return self.http.alpn();
        }
        switchboard_net::net::tls::ALPN_NATIVE
    }
}

impl Options {
    /// Properties of calls that the wire must know.
    pub(super) fn required_shape(&self) -> RequiredCallShape {
        if let Some(wire_config) = &self.wire_config {
            // Calls of gRPC look the same for every kind.
            let is_grpc = std::ptr::eq(wire_config.spec, WireId::GRPC.spec());
            return if is_grpc { RequiredCallShape::None } else { RequiredCallShape::Kind };
        }
        #[cfg(feature = "http")]
        if let Some(dialect) = self.http.dialect {
            return match dialect {
                Dialect::Grpc | Dialect::GrpcWeb => RequiredCallShape::None,
                Dialect::Connect | Dialect::JsonRpc | Dialect::Thrift => RequiredCallShape::Kind,
            };
        }
        RequiredCallShape::Requests
    }

    /// The codec that calls use where generated code prefers `preferred`.
    pub(super) fn codec(&self, preferred: Codec) -> Codec {
        if let Some(wire_config) = &self.wire_config {
            return wire_config.setup.codec(preferred);
        }
        #[cfg(feature = "http")]
        if self.http.dialect.is_some() {
            return self.http.codec(preferred);
        }
        preferred
    }
}

impl ChannelBuilder {
    pub(super) fn new(url: &str) -> ChannelBuilder {
        ChannelBuilder {
            url: url.to_owned(),
            options: Options {
                connections: runtime::worker_count(),
                connect_timeout: Duration::from_secs(5),
                backoff_max: Duration::from_secs(5),
                keepalive: Duration::from_secs(20),
                timeout: None,
                limits: Limits::default(),
                compression: Calling::default(),
                metadata: DefaultMetadata::default(),
                pushes: None,
                file_hosts: Vec::new(),
                aborter: None,
                wire_config: None,
                ping_backoff: PingBackoff::default(),
                #[cfg(feature = "http")]
                http: super::http::Settings::default(),
                dialling: Dialling::default(),
            },
            #[cfg(feature = "tls")]
            tls: TlsOptions::default(),
            config_error: None,
            wire: None,
            fleet: None,
            registry: None,
        }
    }

    pub(super) fn of_registry(registry: Arc<dyn Registry>, service: &str) -> ChannelBuilder {
        ChannelBuilder { registry: Some(RegistryHandle(registry)), ..ChannelBuilder::new(service) }
    }

    #[cfg(all(test, feature = "http"))]
    pub(super) fn into_options(self) -> Options {
        self.options
    }

    /// Applies an option of fleets; returns false for other options.
    fn fleet_option(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let mut policy = self.fleet.clone().unwrap_or_default();
        let applied = policy.set(name, value)?;
        // Other options do not make the channel a fleet.
        if applied {
            self.fleet = Some(policy);
        }
        Ok(applied)
    }

    pub(super) fn option(&mut self, name: &str, value: &str) -> Result<()> {
        let url = self.url.clone();
        let invalid = |expected: &str| {
            Status::invalid_argument(format!("{name}={value} in {url:?}: expected {expected}"))
        };
        if self.fleet_option(name, value).map_err(|expected| invalid(&expected))? {
            return Ok(());
        }
        match name {
            "connections" => {
                let count = value.parse().ok().filter(|count| (1..=1024).contains(count));
                self.options.connections = count.ok_or_else(|| invalid("1 to 1024"))?;
            }
            "timeout" | "connect_timeout" | "backoff_max" | "keepalive" => {
                let span = Limits::parse_time(value).map_err(|_| invalid("a number with ms, s, min or h"))?;
                match name {
                    "timeout" => self.options.timeout = Some(span),
                    "connect_timeout" => self.options.connect_timeout = span,
                    "backoff_max" => self.options.backoff_max = span,
                    _ => self.options.keepalive = span,
                }
            }
            #[cfg(feature = "tls")]
            "ca" => self.tls.ca = Some(value.into()),
            #[cfg(feature = "tls")]
            "cert" => self.tls.certificate = Some(value.into()),
            #[cfg(feature = "tls")]
            "key" => self.tls.key = Some(value.into()),
            #[cfg(feature = "tls")]
            "server_name" => self.tls.server_name = Some(value.into()),
            "compression" => self.options.compression.compression = value.parse()?,
            "compression_bytes_min" => {
                let bytes = value.parse().ok();
                self.options.compression.bytes_min = bytes.ok_or_else(|| invalid("a number of bytes"))?;
            }
            #[cfg(feature = "http")]
            "codec" | "deflate" | "engine" | "get" | "http" | "path" | "wire" => {
                self.options.http.set(name, value).map_err(|expected| match name {
                    "wire" => invalid(&format!("one of {}", wires::names(|_| true))),
                    _ => invalid(expected),
                })?;
            }
            #[cfg(not(feature = "http"))]
            "deflate" => match value {
                "true" | "false" => self.options.dialling.deflate = value == "true",
                _ => return Err(invalid("true or false")),
            },
            #[cfg(not(feature = "http"))]
            "wire" if value == "native" => {}
            #[cfg(not(feature = "http"))]
            "wire" => {
                let usable =
                    |spec: &WireSpec| std::ptr::eq(spec, WireId::NATIVE.spec()) || spec.server.is_some();
                let usable = wires::names(usable);
                return Err(invalid(&format!("one of {usable}, since the feature http is off")));
            }
            _ if !Limit::ALL.iter().any(|limit| limit.name() == name) => {
                return Err(unknown_option(name, &url));
            }
            _ => self.options.limits.parse(&format!("{name}={value}"), Source::Channel)?,
        }
        Ok(())
    }
}

/// Options of every channel and of fleets, beside those of one wire and the limits.
pub(super) const OPTIONS: [&str; 36] = [
    "backoff_max",
    "balance",
    "breaker",
    "budget",
    "ca",
    "cert",
    "codec",
    "compression",
    "compression_bytes_min",
    "connect_timeout",
    "connections",
    "deflate",
    "eject",
    "fail",
    "get",
    "group",
    "hash",
    "hedge",
    "http",
    "idempotency_keys",
    "keepalive",
    "key",
    "latitude",
    "longitude",
    "min_working",
    "path",
    "points",
    "retries",
    "server_name",
    "slow_start",
    "sticky",
    "subset",
    "tag",
    "timeout",
    "wire",
    "zone",
];

/// The status for an unknown option, with the most similar known one.
fn unknown_option(name: &str, url: &str) -> Status {
    let limits = Limit::ALL.iter().map(|limit| limit.name());
    let hint = match nearest(name, OPTIONS.into_iter().chain(limits)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("options are {}, and the limits", OPTIONS.join(", ")),
    };
    Status::invalid_argument(format!("{name:?} in {url:?} is not a channel option or limit; {hint}"))
}

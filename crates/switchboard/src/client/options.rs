//! Options of a channel: the builder for code, the URL for configuration, both ending in the same struct.

#[cfg(feature = "http")]
use super::http::{Dialect, Http};
use super::{
    Channel, Cut, Way, address_list,
    fleet::Policy,
    layered::Tells,
    pool::Pool,
    wires::{self, Foreign},
};
#[cfg(feature = "http")]
use crate::net::Carries;
#[cfg(feature = "tls")]
use crate::net::tls::{Connector, TlsOptions};
use crate::{
    Codec, Compression, Limit, Limits, Metadata, Pushes, Result, Status,
    compression::Calling,
    discover::Registry,
    limits::Source,
    net::{Address, Dialling},
    runtime,
};
#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "http")]
use std::sync::Weak;
use std::{fmt, sync::Arc, time::Duration};

/// Sets the options of a [`Channel`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `connect` or `lazy`"]
pub struct ChannelBuilder {
    pub(super) url: String,
    pub(super) options: Options,
    #[cfg(feature = "tls")]
    pub(super) tls: TlsOptions,
    mistake: Option<Status>,
    /// How several servers are used; there for one only if that was asked for.
    pub(super) fleet: Option<Box<Policy>>,
    /// Where the servers are found; the URL is then the name of the service.
    pub(super) registry: Option<Found>,
}

/// A registry to be asked.
#[derive(Clone)]
pub(super) struct Found(pub(super) Arc<dyn Registry>);

impl fmt::Debug for Found {
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
    pub(super) metadata: Always,
    /// Who reads what servers send without having been asked.
    pub(super) pushes: Option<Pushes>,
    /// What may end its connections.
    pub(super) cut: Option<Cut>,
    /// The wire of another framework; none for the native one and for those on HTTP.
    pub(super) foreign: Option<Arc<dyn Foreign>>,
    #[cfg(feature = "http")]
    pub(super) http: super::http::Settings,
    pub(super) dialling: Dialling,
}

/// Metadata of every call, of which the values may be secret.
#[derive(Clone, Default)]
pub(super) struct Always(pub(super) Metadata);

impl fmt::Debug for Always {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(feature = "tls")]
impl Options {
    /// What is asked for inside TLS.
    fn alpn(&self) -> &'static [u8] {
        #[cfg(feature = "http")]
        if self.http.dialect.is_some() {
            return self.http.alpn();
        }
        crate::net::tls::ALPN_NATIVE
    }
}

impl Options {
    /// What the wire wants to know of calls.
    pub(super) fn tells(&self) -> Tells {
        if self.foreign.is_some() {
            return Tells::Kind;
        }
        #[cfg(feature = "http")]
        if let Some(dialect) = self.http.dialect {
            return match dialect {
                Dialect::Grpc | Dialect::GrpcWeb => Tells::Nothing,
                Dialect::Connect | Dialect::JsonRpc | Dialect::Thrift => Tells::Kind,
            };
        }
        Tells::Requests
    }

    /// How messages are written where generated code would write them as `preferred`.
    pub(super) fn codec(&self, preferred: Codec) -> Codec {
        if let Some(foreign) = &self.foreign {
            return foreign.codec(preferred);
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
                metadata: Always::default(),
                pushes: None,
                cut: None,
                foreign: None,
                #[cfg(feature = "http")]
                http: super::http::Settings::default(),
                dialling: Dialling::default(),
            },
            #[cfg(feature = "tls")]
            tls: TlsOptions::default(),
            mistake: None,
            fleet: None,
            registry: None,
        }
    }

    pub(super) fn of_registry(registry: Arc<dyn Registry>, service: &str) -> ChannelBuilder {
        ChannelBuilder { registry: Some(Found(registry)), ..ChannelBuilder::new(service) }
    }

    #[cfg(all(test, feature = "http"))]
    pub(super) fn into_options(self) -> Options {
        self.options
    }

    /// Connections to each address, shared by all callers; 1 to 1024, by default one per worker thread.
    pub fn connections(mut self, connections: usize) -> ChannelBuilder {
        self.options.connections = connections.clamp(1, 1024);
        self
    }

    /// How long a connection may take to open; by default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> ChannelBuilder {
        self.options.connect_timeout = timeout;
        self
    }

    /// The longest pause between tries to reconnect, which begin at 50 ms and double, less a random part; by
    /// default 5 s.
    pub fn backoff_max(mut self, pause: Duration) -> ChannelBuilder {
        self.options.backoff_max = pause;
        self
    }

    /// With calls in flight and nothing heard for so long, the server is asked for a sign of life, and the
    /// connection given up when none comes in the same time again; by default 20 s.
    pub fn keepalive(mut self, silence: Duration) -> ChannelBuilder {
        self.options.keepalive = silence.max(Duration::from_millis(10));
        self
    }

    /// The timeout of calls that do not set their own; by default none.
    pub fn timeout(mut self, timeout: Duration) -> ChannelBuilder {
        self.options.timeout = Some(timeout);
        self
    }

    /// Trusts only servers whose certificates one of those in this PEM file issued; by default those of the roots that
    /// this machine trusts. This file and those of [`identity`](Self::identity) are looked at again before each
    /// new connection.
    #[cfg(feature = "tls")]
    pub fn ca(mut self, roots: impl AsRef<Path>) -> ChannelBuilder {
        self.tls.ca = Some(roots.as_ref().into());
        self
    }

    /// Shows this certificate to servers that ask for one; PEM files.
    #[cfg(feature = "tls")]
    pub fn identity(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> ChannelBuilder {
        self.tls.certificate = Some(certificate.as_ref().into());
        self.tls.key = Some(key.as_ref().into());
        self
    }

    /// The name that the servers' certificate must have, and that the servers are asked for (SNI); by default the
    /// host of each address.
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> ChannelBuilder {
        self.tls.server_name = Some(name.into());
        self
    }

    /// Sets a limit, in its [unit](Limit::unit).
    pub fn limit(mut self, limit: Limit, value: u64) -> ChannelBuilder {
        if let Err(error) = self.options.limits.set(limit, value, Source::Channel) {
            self.mistake.get_or_insert(error.into());
        }
        self
    }

    /// Adds metadata to every call. A refused name or value is an error of [`connect`](Self::connect).
    pub fn meta(mut self, name: &str, value: impl Into<bytes::Bytes>) -> ChannelBuilder {
        if let Err(refused) = self.options.metadata.0.insert(name, value) {
            self.mistake.get_or_insert(refused.into());
        }
        self
    }

    /// Shows this token with every call, as `authorization: Bearer TOKEN`; see [`auth`](crate::auth) for the other
    /// side.
    pub fn token(self, token: &str) -> ChannelBuilder {
        self.meta("authorization", format!("Bearer {token}"))
    }

    /// Shows this name and password with every call, as `authorization: Basic …` (RFC 7617). A name has no colon.
    #[cfg(feature = "auth")]
    pub fn basic(self, name: &str, password: &str) -> ChannelBuilder {
        self.meta("authorization", crate::auth::authorization(name, password))
    }

    /// How calls are compressed, by default not at all. On the native wire servers say what they take; to one that
    /// does not take this, messages go as they are. On HTTP a caller has to know, and [`Lz4`](Compression::Lz4) and
    /// [`Snappy`](Compression::Snappy) are refused: no wire on HTTP has them.
    ///
    /// A connection of such a channel waits for what its server says before its first call.
    pub fn compression(mut self, compression: Compression) -> ChannelBuilder {
        self.options.compression.compression = compression;
        self
    }

    /// The same for one method, `package.Service/Method`, in place of what holds for the channel.
    pub fn method_compression(
        mut self,
        method: impl Into<String>,
        compression: Compression,
    ) -> ChannelBuilder {
        self.options.compression.methods.push((method.into(), compression));
        self
    }

    /// Requests of fewer bytes are not compressed on the native wire; 512 unless set.
    pub fn compression_bytes_min(mut self, bytes: u32) -> ChannelBuilder {
        self.options.compression.bytes_min = bytes;
        self
    }

    /// Lets `cut` end the connections, at any time and also after the channel was dropped.
    pub fn cut_by(mut self, cut: &Cut) -> ChannelBuilder {
        self.options.cut = Some(cut.clone());
        self
    }

    /// Puts what servers send without having been asked into `pushes`; it is dropped otherwise. Only servers of rpcx
    /// and eRPC, and ours to their clients, send any: for other wires this is an error of [`connect`](Self::connect).
    pub fn pushes(mut self, pushes: &Pushes) -> ChannelBuilder {
        self.options.pushes = Some(pushes.clone());
        self
    }

    /// Sets options as they stand behind the `?` of a URL: `balance=round_robin&timeout=1s`. What has no URL of its
    /// own, a [fleet](Channel::fleet), is configured so.
    ///
    /// # Errors
    /// `InvalidArgument` for an option that is not known, or a value that it cannot have.
    pub fn url_options(mut self, options: &str) -> Result<ChannelBuilder> {
        for (name, value) in address_list::options(options, options)? {
            self.option(name, value)?;
        }
        Ok(self)
    }

    /// The channel, once it has a connection.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong URL or files of TLS that cannot be used, `Unavailable` when no address answers
    /// within [`connect_timeout`](Self::connect_timeout) or the handshake of TLS fails.
    pub async fn connect(self) -> Result<Channel> {
        let channel = self.lazy()?;
        match &*channel.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => http.connect().await?,
            Way::Fleet(fleet) => fleet.connect().await?,
            Way::Remote(pool) => pool.connect().await?,
            Way::Combined(_) | Way::Local(_) => {}
        }
        Ok(channel)
    }

    /// The channel; its first call connects.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong URL or files of TLS that cannot be used.
    pub fn lazy(mut self) -> Result<Channel> {
        if let Some(Found(registry)) = self.registry.take() {
            return match self.mistake.take() {
                Some(mistake) => Err(mistake),
                None => self.into_followed(&*registry),
            };
        }
        let url = self.url.clone();
        let (addresses, options) = address_list::split(&url)?;
        #[cfg(feature = "http")]
        if url.starts_with("http://") {
            self.options.http.dialect = Some(Dialect::Connect);
        }
        let mut rest = Vec::new();
        let foreign = wires::of_options(&url, &options, &mut rest)?;
        #[cfg(feature = "http")]
        let foreign = match foreign.as_ref().and_then(|foreign| foreign.posted()) {
            Some(written) => {
                self.options.http.post_thrift(written);
                None
            }
            None => foreign,
        };
        if foreign.is_some() {
            self.options.foreign = foreign;
        }
        for (name, value) in rest {
            self.option(name, value)?;
        }
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        if let Some(missing) = self.options.compression.all().find(|compression| !compression.is_here()) {
            let text = format!(
                "compression {missing} needs the feature http, which is off; lz4 and snappy are there"
            );
            return Err(Status::invalid_argument(text));
        }
        let mut addresses: Vec<Address> = addresses.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        if let Some(foreign) = &self.options.foreign
            && addresses.iter().any(Address::is_websocket)
        {
            let wrong = |why: &str| Status::invalid_argument(format!("the wire of {url:?} {why}"));
            let (carries, usual_path) = foreign.in_websockets().map_err(wrong)?;
            self.options.dialling.carries = carries;
            for address in &mut addresses {
                address.or_path(usual_path);
            }
        }
        let hears_pushes = self.options.foreign.as_ref().is_some_and(|foreign| foreign.hears_pushes());
        if self.options.pushes.is_some() && !hears_pushes {
            let text = format!("the wire of {url:?} has no place for pushes; wire=rpcx and wire=erpc have");
            return Err(Status::invalid_argument(text));
        }
        #[cfg(feature = "tls")]
        if addresses.iter().any(Address::is_tls) {
            let (inside, bare) = (Address::is_websocket, |address: &Address| !address.is_websocket());
            let alpn = match (addresses.iter().any(inside), addresses.iter().any(bare)) {
                (true, true) if self.options.foreign.is_none() => {
                    let text =
                        format!("{url:?} mixes wss:// with others: give each kind a channel of its own");
                    return Err(Status::invalid_argument(text));
                }
                // That is where their handshake is.
                (true, _) => crate::net::tls::ALPN_HTTP1,
                (false, _) => self.options.alpn(),
            };
            // Other frameworks have no name of their own there.
            let alpn = if self.options.foreign.is_some() { &[][..] } else { &[alpn][..] };
            // That of a fleet is the same for all that were listed.
            if self.options.dialling.tls.is_none() {
                self.options.dialling.tls = Some(Arc::new(Connector::new(self.tls.clone(), alpn)?));
            }
        } else if self.tls != TlsOptions::default() {
            let text = format!(
                "ca, cert, key and server_name are for tls://HOST:PORT and wss://HOST:PORT, not for {url:?}"
            );
            return Err(Status::invalid_argument(text));
        }
        if addresses.len() > 1 || self.fleet.is_some() {
            return self.into_fleet(addresses);
        }
        #[cfg(feature = "http")]
        {
            let over_websocket = addresses.iter().all(Address::is_websocket);
            for compression in self.options.compression.all() {
                self.options.http.check(over_websocket, compression)?;
            }
            self.options.dialling.deflate = self.options.http.deflates();
            if let Some(dialect) = self.options.http.dialect {
                if over_websocket {
                    self.options.dialling.carries = Carries::JsonRpc;
                }
                let make =
                    |way: &Weak<Way>| Way::Http(Http::new(addresses, dialect, self.options, way.clone()));
                return Ok(Channel(Arc::new_cyclic(make)));
            }
        }
        Ok(Channel(Arc::new_cyclic(|way| Way::Remote(Pool::new(addresses, self.options, way.clone())))))
    }

    /// Whether the option is one of fleets.
    fn fleet_option(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let mut policy = self.fleet.clone().unwrap_or_default();
        let known = policy.set(name, value)?;
        // Options of other kinds make no fleet.
        if known {
            self.fleet = Some(policy);
        }
        Ok(known)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<()> {
        let url = self.url.clone();
        let wrong = |expected: &str| {
            Status::invalid_argument(format!("{name}={value} in {url:?}: expected {expected}"))
        };
        if self.fleet_option(name, value).map_err(|expected| wrong(&expected))? {
            return Ok(());
        }
        match name {
            "connections" => {
                let count = value.parse().ok().filter(|count| (1..=1024).contains(count));
                self.options.connections = count.ok_or_else(|| wrong("1 to 1024"))?;
            }
            "timeout" | "connect_timeout" | "backoff_max" | "keepalive" => {
                let span = duration(value).ok_or_else(|| wrong("a number with ms or s"))?;
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
                self.options.compression.bytes_min = bytes.ok_or_else(|| wrong("a number of bytes"))?;
            }
            #[cfg(feature = "http")]
            "codec" | "deflate" | "get" | "http" | "path" | "wire" => {
                self.options.http.set(name, value).map_err(|expected| match name {
                    "wire" => wrong(&format!("{expected}{}", wires::names())),
                    _ => wrong(expected),
                })?;
            }
            #[cfg(not(feature = "http"))]
            "deflate" => match value {
                "true" | "false" => self.options.dialling.deflate = value == "true",
                _ => return Err(wrong("true or false")),
            },
            #[cfg(not(feature = "http"))]
            "wire" if value == "native" => {}
            #[cfg(not(feature = "http"))]
            "wire" => return Err(wrong(&format!("native{}, since the feature http is off", wires::names()))),
            _ => self.options.limits.parse(&format!("{name}={value}"), Source::Channel)?,
        }
        Ok(())
    }
}

/// `250ms` or `2s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (digits, factor) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    digits.parse::<u64>().ok().map(|value| Duration::from_millis(value.saturating_mul(factor)))
}

//! DNS: SRV, or A and AAAA records, read again when their time to live is over.

use hickory_resolver::{
    Name, ResolveError, TokioResolver,
    config::{NameServerConfigGroup, ResolverConfig},
    name_server::TokioConnectionProvider,
    proto::rr::rdata::SRV,
};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant as StdInstant},
};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::time::sleep;

/// A name in DNS, whose addresses serve every service that is asked for.
///
/// A name that begins with `_` is one of SRV records, `_greeter._tcp.example.com`: targets, ports and weights, of those
/// with the lowest priority. Any other is `HOST:PORT`, of A and AAAA records. A name that has no record is known to
/// have nobody; a server that does not answer changes nothing. It takes no registrations.
pub struct Dns {
    discovery: Discovery,
}

/// Records are read again after their TTL, but within these bounds.
const READ_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

impl Dns {
    /// The records of `name`, asked of `server`, `IP:PORT`, or of those of the system. `scheme` begins the addresses:
    /// `tcp` or `tls`.
    ///
    /// # Errors
    /// `InvalidArgument` for a name without a port that is none of SRV, a wrong name or server; `Unavailable` when the
    /// settings of the system cannot be read.
    pub fn connect(name: &str, server: Option<&str>, scheme: &str, options: Options) -> Result<Dns> {
        let wrong = |why: &str| Status::invalid_argument(format!("the DNS name {name:?}: {why}"));
        let host =
            if name.starts_with('_') { name } else { name.rsplit_once(':').map_or("", |(host, _)| host) };
        let kind = match name.rsplit_once(':').map(|(_, port)| port.parse()) {
            _ if name.starts_with('_') => Kind::Srv,
            Some(Ok(port)) => Kind::Addresses(port),
            _ => return Err(wrong("write HOST:PORT, or _SERVICE._tcp.DOMAIN for SRV records")),
        };
        let host = Name::from_utf8(host).map_err(|error| wrong(&error.to_string()))?;
        let provider = TokioConnectionProvider::default();
        let mut builder = match server {
            None => TokioResolver::builder_tokio().map_err(|error| {
                Status::unavailable(format!("the settings of this machine for DNS: {error}"))
            })?,
            Some(server) => {
                let address: SocketAddr =
                    server.parse().map_err(|_| wrong(&format!("the server {server:?} is not IP:PORT")))?;
                let group = NameServerConfigGroup::from_ips_clear(&[address.ip()], address.port(), true);
                let config = ResolverConfig::from_parts(None, Vec::new(), group);
                TokioResolver::builder_with_config(config, provider)
            }
        };
        // We ask when the time of what we have is over; an answer out of a cache would be none.
        builder.options_mut().cache_size = 0;
        builder.options_mut().timeout = Duration::from_secs(2);
        let records = Records {
            name: format!("dns {name}"),
            host,
            kind,
            scheme: scheme.to_owned(),
            resolver: builder.build(),
        };
        Ok(Dns { discovery: Discovery::new(records, options) })
    }
}

impl Registry for Dns {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

struct Records {
    name: String,
    host: Name,
    kind: Kind,
    scheme: String,
    resolver: TokioResolver,
}

enum Kind {
    Addresses(u16),
    Srv,
}

impl Records {
    /// The instances, and until when that is so.
    async fn read(&self, service: &str) -> Result<(Vec<Instance>, StdInstant), ResolveError> {
        match self.kind {
            Kind::Addresses(port) => {
                let found = self.resolver.lookup_ip(self.host.clone()).await?;
                let instance = |address| self.instance(service, &host_of(address), port);
                Ok((found.iter().map(instance).collect(), found.valid_until()))
            }
            Kind::Srv => {
                let found = self.resolver.srv_lookup(self.host.clone()).await?;
                let first = found.iter().map(SRV::priority).min();
                let records = found.iter().filter(|record| Some(record.priority()) == first);
                let instances = records.map(|record| {
                    let target = record.target().to_utf8();
                    let instance = self.instance(service, target.trim_end_matches('.'), record.port());
                    // 0 means as good as never in SRV, and for many that nobody has set it.
                    if record.weight() == 0 { instance } else { instance.weight(record.weight().into()) }
                });
                Ok((instances.collect(), found.as_lookup().valid_until()))
            }
        }
    }

    fn instance(&self, service: &str, host: &str, port: u16) -> Instance {
        Instance::new(service, format!("{}://{host}:{port}", self.scheme))
    }
}

fn host_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

impl Backend for Records {
    fn name(&self) -> &str {
        &self.name
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(async move {
            loop {
                let (instances, until) = match self.read(service).await {
                    Ok(found) => found,
                    // The answer is that there is nothing.
                    Err(error) if error.is_no_records_found() => (Vec::new(), StdInstant::now()),
                    Err(error) => {
                        let text = format!("{}: {error}", self.name);
                        return Err(Status::unavailable(text).with_retry(Retry::Safe));
                    }
                };
                feed.publish(instances.into_iter().map(Ok));
                let left = until.saturating_duration_since(StdInstant::now());
                sleep(left.clamp(*READ_EVERY.start(), *READ_EVERY.end())).await;
            }
        })
    }

    fn forgets(&self) -> bool {
        false
    }

    fn hold<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async {
            Err(Status::unimplemented(format!("{} takes no registrations: set its records", self.name)))
        })
    }
}

//! DNS: SRV, or A and AAAA records, queried again when their TTL expires.

use hickory_resolver::{
    Name, ResolveError, TokioResolver,
    config::{LookupIpStrategy, NameServerConfigGroup, ResolverConfig},
    name_server::TokioConnectionProvider,
    proto::{ProtoError, ProtoErrorKind, op::ResponseCode, rr::rdata::SRV},
};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant as StdInstant},
};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
};
use switchboard_core::clock;
use tokio::time::sleep;

/// A name in DNS, whose addresses serve every requested service.
///
/// A name that begins with `_` has SRV records, `_greeter._tcp.example.com`: targets, ports and weights, of the records
/// with the lowest priority. Any other name is `HOST:PORT`, with A records, or AAAA records if there are no A records.
/// A name without records (NXDOMAIN, or NOERROR without an answer) has no instances. Any other response code, a
/// referral and no response are errors of the server: the last good snapshot stays in use. Registrations are not
/// supported.
pub struct Dns {
    discovery: Discovery,
}

/// Records are queried again after their TTL, but within these bounds.
const READ_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

impl Dns {
    /// Creates a registry that queries the records of `name` from `server`, `IP:PORT`, or from the servers of the
    /// system configuration. `scheme` is the scheme of the addresses: `tcp` or `tls`.
    ///
    /// # Errors
    /// `InvalidArgument` for a name without a port that is not an SRV name, and for an invalid name or server;
    /// `Unavailable` when the DNS configuration of the system cannot be read.
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
        let resolver = |strategy| {
            let mut builder = match server {
                None => TokioResolver::builder_tokio().map_err(|error| {
                    Status::unavailable(format!("the settings of this machine for DNS: {error}"))
                })?,
                Some(server) => {
                    let address: SocketAddr = server
                        .parse()
                        .map_err(|_| wrong(&format!("the server {server:?} is not IP:PORT")))?;
                    let group = NameServerConfigGroup::from_ips_clear(&[address.ip()], address.port(), true);
                    let config = ResolverConfig::from_parts(None, Vec::new(), group);
                    TokioResolver::builder_with_config(config, TokioConnectionProvider::default())
                }
            };
            // Queries are sent when the TTL of the records expires; a cached response would be expired as well.
            builder.options_mut().cache_size = 0;
            builder.options_mut().timeout = Duration::from_secs(2);
            builder.options_mut().ip_strategy = strategy;
            Ok::<_, Status>(builder.build())
        };
        let records = Records {
            name: format!("dns {name}"),
            host,
            kind,
            scheme: scheme.to_owned(),
            ipv4: resolver(LookupIpStrategy::Ipv4Only)?,
            ipv6: resolver(LookupIpStrategy::Ipv6Only)?,
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
    /// Also queried for records that are not addresses.
    ipv4: TokioResolver,
    /// A separate resolver, because a resolver that queries both families reports only the error of the second.
    ipv6: TokioResolver,
}

enum Kind {
    Addresses(u16),
    Srv,
}

impl Records {
    /// Queries the instances, and the time until which they are valid.
    ///
    /// # Errors
    /// A name without records, see [`is_negative`], and a server that fails.
    async fn read(&self, service: &str) -> Result<(Vec<Instance>, StdInstant), ResolveError> {
        match self.kind {
            Kind::Addresses(port) => {
                let found = match self.ipv4.lookup_ip(self.host.clone()).await {
                    Err(error) if is_negative(&error) => self.ipv6.lookup_ip(self.host.clone()).await?,
                    found => found?,
                };
                let instance = |address| self.instance(service, &host_of(address), port);
                Ok((found.iter().map(instance).collect(), found.valid_until()))
            }
            Kind::Srv => {
                let found = self.ipv4.srv_lookup(self.host.clone()).await?;
                let first = found.iter().map(SRV::priority).min();
                let records = found.iter().filter(|record| Some(record.priority()) == first);
                let instances = records.map(|record| {
                    let target = record.target().to_utf8();
                    let instance = self.instance(service, target.trim_end_matches('.'), record.port());
                    // In SRV, 0 is nearly no traffic, and many zone files have 0 as the default.
                    if record.weight() == 0 { instance } else { instance.weight(record.weight().into()) }
                });
                Ok((instances.collect(), found.as_lookup().valid_until()))
            }
        }
    }

    /// Queries every name that the search list makes of the host. The resolver queries one name after the other and
    /// reports only the error of the last, so a server that fails for the first would look like a name without records.
    ///
    /// # Errors
    /// A server that fails for one of the names.
    async fn confirm_negative(&self) -> Result<(), ResolveError> {
        let config = self.ipv4.config();
        if self.host.is_fqdn() || (config.search().is_empty() && config.domain().is_none()) {
            return Ok(());
        }
        let root = Name::root();
        for suffix in config.search().iter().chain(config.domain()).chain([&root]) {
            let Ok(mut name) = self.host.clone().append_domain(suffix) else { continue };
            name.set_fqdn(true);
            let responses = match self.kind {
                Kind::Srv => [self.ipv4.srv_lookup(name).await.map(drop), Ok(())],
                Kind::Addresses(_) => [
                    self.ipv4.lookup_ip(name.clone()).await.map(drop),
                    self.ipv6.lookup_ip(name).await.map(drop),
                ],
            };
            for answer in responses {
                match answer {
                    Err(error) if !is_negative(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn instance(&self, service: &str, host: &str, port: u16) -> Instance {
        Instance::new(service, format!("{}://{host}:{port}", self.scheme))
    }
}

/// Returns whether a server has responded that there are no such records. The resolver has one error for that and for
/// all response codes of servers that fail: SERVFAIL, REFUSED, FORMERR and others.
fn is_negative(error: &ResolveError) -> bool {
    match error.proto().map(ProtoError::kind) {
        Some(ProtoErrorKind::NoRecordsFound { response_code: ResponseCode::NXDomain, .. }) => true,
        // A referral to other servers does not say whether the name has records.
        Some(ProtoErrorKind::NoRecordsFound { response_code: ResponseCode::NoError, ns, soa, .. }) => {
            soa.is_some() || ns.as_ref().is_none_or(|servers| servers.is_empty())
        }
        _ => false,
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
            let failed = |error: ResolveError| {
                let code = match error.proto().map(ProtoError::kind) {
                    Some(ProtoErrorKind::NoRecordsFound { response_code, .. }) => {
                        format!(" ({response_code})")
                    }
                    _ => String::new(),
                };
                Status::unavailable(format!("{}: {error}{code}", self.name)).with_retry(Retry::Safe)
            };
            loop {
                let (instances, until) = match self.read(service).await {
                    Ok(found) => found,
                    Err(error) if is_negative(&error) => {
                        self.confirm_negative().await.map_err(failed)?;
                        (Vec::new(), clock::now())
                    }
                    Err(error) => return Err(failed(error)),
                };
                feed.publish(instances.into_iter().map(Ok));
                let left = until.saturating_duration_since(clock::now());
                sleep(left.clamp(*READ_EVERY.start(), *READ_EVERY.end())).await;
            }
        })
    }

    fn may_lose_registrations(&self) -> bool {
        false
    }

    fn register<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async {
            Err(Status::unimplemented(format!(
                "{} does not support registrations: set its records",
                self.name
            )))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("dns", &["scheme"])],
    make: |parsed| {
        let scheme = parsed.take("scheme").unwrap_or("tcp").to_owned();
        let server = Some(parsed.hosts).filter(|server| !server.is_empty());
        Ok(std::sync::Arc::new(crate::Dns::connect(parsed.path, server, &scheme, parsed.options()?)?))
    },
};

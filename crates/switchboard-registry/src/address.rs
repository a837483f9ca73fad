//! Creates registries from their addresses: `etcd://127.0.0.1:2379/prefix?ttl=10s`.

use std::sync::Arc;
use switchboard::{
    Channel, ChannelBuilder, Limits, Result, Status,
    discover::{File, Options, Registry},
};

/// Creates the registry at an address, `SCHEME://HOSTS/PATH?OPTIONS`.
///
/// | address | registry | feature |
/// | --- | --- | --- |
/// | `consul://HOST:PORT?token=TOKEN` | Consul, usually the agent of this machine | `consul` |
/// | `dns:///NAME:PORT`, or `dns:///_NAME._tcp.DOMAIN` for SRV; `dns://SERVER:53/…` | DNS, read only | `dns` |
/// | `etcd://HOST:PORT,HOST:PORT/PREFIX`, `etcds://…` with TLS | etcd | `etcd` |
/// | `file:PATH` | a file of instances | – |
/// | `kubernetes:///SERVICE` in a pod, `kubernetes://HOST:PORT/SERVICE` | EndpointSlices, read only | `kubernetes` |
/// | `mdns:`, `mdns://GROUP:PORT?interface=ADDRESS` | mDNS: the local network | `mdns` |
/// | `nacos://USER:PASSWORD@HOST:PORT/NAMESPACE` | Nacos | `nacos` |
/// | `redis://USER:PASSWORD@HOST:PORT/DATABASE?prefix=PREFIX` | Redis | `redis` |
/// | `switchboard://HOST:PORT` | the embedded registry | `embedded` |
/// | `zookeeper://HOST:PORT,HOST:PORT/PREFIX` | ZooKeeper | `zookeeper` |
///
/// All registries have the options of [`Options`]: `cache=FOLDER`, `confirm_after=10s`, `instance_bytes_max=8192`,
/// `instances_max=10000`, `retry_max=10s`, `ttl=15s`. `etcds` also has the TLS options `ca`, `cert`, `key` and
/// `server_name`. `dns` has `scheme=tls`, the scheme of the addresses that it returns. `kubernetes` has
/// `account=FOLDER`, `http=on` for `kubectl proxy`, `namespace=NAME`, `port=NAME` and `scheme=tls`. `nacos` has
/// `api=1`, `cluster=NAME`, `group=NAME` and `poll=2s`. With `layout=rpcx`, Consul, etcd, mDNS, Redis and ZooKeeper use
/// the keys and values of rpcx, with `PATH` or `PREFIX` as the base path. Times are numbers with `ms`, `s` or `m`.
/// Nothing is sent before the registry is used.
///
/// # Errors
/// `InvalidArgument` for a malformed address, an unknown option, and a scheme that is unknown or whose feature is off;
/// the text lists the available ones.
pub fn connect(url: &str) -> Result<Arc<dyn Registry>> {
    make(Parsed::read(url)?)
}

/// Creates a builder of a channel to all instances of `service` in the registry at `url`. `url` is the address of a
/// registry as for [`connect`], and its other options are those of the channel, as in
/// `etcd://10.0.0.1:2379/fleet?ttl=10s&balance=round_robin&timeout=1s`.
///
/// # Errors
/// The errors of [`connect`], and `InvalidArgument` for an option that neither the registry nor a channel has.
pub fn fleet(url: &str, service: &str) -> Result<ChannelBuilder> {
    let mut parsed = Parsed::read(url)?;
    let own = kind(url, parsed.scheme)?.options(parsed.scheme);
    let (ours, rest) =
        parsed.options.into_iter().partition(|(name, _)| OPTIONS.contains(name) || own.contains(name));
    parsed.options = ours;
    let rest: Vec<(&str, &str)> = rest;
    let rest: Vec<_> = rest.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Channel::fleet(make(parsed)?, service).url_options(&rest.join("&"))
}

/// Returns whether an address is that of a registry rather than of a server; the feature of the registry may be off.
pub fn is_registry(url: &str) -> bool {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| KINDS.iter().any(|kind| kind.schemes.contains(&scheme)))
}

fn make(mut parsed: Parsed<'_>) -> Result<Arc<dyn Registry>> {
    let kind = kind(parsed.url, parsed.scheme)?;
    match kind.constructor {
        Some(constructor) => (constructor.make)(&mut parsed),
        None => {
            let feature = kind.feature;
            let why =
                format!("{:?} needs the feature `{feature}`, which is off; {}", parsed.scheme, schemes());
            Err(wrong(parsed.url, &why))
        }
    }
}

fn kind(url: &str, scheme: &str) -> Result<&'static Kind> {
    let known = KINDS.iter().find(|kind| kind.schemes.contains(&scheme));
    known.ok_or_else(|| wrong(url, &format!("no registry has the scheme {scheme:?}; {}", schemes())))
}

/// A kind of registry.
struct Kind {
    /// Schemes of its addresses.
    schemes: &'static [&'static str],
    feature: &'static str,
    /// `None` when the feature is off.
    constructor: Option<Constructor>,
}

/// How an address becomes a registry; each backend has one in its file.
#[derive(Clone, Copy)]
pub(crate) struct Constructor {
    /// Schemes, and the options that only addresses of this scheme have.
    pub(crate) schemes: &'static [(&'static str, &'static [&'static str])],
    pub(crate) make: fn(&mut Parsed<'_>) -> Result<Arc<dyn Registry>>,
}

/// Lists the kinds by feature, with the module of each and its schemes, which are known if the feature is off too.
macro_rules! kinds {
    ($($feature:literal $module:ident $schemes:expr;)*) => {
        &[
            Kind { schemes: &["file"], feature: "", constructor: Some(FILE) },
            $(
                #[cfg(feature = $feature)]
                Kind { schemes: &$schemes, feature: $feature, constructor: Some(crate::$module::ADDRESS) },
                #[cfg(not(feature = $feature))]
                Kind { schemes: &$schemes, feature: $feature, constructor: None },
            )*
        ]
    };
}

/// All kinds of registries.
const KINDS: &[Kind] = kinds! {
    "consul" consul ["consul"];
    "dns" dns ["dns"];
    "etcd" etcd ["etcd", "etcds"];
    "kubernetes" kubernetes ["kubernetes"];
    "mdns" mdns ["mdns"];
    "nacos" nacos ["nacos"];
    "redis" redis ["redis"];
    "embedded" embedded ["switchboard"];
    "zookeeper" zookeeper ["zookeeper"];
};

const FILE: Constructor = Constructor { schemes: &[("file", &[])], make: file };

impl Kind {
    /// Returns the options that only addresses of this scheme have.
    fn options(&self, scheme: &str) -> &'static [&'static str] {
        let schemes = self.constructor.map_or(&[][..], |constructor| constructor.schemes);
        schemes.iter().find(|(known, _)| *known == scheme).map_or(&[], |(_, options)| options)
    }
}

/// Options of all registries.
const OPTIONS: &[&str] =
    &["cache", "confirm_after", "instance_bytes_max", "instances_max", "retry_max", "ttl"];

fn file(parsed: &mut Parsed<'_>) -> Result<Arc<dyn Registry>> {
    // Both `file:///etc/fleet.json` and `file:fleet.json` are accepted.
    let is_absolute = parsed.url.starts_with("file://");
    let path = if is_absolute { format!("/{}", parsed.path) } else { parsed.path.to_owned() };
    if !parsed.hosts.is_empty() || parsed.path.is_empty() {
        return Err(wrong(parsed.url, "write file:PATH or file:///PATH"));
    }
    Ok(Arc::new(File::new(path, parsed.options()?)))
}

/// Lists the available schemes, for error texts.
fn schemes() -> String {
    let names = |on: bool| {
        let chosen = KINDS.iter().filter(move |kind| kind.constructor.is_some() == on);
        chosen.flat_map(|kind| kind.schemes.iter().copied()).collect::<Vec<_>>().join(", ")
    };
    let off = names(false);
    let off = if off.is_empty() { off } else { format!("; not in this program: {off}") };
    format!("available: {}{off}", names(true))
}

pub(crate) fn wrong(url: &str, why: &str) -> Status {
    // The part before an `@` may be a password, and an option a token.
    let url = url.split_once('?').map_or(url, |(address, _)| address);
    let url = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
    Status::invalid_argument(format!("the registry {url:?}: {why}"))
}

/// The parts of an address.
pub(crate) struct Parsed<'a> {
    pub(crate) url: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) hosts: &'a str,
    pub(crate) path: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Parsed<'a> {
    fn read(url: &'a str) -> Result<Parsed<'a>> {
        let (place, options) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = place
            .split_once(':')
            .ok_or_else(|| wrong(url, &format!("it has no scheme, like etcd://HOST:PORT; {}", schemes())))?;
        let (hosts, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("", rest),
        };
        let options = options.split('&').filter(|option| !option.is_empty()).map(|option| {
            option.split_once('=').ok_or_else(|| wrong(url, &format!("{option:?} is not NAME=VALUE")))
        });
        let options = options.collect::<Result<_>>()?;
        Ok(Parsed { url, scheme, hosts, path, options })
    }

    #[cfg_attr(
        not(any(
            feature = "consul",
            feature = "embedded",
            feature = "etcd",
            feature = "nacos",
            feature = "redis",
            feature = "zookeeper"
        )),
        expect(dead_code, reason = "other registries have no hosts")
    )]
    pub(crate) fn hosts(&self) -> Result<&'a str> {
        if self.hosts.is_empty() {
            return Err(wrong(self.url, &format!("the host is missing: {}://HOST:PORT", self.scheme)));
        }
        Ok(self.hosts)
    }

    /// Takes an option that not every registry has.
    #[cfg_attr(
        not(any(
            feature = "consul",
            feature = "dns",
            feature = "etcd",
            feature = "kubernetes",
            feature = "mdns",
            feature = "nacos",
            feature = "redis",
            feature = "zookeeper"
        )),
        expect(dead_code, reason = "other registries have no own options")
    )]
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(known, _)| *known == name)?;
        Some(self.options.remove(at).1)
    }

    /// Reads `layout=rpcx`.
    #[cfg(any(
        feature = "consul",
        feature = "etcd",
        feature = "mdns",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) fn style(&mut self) -> Result<crate::layout::Style> {
        match self.take("layout") {
            None => Ok(crate::layout::Style::Own),
            Some("rpcx") => Ok(crate::layout::Style::Rpcx),
            Some(other) => Err(wrong(
                self.url,
                &format!("layout={other}: write layout=rpcx, or omit it for the own layout"),
            )),
        }
    }

    /// Reads the options of all registries; no other option may be left.
    pub(crate) fn options(&self) -> Result<Options> {
        let mut options = Options::new();
        for (name, value) in &self.options {
            let bad = |expected| wrong(self.url, &format!("{name}={value}: expected {expected}"));
            let time = || Limits::parse_time(value).map_err(|_| bad("a number with ms, s, min or h"));
            let number = || value.parse().map_err(|_| bad("a number"));
            options = match *name {
                "cache" => options.cache(*value),
                "confirm_after" => options.confirm_after(time()?),
                "instance_bytes_max" => options.instance_bytes_max(number()?),
                "instances_max" => options.instances_max(number()?),
                "retry_max" => options.retry_max(time()?),
                "ttl" => options.ttl(time()?),
                _ => {
                    let why = format!(
                        "no option {name:?} for {:?}: cache, confirm_after, instance_bytes_max, \
                         instances_max, retry_max and ttl are for all registries",
                        self.scheme
                    );
                    return Err(wrong(self.url, &why));
                }
            };
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_contain_no_secrets() {
        for (url, part) in [
            ("etdc://h:1", "no registry has the scheme \"etdc\""),
            ("h", "it has no scheme"),
            ("file:", "write file:PATH"),
            ("file:a.json?ttl=5", "expected a number with ms, s, min or h"),
            ("file:a.json?tll=5s", "no option \"tll\""),
            ("file:a.json?ttl", "is not NAME=VALUE"),
            ("file:a.json?instances_max=x", "expected a number"),
            #[cfg(feature = "embedded")]
            ("switchboard://", "the host is missing"),
            #[cfg(not(feature = "etcd"))]
            ("etcd://h:1", "needs the feature `etcd`"),
            #[cfg(feature = "redis")]
            ("redis://ada:secret@h:1/0?x=y", "no option \"x\""),
            #[cfg(feature = "etcd")]
            ("etcd://h:1/p?layout=dubbo", "layout=dubbo"),
        ] {
            let error = connect(url).err().unwrap_or_else(|| panic!("{url} is wrong"));
            assert!(error.message().contains(part), "{error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_fleet_takes_the_options_of_its_channel_from_the_same_address() {
        let right = "file:fleet.json?retry_max=1s&balance=round_robin&timeout=1s";
        fleet(right, "a.B").unwrap().lazy().unwrap();
        for (url, part) in [
            ("file:fleet.json?ttl=5&balance=p2c", "expected a number with ms, s, min or h"),
            ("file:fleet.json?balance=p3c", "did you mean p2c?"),
            ("file:fleet.json?tll=5s", "tll"),
            ("tcp://h:1", "no registry has the scheme \"tcp\""),
        ] {
            let error = fleet(url, "a.B").err().unwrap_or_else(|| panic!("{url} is wrong"));
            assert!(error.message().contains(part), "{error}");
        }
        assert!(is_registry("file:fleet.json") && is_registry("etcds://h:1"));
        assert!(!is_registry("tcp://h:1") && !is_registry("localhost:80") && !is_registry("h"));
    }

    #[test]
    fn kinds_have_the_schemes_of_their_constructors() {
        for kind in KINDS {
            let Some(constructor) = kind.constructor else { continue };
            let schemes: Vec<_> = constructor.schemes.iter().map(|(scheme, _)| *scheme).collect();
            assert_eq!(schemes, kind.schemes);
        }
    }

    #[tokio::test]
    async fn addresses_lead_to_registries() {
        for (url, name) in [
            ("file:///etc/fleet.json?cache=/tmp/x&ttl=1.5s&confirm_after=1h", "file /etc/fleet.json"),
            ("file:fleet.json", "file fleet.json"),
            #[cfg(feature = "embedded")]
            ("switchboard://h:1?retry_max=2s", "embedded tcp://h:1"),
            #[cfg(feature = "etcd")]
            ("etcd://h:1,i:2/prefix", "etcd h:1,i:2"),
            #[cfg(feature = "etcd")]
            ("etcd://h:1//rpcx_test?layout=rpcx", "etcd h:1"),
            #[cfg(feature = "consul")]
            ("consul://h:1?token=secret", "consul h:1"),
            #[cfg(feature = "dns")]
            ("dns://127.0.0.1:5353/_a._tcp.example?scheme=tls", "dns _a._tcp.example"),
            #[cfg(feature = "redis")]
            ("redis://ada:secret@h:1/3?prefix=p", "redis h:1"),
            #[cfg(feature = "zookeeper")]
            ("zookeeper://h:1,i:2/prefix", "zookeeper h:1,i:2"),
        ] {
            let registry = connect(url).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(registry.name(), name);
        }
    }
}

//! Every setting of `switchboard serve`, `proxy` and `push serve` by name: one table for each command, which files,
//! environment, flags and their documentation use.

use super::Root;
use crate::{log::Level, proxy::ProxyArgs, push::GatewayArgs};
use clap::{Arg, ArgAction, Command, ValueEnum};
use std::{borrow::Cow, ops::RangeInclusive};
use switchboard::{Limit, Limits, limits::Source};

/// A setting.
#[derive(Debug)]
pub(super) struct Key {
    /// `limits.calls_max`: the name of its table, and its own.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The default as a file spells it; `None` if nothing is set by default.
    pub(super) default: Option<String>,
    /// An example as a file may spell it.
    pub(super) example: String,
    pub(super) doc: Cow<'static, str>,
    pub(super) reload: Reload,
}

/// When a change takes effect while the server runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reload {
    /// With SIGHUP: the server has a flag with the last part of its name.
    Flag,
    /// With the next start.
    Never,
    /// With SIGHUP: the command applies it.
    Taken,
}

impl Reload {
    fn of(name: &str) -> Reload {
        match name {
            "access_log" | "concurrency" | "deadline_max" | "rate" | "slow_call" => Reload::Flag,
            "header" | "tap_filter" | "tap_redact" | "tap_undecoded" | "to" => Reload::Taken,
            _ => Reload::Never,
        }
    }
}

impl Key {
    /// Creates the setting of a flag that only one command has.
    fn of_flag(flag: &Arg, long: &str) -> Key {
        let value = flag.get_value_names().unwrap_or_default().first().map_or("", |name| name.as_str());
        let (kind, default) = match (flag.get_action(), value) {
            (ArgAction::SetTrue, _) => (Kind::Switch, Some("false".to_owned())),
            (ArgAction::Append, _) => (Kind::Texts, None),
            (_, "N") => (Kind::Count(1..=u32::MAX.into()), None),
            (_, "TIME") => (Kind::Time, None),
            _ => (Kind::Text, None),
        };
        let given = flag.get_default_values().first().and_then(|value| value.to_str());
        let default = default.or_else(|| given.map(str::to_owned));
        let doc = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let example = match kind {
            Kind::Switch => "true",
            Kind::Count(_) => "100",
            Kind::Time => "30s",
            _ => value,
        };
        let (name, example) = (long.replace('-', "_"), example.to_owned());
        Key { reload: Reload::of(&name), name, kind, default, example, doc: doc.into() }
    }

    /// Value of the server's flag when the setting has none.
    pub(super) fn unset(&self) -> &'static str {
        if matches!(self.kind, Kind::Time) { "0ms" } else { "0" }
    }

    /// Returns the name of the equivalent flag, without its dashes.
    pub(super) fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }
}

/// The type of a value.
#[derive(Debug)]
pub(super) enum Kind {
    Address,
    Addresses,
    Count(RangeInclusive<u64>),
    Level,
    Limit(Limit),
    Path,
    /// Addresses of registries.
    Registries,
    Switch,
    Tag,
    Text,
    Texts,
    Time,
}

impl Kind {
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Kind::Addresses | Kind::Registries | Kind::Tag | Kind::Texts)
    }

    /// Splits an environment variable into values; those of a list are separated by commas.
    pub(super) fn split(&self, value: String) -> Vec<String> {
        if !self.is_list() {
            return vec![value];
        }
        let mut texts: Vec<String> = Vec::new();
        for part in value.split(',').map(str::trim) {
            match texts.last_mut() {
                // The address of a registry may contain several hosts.
                Some(last)
                    if matches!(self, Kind::Registries) && !switchboard_registry::is_registry(part) =>
                {
                    *last = format!("{last},{part}");
                }
                _ => texts.push(part.to_owned()),
            }
        }
        texts
    }

    /// Returns whether a file has the value in quotes.
    pub(super) fn is_quoted(&self) -> bool {
        !matches!(self, Kind::Count(_) | Kind::Switch)
    }

    /// # Errors
    /// The expected form.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        match self {
            Kind::Address | Kind::Addresses => crate::serve::address(text).map(drop),
            Kind::Count(range) => match text.parse::<u64>() {
                Ok(count) if range.contains(&count) => Ok(()),
                _ => Err(format!("{text:?} is not a number from {} to {}", range.start(), range.end())),
            },
            Kind::Level => Level::from_str(text, false)
                .map(drop)
                .map_err(|_| format!("{text:?} is not a level: off, error, warn, info, debug or trace")),
            Kind::Limit(limit) => {
                let setting = format!("{}={text}", limit.name());
                let set = Limits::default().parse(&setting, Source::File);
                set.map_err(|error| error.to_string())
            }
            Kind::Registries if switchboard_registry::is_registry(text) => Ok(()),
            Kind::Registries => {
                Err(format!("{text:?} is not a registry: expected switchboard://HOST:PORT, etcd://…"))
            }
            Kind::Tag => match text.split_once(':') {
                Some((name, _)) if !name.is_empty() => Ok(()),
                _ => Err(format!("{text:?} is not NAME:VALUE")),
            },
            Kind::Switch if matches!(text, "true" | "false") => Ok(()),
            Kind::Switch => Err(format!("{text:?} is neither true nor false")),
            Kind::Time => Limits::parse_time(text).map(drop).map_err(|error| error.to_string()),
            Kind::Path | Kind::Text | Kind::Texts if text.is_empty() => Err("an empty text".to_owned()),
            Kind::Path | Kind::Text | Kind::Texts => Ok(()),
        }
    }
}

/// Returns all settings, grouped by table.
pub(super) fn all(root: Root) -> Vec<Key> {
    match root {
        Root::Proxy => of_flags(&ProxyArgs::flags()),
        Root::Push => of_flags(&GatewayArgs::flags()),
        Root::Serve => of_serve(),
    }
}

/// Returns a setting for each flag: that of `serve` if it has the flag too, and the limits for `--limit`.
fn of_flags(flags: &Command) -> Vec<Key> {
    let longs: Vec<_> = flags.get_arguments().filter_map(|flag| Some((flag, flag.get_long()?))).collect();
    let mut keys = of_serve();
    keys.retain(|key| {
        matches!(key.kind, Kind::Limit(_)) || longs.iter().any(|(_, long)| *long == key.flag())
    });
    for (flag, long) in longs {
        if !matches!(long, "config" | "limit") && keys.iter().all(|key| key.flag() != long) {
            keys.push(Key::of_flag(flag, long));
        }
    }
    // Tables come last in a file; limits are the last of them.
    keys.sort_by_cached_key(|key| (key.name.contains('.'), matches!(key.kind, Kind::Limit(_))));
    keys
}

fn of_serve() -> Vec<Key> {
    let key = |name: &str, kind, default: Option<&str>, example: &str, doc: &'static str| {
        let (reload, default) = (Reload::of(name), default.map(str::to_owned));
        Key { name: name.to_owned(), kind, default, example: example.to_owned(), doc: doc.into(), reload }
    };
    let mut keys = vec![
        key("access_log", Kind::Count(0..=1_000_000), Some("0"), "100", "log one call in so many; 0: none"),
        key("admin", Kind::Address, None, "127.0.0.1:9090", "where the admin pages are, on this machine"),
        key("channelz", Kind::Switch, Some("false"), "true", "serve grpc.channelz.v1.Channelz"),
        key(
            "handover",
            Kind::Path,
            None,
            "/run/app.handover",
            "take over from, and hand over to, a server at this path",
        ),
        key("hosts", Kind::Texts, None, "app.example", "host names under which browsers reach the server"),
        key("listen", Kind::Addresses, Some("127.0.0.1:8080"), "0.0.0.0:8080", "addresses of the services"),
        key("log", Kind::Level, Some("info"), "warn", "events of this level and above are logged"),
        key(
            "notice",
            Kind::Time,
            Some("0ms"),
            "5s",
            "time between the decision to stop and the end of new calls",
        ),
        key(
            "registry",
            Kind::Switch,
            Some("false"),
            "true",
            "be a registry, in memory, for servers and callers",
        ),
        key(
            "slow_call",
            Kind::Time,
            Some("0ms"),
            "200ms",
            "log calls that take at least this long; 0ms: none",
        ),
        key(
            "spin_us",
            Kind::Count(0..=1_000_000),
            Some("100"),
            "0",
            "microseconds that a thread polls on after traffic",
        ),
        key(
            "strict_fields",
            Kind::Switch,
            Some("false"),
            "true",
            "refuse JSON and MessagePack with unknown fields",
        ),
        key("topics", Kind::Switch, Some("false"), "true", "serve topics, in memory, and GET /events"),
        key(
            "topics_folder",
            Kind::Path,
            None,
            "/var/lib/app/topics",
            "serve topics, with their entries in files here",
        ),
        key("workers", Kind::Count(1..=1024), None, "4", "threads that serve; by default one for each core"),
        key(
            "register.address",
            Kind::Text,
            None,
            "tcp://10.0.0.7:8080",
            "where callers find this server, if not at its first address",
        ),
        key("register.group", Kind::Text, None, "blue", "group that this server is of"),
        key(
            "register.notice",
            Kind::Time,
            Some("1000ms"),
            "5s",
            "time between deregistering and the end of new calls",
        ),
        key("register.tags", Kind::Tag, None, "disk:fast", "tags of this server"),
        key(
            "register.to",
            Kind::Registries,
            None,
            "switchboard://10.0.0.1:7000",
            "registries where this server registers its services",
        ),
        key("register.version", Kind::Text, None, "1.2.0", "version of this server"),
        key("register.weight", Kind::Count(0..=1_000_000), Some("100"), "50", "share of the calls; 0: none"),
        key("register.zone", Kind::Text, None, "eu-1a", "zone that this server is in"),
        key("tls.cert", Kind::Path, None, "cert.pem", "certificate chain, for TLS on every TCP address"),
        key(
            "tls.client_ca",
            Kind::Path,
            None,
            "ca.pem",
            "clients must have a certificate that one in this file issued",
        ),
        key("tls.key", Kind::Path, None, "key.pem", "private key of the certificate"),
        key("websocket.deflate", Kind::Switch, Some("false"), "true", "compress messages of WebSockets"),
        key(
            "websocket.origins",
            Kind::Texts,
            None,
            "https://app.example",
            "pages that may open WebSockets; * for all",
        ),
    ];
    keys.extend(Limit::ALL.iter().map(|limit| {
        let default = limit.unit().show(limit.default());
        Key {
            name: format!("limits.{}", limit.name()),
            kind: Kind::Limit(*limit),
            default: Some(default.clone()),
            example: default,
            doc: limit.doc().into(),
            reload: match limit {
                Limit::ConnectionsMax | Limit::MemoryBytesMax | Limit::ServerCallsMax => Reload::Flag,
                _ => Reload::Never,
            },
        }
    }));
    keys
}

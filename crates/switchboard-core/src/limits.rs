//! Limits of servers and channels: one table with name, unit, default and description.
//!
//! A limit is set for a server, for one listener, or for a channel; [`Limits::table`] prints the current
//! values with their sources.

mod time;

use crate::Error;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};
use switchboard_wire::WireId;

/// The limits of a server, a listener or a channel.
#[derive(Clone, Debug)]
pub struct Limits {
    settings: [Setting; Limit::ALL.len()],
    /// Names and values of options of plugins.
    plugin_options: Vec<(Box<str>, Box<str>)>,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    value: u64,
    source: Source,
}

/// Source of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// Set in the program, for the client's channel.
    Channel,
    /// Default value.
    Default,
    /// Set by an environment variable.
    Environment,
    /// Set in a file.
    File,
    /// Set on the command line.
    Flag,
    /// Set in the program, for one listener.
    Listener,
    /// Set in the program, for the server.
    Server,
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
    /// Milliseconds.
    Milliseconds,
}

macro_rules! limits {
    ($($variant:ident $name:literal $unit:ident $default:literal $least:literal ..= $most:literal $doc:literal;)*) => {
        /// Name of a limit.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Limit {
            $(#[doc = $doc] $variant,)*
        }

        impl Limit {
            /// Every limit, in alphabetical order.
            pub const ALL: &'static [Limit] = &[$(Limit::$variant,)*];

            /// Returns the name in options, messages and tables.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$variant => $name,)* }
            }

            /// Returns the description.
            pub fn doc(self) -> &'static str {
                match self { $(Limit::$variant => $doc,)* }
            }

            /// Returns the unit of the value.
            pub fn unit(self) -> Unit {
                match self { $(Limit::$variant => Unit::$unit,)* }
            }

            /// Returns the default value.
            pub const fn default(self) -> u64 {
                match self { $(Limit::$variant => $default,)* }
            }

            /// Returns the smallest and the largest value allowed.
            pub fn range(self) -> std::ops::RangeInclusive<u64> {
                match self { $(Limit::$variant => $least..=$most,)* }
            }
        }
    };
}

limits! {
    CallsMax "calls_max" Count 10_000 1..=1_000_000 "calls in flight on one connection; more are refused";
    ConnectionAge "connection_age" Milliseconds 0 0..=2_592_000_000 "time after which a connection is drained, ±10 %; its calls then get drain_timeout; 0: never";
    ConnectionTurnMax "connection_turn_max" Milliseconds 1 1..=60_000 "time for which one connection may occupy its worker while neighbors wait";
    ConnectionsMax "connections_max" Count 100_000 1..=10_000_000 "connections of one server; more are closed at once";
    DrainTimeout "drain_timeout" Milliseconds 30_000 0..=86_400_000 "time that calls get to end when the server stops";
    HandshakeTimeout "handshake_timeout" Milliseconds 10_000 10..=600_000 "time that a peer gets for the TLS handshake";
    IdleTimeout "idle_timeout" Milliseconds 300_000 100..=86_400_000 "silence after which a connection is pinged";
    KeepaliveTimeout "keepalive_timeout" Milliseconds 20_000 100..=86_400_000 "time that a peer gets to respond to a keepalive ping";
    MemoryBytesMax "memory_bytes_max" Bytes 2_147_483_648 0..=1_125_899_906_842_624 "bytes that a server holds for all peers together; from 80 % on, peers that hold the most are not read; 0: no limit";
    MessageBytesMax "message_bytes_max" Bytes 4_194_304 1..=4_000_000_000 "largest message taken, uncompressed";
    MetadataBytesMax "metadata_bytes_max" Bytes 16_384 256..=65_535 "largest metadata of a call, reply or end";
    MetadataEntriesMax "metadata_entries_max" Count 64 1..=4_096 "most metadata entries of a call, reply or end";
    MethodsMax "methods_max" Count 1_024 1..=65_535 "methods that a client may name on one connection";
    OutboxBytesMax "outbox_bytes_max" Bytes 1_048_576 65_536..=1_073_741_824 "bytes waiting to be written to one peer; above it nothing is read from that peer";
    PingIntervalMin "ping_interval_min" Milliseconds 5_000 0..=86_400_000 "time between pings of an HTTP/2 peer that makes no calls meanwhile; after three that come sooner the connection ends; 0: any";
    ServerCallsMax "server_calls_max" Count 10_000 1..=10_000_000 "calls that wait in handlers of one server; more are refused";
    SniffTimeout "sniff_timeout" Milliseconds 5_000 10..=600_000 "time that a peer gets to show which protocol it speaks";
    StreamEndDelay "stream_end_delay" Milliseconds 100 0..=10_000 "time that the end of a stream waits on baidu_std for a frame that shows that the caller has read the response; it may wait twice as long";
    StreamStallTimeout "stream_stall_timeout" Milliseconds 20_000 100..=86_400_000 "time that the reader of one stream may hold back its connection on a wire without windows; its call then ends";
    StreamWindowBytes "stream_window_bytes" Bytes 262_144 65_536..=1_073_741_824 "bytes of one stream sent ahead of its reader";
}

impl Default for Limits {
    fn default() -> Self {
        let mut settings = [Setting { value: 0, source: Source::Default }; Limit::ALL.len()];
        for limit in Limit::ALL {
            settings[*limit as usize].value = limit.default();
        }
        Limits { settings, plugin_options: Vec::new() }
    }
}

impl Limits {
    /// Returns the current value, in the limit's unit.
    #[inline]
    pub fn get(&self, limit: Limit) -> u64 {
        self.settings[limit as usize].value
    }

    /// Returns the source of the value.
    pub fn source(&self, limit: Limit) -> Source {
        self.settings[limit as usize].source
    }

    /// Sets a value and records its source.
    ///
    /// # Errors
    /// Fails if the value is out of the limit's range.
    pub fn set(&mut self, limit: Limit, value: u64, source: Source) -> Result<(), Error> {
        let range = limit.range();
        if !range.contains(&value) {
            return Err(Error::config(format!(
                "{} = {value} is out of range: {} to {} {}",
                limit.name(),
                range.start(),
                range.end(),
                limit.unit()
            )));
        }
        self.settings[limit as usize] = Setting { value, source };
        Ok(())
    }

    /// Sets a value in option syntax, `message_bytes_max=8MiB` or `idle_timeout=90s`.
    ///
    /// # Errors
    /// Fails on an unknown name, on a value that is not a number with the right unit, and on a value out of
    /// range.
    pub fn parse(&mut self, text: &str, source: Source) -> Result<(), Error> {
        let (name, value) =
            text.split_once('=').ok_or_else(|| Error::config(format!("{text:?} is not NAME=VALUE")))?;
        let limit = Limit::ALL.iter().copied().find(|limit| limit.name() == name).ok_or_else(|| {
            let names: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
            Error::config(format!("{name:?} is not a limit; the limits are {}", names.join(", ")))
        })?;
        self.set(limit, limit.unit().parse(value)?, source)
    }

    /// Adds an option of a plugin for one listener, `PLUGIN.NAME`; the plugin checks it when the server starts.
    #[doc(hidden)]
    pub fn add_plugin_option(&mut self, name: &str, value: &str) {
        self.plugin_options.push((name.into(), value.into()));
    }

    /// Returns the options of a listener for a plugin, in their order: the names without that of the plugin, and the
    /// values.
    pub fn plugin_options(&self, plugin: &str) -> impl Iterator<Item = (&str, &str)> {
        self.plugin_options
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(plugin)?.strip_prefix('.')?, &**value)))
    }

    /// Returns the names of plugins that have options.
    #[doc(hidden)]
    pub fn plugins_with_options(&self) -> impl Iterator<Item = &str> {
        self.plugin_options.iter().filter_map(|(name, _)| Some(name.split_once('.')?.0))
    }

    /// Parses a time in option syntax: `300ms`, `1.5s`, `5min`, `1h 30min`.
    ///
    /// # Errors
    /// Fails if the text is not such a time.
    pub fn parse_time(text: &str) -> Result<Duration, Error> {
        time::parse(text).ok_or_else(|| Error::config(format!("{text:?} is not {}", time::EXPECTED)))
    }

    fn duration(&self, limit: Limit) -> Duration {
        Duration::from_millis(self.get(limit))
    }

    /// Returns the age at which a connection is drained, if there is a limit.
    ///
    /// The age varies, so that connections that started together, after a restart, are not drained together.
    #[doc(hidden)]
    pub fn connection_age(&self) -> Option<Duration> {
        let age = self.duration(Limit::ConnectionAge);
        let random = RandomState::new().hash_one(age) % 1024;
        (!age.is_zero()).then(|| age.mul_f64(0.9 + 0.2 * random as f64 / 1024.0))
    }

    #[inline]
    #[doc(hidden)]
    pub fn connection_turn_max(&self) -> Duration {
        self.duration(Limit::ConnectionTurnMax)
    }

    #[doc(hidden)]
    pub fn drain_timeout(&self) -> Duration {
        self.duration(Limit::DrainTimeout)
    }

    #[doc(hidden)]
    pub fn handshake_timeout(&self) -> Duration {
        self.duration(Limit::HandshakeTimeout)
    }

    #[doc(hidden)]
    pub fn idle_timeout(&self) -> Duration {
        self.duration(Limit::IdleTimeout)
    }

    #[doc(hidden)]
    pub fn keepalive_timeout(&self) -> Duration {
        self.duration(Limit::KeepaliveTimeout)
    }

    #[cfg(feature = "http")]
    #[doc(hidden)]
    pub fn ping_interval_min(&self) -> Duration {
        self.duration(Limit::PingIntervalMin)
    }

    #[doc(hidden)]
    pub fn stream_end_delay(&self) -> Duration {
        self.duration(Limit::StreamEndDelay)
    }

    #[doc(hidden)]
    pub fn stream_stall_timeout(&self) -> Duration {
        self.duration(Limit::StreamStallTimeout)
    }

    #[doc(hidden)]
    pub fn sniff_timeout(&self) -> Duration {
        self.duration(Limit::SniffTimeout)
    }

    #[inline]
    #[doc(hidden)]
    pub fn outbox_bytes_max(&self) -> usize {
        self.get(Limit::OutboxBytesMax) as usize
    }

    /// Returns the limits that the wires enforce.
    #[doc(hidden)]
    pub fn wire(&self) -> switchboard_wire::Limits {
        let mut limits = switchboard_wire::Limits::default();
        limits.message_bytes_max = self.get(Limit::MessageBytesMax) as u32;
        limits.metadata_bytes_max = self.get(Limit::MetadataBytesMax) as u32;
        limits.metadata_entries_max = self.get(Limit::MetadataEntriesMax) as u32;
        limits.methods_max = self.get(Limit::MethodsMax) as u16;
        limits.calls_max = self.get(Limit::CallsMax) as u32;
        limits.stream_window_bytes = self.get(Limit::StreamWindowBytes) as u32;
        limits
    }

    /// Returns a readable table: name, value, source, description. Formats of wires that set a lower limit for messages
    /// follow the limits.
    pub fn table(&self) -> String {
        let mut table = String::new();
        for limit in Limit::ALL {
            let value = limit.unit().show(self.get(*limit));
            let source = self.source(*limit);
            table.push_str(&format!("{:<22} {value:>10}  {source:<9} {}\n", limit.name(), limit.doc()));
        }
        for spec in WireId::all().map(WireId::spec) {
            let Some(most) = spec.capabilities.message_bytes_max else { continue };
            let value = Unit::Bytes.show(u64::from(most).min(self.get(Limit::MessageBytesMax)));
            let name = format!("message_bytes_max/{}", spec.name);
            table.push_str(&format!(
                "{name:<22} {value:>10}  {:<9} largest message of {}\n",
                "wire", spec.title
            ));
        }
        table
    }
}

impl Unit {
    /// Formats a value with its unit in option syntax: `8MiB`, `90s`.
    pub fn show(self, value: u64) -> String {
        let scaled = |steps: &[(u64, &str)], plain: &str| {
            let step = steps.iter().find(|(size, _)| value >= *size && value.is_multiple_of(*size));
            step.map_or_else(|| format!("{value}{plain}"), |(size, name)| format!("{}{name}", value / size))
        };
        match self {
            Unit::Bytes => scaled(&[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")], "B"),
            Unit::Count => value.to_string(),
            Unit::Milliseconds => scaled(&[(3_600_000, "h"), (60_000, "min"), (1000, "s")], "ms"),
        }
    }

    #[doc(hidden)]
    pub fn parse(self, text: &str) -> Result<u64, Error> {
        if self == Unit::Milliseconds {
            let time = Limits::parse_time(text)?;
            return match time.subsec_nanos().is_multiple_of(1_000_000) {
                true => Ok(time.as_millis() as u64),
                false => Err(Error::config(format!("{text:?} is not a whole number of milliseconds"))),
            };
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match (self, text[digits..].trim()) {
            (Unit::Bytes, "" | "B") | (Unit::Count, "") => 1,
            (Unit::Bytes, "KiB" | "K" | "k") => 1 << 10,
            (Unit::Bytes, "MiB" | "M" | "m") => 1 << 20,
            (Unit::Bytes, "GiB" | "G" | "g") => 1 << 30,
            _ => 0,
        };
        let value = text[..digits].parse::<u64>().ok().filter(|_| factor > 0);
        value.and_then(|value| value.checked_mul(factor)).ok_or_else(|| {
            let expected = match self {
                Unit::Bytes => "a number with B, KiB, MiB or GiB",
                Unit::Count => "a plain number",
                Unit::Milliseconds => time::EXPECTED,
            };
            Error::config(format!("{text:?} is not {expected}"))
        })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Bytes => "bytes",
            Unit::Count => "(a count)",
            Unit::Milliseconds => "milliseconds",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Channel => "channel",
            Source::Default => "default",
            Source::Environment => "environment",
            Source::File => "file",
            Source::Flag => "flag",
            Source::Listener => "listener",
            Source::Server => "server",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_checked_and_shown_with_their_source() {
        let mut limits = Limits::default();
        limits.parse("message_bytes_max=8MiB", Source::Flag).unwrap();
        limits.parse("idle_timeout=1.5min", Source::Server).unwrap();
        assert_eq!(limits.get(Limit::MessageBytesMax), 8 << 20);
        assert_eq!(limits.idle_timeout(), Duration::from_secs(90));
        assert!(limits.table().contains("message_bytes_max            8MiB  flag"), "{}", limits.table());
        for (text, expected) in [
            ("message_bytes_max", "NAME=VALUE"),
            ("nope=1", "the limits are"),
            ("calls_max=1s", "plain number"),
            ("calls_max=0", "out of range"),
            ("sniff_timeout=5", "ms, s, min or h"),
            ("sniff_timeout=1.5ms", "whole number"),
        ] {
            let error = limits.parse(text, Source::Flag).unwrap_err();
            assert!(error.is_config() && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn defaults_lie_in_their_ranges_and_names_are_sorted() {
        for limit in Limit::ALL {
            assert!(limit.range().contains(&limit.default()), "{limit:?}");
        }
        assert!(Limit::ALL.is_sorted_by_key(|limit| limit.name()));
    }
}

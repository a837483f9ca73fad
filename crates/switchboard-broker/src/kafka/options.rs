//! Options of the engine, and its address.

use super::connection::Credentials;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_wire::Status;

/// Options of an engine in Kafka. Processes that share topics have the same.
#[derive(Clone, Debug)]
#[must_use = "options have no effect before an engine is created with them"]
pub struct Options {
    pub(super) prefix: String,
    pub(super) partitions: u16,
    pub(super) replicas: Option<u16>,
    pub(super) keep: Duration,
    pub(super) dedup_window: Duration,
    pub(super) dedup_ids_max: usize,
    pub(super) scan_records_max: u64,
    pub(super) topics_max: usize,
    pub(super) uses_given_address: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// Creates the default options.
    pub fn new() -> Options {
        Options {
            prefix: "swb".to_owned(),
            partitions: 16,
            replicas: None,
            keep: Duration::from_secs(7 * 86_400),
            dedup_window: Duration::from_secs(120),
            dedup_ids_max: 100_000,
            scan_records_max: 1_000_000,
            topics_max: 100_000,
            uses_given_address: false,
        }
    }

    /// Sets the name of the topic of Kafka that has the entries; default `swb`. Letters, digits, `.`, `-` and `_`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Options {
        self.prefix = prefix.into();
        self
    }

    /// Sets the number of partitions when the topic of Kafka is created; default 16, at least 1.
    pub fn partitions(mut self, partitions: u16) -> Options {
        self.partitions = partitions.max(1);
        self
    }

    /// Sets the number of replicas when the topic of Kafka is created; the default is that of the servers.
    pub fn replicas(mut self, replicas: u16) -> Options {
        self.replicas = Some(replicas.max(1));
        self
    }

    /// Sets the period that entries are kept when the topic of Kafka is created; default 7 days.
    pub fn keep(mut self, period: Duration) -> Options {
        self.keep = period;
        self
    }

    /// Sets the period in which a publication id is recognised; default 2 minutes, zero for never.
    pub fn dedup_window(mut self, period: Duration) -> Options {
        self.dedup_window = period;
        self
    }

    /// Limits the publication ids that this process remembers of each partition to which it publishes with ids; default
    /// 100,000, at least 1. The oldest are forgotten first.
    pub fn dedup_ids_max(mut self, ids: usize) -> Options {
        self.dedup_ids_max = ids.max(1);
        self
    }

    /// Limits the records of a partition that a subscription to the [`last`](switchboard_message::Subscribe::last)
    /// entries of a topic searches, from the newest one; default 1,000,000.
    pub fn scan_records_max(mut self, records: u64) -> Options {
        self.scan_records_max = records;
        self
    }

    /// Limits the topics that this process follows at a time; default 100,000.
    pub fn topics_max(mut self, topics: usize) -> Options {
        self.topics_max = topics;
        self
    }

    /// Connects to the address of the engine only, not to those that the servers advertise: for one server behind a
    /// tunnel or a forwarded port.
    pub fn uses_given_address(mut self) -> Options {
        self.uses_given_address = true;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_folder = self.prefix == "." || self.prefix == "..";
        if self.prefix.is_empty()
            || self.prefix.len() > 249
            || is_folder
            || !self.prefix.bytes().all(is_plain)
        {
            let text = format!(
                "the prefix \"{}\" of the engine Kafka is not the name of a topic; use 1 to 249 letters, digits, \
                 ., - and _",
                self.prefix
            );
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }
}

/// Servers to begin with, and credentials.
pub(super) struct Address {
    pub(super) servers: Vec<(String, u16)>,
    pub(super) credentials: Option<Credentials>,
}

impl Address {
    /// Parses `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]…`.
    pub(super) fn parse(url: &str) -> Result<Address> {
        // Errors do not show the address, which may contain a password.
        let invalid = |why: &str| {
            Status::invalid_argument(format!(
                "the address of the engine Kafka {why}; write it as kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]"
            ))
        };
        let rest = url.strip_prefix("kafka://").ok_or_else(|| invalid("does not begin with kafka://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, servers) = match rest.rsplit_once('@') {
            Some((credentials, servers)) => (Some(credentials), servers),
            None => (None, rest),
        };
        let credentials = match credentials.map(|credentials| credentials.split_once(':')) {
            None => None,
            Some(None) => return Err(invalid("has a user without a password")),
            Some(Some((user, password))) => {
                let decode = |text| decoded(text).ok_or_else(|| invalid("has an invalid escape"));
                Some(Credentials { user: decode(user)?, password: decode(password)? })
            }
        };
        let server = |text: &str| {
            let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid("has a server without a port"))?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse().map_err(|_| invalid("has an invalid port"))?;
            match host.is_empty() || host.contains('/') {
                true => Err(invalid("has an invalid host")),
                false => Ok((host.to_owned(), port)),
            }
        };
        let servers = servers.split(',').map(server).collect::<Result<_>>()?;
        Ok(Address { servers, credentials })
    }
}

/// Decodes percent escapes.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_servers_and_credentials() {
        let address = Address::parse("kafka://me:p%40ss@one:9092,[::1]:9093/").unwrap();
        assert_eq!(address.servers, [("one".to_owned(), 9092), ("::1".to_owned(), 9093)]);
        let credentials = address.credentials.unwrap();
        assert_eq!((&*credentials.user, &*credentials.password), ("me", "p@ss"));
        assert!(Address::parse("kafka://one:9092").unwrap().credentials.is_none());
        for url in [
            "kafka://",
            "kafka://one",
            "kafka://one:x",
            "kafka://:1",
            "kafka://me@one:1",
            "kafka://a/b:1",
            "kafka://me:%zz@one:1",
            "kafka://one:1,",
        ] {
            let status = Address::parse(url).map(drop).unwrap_err();
            assert!(status.message().contains("write it as kafka://"), "{url}: {status}");
        }
        let status = Address::parse("kafka://me:secret@one:x").map(drop).unwrap_err();
        assert!(!status.message().contains("secret"), "{status}");
    }

    #[test]
    fn a_prefix_is_the_name_of_a_topic() {
        assert!(Options::new().prefix("swb.2-x_y").check().is_ok());
        for prefix in ["", ".", "a b", "a/b", "*", &"x".repeat(250)] {
            assert!(Options::new().prefix(prefix).check().is_err(), "{prefix}");
        }
    }
}

//! Clone: a table of keys and values at a server, and a copy of it at each client.
//!
//! The Clustered Hashmap Protocol, [RFC 12](https://rfc.zeromq.org/spec/12/), with servers and clients of this crate
//! and of others. A client receives a snapshot, then each update with its sequence number. It sends updates to the
//! server, which numbers and publishes them. Values may have a time to live.
//!
//! ```text
//!            ICANHAZ?, subtree ──► P    snapshot   ROUTER
//! client ◄── KVSYNC…, KTHXBAI ──── P
//! (DEALER,   KVPUB…, HUGZ ──────── P+1  updates    PUB      server
//!  SUB, PUB) KVSET ──────────────► P+2  collector  SUB
//! ```
//!
//! A client of this crate has the updates since the snapshot without a hole: it requests the snapshot when its
//! subscription is known to be active, which the first HUGZ shows. When a server is silent, the client goes to the next
//! one, and [`CloneEvent`]s report the differences. A second server [follows](CloneServerBuilder::follow) the first
//! one.

mod client;
mod frames;
mod server;
mod session;
mod snapshot;
mod table;
mod view;

pub use client::{ClientStats, CloneClient, CloneClientBuilder, CloneEvent, CloneEvents};
pub use server::{CloneServer, CloneServerBuilder, ServerStats};

use crate::{Error, ErrorKind, Result};
use switchboard_socket::Endpoint;

/// Endpoints of a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct CloneEndpoints {
    /// Endpoint of the snapshots.
    pub snapshot: String,
    /// Endpoint of the updates of the server.
    pub updates: String,
    /// Endpoint that collects the updates of clients.
    pub collector: String,
}

impl CloneEndpoints {
    /// Returns the endpoints with the ports P, P+1 and P+2 of RFC 12. Port 0 is three ports that the system chooses.
    ///
    /// ```
    /// let endpoints = switchboard_pattern::clone::CloneEndpoints::at("tcp://127.0.0.1:5556")?;
    /// assert_eq!(endpoints.collector, "tcp://127.0.0.1:5558");
    /// # Ok::<_, switchboard_pattern::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for another transport than TCP, and for a port above 65533.
    pub fn at(endpoint: &str) -> Result<CloneEndpoints> {
        let parsed: Endpoint = endpoint.parse()?;
        let Endpoint::Tcp(host, port) = parsed else {
            let text = format!("endpoint {endpoint:?} has no ports; name the three endpoints of the server");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        };
        let offset = u16::from(port != 0);
        let last = port.checked_add(2 * offset).ok_or_else(|| {
            let text =
                format!("endpoint {endpoint:?}: a server has three ports; the highest first one is 65533");
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        let endpoint = |port| Endpoint::Tcp(host.clone(), port).to_string();
        Ok(CloneEndpoints::new(endpoint(port), endpoint(last - offset), endpoint(last)))
    }

    /// Returns three endpoints of any transport.
    pub fn new(
        snapshot: impl Into<String>,
        updates: impl Into<String>,
        collector: impl Into<String>,
    ) -> CloneEndpoints {
        CloneEndpoints { snapshot: snapshot.into(), updates: updates.into(), collector: collector.into() }
    }
}

/// Limits of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CloneLimits {
    /// Bytes of all keys and values; default 64 MiB.
    pub bytes_max: usize,
    /// Number of keys; default 100,000.
    pub entries_max: usize,
    /// Bytes of a key; default 255.
    pub key_bytes_max: usize,
    /// Bytes of the properties of an update; default 1,024.
    pub properties_bytes_max: usize,
    /// Bytes of a value; default 1 MiB.
    pub value_bytes_max: usize,
}

impl Default for CloneLimits {
    fn default() -> CloneLimits {
        CloneLimits {
            bytes_max: 64 << 20,
            entries_max: 100_000,
            key_bytes_max: 255,
            properties_bytes_max: 1024,
            value_bytes_max: 1 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ports_follow_each_other() {
        let at = |endpoint| CloneEndpoints::at(endpoint).map(|at| (at.snapshot, at.updates, at.collector));
        let expected = ("tcp://h:5556".to_owned(), "tcp://h:5557".to_owned(), "tcp://h:5558".to_owned());
        assert_eq!(at("tcp://h:5556").unwrap(), expected);
        assert_eq!(at("tcp://h:0").unwrap().2, "tcp://h:0");
        assert!(at("tcp://h:65533").is_ok());
        for endpoint in ["tcp://h:65534", "ipc:///tmp/x", "x"] {
            assert_eq!(at(endpoint).unwrap_err().kind(), ErrorKind::InvalidInput, "{endpoint}");
        }
    }
}

//! Options of the sockets of the operating system.

use crate::{Error, ErrorKind, Result};
use std::{net::IpAddr, str::FromStr, time::Duration};

/// Options of TCP and Unix sockets. The defaults are those of the system, with `TCP_NODELAY`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TransportOptions {
    /// Address ranges from which TCP connections are accepted (`ZMQ_TCP_ACCEPT_FILTER`); empty accepts all, the
    /// default. Other connections are closed before the handshake and reported as
    /// [`Event::AcceptFailed`](crate::Event::AcceptFailed).
    pub accept_from: Vec<AddressRange>,
    /// Maximum number of connections that wait to be accepted (`ZMQ_BACKLOG`, whose default is 100). The system may
    /// have a lower limit. For `tcp`. Default 4096.
    pub backlog: u32,
    /// Network interface or VRF that TCP sockets use, such as `eth0` (`ZMQ_BINDTODEVICE`). Linux only. Default none.
    pub bind_device: Option<String>,
    /// Users, groups and processes whose `ipc` connections are accepted: a peer needs to be one of them
    /// (`ZMQ_IPC_FILTER_UID`, `_GID`, `_PID`). Empty by default: all are accepted.
    pub ipc_filter: IpcFilter,
    /// Keepalive probes of TCP (`ZMQ_TCP_KEEPALIVE`). Default none. Heartbeats of ZMTP notice more.
    pub keepalive: Option<TcpKeepaliveOptions>,
    /// Size of the receive buffer of the system in bytes (`ZMQ_RCVBUF`). Default that of the system.
    pub receive_buffer_bytes: Option<usize>,
    /// Time after which TCP closes a connection with bytes that are not acknowledged (`ZMQ_TCP_MAXRT`). Linux only.
    /// Default that of the system, about 15 minutes.
    pub retransmit_max: Option<Duration>,
    /// Size of the send buffer of the system in bytes (`ZMQ_SNDBUF`). Default that of the system.
    pub send_buffer_bytes: Option<usize>,
    /// Type of service of TCP packets over IPv4 (`ZMQ_TOS`). Default none.
    pub type_of_service: Option<u32>,
}

impl Default for TransportOptions {
    fn default() -> TransportOptions {
        TransportOptions {
            accept_from: Vec::new(),
            backlog: 4096,
            bind_device: None,
            ipc_filter: IpcFilter::default(),
            keepalive: None,
            receive_buffer_bytes: None,
            retransmit_max: None,
            send_buffer_bytes: None,
            type_of_service: None,
        }
    }
}

/// Keepalive probes of TCP. `None` means the value of the system.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TcpKeepaliveOptions {
    /// Number of probes without a response after which the connection is closed (`ZMQ_TCP_KEEPALIVE_CNT`).
    pub count: Option<u32>,
    /// Time without traffic before the first probe (`ZMQ_TCP_KEEPALIVE_IDLE`).
    pub idle: Option<Duration>,
    /// Pause between probes (`ZMQ_TCP_KEEPALIVE_INTVL`).
    pub interval: Option<Duration>,
}

/// Peers of `ipc` that are accepted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct IpcFilter {
    /// Numbers of groups.
    pub groups: Vec<u32>,
    /// Numbers of processes.
    pub processes: Vec<i32>,
    /// Numbers of users.
    pub users: Vec<u32>,
}

impl IpcFilter {
    /// Returns true if all peers are accepted.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.processes.is_empty() && self.users.is_empty()
    }

    pub(crate) fn accepts(&self, user: u32, group: u32, process: Option<i32>) -> bool {
        self.is_empty()
            || self.users.contains(&user)
            || self.groups.contains(&group)
            || process.is_some_and(|process| self.processes.contains(&process))
    }
}

/// Range of IP addresses: an address, or a network such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AddressRange {
    network: IpAddr,
    prefix_bits: u32,
}

impl AddressRange {
    /// Returns true if the address is in the range. IPv4 addresses in IPv6 notation are IPv4 addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (network, bits) = bits_of(self.network);
        let (address, address_bits) = bits_of(address.to_canonical());
        let rest = bits.saturating_sub(self.prefix_bits);
        let equal = |one: u128, other: u128| one.checked_shr(rest) == other.checked_shr(rest);
        bits == address_bits && equal(network, address)
    }
}

/// Returns the bits of an address, and their number.
fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl FromStr for AddressRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<AddressRange> {
        let invalid = || {
            let text = format!("address range {text:?} is not valid; expected ADDRESS or ADDRESS/BITS");
            Error::new(ErrorKind::InvalidInput, text)
        };
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let network: IpAddr = address.parse().map_err(|_| invalid())?;
        let (_, bits_max) = bits_of(network);
        let prefix_bits = bits.map_or(Ok(bits_max), |bits| bits.parse().map_err(|_| invalid()))?;
        if prefix_bits > bits_max {
            return Err(invalid());
        }
        Ok(AddressRange { network, prefix_bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_their_addresses() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("fe80::/10", "fe80::1", "ff80::1"),
            ("::/0", "::2", "1.2.3.4"),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{range:?} {inside}");
            assert!(!range.contains(outside.parse().unwrap()), "{range:?} {outside}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0.0/", "host", "::/129", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<AddressRange>().unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }

    #[test]
    fn a_filter_of_ipc_accepts_any_of_its_numbers() {
        let filter = IpcFilter { groups: vec![2], processes: vec![3], users: vec![1] };
        for (user, group, process, is_accepted) in
            [(1, 9, None, true), (9, 2, None, true), (9, 9, Some(3), true), (9, 9, Some(9), false)]
        {
            assert_eq!(filter.accepts(user, group, process), is_accepted);
        }
        assert!(IpcFilter::default().accepts(9, 9, None));
    }
}

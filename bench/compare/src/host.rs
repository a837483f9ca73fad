//! Addresses for servers: each server listens on a loopback address that no server used before.
//!
//! A closed connection blocks its port for a minute for sockets that bind to the same address. Connecting without
//! binding uses ports that such connections hold: the system assigns it even ports, and odd ports to sockets that bind,
//! so connections alone never prevent a server from listening. A client that binds each connection before it connects,
//! as erpc does, uses up the odd ports with a connection for each call; then no server could listen on 127.0.0.1 for a
//! minute, with or without `SO_REUSEADDR`. All addresses of 127.0.0.0/8 are this machine, and on another one all ports
//! are free.

use std::{
    net::Ipv4Addr,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Returns an address that no server of this process had; those of other runs differ by their process ids.
pub(super) fn next() -> Ipv4Addr {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    numbered(process::id(), STARTED.fetch_add(1, Ordering::Relaxed))
}

/// Returns 127.P.H.L: P from the process id, up to 199, since clients may bind to those above; H and L count.
fn numbered(process: u32, count: u32) -> Ipv4Addr {
    let part = |number: u32, values: u32| u8::try_from(number % values + 1).expect("at most 254 values");
    Ipv4Addr::new(127, part(process, 199), part(count / 254, 254), part(count, 254))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, net::TcpListener};

    #[test]
    fn servers_of_a_long_run_all_have_other_addresses() {
        let addresses: BTreeSet<Ipv4Addr> = (0..10_000).map(|count| numbered(77, count)).collect();
        assert_eq!(addresses.len(), 10_000);
        assert!(addresses.iter().all(|address| address.is_loopback() && *address != Ipv4Addr::LOCALHOST));
        assert!(!addresses.contains(&numbered(78, 0)));
    }

    #[test]
    fn they_are_addresses_of_this_machine() {
        let (one, other) = (next(), next());
        assert_ne!(one, other);
        for address in [one, other] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            assert_eq!(listener.local_addr().unwrap().ip(), address);
        }
    }
}

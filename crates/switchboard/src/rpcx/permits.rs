//! Limits of tickets: bytes and number for each caller and for all callers, and the charge to the server's memory.
//!
//! A ticket is counted from its call until its connection ends, or until it expires. A caller at its limit
//! gets an error; tickets of other callers are not affected.

use super::Meta;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::{Cx, Result, memory::MemoryCharge};
use switchboard_wire::{Retry, Status};

/// Maximum bytes of one ticket: name and metadata of a file or stream.
pub(super) const TICKET_BYTES_MAX: usize = 16 << 10;
/// Limit of one caller.
const CALLER_MAX: Usage = Usage { tickets: 256, bytes: 256 << 10 };
/// Limit of all callers: four times that of one.
const ALL_MAX: Usage = Usage { tickets: 1024, bytes: 1 << 20 };
/// Retry delay; a ticket that is used is usually held for about a round trip.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bytes of a ticket in addition to its data: the token and the entries in both tables.
const TICKET_BYTES: usize = 256;
/// Bytes of a metadata entry in addition to its texts: two strings in a B-tree, and an allocation for each.
const ENTRY_BYTES: usize = 128;

/// The caller that a ticket is charged to.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Owner {
    /// Network of an IP address: an IPv6 host owns its whole /64.
    Address(IpAddr),
    /// All callers without a name and an address.
    Local,
    /// Authenticated name.
    Name(String),
}

impl Owner {
    pub(super) fn of(cx: &Cx) -> Owner {
        if let Some(caller) = cx.caller() {
            return Owner::Name(caller.name.clone());
        }
        cx.peer().socket.map_or(Owner::Local, |socket| Owner::Address(network(socket.ip())))
    }

    fn bytes(&self) -> usize {
        match self {
            Owner::Name(name) => name.len(),
            Owner::Address(_) | Owner::Local => 0,
        }
    }
}

/// Returns the part of an address that belongs to a single host.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
    }
}

/// Returns the bytes of metadata in memory.
pub(super) fn meta_bytes(meta: &Meta) -> usize {
    meta.iter().map(|(name, value)| name.len() + value.len() + ENTRY_BYTES).sum()
}

/// Rejects a request whose ticket would exceed its limit, before the request is decoded.
///
/// # Errors
/// `ResourceExhausted`.
pub(super) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > TICKET_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "name and metadata of the file or stream have {bytes} bytes ({ENTRY_BYTES} for each entry beside its \
             text); the limit is {TICKET_BYTES_MAX}: send less metadata"
        )));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Usage {
    tickets: usize,
    bytes: usize,
}

impl Usage {
    fn exceeds(self, max: Usage) -> bool {
        self.tickets > max.tickets || self.bytes > max.bytes
    }

    fn plus(self, bytes: usize) -> Usage {
        Usage { tickets: self.tickets + 1, bytes: self.bytes + bytes }
    }

    fn minus(self, bytes: usize) -> Usage {
        Usage { tickets: self.tickets - 1, bytes: self.bytes - bytes }
    }
}

/// Counts the tickets of every caller.
#[derive(Debug, Default)]
pub(super) struct Permits(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Callers with a ticket.
    callers: HashMap<Owner, Usage>,
    all: Usage,
}

/// A permit for one ticket, released on drop.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Arc<Permits>,
    owner: Owner,
    bytes: usize,
    _charge: MemoryCharge,
}

impl Permits {
    /// Takes a permit for a ticket with `bytes` of data.
    ///
    /// # Errors
    /// `ResourceExhausted` if the ticket, those of this caller or all tickets exceed their limit.
    pub(super) fn acquire(self: &Arc<Self>, owner: Owner, bytes: usize, cx: Option<&Cx>) -> Result<Permit> {
        check_bytes(bytes)?;
        let bytes = bytes + owner.bytes() + TICKET_BYTES;
        {
            let mut counts = self.lock();
            let of_caller = counts.callers.get(&owner).copied().unwrap_or_default().plus(bytes);
            let all = counts.all.plus(bytes);
            for (whose, usage, max) in [("this caller", of_caller, CALLER_MAX), ("all callers", all, ALL_MAX)]
            {
                if usage.exceeds(max) {
                    let Usage { tickets, bytes } = max;
                    let text = format!(
                        "no further file or stream: the limit for {whose} is {tickets} at once, with {bytes} bytes \
                         of names and metadata; finish one first"
                    );
                    return Err(Status::resource_exhausted(text).with_retry(Retry::After(RETRY_AFTER)));
                }
            }
            counts.callers.insert(owner.clone(), of_caller);
            counts.all = all;
        }
        let charge = MemoryCharge::new(cx.and_then(|cx| cx.peer().memory.clone()), bytes);
        Ok(Permit { permits: self.clone(), owner, bytes, _charge: charge })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.permits.lock();
        counts.all = counts.all.minus(self.bytes);
        if let Some(usage) = counts.callers.get_mut(&self.owner) {
            *usage = usage.minus(self.bytes);
            if usage.tickets == 0 {
                counts.callers.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    fn name(name: &str) -> Owner {
        Owner::Name(name.to_owned())
    }

    fn fill(permits: &Arc<Permits>, owner: &Owner, bytes: usize) -> Vec<Permit> {
        std::iter::from_fn(|| permits.acquire(owner.clone(), bytes, None).ok()).collect()
    }

    #[test]
    fn a_caller_at_its_limit_leaves_room_for_others() {
        let permits = Arc::new(Permits::default());
        for bytes in [0, TICKET_BYTES_MAX] {
            let mut held = fill(&permits, &name("a"), bytes);
            let usage = permits.lock().callers[&name("a")];
            assert!(held.len() <= CALLER_MAX.tickets && usage.bytes <= CALLER_MAX.bytes, "{usage:?}");
            let refused = permits.acquire(name("a"), bytes, None).unwrap_err();
            assert_eq!(
                (refused.code(), refused.retry()),
                (Code::ResourceExhausted, Retry::After(RETRY_AFTER))
            );
            assert!(refused.message().contains("this caller is 256 at once"), "{refused}");
            let other = permits.acquire(name("b"), bytes, None).unwrap();
            // Only releasing its own tickets makes room for further ones.
            held.pop();
            held.push(permits.acquire(name("a"), bytes, None).unwrap());
            drop((held, other));
            assert_eq!(permits.lock().all, Usage::default());
            assert!(permits.lock().callers.is_empty());
        }
    }

    #[test]
    fn all_callers_together_are_bounded() {
        let permits = Arc::new(Permits::default());
        let held: Vec<_> = (0..100).flat_map(|at| fill(&permits, &name(&at.to_string()), 1000)).collect();
        let all = permits.lock().all;
        assert!(!all.exceeds(ALL_MAX) && all.plus(1000 + TICKET_BYTES + 2).exceeds(ALL_MAX), "{all:?}");
        let refused = permits.acquire(name("new"), 1000, None).unwrap_err();
        assert!(refused.message().contains("all callers is 1024 at once"), "{refused}");
        assert_eq!(all.tickets, held.len());
        drop(held);
        assert_eq!(permits.lock().all, Usage::default());
    }

    #[test]
    fn a_ticket_is_bounded() {
        let refused =
            Arc::<Permits>::default().acquire(Owner::Local, TICKET_BYTES_MAX + 1, None).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("the limit is 16384"), "{refused}");
        let one = Meta::from([("a".to_owned(), "bc".to_owned())]);
        assert_eq!(meta_bytes(&one), 3 + ENTRY_BYTES);
    }

    #[test]
    fn a_host_is_its_network() {
        let network = |text: &str| super::network(text.parse().unwrap()).to_string();
        assert_eq!(network("10.0.0.1"), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}

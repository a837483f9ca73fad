//! A connection of an engine.

use super::encoder::Key;
use crate::{Accepts, Device};
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_adapter::parts::Task;
use switchboard_core::{Peer as Remote, clock};
use switchboard_wire::{
    Metadata,
    goim::{PushForm, Server, Variant, Variants},
};

/// A connection of an engine.
pub(super) struct Peer {
    pub(super) machine: Server,
    pub(super) is_websocket: bool,
    pub(super) remote: Arc<Remote>,
    /// The headers of its handshake, until its credentials are verified.
    pub(super) metadata: Metadata,
    /// Set once the device is verified and connected.
    pub(super) device: Option<Device>,
    /// The verification under way.
    pub(super) login: Option<Task>,
    /// Name in the hub of its room: heartbeats have the number of its members.
    pub(super) room: Option<Box<str>>,
    /// The device has chosen the room: it leaves it when it chooses another. Rooms of the token and of the server stay.
    pub(super) has_chosen: bool,
    /// The address that is counted.
    pub(super) address: Option<IpAddr>,
    /// When it is disconnected without a heartbeat.
    pub(super) deadline: Instant,
    pushes: PushRate,
}

impl Peer {
    pub(super) fn new(variants: Variants, is_websocket: bool, remote: Remote, login: Duration) -> Peer {
        Peer {
            machine: Server::new(variants),
            is_websocket,
            remote: Arc::new(remote),
            metadata: Metadata::new(),
            device: None,
            login: None,
            room: None,
            has_chosen: false,
            address: None,
            deadline: clock::after(clock::now(), login),
            pushes: PushRate::default(),
        }
    }

    /// Returns what determines the bytes of its pushes.
    pub(super) fn key(&self) -> Key {
        let form = PushForm::new(self.machine.variant(), self.is_websocket);
        let accepts = self.device.as_ref().map_or_else(Accepts::all, |device| device.accepts().clone());
        Key { form, accepts }
    }

    /// Returns whether each packet, and not only heartbeats, shows that the device is alive.
    pub(super) fn has_idle_timeout(&self) -> bool {
        self.machine.variant() == Variant::ImCloud && !self.is_websocket && self.device.is_some()
    }

    /// Counts a push of the device to this many receivers; returns false above `per_second`.
    pub(super) fn may_push(&mut self, receivers: usize, per_second: f64) -> bool {
        self.pushes.take(clock::now(), receivers, per_second)
    }
}

/// Pushes of a device in the present second.
#[derive(Default)]
struct PushRate {
    since: Option<Instant>,
    count: u32,
}

impl PushRate {
    fn take(&mut self, now: Instant, receivers: usize, per_second: f64) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.count) = (Some(now), 0);
        }
        let count = self.count.saturating_add(u32::try_from(receivers).unwrap_or(u32::MAX));
        let is_allowed = f64::from(count) <= per_second.max(1.0);
        if is_allowed {
            self.count = count;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_of_a_device_are_limited_by_the_second() {
        let (mut rate, start) = (PushRate::default(), Instant::now());
        let taken = |rate: &mut PushRate, at| (0..5).filter(|_| rate.take(at, 1, 3.0)).count();
        assert_eq!((taken(&mut rate, start), taken(&mut rate, start)), (3, 0));
        assert_eq!(taken(&mut rate, start + Duration::from_secs(1)), 3);
        let later = start + Duration::from_secs(2);
        assert!(!rate.take(later, 4, 3.0) && rate.take(later, 2, 3.0) && !rate.take(later, 2, 3.0));
    }
}

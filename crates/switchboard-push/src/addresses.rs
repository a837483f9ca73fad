//! Addresses of connected devices, which goim counts.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Addresses of connected devices, with their numbers of devices. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<IpAddr, u32>>>);

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A device has connected.
    pub(crate) fn add(&self, address: IpAddr) {
        *self.lock().entry(address).or_insert(0) += 1;
    }

    /// A device has disconnected.
    pub(crate) fn remove(&self, address: IpAddr) {
        let mut devices = self.lock();
        match devices.get_mut(&address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(devices.remove(&address)),
        }
    }

    /// Returns the number of different addresses.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}

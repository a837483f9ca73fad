//! The hub: devices, their users, keys and rooms, and publications to them.

mod builder;
mod device;
mod events;
mod limits;
mod presence;
mod publish;
mod rate;
mod registry;
mod resume;
mod state;
mod targets;

pub use builder::HubBuilder;
pub use device::{Connect, Device, Joined, Publishing};
pub use events::HubEvent;
pub use limits::{DeviceLimit, Heartbeat, HubLimits};
pub use presence::{DeviceInfo, Member, MembersPage};
pub use publish::Publish;
pub use registry::Closer;
pub use targets::{All, Key, Room, RoomPattern, RoomsPage, User};

use crate::{
    counters::{self, HubStats},
    identity::{Credentials, Identity},
    names,
    room::Rooms,
    verifier::{self, Verify},
};
pub(crate) use state::State;
use std::{fmt, sync::Arc};
use switchboard::Result;
use switchboard_message::{Bus, Subscribe};

/// Rooms, users and devices of a push gateway. Cheap to clone; all clones are one hub.
///
/// [`room`](Self::room), [`user`](Self::user), [`key`](Self::key) and [`all`](Self::all) address devices, on every
/// process with the same engine. Counts, members and [`HubStats`] are those of this process.
#[derive(Clone)]
pub struct Hub {
    pub(crate) state: Arc<State>,
}

impl Hub {
    /// Returns the settings of a hub, to be changed.
    pub fn builder() -> HubBuilder {
        HubBuilder::new()
    }

    /// Addresses the members of a room.
    pub fn room(&self, name: impl fmt::Display) -> Room<'_> {
        Room::new(&self.state, name.to_string())
    }

    /// Addresses the members of all rooms whose names match a pattern, `live/*`, and that have a member in this
    /// process.
    pub fn rooms(&self, pattern: impl fmt::Display) -> RoomPattern<'_> {
        RoomPattern::new(&self.state, &pattern.to_string())
    }

    /// Addresses all devices of a user.
    pub fn user(&self, id: impl fmt::Display) -> User<'_> {
        User::new(&self.state, id.to_string())
    }

    /// Addresses the device with a key.
    pub fn key(&self, key: impl fmt::Display) -> Key<'_> {
        Key::new(&self.state, key.to_string())
    }

    /// Addresses all devices. Publications have a rate limit.
    pub fn all(&self) -> All<'_> {
        All::new(&self.state)
    }

    /// Begins to verify the credentials of a device; adapters call it once for each connection. The future is often
    /// ready at its first poll.
    ///
    /// The future fails with `Unauthenticated` for a device that is refused; refusals are counted, and written to the
    /// audit log once for each address and minute.
    pub fn verify(&self, credentials: &Credentials) -> Verify {
        let verify = verifier::verify(&self.state.verifiers, credentials);
        let (counters, protocol) = (self.state.counters.clone(), credentials.protocol);
        let (peer, audit) = (credentials.peer.clone(), self.state.audit_rate.clone());
        Box::pin(async move {
            let verified = verify.await;
            if let Err(status) = &verified {
                counters::add(&counters.refused, 1);
                let host = peer.socket.map(|socket| socket.ip());
                if audit.take(host, 1).is_err() {
                    return verified;
                }
                let code = status.code().name();
                tracing::warn!(
                    target: "switchboard::audit",
                    protocol,
                    peer = peer.address,
                    code,
                    "device refused: {}",
                    status.message()
                );
            }
            verified
        })
    }

    /// Connects a verified device. The device is connected until the returned value is dropped, or
    /// [`Device::disconnect`] is called; `closer` closes its connection when a newer one replaces it.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid user or key, `ResourceExhausted` if the hub or the user has as many devices as
    /// allowed.
    pub fn connect(&self, identity: Identity, connect: Connect, closer: impl Closer) -> Result<Device> {
        Device::connect(self, identity, connect, Box::new(closer))
    }

    /// Subscribes to the lifecycle events of devices and rooms: `await` the result for the subscription. Each event has
    /// a sequence number of its process.
    ///
    /// ```
    /// # use switchboard_message::Delivery;
    /// # use switchboard_push::Hub;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard::Result<()> {
    /// let hub = Hub::builder().open().build().await?;
    /// let mut events = hub.events().await?;
    /// let device = hub.attach("ali").await?;
    /// let Some(Delivery::Entry(event)) = events.next().await? else { panic!("no event") };
    /// assert_eq!((&*event.event, &*event.user), ("connected", "ali"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Subscribe<'_, HubEvent> {
        self.state.bus.subscribe(names::EVENTS)
    }

    /// Returns the bus that has the topics of the hub.
    pub fn bus(&self) -> &Bus {
        &self.state.bus
    }

    /// Returns the settings of a room.
    pub fn room_settings(&self, name: &str) -> &Rooms {
        &self.state.class_of(name).settings
    }

    /// Returns how often devices must show that they are alive.
    pub fn heartbeat(&self) -> Heartbeat {
        self.state.heartbeat
    }

    /// Returns the limits.
    pub fn limits(&self) -> &HubLimits {
        &self.state.limits
    }

    /// Returns the counters of this process.
    pub fn stats(&self) -> HubStats {
        self.state.stats()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

//! Resume tokens.

use super::{Device, Hub};
use crate::tickets::{self, RESUME, Resumed};
use switchboard::Result;
use switchboard_message::{Position, Topic};

impl Hub {
    /// Issues a token with which a device reconnects to any process of the hub without a verification: its owner, key,
    /// rooms, and the positions that it has. It is valid for the
    /// [window](crate::HubBuilder::resume_window), and not longer than the credentials of the device.
    ///
    /// # Errors
    /// `ResourceExhausted` for a device with so many rooms that the token has over 16 KiB.
    pub fn resume_token<'a>(
        &self,
        device: &Device,
        positions: impl IntoIterator<Item = (&'a Topic, Position)>,
    ) -> Result<String> {
        let mut payload = tickets::payload(device.identity(), self.state.resume_window);
        payload.key = Some(device.key().to_owned());
        let mut rooms: Vec<String> = device.rooms().map(|(name, _)| name.to_owned()).collect();
        // Patterns of the token, which permit further rooms.
        let known = payload.rooms.iter().filter(|room| crate::names::room(room).is_err());
        rooms.extend(known.cloned());
        payload.rooms = rooms;
        let position = |(topic, position): (&Topic, Position)| {
            (topic.name().to_owned(), position.epoch, position.offset)
        };
        payload.positions = positions.into_iter().map(position).collect();
        payload.exp = payload.until.map_or(payload.exp, |until| until.min(payload.exp));
        self.state.tickets.sign(RESUME, &payload)
    }

    /// Reads a resume token. [`connect`](Self::connect) with its identity, join its rooms with
    /// [`Device::join_by_server`], and begin after its positions.
    ///
    /// # Errors
    /// `Unauthenticated` for a token that was changed, that has expired, or whose key is not one of the hub.
    pub fn resume(&self, token: &str) -> Result<Resumed> {
        let mut payload = self.state.tickets.read(RESUME, token)?;
        let positions = std::mem::take(&mut payload.positions).into_iter();
        let positions = positions.map(|(name, epoch, offset)| (name, Position { epoch, offset })).collect();
        Ok(Resumed { identity: payload.into(), positions })
    }
}

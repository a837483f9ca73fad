//! Pushes of the interfaces, as publications to the hub.

use crate::{Hub, OPERATION};
use bytes::Bytes;
use switchboard::{Code, Result};
use switchboard_message::{Publication, names};
use switchboard_wire::{Codec, goim::imcloud::Receivers};

/// Rooms that a count considers.
const ROOMS_MAX: usize = 100_000;

/// Publishes a message. `operation` is that of goim; without one, every filter admits the message.
///
/// An invalid key or user is skipped: no device has it. A failure for one receiver does not end the push to the others.
///
/// # Errors
/// The first error of the hub.
pub(crate) async fn publish(hub: &Hub, to: &Receivers, operation: Option<i32>, message: Bytes) -> Result<()> {
    let publication = || {
        let mut publication = Publication::new(Codec::Raw, message.clone());
        if let Some(operation) = operation {
            // The name and the value are valid.
            let _ = publication.headers.insert(OPERATION, operation.to_string());
        }
        publication
    };
    let mut outcome = Ok(());
    let mut keep = |result: Result<()>| {
        if let Err(status) = result
            && status.code() != Code::InvalidArgument
            && outcome.is_ok()
        {
            outcome = Err(status);
        }
    };
    match to {
        Receivers::All => return hub.all().publish_encoded(publication()).await.map(|_| ()),
        Receivers::Room(key) => {
            return hub.room(room_name(key)).publish_encoded(publication()).await.map(|_| ());
        }
        Receivers::Keys(keys) => {
            for key in keys.iter().filter(|key| !key.is_empty()) {
                keep(hub.key(key).publish_encoded(publication()).await.map(|_| ()));
            }
        }
        Receivers::Mids(mids) => {
            // 0 is no user.
            for mid in mids.iter().filter(|mid| **mid != 0) {
                keep(hub.user(mid).publish_encoded(publication()).await.map(|_| ()));
            }
        }
    }
    outcome
}

/// Returns the name in the hub of a room of goim: `type://id` is `type/id`.
pub(crate) fn room_name(key: &str) -> String {
    names::from_separated(key, "://")
}

/// Returns the number of members of a room of goim.
pub(super) fn room_count(hub: &Hub, key: &str) -> usize {
    hub.room(room_name(key)).count()
}

/// Returns the rooms of goim whose keys begin with `prefix`, without their types, by their numbers of members: at most
/// `limit`, the fullest first.
pub(super) fn fullest(hub: &Hub, prefix: &str, limit: usize) -> Vec<(String, usize)> {
    let rooms = hub.rooms(">").list(ROOMS_MAX).unwrap_or_default();
    let keys = rooms.into_iter().map(|(name, count)| (names::to_separated(&name, "://"), count));
    let mut found: Vec<(String, usize)> = keys
        .filter(|(key, _)| key.starts_with(prefix))
        .filter_map(|(key, count)| Some((key.split_once("://")?.1.to_owned(), count)))
        .collect();
    found.sort_by(|(name, count), (other, other_count)| other_count.cmp(count).then_with(|| name.cmp(other)));
    found.truncate(limit);
    found
}

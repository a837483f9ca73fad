//! Members of rooms and devices of users, for lists.

use super::registry::{Members, Session};
use bytes::Bytes;
use std::{ops::Bound, time::SystemTime};

/// A connected device, as lists show it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Number of the connection.
    pub session: u64,
    /// Id of the user; empty if it has none.
    pub user: String,
    /// Key.
    pub key: String,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Address of the peer.
    pub address: Option<String>,
    /// Time of the connection.
    pub since: SystemTime,
    /// Information for the members of its rooms.
    pub info: Bytes,
}

impl From<&Session> for DeviceInfo {
    fn from(session: &Session) -> DeviceInfo {
        DeviceInfo {
            session: session.id,
            user: (*session.user).to_owned(),
            key: (*session.key).to_owned(),
            protocol: session.protocol,
            address: session.address.as_deref().map(str::to_owned),
            since: session.since,
            info: session.info.clone(),
        }
    }
}

/// A member of a room.
pub type Member = DeviceInfo;

/// Some of the members of a room, in the order of their connections.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct MembersPage {
    /// The members.
    pub members: Vec<Member>,
    /// Number of all members in this process.
    pub count: usize,
    /// The session after which the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// Returns at most `max` members with sessions after `after`.
pub(super) fn page(members: Option<&Members>, after: Option<u64>, max: usize) -> MembersPage {
    let Some(members) = members else { return MembersPage::default() };
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = members.range((from, Bound::Unbounded));
    let listed: Vec<Member> = rest.by_ref().take(max).map(|(_, session)| Member::from(&**session)).collect();
    let next = rest.next().and(listed.last().map(|last| last.session));
    MembersPage { members: listed, count: members.len(), next }
}

//! Presence and history.

use super::{
    adapter::CentrifugeAdapter,
    commands::Work,
    encoder::{client_id, epoch, has_history, kept_publication, position, room},
    ending::Ending,
    errors::Failure,
    peer::Peer,
};
use crate::Hub;
use std::collections::HashSet;
use switchboard::{Code, Result};
use switchboard_fanout::SubscriberId;
use switchboard_message::{Delivery, Position};
use switchboard_wire::centrifuge::{
    Data, Format, History, HistoryResult, Info, PresenceResult, PresenceStats, Reply, code,
};

/// Members whose users are counted.
const COUNTED_MAX: usize = 10_000;

impl CentrifugeAdapter {
    /// Checks that a client may list a channel; returns the name of the room.
    fn listed(&self, peer: &Peer, channel: &str) -> Result<String, Failure> {
        let name = room(channel);
        let may_list = peer.device.as_ref().map_or(Ok(()), |device| device.may_list(&name));
        may_list.map(|()| name).map_err(Failure::from)
    }

    /// Handles *presence*.
    pub(super) fn presence(&mut self, peer: &mut Peer, command: u32, channel: &str) -> Result<(), Ending> {
        let found = self.listed(peer, channel).and_then(|room| presence(&self.context.hub, &room));
        match found {
            Ok(result) => {
                let mut reply = Reply::default();
                (reply.id, reply.presence) = (command, Some(Box::new(result)));
                self.reply(peer, &reply)
            }
            Err(failure) => self.fail(peer, command, failure),
        }
    }

    /// Handles *presence_stats*.
    pub(super) fn presence_stats(
        &mut self,
        peer: &mut Peer,
        command: u32,
        channel: &str,
    ) -> Result<(), Ending> {
        match self.listed(peer, channel) {
            Ok(room) => {
                let mut reply = Reply::default();
                reply.id = command;
                reply.presence_stats = Some(Box::new(presence_stats(&self.context.hub, &room)));
                self.reply(peer, &reply)
            }
            Err(failure) => self.fail(peer, command, failure),
        }
    }

    /// Handles *history*.
    pub(super) fn history(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        command: u32,
        request: &History,
    ) -> Result<(), Ending> {
        let name = room(&request.channel);
        let may_read = peer.device.as_ref().map_or(Ok(()), |device| device.may_read(&name));
        if let Err(status) = may_read {
            return self.fail(peer, command, Failure::from(status));
        }
        let (hub, format, request) = (self.context.hub.clone(), peer.format(), request.clone());
        let work: Work = Box::pin(async move {
            match history(&hub, &name, &request, format).await {
                Ok(result) => {
                    let mut reply = Reply::default();
                    (reply.id, reply.history) = (command, Some(Box::new(result)));
                    reply
                }
                Err(failure) => failure.reply(command),
            }
        });
        self.spawn(id, peer, command, work)
    }
}

/// Returns the clients in a room.
///
/// # Errors
/// The room has more members than a page.
pub(crate) fn presence(hub: &Hub, room: &str) -> Result<PresenceResult, Failure> {
    let page = hub.room(room).members(None, usize::MAX);
    if page.next.is_some() {
        let text = format!("channel has {} clients, more than page_max; use presence_stats", page.count);
        return Err(Failure::new(code::LIMIT_EXCEEDED, text));
    }
    let mut result = PresenceResult::default();
    for member in page.members {
        let mut info = Info::default();
        (info.user, info.client) = (member.user, client_id(member.session));
        info.conn_info = Data::for_json(&member.info).filter(|_| !member.info.is_empty()).unwrap_or_default();
        result.presence.insert(info.client.clone(), info);
    }
    Ok(result)
}

/// Counts the clients and the users in a room. The users are those of the first 10,000 clients.
pub(crate) fn presence_stats(hub: &Hub, room: &str) -> PresenceStats {
    let (mut users, mut counted, mut after) = (HashSet::new(), 0_usize, None);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut stats = PresenceStats::default();
    loop {
        let page = hub.room(room).members(after, usize::MAX);
        counted = counted.saturating_add(page.members.len());
        users.extend(page.members.into_iter().map(|member| member.user));
        (stats.num_clients, stats.num_users) = (number(page.count), number(users.len()));
        after = page.next;
        if after.is_none() || counted >= COUNTED_MAX {
            return stats;
        }
    }
}

/// Reads kept publications of a room.
pub(crate) async fn history(
    hub: &Hub,
    room: &str,
    request: &History,
    format: Format,
) -> Result<HistoryResult, Failure> {
    if !has_history(hub, room) {
        return Err(Failure::new(code::NOT_AVAILABLE, "the channel has no history"));
    }
    if request.reverse && request.since.is_some() {
        let text = "history cannot be read backwards from a position; leave out since or reverse";
        return Err(Failure::new(code::NOT_AVAILABLE, text));
    }
    let max = hub.limits().page_max;
    let wanted = usize::try_from(request.limit).unwrap_or(max).min(max);
    let after = request.since.as_ref().map(|since| position(&since.epoch, since.offset));
    let (mut entries, has_other_epoch) = read(hub, room, after, wanted.max(1)).await?;
    let mut result = HistoryResult::default();
    let head = if after.is_none() { entries.last().map(|(at, _)| *at) } else { head(hub, room).await? };
    if let Some(head) = head {
        (result.epoch, result.offset) = (epoch(head), head.offset);
    }
    if has_other_epoch {
        let text = "the position is of another log, or not kept; read without since";
        return Err(Failure::new(code::UNRECOVERABLE_POSITION, text));
    }
    if wanted == 0 {
        return Ok(result);
    }
    if request.reverse {
        entries.reverse();
    }
    let publications = entries.iter().filter_map(|(_, message)| kept_publication(format, message));
    result.publications = publications.collect();
    Ok(result)
}

type Entries = Vec<(Position, switchboard_message::Message<bytes::Bytes>)>;

/// Reads entries, and whether some after the position are missing.
async fn read(
    hub: &Hub,
    room: &str,
    after: Option<Position>,
    max: usize,
) -> Result<(Entries, bool), Failure> {
    let page = match hub.room(room).history(after, max).await {
        Ok(page) => page,
        Err(status) if status.code() == Code::NotFound => return Ok((Vec::new(), false)),
        Err(status) => return Err(Failure::from(status)),
    };
    let mut is_missing = false;
    let mut entries = Vec::new();
    for delivery in page.deliveries {
        match delivery {
            Delivery::Entry(message) => entries.push((message.position(), message)),
            Delivery::Gap(_) => is_missing = true,
            _ => {}
        }
    }
    Ok((entries, is_missing && after.is_some()))
}

async fn head(hub: &Hub, room: &str) -> Result<Option<Position>, Failure> {
    Ok(read(hub, room, None, 1).await?.0.last().map(|(at, _)| *at))
}

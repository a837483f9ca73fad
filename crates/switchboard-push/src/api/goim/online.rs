//! `GET /goim/online/*` and `GET /goim/nodes/*`.

use super::{
    bind::Query,
    response::{bad_query, data},
};
use crate::{
    Hub,
    api::{Nodes, publish},
};
use serde::Serialize;
use std::collections::BTreeMap;
use switchboard::plugin::{RouteHead, RouteResponse};
use switchboard_wire::goim::room_key;

/// Lists that a path names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum List {
    Instances,
    Room,
    Top,
    Total,
    Weighted,
}

/// A room with its number of members.
#[derive(Serialize)]
struct Top {
    room_id: String,
    count: usize,
}

#[derive(Serialize)]
struct Total {
    conn_count: u64,
    ip_count: u64,
}

/// Responds to a request for a list.
pub(crate) fn online(hub: &Hub, nodes: &Nodes, ip_count: u64, list: List, head: &RouteHead) -> RouteResponse {
    let response = match list {
        List::Instances => Ok(data(&nodes.instances())),
        List::Room => room(hub, head),
        List::Top => top(hub, head),
        List::Total => Ok(data(&Total { conn_count: hub.stats().devices, ip_count })),
        List::Weighted => Ok(data(&nodes.weighted(Query::new(head).text("platform")))),
    };
    response.unwrap_or_else(|why| bad_query(&why))
}

fn top(hub: &Hub, head: &RouteHead) -> Result<RouteResponse, String> {
    let mut query = Query::new(head);
    let kind = query.required_text("type", "Type");
    let limit = query.required_int("limit", "Limit")?;
    query.check()?;
    let limit = usize::try_from(limit).unwrap_or(0);
    let rooms = publish::fullest(hub, kind, limit).into_iter();
    Ok(data(&rooms.map(|(room_id, count)| Top { room_id, count }).collect::<Vec<_>>()))
}

fn room(hub: &Hub, head: &RouteHead) -> Result<RouteResponse, String> {
    let mut query = Query::new(head);
    let kind = query.required_text("type", "Type");
    let rooms = query.required_texts("rooms", "Rooms");
    query.check()?;
    let counts: BTreeMap<String, usize> = rooms
        .into_iter()
        .map(|room| {
            let count = publish::room_count(hub, &room_key(kind, &room));
            (room, count)
        })
        .collect();
    Ok(data(&counts))
}

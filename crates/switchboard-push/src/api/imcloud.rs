//! Paths of im-cloud's logic, with its responses byte for byte.

use super::{
    Nodes,
    form::parameters,
    goim::{List, Target},
    publish,
};
use crate::Hub;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use switchboard::plugin::{RouteHead, RouteResponse};
use switchboard_wire::goim::{
    imcloud::{ACCEPTED, MISSING_PARAMETER, Push, PushKind},
    room_key,
};

const JSON: &str = "application/json";

/// A room with its number of members.
#[derive(Serialize)]
struct Top {
    #[serde(rename = "roomId")]
    room_id: String,
    count: usize,
}

#[derive(Serialize)]
struct Total {
    ip_count: u64,
    conn_count: u64,
}

/// Responds to a push. im-cloud responds before it pushes: a failure of the push is not reported, but logged.
pub(super) async fn push(hub: &Hub, target: Target, head: &RouteHead, body: &Bytes) -> RouteResponse {
    let kind = match target {
        Target::All => PushKind::All,
        Target::Keys => PushKind::Keys,
        Target::Mids => PushKind::Mids,
        Target::Room => PushKind::Room,
    };
    let Some(push) = Push::from_parameters(kind, &parameters(head, body)) else {
        return json(MISSING_PARAMETER);
    };
    if let Err(status) = publish::publish(hub, &push.to, None, push.message).await {
        tracing::warn!(path = head.path, "im-cloud: push: {status}");
    }
    json(ACCEPTED)
}

/// Responds to a request for a list.
pub(super) fn online(
    hub: &Hub,
    nodes: &Nodes,
    ip_count: u64,
    list: List,
    head: &RouteHead,
    body: &Bytes,
) -> RouteResponse {
    let parameters = parameters(head, body);
    let response = match list {
        List::Instances | List::Weighted => Some(data(&nodes.instances())),
        List::Room => room(hub, &parameters),
        List::Top => top(hub, &parameters),
        List::Total => Some(data(&Total { ip_count, conn_count: hub.stats().devices })),
    };
    response.unwrap_or_else(|| json(MISSING_PARAMETER))
}

/// Responds to the check of the registry.
pub(super) fn health() -> RouteResponse {
    RouteResponse::new(200).header("content-type", "text/html").body("ok")
}

fn top(hub: &Hub, parameters: &Map<String, Value>) -> Option<RouteResponse> {
    let kind = text(parameters.get("type")?)?;
    let limit: usize = text(parameters.get("limit")?)?.parse().ok().filter(|limit| *limit > 0)?;
    let prefix = kind.strip_suffix("://").unwrap_or(&kind);
    let rooms = publish::fullest(hub, prefix, limit).into_iter();
    Some(data(&rooms.map(|(room_id, count)| Top { room_id, count }).collect::<Vec<_>>()))
}

fn room(hub: &Hub, parameters: &Map<String, Value>) -> Option<RouteResponse> {
    let kind = text(parameters.get("type")?)?;
    let rooms = match parameters.get("rooms")? {
        Value::Array(rooms) => rooms.iter().filter_map(text).collect(),
        single => vec![text(single)?],
    };
    if rooms.is_empty() {
        return None;
    }
    let counts: BTreeMap<String, usize> = rooms
        .into_iter()
        .map(|room| {
            let count = publish::room_count(hub, &room_key(&kind, &room));
            (room, count)
        })
        .collect();
    Some(data(&counts))
}

/// Returns a text or number that is not empty.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(text).filter(|text| !text.is_empty())
}

fn data(data: &impl Serialize) -> RouteResponse {
    // Lists and numbers have JSON.
    let data = serde_json::to_string(data).unwrap_or_else(|_| "[]".to_owned());
    json(&format!("{{\"msg\":\"\",\"data\":{data},\"code\":0}}"))
}

fn json(body: &str) -> RouteResponse {
    RouteResponse::new(200).header("content-type", JSON).body(body.to_owned())
}

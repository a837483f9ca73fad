//! `POST /goim/push/*`.

use super::{
    bind::Query,
    response::{BAD_REQUEST, OK, SERVER_ERROR, bad_query, error},
};
use crate::{Hub, api::publish::publish};
use bytes::Bytes;
use switchboard::plugin::{RouteHead, RouteResponse};
use switchboard_wire::goim::{imcloud::Receivers, room_key};

/// Receivers that a path names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    All,
    Keys,
    Mids,
    Room,
}

/// A push as the query describes it.
struct Push {
    operation: i32,
    to: Receivers,
}

/// Responds to a push.
pub(crate) async fn push(hub: &Hub, target: Target, head: &RouteHead, message: Bytes) -> RouteResponse {
    let Push { operation, to } = match read(target, head) {
        Ok(push) => push,
        Err(why) => return bad_query(&why),
    };
    if to == Receivers::Keys(Vec::new()) {
        // goim queries its store for no key, which is an error there.
        return error(BAD_REQUEST, "");
    }
    match publish(hub, &to, Some(operation), message).await {
        Ok(()) => error(OK, ""),
        Err(_) if target == Target::Keys => error(BAD_REQUEST, ""),
        Err(status) => error(SERVER_ERROR, status.message()),
    }
}

fn read(target: Target, head: &RouteHead) -> Result<Push, String> {
    let mut query = Query::new(head);
    let push = match target {
        Target::All => {
            let operation = query.required_int32("operation", "Op")?;
            // Checked as in goim. Devices are written to as fast as they read.
            query.int32("speed")?;
            Push { operation, to: Receivers::All }
        }
        Target::Keys => {
            Push { operation: query.int32("operation")?, to: Receivers::Keys(query.texts("keys")) }
        }
        Target::Mids => {
            Push { operation: query.int32("operation")?, to: Receivers::Mids(query.int64s("mids")?) }
        }
        Target::Room => {
            let operation = query.required_int32("operation", "Op")?;
            let kind = query.required_text("type", "Type");
            let room = query.required_text("room", "Room");
            Push { operation, to: Receivers::Room(room_key(kind, room)) }
        }
    };
    query.check()?;
    Ok(push)
}

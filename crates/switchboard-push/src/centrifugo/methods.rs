//! Methods of the interface, on the hub.

use super::request::{Batch, Channels, Failed, Method, Publish, Target};
use crate::{
    Hub,
    adapter::centrifuge::{TAGS, channel, client_id, epoch, history, presence, presence_stats, room},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use switchboard::Result;
use switchboard_core::layer::BoxFuture;
use switchboard_message::{Position, Publication};
use switchboard_wire::{
    Codec,
    centrifuge::{Channel, Format, History, code},
};

/// Requests of a batch, and channels of a broadcast.
const BATCH_MAX: usize = 1_000;

/// Performs a request; returns the body of the response.
pub(super) fn perform(hub: &Hub, method: Method, body: Value) -> BoxFuture<'_, Value> {
    Box::pin(async move {
        match run(hub, method, body).await {
            Ok(result) => json!({ "result": result }),
            Err(failed) => failed.response(),
        }
    })
}

fn read<T: DeserializeOwned>(body: &Value) -> Result<T, Failed> {
    // Data keeps its text in a body that is parsed from text.
    let text = body.to_string();
    serde_json::from_str(&text).map_err(|error| Failed::bad_request(format!("the request: {error}")))
}

async fn run(hub: &Hub, method: Method, body: Value) -> Result<Value, Failed> {
    match method {
        Method::Publish => {
            let request: Publish = read(&body)?;
            publish(hub, &request, &request.channel).await
        }
        Method::Broadcast => broadcast(hub, read(&body)?).await,
        Method::Subscribe | Method::Unsubscribe | Method::Disconnect => order(hub, method, &read(&body)?),
        Method::Presence => {
            let request: Channel = read(&body)?;
            Ok(object(presence(hub, &room(named(&request.channel)?))?))
        }
        Method::PresenceStats => {
            let request: Channel = read(&body)?;
            Ok(object(presence_stats(hub, &room(named(&request.channel)?))))
        }
        Method::History => {
            let request: History = read(&body)?;
            let name = room(named(&request.channel)?);
            Ok(object(history(hub, &name, &request, Format::Json).await?))
        }
        Method::Channels => channels(hub, &read(&body)?),
        Method::Info => {
            let stats = hub.stats();
            let node = json!({
                "uid": client_id(hub.state.node), "name": "switchboard", "version": env!("CARGO_PKG_VERSION"),
                "num_clients": stats.devices, "num_users": stats.users, "num_channels": stats.rooms,
            });
            Ok(json!({ "nodes": [node] }))
        }
        Method::Batch => batch(hub, read(&body)?).await,
    }
}

/// Returns a result with the fields that Centrifugo's programs expect, also if they are empty.
fn object(result: impl serde::Serialize) -> Value {
    serde_json::to_value(result).unwrap_or_else(|_| json!({}))
}

fn named(channel: &str) -> Result<&str, Failed> {
    match channel {
        "" => Err(Failed::bad_request("the request has no channel")),
        channel => Ok(channel),
    }
}

async fn publish(hub: &Hub, request: &Publish, channel: &str) -> Result<Value, Failed> {
    let name = room(named(channel)?);
    let data = match (&request.data, request.b64data.is_empty()) {
        (Some(data), true) => Bytes::from(data.get().to_owned()),
        (None, false) => STANDARD
            .decode(&request.b64data)
            .map_err(|error| Failed::bad_request(format!("b64data: {error}")))?
            .into(),
        (None, true) => return Err(Failed::bad_request("the request has no data")),
        (Some(_), false) => return Err(Failed::bad_request("the request has data and b64data")),
    };
    let codec = if request.data.is_some() { Codec::Json } else { Codec::Raw };
    let mut publication = Publication::new(codec, data);
    publication.id = request.idempotency_key.clone().into();
    if !request.tags.is_empty() {
        let tags = serde_json::to_string(&request.tags).unwrap_or_default();
        publication
            .headers
            .insert(TAGS, tags)
            .map_err(|invalid| Failed::bad_request(format!("tags: {invalid}")))?;
    }
    let at: Position = hub.room(name).publish_encoded(publication).await?;
    Ok(json!({ "offset": at.offset, "epoch": epoch(at) }))
}

async fn broadcast(hub: &Hub, request: Publish) -> Result<Value, Failed> {
    limited("channels", request.channels.len())?;
    let mut responses = Vec::with_capacity(request.channels.len());
    for channel in &request.channels {
        responses.push(match publish(hub, &request, channel).await {
            Ok(result) => json!({ "result": result }),
            Err(failed) => failed.response(),
        });
    }
    Ok(json!({ "responses": responses }))
}

fn limited(what: &str, count: usize) -> Result<(), Failed> {
    if count > BATCH_MAX {
        return Err(Failed::bad_request(format!("{count} {what}; the limit is {BATCH_MAX}")));
    }
    Ok(())
}

/// Orders to the devices of a user, or to one connection of this process.
fn order(hub: &Hub, method: Method, request: &Target) -> Result<Value, Failed> {
    let name = || named(&request.channel).map(room);
    let reason = &request.disconnect.reason;
    if request.client.is_empty() {
        if request.user.is_empty() {
            return Err(Failed::bad_request("the request has no user and no client"));
        }
        let user = hub.user(&request.user);
        match method {
            Method::Subscribe => user.join(name()?)?,
            Method::Unsubscribe => user.leave(name()?)?,
            _ => user.close(reason)?,
        }
        return Ok(json!({}));
    }
    let devices = hub.user(&request.user).devices();
    let found = devices.into_iter().find(|device| client_id(device.session) == request.client);
    let Some(device) = found else {
        let text = "the user has no such client in this process";
        return Err(crate::adapter::centrifuge::Failure::new(code::BAD_REQUEST, text).into());
    };
    let key = hub.key(&device.key);
    match method {
        Method::Subscribe => key.join(name()?)?,
        Method::Unsubscribe => key.leave(name()?)?,
        _ => key.close(reason)?,
    }
    Ok(json!({}))
}

fn channels(hub: &Hub, request: &Channels) -> Result<Value, Failed> {
    let pattern = if request.pattern.is_empty() { ">".to_owned() } else { room(&request.pattern) };
    let rooms = hub.rooms(&pattern).list(hub.limits().page_max)?;
    let found: Map<String, Value> =
        rooms.into_iter().map(|(name, count)| (channel(&name), json!({ "num_clients": count }))).collect();
    Ok(json!({ "channels": found }))
}

async fn batch(hub: &Hub, request: Batch) -> Result<Value, Failed> {
    limited("commands", request.commands.len())?;
    let mut replies = Vec::with_capacity(request.commands.len());
    for command in request.commands {
        let mut named = command.into_iter();
        let found = match (named.next(), named.next()) {
            (Some((name, body)), None) => Method::of(&name).map(|method| (name, method, body)),
            _ => None,
        };
        let reply = match found {
            Some((_, Method::Batch, _)) | None => {
                Failed::bad_request("a command of a batch has the name of one method, and its request")
                    .response()
            }
            Some((name, method, body)) => match perform(hub, method, body).await {
                Value::Object(mut fields) => match fields.remove("result") {
                    Some(result) => json!({ name: result }),
                    None => Value::Object(fields),
                },
                other => other,
            },
        };
        replies.push(reply);
    }
    Ok(json!({ "replies": replies }))
}

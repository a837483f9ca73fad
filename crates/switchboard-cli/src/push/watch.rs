//! `switchboard push watch`.

use super::{
    args::WatchArgs,
    client::{authorization, connect, position},
};
use crate::{
    bus::parts::{limited, payload, print_bytes, print_json, report},
    call::{Failure, metadata},
};
use serde_json::{Value, json};
use switchboard::{Codec, Metadata, Status};
use switchboard_message::Position;
use switchboard_push::v1::{
    self, DevicesClient, SubscribeEvent, room_start::Start, subscribe_event::Event, topic::Topic,
};

/// Prints the entries of a device until it is disconnected.
pub(super) async fn run(args: &WatchArgs) -> Result<(), Failure> {
    if args.after.is_some() && args.rooms.len() != 1 {
        let text = format!("--after is a position of one room, and {} rooms are given", args.rooms.len());
        return Err(Failure::Usage(text));
    }
    limited(args.server.timeout, watch(args)).await
}

async fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let client = DevicesClient::new(connect(&args.server).await?);
    let mut call = client.subscribe(request(args));
    if let Some(authorization) = authorization(&args.server) {
        call = call.meta("authorization", authorization);
    }
    let mut events = call.await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = events.next().await?;
        match event.and_then(|event: SubscribeEvent| event.event) {
            None => return Err(Status::unavailable("the gateway has ended the stream").into()),
            Some(Event::Entry(entry)) => {
                print_entry(args, &entry)?;
                left -= 1;
            }
            Some(Event::Disconnected(event)) => return Err(disconnected(&event)),
            Some(event) => note(args, &event)?,
        }
    }
    Ok(())
}

fn request(args: &WatchArgs) -> v1::SubscribeRequest {
    let start = match (args.after, args.last) {
        (Some(Position { epoch, offset }), _) => {
            Some(Start::After(v1::Position { epoch, offset, ..Default::default() }.into()))
        }
        (None, last) => last.map(Start::Last),
    };
    let room =
        |room: &String| v1::RoomStart { room: room.clone(), start: start.clone(), ..Default::default() };
    v1::SubscribeRequest {
        rooms: args.rooms.iter().map(room).collect(),
        key: args.key.clone().unwrap_or_default(),
        user: args.user.clone().unwrap_or_default(),
        accepts: args.accepts.clone(),
        ..Default::default()
    }
}

/// Returns the name of the source of an entry: `room/live/7`, `user`, `key` or `all`.
fn source(topic: &v1::Topic) -> String {
    match &topic.topic {
        Some(Topic::Room(room)) => format!("room/{room}"),
        Some(Topic::User(_)) => "user".to_owned(),
        Some(Topic::Key(_)) => "key".to_owned(),
        _ => "all".to_owned(),
    }
}

fn print_entry(args: &WatchArgs, entry: &v1::Entry) -> Result<(), Failure> {
    let (topic, place) = (source(&entry.topic), position(entry.position.as_option()));
    if !args.server.json {
        let mut line = format!("{topic} {place} ").into_bytes();
        line.extend_from_slice(&entry.payload);
        return print_bytes(&line, args.print);
    }
    let mut object = json!({
        "topic": topic,
        "position": place,
        "offset": entry.position.offset,
        "codec": entry.codec,
    });
    let codec = if entry.codec == Codec::Json.name() { Codec::Json } else { Codec::Raw };
    payload(&mut object, codec, &entry.payload);
    if let Some(operation) = entry.operation {
        object["operation"] = operation.into();
    }
    let mut headers = Metadata::new();
    for header in &entry.headers {
        // The gateway has checked them.
        let _ = headers.insert(&header.name, header.value.clone());
    }
    if !headers.is_empty() {
        object["headers"] = metadata::json(&headers);
    }
    print_json(&object)
}

/// Reports an event that is no entry: an object in its place, or a line on standard error.
fn note(args: &WatchArgs, event: &Event) -> Result<(), Failure> {
    let (text, object) = match event {
        Event::Connected(connected) => {
            let rooms = if args.rooms.is_empty() { "no room".to_owned() } else { args.rooms.join(", ") };
            let text = format!("connected with key {}, in {rooms}", connected.key);
            (text, json!({"connected": {"key": connected.key, "user": connected.user}}))
        }
        Event::Gap(gap) => gap_of(gap),
        Event::Recovered(recovered) => {
            let topic = source(&recovered.topic);
            (format!("{topic}: nothing is missing"), json!({"recovered": {"topic": topic}}))
        }
        Event::Joined(change) => {
            (format!("joined {}", change.room), json!({"joined": {"room": change.room}}))
        }
        Event::Left(change) => (format!("left {}", change.room), json!({"left": {"room": change.room}})),
        _ => return Ok(()),
    };
    if args.server.json {
        return print_json(&object);
    }
    report(&text);
    Ok(())
}

fn gap_of(gap: &v1::Gap) -> (String, Value) {
    let topic = source(&gap.topic);
    let missing = gap.missing.map_or_else(|| "entries are".to_owned(), |missing| format!("{missing} are"));
    let text = format!(
        "switchboard: {topic}: {missing} missing, from offset {} to {}: {}",
        gap.first_offset, gap.end_offset, gap.reason
    );
    let object = json!({"gap": {
        "topic": topic,
        "from": gap.first_offset,
        "to": gap.end_offset,
        "missing": gap.missing,
        "reason": gap.reason,
    }});
    (text, object)
}

/// Returns the failure of a device that was disconnected.
fn disconnected(event: &v1::Disconnected) -> Failure {
    let mut text = format!("the gateway disconnected the device: {}", event.reason);
    if !event.text.is_empty() {
        text += &format!(": {}", event.text);
    }
    Status::aborted(text).into()
}

//! How entries, gaps and topics are printed.

use super::{
    args::PrintArgs,
    escape::{escaped, escaped_json, is_terminal},
};
use crate::{
    call::{Failure, metadata},
    serving,
};
use bytes::Bytes;
use serde_json::{Value, json};
use std::str;
use switchboard::Codec;
use switchboard_message::{Gap, ListedTopic, Message, Position};

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    serving::print(text).map_err(Failure::Output)
}

/// Writes an object on a line.
pub(crate) fn print_json(object: &Value) -> Result<(), Failure> {
    let line = format!("{object}\n");
    print(&if is_terminal() { escaped_json(&line) } else { line })
}

/// Writes bytes with a line feed: as they are, or to a terminal without control characters.
pub(crate) fn print_bytes(bytes: &[u8], args: PrintArgs) -> Result<(), Failure> {
    use std::io::Write;
    if !args.raw && is_terminal() {
        return print(&format!("{}\n", escaped(bytes)));
    }
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| Failure::Output(format!("cannot write to standard output: {error}")))
}

/// Prints the position of a message.
pub(super) fn published(topic: &str, position: Position, is_json: bool) -> Result<(), Failure> {
    match is_json {
        true => {
            print_json(&json!({"topic": topic, "position": position.to_string(), "offset": position.offset}))
        }
        false => print(&format!("{position}\n")),
    }
}

/// Prints the id of an entry of a Redis stream.
pub(super) fn appended(stream: &str, id: &str, is_json: bool) -> Result<(), Failure> {
    match is_json {
        true => print_json(&json!({"topic": stream, "position": id})),
        false => print(&format!("{id}\n")),
    }
}

/// Reports a message without a position: the number of its receivers, if the protocol has it.
pub(super) fn sent(topic: &str, receivers: Option<i64>, is_json: bool) -> Result<(), Failure> {
    match (is_json, receivers) {
        (true, Some(receivers)) => print_json(&json!({"topic": topic, "receivers": receivers})),
        (true, None) => print_json(&json!({"topic": topic})),
        (false, Some(receivers)) => print(&format!("{receivers}\n")),
        (false, None) => Ok(()),
    }
}

/// Message of ZeroMQ, NATS or Redis.
pub(super) struct Received<'a> {
    /// Topic, subject, channel or stream.
    pub(super) topic: Option<&'a [u8]>,
    /// Id of an entry of a stream.
    pub(super) position: Option<String>,
    /// Message; those of ZeroMQ may have several frames.
    pub(super) frames: &'a [Bytes],
    pub(super) headers: Vec<(String, Bytes)>,
}

/// Prints a message: what it has of topic and position, and its frames.
pub(super) fn received(message: &Received<'_>, is_json: bool, args: PrintArgs) -> Result<(), Failure> {
    if !is_json {
        let position = message.position.as_deref().map(str::as_bytes);
        let parts =
            message.topic.into_iter().chain(position).chain(message.frames.iter().map(|frame| &frame[..]));
        return print_bytes(&parts.collect::<Vec<_>>().join(&b' '), args);
    }
    let mut object = json!({});
    if let Some(topic) = message.topic {
        object["topic"] = String::from_utf8_lossy(topic).into();
    }
    if let Some(position) = &message.position {
        object["position"] = position.as_str().into();
    }
    match message.frames {
        [frame] => payload(&mut object, Codec::Raw, frame),
        frames => {
            let frame = |frame: &Bytes| {
                let mut object = json!({});
                payload(&mut object, Codec::Raw, frame);
                object
            };
            object["frames"] = frames.iter().map(frame).collect();
        }
    }
    if !message.headers.is_empty() {
        let mut headers = serde_json::Map::new();
        for (name, value) in &message.headers {
            let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(metadata::text(name, value).into());
            }
        }
        object["headers"] = headers.into();
    }
    print_json(&object)
}

/// Prints the channels of Redis with the numbers of their subscribers.
pub(super) fn channels(channels: &[(Bytes, i64)], is_json: bool) -> Result<(), Failure> {
    let mut table = String::from("SUBSCRIBERS  CHANNEL\n");
    for (name, subscribers) in channels {
        if is_json {
            print_json(&json!({"topic": String::from_utf8_lossy(name), "subscribers": subscribers}))?;
        }
        table.push_str(&format!("{subscribers:>11}  {}\n", escaped(name)));
    }
    if is_json { Ok(()) } else { print(&table) }
}

/// Prints an entry: its topic, position and payload.
pub(super) fn entry(message: &Message<Bytes>, is_json: bool, args: PrintArgs) -> Result<(), Failure> {
    let (topic, position, entry) = (message.topic().name(), message.position(), message.entry());
    if !is_json {
        let mut line = format!("{topic} {position} ").into_bytes();
        line.extend_from_slice(entry.bytes());
        return print_bytes(&line, args);
    }
    let mut object = json!({
        "topic": topic,
        "position": position.to_string(),
        "offset": position.offset,
        "codec": entry.codec().name(),
    });
    payload(&mut object, entry.codec(), entry.bytes());
    if let Some(key) = entry.key() {
        object["key"] = String::from_utf8_lossy(key).into();
    }
    if let Some(id) = entry.id() {
        object["id"] = String::from_utf8_lossy(id).into();
    }
    if !message.headers().is_empty() {
        object["headers"] = metadata::json(message.headers());
    }
    if message.attempt() > 1 {
        object["attempt"] = message.attempt().into();
    }
    print_json(&object)
}

/// Sets `payload`: JSON as it is, text as a string; other bytes are `payload_base64`.
pub(crate) fn payload(object: &mut Value, codec: Codec, bytes: &[u8]) {
    let parsed = (codec == Codec::Json).then(|| serde_json::from_slice(bytes).ok()).flatten();
    match (parsed, str::from_utf8(bytes)) {
        (Some(value), _) => object["payload"] = value,
        (None, Ok(text)) => object["payload"] = text.into(),
        (None, Err(_)) => object["payload_base64"] = metadata::base64(bytes).into(),
    }
}

/// Reports missing entries: an object in their place, or a line on standard error.
pub(super) fn gap(gap: &Gap, is_json: bool) -> Result<(), Failure> {
    if !is_json {
        super::report(&format!("switchboard: {gap}"));
        return Ok(());
    }
    let object = json!({"gap": {
        "topic": gap.topic.name(),
        "from": gap.range.start,
        "to": gap.range.end,
        "missing": gap.missing,
        "reason": gap.reason.name(),
    }});
    print_json(&object)
}

/// Prints topics as a table, or as an object for each.
pub(super) fn topics(topics: &[ListedTopic], is_json: bool) -> Result<(), Failure> {
    if is_json {
        let object = |listed: &ListedTopic| {
            let stats = &listed.stats;
            json!({
                "topic": listed.topic.name(),
                "entries": stats.entries,
                "bytes": stats.bytes,
                "cursors": stats.cursors,
                "published": stats.published,
                "lagged": stats.lagged,
                "head": stats.head.to_string(),
            })
        };
        return topics.iter().try_for_each(|listed| print_json(&object(listed)));
    }
    let names = topics.iter().map(|listed| escaped(listed.topic.name().as_bytes())).collect::<Vec<_>>();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    let mut table = format!(
        "{:width$}  {:>10}  {:>8}  {:>10}  {:>7}  {:>8}\n",
        "TOPIC", "PUBLISHED", "ENTRIES", "BYTES", "CURSORS", "LAGGED"
    );
    for (listed, name) in topics.iter().zip(&names) {
        let stats = &listed.stats;
        table.push_str(&format!(
            "{name:width$}  {:>10}  {:>8}  {:>10}  {:>7}  {:>8}\n",
            stats.published, stats.entries, stats.bytes, stats.cursors, stats.lagged
        ));
    }
    print(&table)
}

//! How entries, gaps and topics are printed.

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
pub(super) fn print(text: &str) -> Result<(), Failure> {
    serving::print(text).map_err(Failure::Output)
}

/// Writes bytes as they are, with a line feed.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| Failure::Output(format!("cannot write to standard output: {error}")))
}

/// Prints the position of a message.
pub(super) fn published(topic: &str, position: Position, is_json: bool) -> Result<(), Failure> {
    match is_json {
        true => {
            let value = json!({"topic": topic, "position": position.to_string(), "offset": position.offset});
            print(&format!("{value}\n"))
        }
        false => print(&format!("{position}\n")),
    }
}

/// Prints an entry: its topic, position and payload.
pub(super) fn entry(message: &Message<Bytes>, is_json: bool) -> Result<(), Failure> {
    let (topic, position, entry) = (message.topic().name(), message.position(), message.entry());
    if !is_json {
        let mut line = format!("{topic} {position} ").into_bytes();
        line.extend_from_slice(entry.bytes());
        return print_bytes(&line);
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
    print(&format!("{object}\n"))
}

/// Sets `payload`: JSON as it is, text as a string; other bytes are `payload_base64`.
pub(super) fn payload(object: &mut Value, codec: Codec, bytes: &[u8]) {
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
        eprintln!("switchboard: {gap}");
        return Ok(());
    }
    let object = json!({"gap": {
        "topic": gap.topic.name(),
        "from": gap.range.start,
        "to": gap.range.end,
        "missing": gap.missing,
        "reason": gap.reason.name(),
    }});
    print(&format!("{object}\n"))
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
        return print(&topics.iter().map(|listed| format!("{}\n", object(listed))).collect::<String>());
    }
    let width = topics.iter().map(|listed| listed.topic.name().chars().count()).max().unwrap_or(0).max(5);
    let mut table = format!(
        "{:width$}  {:>10}  {:>8}  {:>10}  {:>7}  {:>8}\n",
        "TOPIC", "PUBLISHED", "ENTRIES", "BYTES", "CURSORS", "LAGGED"
    );
    for listed in topics {
        let (name, stats) = (listed.topic.name(), &listed.stats);
        table.push_str(&format!(
            "{name:width$}  {:>10}  {:>8}  {:>10}  {:>7}  {:>8}\n",
            stats.published, stats.entries, stats.bytes, stats.cursors, stats.lagged
        ));
    }
    print(&table)
}

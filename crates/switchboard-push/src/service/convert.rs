//! Conversions between the messages of the schema and the types of the hub.

use super::v1;
use crate::{OPERATION, accepts::of_headers, hub::DeviceInfo, names};
use bytes::Bytes;
use std::time::Duration;
use switchboard::{Codec, Metadata, Result, Status, codegen::buffa_types::google::protobuf};
use switchboard_message::{Gap, Message, Position, Publication};

/// Converts an entry to be published.
pub(super) fn publication(entry: v1::Publication) -> Result<Publication> {
    let mut publication = Publication::new(codec(&entry.codec)?, entry.payload);
    publication.key = entry.key;
    publication.id = entry.id;
    if let Some(period) = entry.expires_in.into_option() {
        let period = Duration::try_from(period).map_err(|error| {
            Status::invalid_argument(format!("field expires_in is not a period: {error}"))
        })?;
        publication.expires_in = Some(period);
    }
    let mut headers = Metadata::new();
    for header in entry.headers {
        insert(&mut headers, &header.name, header.value)?;
    }
    if let Some(operation) = entry.operation {
        insert(&mut headers, OPERATION, operation.to_string())?;
    }
    publication.headers = headers;
    Ok(publication)
}

fn insert(headers: &mut Metadata, name: &str, value: impl Into<Bytes>) -> Result<()> {
    headers.insert(name, value).map_err(|invalid| {
        Status::invalid_argument(format!("header \"{}\" of the entry: {invalid}", name.escape_debug()))
    })
}

fn codec(name: &str) -> Result<Codec> {
    if name.is_empty() {
        return Ok(Codec::Raw);
    }
    Codec::ALL.iter().copied().find(|codec| codec.name() == name).ok_or_else(|| {
        let names: Vec<_> = Codec::ALL.iter().map(|codec| codec.name()).collect();
        let shown: String = name.chars().take(32).collect();
        let text = format!("codec \"{shown}\" of the entry is unknown; use one of {}", names.join(", "));
        Status::invalid_argument(text)
    })
}

pub(super) fn position(position: Position) -> v1::Position {
    let Position { epoch, offset } = position;
    v1::Position { epoch, offset, ..Default::default() }
}

pub(super) fn to_position(position: &v1::Position) -> Position {
    Position { epoch: position.epoch, offset: position.offset }
}

pub(super) fn device(info: DeviceInfo) -> v1::Device {
    v1::Device {
        session: info.session,
        user: info.user,
        key: info.key,
        protocol: info.protocol.to_owned(),
        address: info.address.unwrap_or_default(),
        since: protobuf::Timestamp::from(info.since).into(),
        info: info.info,
        ..Default::default()
    }
}

/// Converts the topic of an entry, as its device sees it.
pub(super) fn topic(name: &str) -> v1::Topic {
    use v1::topic::Topic;
    let topic = match names::room_of(name) {
        Some(room) => Topic::Room(room.to_owned()),
        None if names::is_user(name) => Topic::User(true),
        None if names::is_personal(name) => Topic::Key(true),
        None => Topic::All(true),
    };
    v1::Topic { topic: Some(topic), ..Default::default() }
}

pub(super) fn entry(message: &Message<Bytes>) -> v1::Entry {
    let entry = message.entry();
    let header = |(name, value): (&str, &Bytes)| v1::Header {
        name: name.to_owned(),
        value: value.clone(),
        ..Default::default()
    };
    v1::Entry {
        topic: topic(message.topic().name()).into(),
        position: position(message.position()).into(),
        payload: entry.bytes().clone(),
        codec: entry.codec().name().to_owned(),
        headers: message.headers().iter().filter(|(name, _)| *name != OPERATION).map(header).collect(),
        operation: of_headers(message.headers()),
        ..Default::default()
    }
}

pub(super) fn gap(gap: &Gap) -> v1::Gap {
    v1::Gap {
        topic: topic(gap.topic.name()).into(),
        epoch: gap.epoch,
        first_offset: gap.range.start,
        end_offset: gap.range.end,
        missing: gap.missing,
        reason: gap.reason.name().to_owned(),
        ..Default::default()
    }
}

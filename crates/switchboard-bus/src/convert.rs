//! Conversions between the messages of the schema and the types of the bus.

use crate::v1;
use bytes::Bytes;
use std::time::{Duration, SystemTime};
use switchboard::{Codec, Result, Status, codegen::buffa_types::google::protobuf};
use switchboard_message::{Gap, GapReason, Message, Position, Publication, TopicStats};

/// Converts an entry to be published.
pub(crate) fn publication(entry: v1::Publication) -> Result<Publication> {
    let mut publication = Publication::new(codec(&entry.codec)?, entry.payload);
    publication.key = entry.key;
    publication.id = entry.id;
    if let Some(expires_in) = entry.expires_in.into_option() {
        publication.expires_in = Some(duration("expires_in", expires_in)?);
    }
    for header in entry.headers {
        if let Err(invalid) = publication.headers.insert(&header.name, header.value) {
            let text = format!("header \"{}\" of the entry: {invalid}", header.name.escape_debug());
            return Err(Status::invalid_argument(text));
        }
    }
    Ok(publication)
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

/// Converts a period, which is not negative.
pub(crate) fn duration(field: &str, duration: protobuf::Duration) -> Result<Duration> {
    Duration::try_from(duration)
        .map_err(|error| Status::invalid_argument(format!("field {field} is not a period: {error}")))
}

/// Returns the age of a time; zero for one in the future.
pub(crate) fn age(since: protobuf::Timestamp) -> Result<Duration> {
    let since = SystemTime::try_from(since)
        .map_err(|error| Status::invalid_argument(format!("field since is not a time: {error}")))?;
    Ok(SystemTime::now().duration_since(since).unwrap_or_default())
}

pub(crate) fn position(position: Position) -> v1::Position {
    let Position { epoch, offset } = position;
    v1::Position { epoch, offset, ..Default::default() }
}

pub(crate) fn to_position(position: &v1::Position) -> Position {
    Position { epoch: position.epoch, offset: position.offset }
}

/// Converts a delivered entry, without its `ack_id`.
pub(crate) fn entry(message: &Message<Bytes>) -> v1::Entry {
    let entry = message.entry();
    let headers = message.headers().iter().map(|(name, value)| v1::Header {
        name: name.to_owned(),
        value: value.clone(),
        ..Default::default()
    });
    v1::Entry {
        topic: message.topic().name().to_owned(),
        position: position(message.position()).into(),
        payload: entry.bytes().clone(),
        codec: entry.codec().name().to_owned(),
        headers: headers.collect(),
        key: entry.key().cloned().unwrap_or_default(),
        id: entry.id().cloned().unwrap_or_default(),
        attempt: message.attempt(),
        ..Default::default()
    }
}

pub(crate) fn gap(gap: &Gap) -> v1::Gap {
    let reason = match gap.reason {
        GapReason::Epoch => v1::GapReason::GAP_REASON_EPOCH,
        GapReason::Expired => v1::GapReason::GAP_REASON_EXPIRED,
        GapReason::Lagged => v1::GapReason::GAP_REASON_LAGGED,
        GapReason::Lost => v1::GapReason::GAP_REASON_LOST,
        _ => v1::GapReason::GAP_REASON_UNSPECIFIED,
    };
    v1::Gap {
        topic: gap.topic.name().to_owned(),
        epoch: gap.epoch,
        first_offset: gap.range.start,
        end_offset: gap.range.end,
        missing: gap.missing,
        reason: reason.into(),
        ..Default::default()
    }
}

pub(crate) fn topic(name: String, stats: TopicStats) -> v1::Topic {
    v1::Topic {
        name,
        entries: stats.entries as u64,
        bytes: stats.bytes as u64,
        cursors: stats.cursors as u64,
        published: stats.published,
        duplicates: stats.duplicates,
        conflated: stats.conflated,
        expired: stats.expired,
        lagged: stats.lagged,
        ..Default::default()
    }
}

//! Conversions between the messages of the schema and the types of the bus.

mod client;

pub(crate) use client::{
    selector, since, subscribe_request, to_duration, to_entry, to_gap, to_history, to_publication, to_topic,
};

use crate::v1;
use bytes::Bytes;
use std::time::{Duration, SystemTime};
use switchboard::{Codec, Metadata, Result, Status, codegen::buffa_types::google::protobuf};
use switchboard_core::clock;
use switchboard_message::{
    Checkpoint, Gap, GapReason, Message, Pattern, Position, Publication, Selector, TopicStats,
};

/// Converts an entry to be published.
pub(crate) fn publication(entry: v1::Publication) -> Result<Publication> {
    let mut publication = Publication::new(codec(&entry.codec)?, entry.payload);
    publication.key = entry.key;
    publication.id = entry.id;
    if let Some(expires_in) = entry.expires_in.into_option() {
        publication.expires_in = Some(duration("expires_in", expires_in)?);
    }
    publication.headers = metadata(entry.headers)?;
    Ok(publication)
}

pub(crate) fn metadata(headers: Vec<v1::Header>) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    for header in headers {
        if let Err(invalid) = metadata.insert(&header.name, header.value) {
            let text = format!("header \"{}\" of the entry: {invalid}", header.name.escape_debug());
            return Err(Status::invalid_argument(text));
        }
    }
    Ok(metadata)
}

pub(crate) fn headers(metadata: &Metadata) -> Vec<v1::Header> {
    let header = |(name, value): (&str, &Bytes)| v1::Header {
        name: name.to_owned(),
        value: value.clone(),
        ..Default::default()
    };
    metadata.iter().map(header).collect()
}

/// Converts the topics of a request: a pattern or a name, or a prefix.
pub(crate) fn to_selector(topic: &str, prefix: Option<&Bytes>) -> Result<Selector> {
    match prefix {
        None => Ok(topic.into()),
        Some(prefix) if topic.is_empty() => Ok(Pattern::prefix(prefix.clone()).into()),
        Some(_) => {
            let text = "the request has a name or pattern as well as a prefix; set one of them";
            Err(Status::invalid_argument(text))
        }
    }
}

pub(crate) fn codec(name: &str) -> Result<Codec> {
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
    Ok(clock::time_of_day().duration_since(since).unwrap_or_default())
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
    v1::Entry {
        topic: message.topic().name().to_owned(),
        position: position(message.position()).into(),
        payload: entry.bytes().clone(),
        codec: entry.codec().name().to_owned(),
        headers: headers(message.headers()),
        key: entry.key().cloned().unwrap_or_default(),
        id: entry.id().cloned().unwrap_or_default(),
        attempt: message.attempt(),
        reply_to: message.reply_to().unwrap_or_default().to_owned(),
        ..Default::default()
    }
}

pub(crate) fn from_checkpoint(checkpoint: &Checkpoint) -> v1::Checkpoint {
    let Checkpoint { epoch, sequences, .. } = checkpoint;
    v1::Checkpoint { epoch: *epoch, sequences: sequences.clone(), ..Default::default() }
}

pub(crate) fn to_checkpoint(checkpoint: v1::Checkpoint) -> Checkpoint {
    Checkpoint::new(checkpoint.epoch, checkpoint.sequences)
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

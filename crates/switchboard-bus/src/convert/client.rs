//! Conversions of the caller's side.

use super::{codec, from_checkpoint, headers, metadata, position, to_position};
use crate::v1::{self, subscribe_request::Start};
use bytes::Bytes;
use std::time::{Duration, SystemTime};
use switchboard::{Result, codegen::buffa_types::google::protobuf};
use switchboard_core::clock;
use switchboard_message::{
    Gap, GapReason, ListedTopic, Publication, Topic, TopicStats,
    remote::{
        RemoteAck, RemoteEntry, RemoteEvent, RemoteHistoryPage, RemoteSelector, RemoteStart, RemoteSubscribe,
    },
};

/// Converts an entry to be published.
pub(crate) fn to_publication(publication: Publication) -> v1::Publication {
    v1::Publication {
        payload: publication.bytes,
        codec: publication.codec.name().to_owned(),
        headers: headers(&publication.headers),
        key: publication.key,
        id: publication.id,
        expires_in: publication.expires_in.map(to_duration).into(),
        ..Default::default()
    }
}

/// Longest period of the schema: about 10,000 years.
const PERIOD_MAX: Duration = Duration::from_secs(315_576_000_000);

/// Converts a period; longer ones than the schema has become the longest.
pub(crate) fn to_duration(period: Duration) -> protobuf::Duration {
    let period = period.min(PERIOD_MAX);
    protobuf::Duration {
        seconds: period.as_secs() as i64,
        nanos: period.subsec_nanos() as i32,
        ..Default::default()
    }
}

/// Returns the time of this age.
pub(crate) fn since(age: Duration) -> protobuf::Timestamp {
    let since = clock::time_of_day().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    protobuf::Timestamp {
        seconds: since.as_secs() as i64,
        nanos: since.subsec_nanos() as i32,
        ..Default::default()
    }
}

/// Returns a name or pattern, and a prefix.
pub(crate) fn selector(topics: RemoteSelector) -> (String, Option<Bytes>) {
    match topics {
        RemoteSelector::Pattern(name) | RemoteSelector::Topic(name) => (name, None),
        RemoteSelector::Prefix(prefix) => (String::new(), Some(prefix)),
    }
}

/// Converts a subscription: returns its request, without the start, and the start.
pub(crate) fn subscribe_request(subscribe: RemoteSubscribe) -> (v1::SubscribeRequest, Option<Start>) {
    let start = match subscribe.start {
        RemoteStart::After(after) => Some(Start::After(position(after).into())),
        RemoteStart::Head => None,
        RemoteStart::Last(entries) => Some(Start::Last(entries.try_into().unwrap_or(u32::MAX))),
        RemoteStart::Resume(checkpoint) => Some(Start::Resume(from_checkpoint(&checkpoint).into())),
        RemoteStart::Since(age) => Some(Start::Since(since(age).into())),
    };
    let (topic, prefix) = selector(subscribe.topics);
    let ack = subscribe.ack.map(|ack: RemoteAck| v1::AckOptions {
        ack_wait: to_duration(ack.wait).into(),
        attempts_max: ack.attempts_max,
        dead_letter_topic: ack.dead_letters.unwrap_or_default(),
        unacknowledged_max: ack
            .unacknowledged_max
            .map_or(0, |entries| entries.try_into().unwrap_or(u32::MAX)),
        ..Default::default()
    });
    let request = v1::SubscribeRequest {
        topic,
        prefix,
        group: subscribe.group.unwrap_or_default(),
        durable: subscribe.is_durable,
        ack: ack.into(),
        ..Default::default()
    };
    (request, start)
}

/// Converts a delivered entry.
pub(crate) fn to_entry(entry: v1::Entry) -> Result<RemoteEntry> {
    let mut publication = Publication::new(codec(&entry.codec)?, entry.payload);
    publication.headers = metadata(entry.headers)?;
    publication.key = entry.key;
    publication.id = entry.id;
    let reply_to = Some(&*entry.reply_to).filter(|reply_to| !reply_to.is_empty());
    let position = to_position(&entry.position);
    let mut delivered = RemoteEntry::new(&entry.topic, position, publication, reply_to)?;
    delivered.attempt = entry.attempt.max(1);
    delivered.ack_id = Some(entry.ack_id).filter(|id| !id.is_empty()).map(Into::into);
    Ok(delivered)
}

pub(crate) fn to_gap(gap: &v1::Gap) -> Result<Gap> {
    let reason = match gap.reason.as_known() {
        Some(v1::GapReason::GAP_REASON_EPOCH) => GapReason::Epoch,
        Some(v1::GapReason::GAP_REASON_EXPIRED) => GapReason::Expired,
        Some(v1::GapReason::GAP_REASON_LAGGED) => GapReason::Lagged,
        _ => GapReason::Lost,
    };
    let range = gap.first_offset..gap.end_offset;
    Ok(Gap::new(Topic::new(&gap.topic)?, gap.epoch, range, gap.missing, reason))
}

/// Converts a page of a history: the gaps to their places between the entries.
pub(crate) fn to_history(
    entries: Vec<v1::Entry>,
    gaps: &[v1::Gap],
    has_more: bool,
) -> Result<RemoteHistoryPage> {
    let mut gaps = gaps.iter().map(to_gap).collect::<Result<Vec<_>>>()?.into_iter().peekable();
    let mut events = Vec::new();
    for entry in entries {
        let entry = to_entry(entry)?;
        while let Some(gap) = gaps.next_if(|gap| gap.range.start <= entry.position.offset) {
            events.push(RemoteEvent::Gap(gap));
        }
        events.push(RemoteEvent::Entry(Box::new(entry)));
    }
    events.extend(gaps.map(RemoteEvent::Gap));
    Ok(RemoteHistoryPage { events, has_more })
}

pub(crate) fn to_topic(topic: &v1::Topic) -> Result<ListedTopic> {
    let mut stats = TopicStats::default();
    stats.entries = topic.entries as usize;
    stats.bytes = topic.bytes as usize;
    stats.cursors = topic.cursors as usize;
    stats.published = topic.published;
    stats.duplicates = topic.duplicates;
    stats.conflated = topic.conflated;
    stats.expired = topic.expired;
    stats.lagged = topic.lagged;
    Ok(ListedTopic::new(Topic::new(&topic.name)?, stats))
}

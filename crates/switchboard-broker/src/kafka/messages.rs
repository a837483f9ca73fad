//! Requests and responses, each in one version that Kafka 3.1 to 4 have.

use super::codec::{Decoder, Encoder};
use bytes::Bytes;

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Api {
    pub(super) name: &'static str,
    pub(super) key: i16,
    pub(super) version: i16,
    /// The version is a flexible one.
    pub(super) is_flexible: bool,
}

const fn api(name: &'static str, key: i16, version: i16, is_flexible: bool) -> Api {
    Api { name, key, version, is_flexible }
}

pub(super) const PRODUCE: Api = api("Produce", 0, 8, false);
pub(super) const FETCH: Api = api("Fetch", 1, 13, true);
pub(super) const LIST_OFFSETS: Api = api("ListOffsets", 2, 5, false);
pub(super) const METADATA: Api = api("Metadata", 3, 12, true);
pub(super) const SASL_HANDSHAKE: Api = api("SaslHandshake", 17, 1, false);
pub(super) const API_VERSIONS: Api = api("ApiVersions", 18, 0, false);
pub(super) const CREATE_TOPICS: Api = api("CreateTopics", 19, 4, false);
pub(super) const INIT_PRODUCER_ID: Api = api("InitProducerId", 22, 1, false);
pub(super) const SASL_AUTHENTICATE: Api = api("SaslAuthenticate", 36, 1, false);

/// All that the engine sends to a server.
pub(super) const NEEDED: [Api; 6] = [PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID];

/// Encodes a request with the header of its version.
pub(super) fn frame(api: Api, number: i32, body: &[u8]) -> Bytes {
    let mut frame = Encoder::default();
    frame.i32(0).i16(api.key).i16(api.version).i32(number).string("switchboard");
    if api.is_flexible {
        frame.no_tags();
    }
    frame.0.extend_from_slice(body);
    let length = i32::try_from(frame.0.len() - 4).unwrap_or(i32::MAX);
    frame.0[..4].copy_from_slice(&length.to_be_bytes());
    frame.0.freeze()
}

/// Removes the header of a response behind its number.
pub(super) fn body(api: Api, response: Bytes) -> Option<Bytes> {
    let mut response = Decoder(response);
    if api.is_flexible {
        response.tags()?;
    }
    Some(response.0)
}

/// Reads the first and the last version of each request that a server has.
pub(super) fn api_versions(body: Bytes) -> Option<Vec<(i16, i16, i16)>> {
    let mut body = Decoder(body);
    let error = body.i16()?;
    let versions = body.array(|api| Some((api.i16()?, api.i16()?, api.i16()?)))?;
    (error == 0).then_some(versions)
}

/// Servers of a cluster, and a topic.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// Number, host and port.
    pub(super) servers: Vec<(i32, String, u16)>,
    pub(super) controller: i32,
    pub(super) error: i16,
    pub(super) topic_id: u128,
    /// By number.
    pub(super) partitions: Vec<PartitionMetadata>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartitionMetadata {
    pub(super) number: i32,
    pub(super) leader: i32,
    pub(super) leader_epoch: i32,
}

pub(super) fn metadata_request(topic: &str) -> Encoder {
    let mut body = Encoder::default();
    body.compact_length(1).uuid(0).compact_string(topic).no_tags();
    // A topic is not created by this request.
    body.bool(false).bool(false).no_tags();
    body
}

pub(super) fn metadata(body: Bytes) -> Option<Metadata> {
    let mut body = Decoder(body);
    body.i32()?;
    let servers = body.compact_array(|server| {
        let (number, host, port) = (server.i32()?, server.compact_string()?, server.i32()?);
        server.compact_string()?;
        server.tags()?;
        Some((number, host, u16::try_from(port).ok()?))
    })?;
    body.compact_string()?;
    let controller = body.i32()?;
    let mut topics = body.compact_array(|topic| {
        let error = topic.i16()?;
        topic.compact_string()?;
        let topic_id = topic.uuid()?;
        topic.bool()?;
        let mut partitions = topic.compact_array(|partition| {
            // A partition with an error has no leader.
            partition.i16()?;
            let (number, leader, leader_epoch) = (partition.i32()?, partition.i32()?, partition.i32()?);
            for _ in 0..3 {
                partition.compact_array(Decoder::i32)?;
            }
            partition.tags()?;
            Some(PartitionMetadata { number, leader, leader_epoch })
        })?;
        partitions.sort_unstable_by_key(|partition| partition.number);
        topic.i32()?;
        topic.tags()?;
        Some((error, topic_id, partitions))
    })?;
    let (error, topic_id, partitions) = topics.pop()?;
    Some(Metadata { servers, controller, error, topic_id, partitions })
}

/// Settings of a topic that is created; -1 means the number of the server's own configuration.
#[derive(Debug)]
pub(super) struct NewTopic<'a> {
    pub(super) name: &'a str,
    pub(super) partitions: i32,
    pub(super) replicas: i16,
    pub(super) settings: &'a [(&'a str, String)],
}

pub(super) fn create_topics_request(topic: &NewTopic<'_>, timeout_ms: i32) -> Encoder {
    let mut body = Encoder::default();
    body.length(1).string(topic.name).i32(topic.partitions).i16(topic.replicas).length(0);
    body.length(topic.settings.len());
    for (name, value) in topic.settings {
        body.string(name).string(value);
    }
    body.i32(timeout_ms).bool(false);
    body
}

/// Reads the error of the topic, and its text.
pub(super) fn create_topics(body: Bytes) -> Option<(i16, String)> {
    let mut body = Decoder(body);
    body.i32()?;
    let topics = body.array(|topic| {
        topic.string()?;
        Some((topic.i16()?, topic.string()?))
    });
    topics?.pop()
}

pub(super) fn init_producer_id_request() -> Encoder {
    let mut body = Encoder::default();
    body.null_string().i32(i32::MAX);
    body
}

/// Reads the error, the producer, and its epoch.
pub(super) fn init_producer_id(body: Bytes) -> Option<(i16, i64, i16)> {
    let mut body = Decoder(body);
    body.i32()?;
    Some((body.i16()?, body.i64()?, body.i16()?))
}

/// Encodes a request that is answered when all replicas in sync have the batch.
pub(super) fn produce_request(topic: &str, partition: i32, batch: &[u8], timeout_ms: i32) -> Encoder {
    let mut body = Encoder::default();
    body.null_string().i16(-1).i32(timeout_ms);
    body.length(1).string(topic).length(1).i32(partition).bytes(batch);
    body
}

/// Reads the error, the offset of the first record, and the text of the error.
pub(super) fn produce(body: Bytes) -> Option<(i16, i64, String)> {
    let mut body = Decoder(body);
    let topics = body.array(|topic| {
        topic.string()?;
        topic.array(|partition| {
            partition.i32()?;
            let (error, offset) = (partition.i16()?, partition.i64()?);
            let (_time, _log_start) = (partition.i64()?, partition.i64()?);
            partition.array(|record| {
                record.i32()?;
                record.string()
            })?;
            Some((error, offset, partition.string()?))
        })
    });
    topics?.pop()?.pop()
}

/// Time for the offset of the next record.
pub(super) const LATEST: i64 = -1;
/// Time for the offset of the oldest record.
pub(super) const EARLIEST: i64 = -2;

pub(super) fn list_offsets_request(topic: &str, partition: i32, time: i64) -> Encoder {
    let mut body = Encoder::default();
    body.i32(-1).i8(0).length(1).string(topic).length(1).i32(partition).i32(-1).i64(time);
    body
}

/// Reads the error, and the offset; -1 if no record is as new as the time.
pub(super) fn list_offsets(body: Bytes) -> Option<(i16, i64)> {
    let mut body = Decoder(body);
    body.i32()?;
    let topics = body.array(|topic| {
        topic.string()?;
        topic.array(|partition| {
            partition.i32()?;
            let (error, _time, offset) = (partition.i16()?, partition.i64()?, partition.i64()?);
            partition.i32()?;
            Some((error, offset))
        })
    });
    topics?.pop()?.pop()
}

/// Limits of a request for records.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchLimits {
    pub(super) wait_ms: i32,
    pub(super) bytes_max: i32,
    pub(super) partition_bytes_max: i32,
}

/// Encodes a request for the records of partitions, each from an offset on.
pub(super) fn fetch_request(topic_id: u128, partitions: &[(i32, i64)], limits: FetchLimits) -> Encoder {
    let mut body = Encoder::default();
    body.i32(-1).i32(limits.wait_ms).i32(1).i32(limits.bytes_max).i8(0);
    // Without a session.
    body.i32(0).i32(-1).compact_length(1).uuid(topic_id).compact_length(partitions.len());
    for (partition, offset) in partitions {
        body.i32(*partition).i32(-1).i64(*offset).i32(-1).i64(-1).i32(limits.partition_bytes_max).no_tags();
    }
    body.no_tags().compact_length(0).compact_string("").no_tags();
    body
}

/// Records of one partition.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) partition: i32,
    pub(super) error: i16,
    /// Offset after the newest record that all replicas in sync have.
    pub(super) end: i64,
    pub(super) batches: Bytes,
}

/// Reads the error of the request, and the partitions.
pub(super) fn fetch(body: Bytes) -> Option<(i16, Vec<Fetched>)> {
    let mut body = Decoder(body);
    body.i32()?;
    let error = body.i16()?;
    body.i32()?;
    let topics = body.compact_array(|topic| {
        topic.uuid()?;
        let partitions = topic.compact_array(|partition| {
            let (number, error, end) = (partition.i32()?, partition.i16()?, partition.i64()?);
            let (_stable, _start) = (partition.i64()?, partition.i64()?);
            partition.compact_array(|aborted| {
                aborted.i64()?;
                aborted.i64()?;
                aborted.tags()
            })?;
            partition.i32()?;
            let batches = partition.compact_bytes()?;
            partition.tags()?;
            Some(Fetched { partition: number, error, end, batches })
        })?;
        topic.tags()?;
        Some(partitions)
    })?;
    Some((error, topics.into_iter().flatten().collect()))
}

pub(super) fn sasl_handshake_request(mechanism: &str) -> Encoder {
    let mut body = Encoder::default();
    body.string(mechanism);
    body
}

/// Reads the error, and the mechanisms of the server.
pub(super) fn sasl_handshake(body: Bytes) -> Option<(i16, Vec<String>)> {
    let mut body = Decoder(body);
    Some((body.i16()?, body.array(Decoder::string)?))
}

pub(super) fn sasl_authenticate_request(token: &[u8]) -> Encoder {
    let mut body = Encoder::default();
    body.bytes(token);
    body
}

/// Reads the error, and its text.
pub(super) fn sasl_authenticate(body: Bytes) -> Option<(i16, String)> {
    let mut body = Decoder(body);
    Some((body.i16()?, body.string()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_response_panics() {
        let mut random = fastrand::Rng::with_seed(7);
        for length in 0..3_000 {
            // Small numbers occur as lengths.
            let bytes = |random: &mut fastrand::Rng| -> Bytes {
                (0..length % 300)
                    .map(|_| if random.bool() { random.u8(..4) } else { random.u8(..) })
                    .collect()
            };
            let bytes = bytes(&mut random);
            let _ = api_versions(bytes.clone());
            let _ = metadata(bytes.clone());
            let _ = create_topics(bytes.clone());
            let _ = init_producer_id(bytes.clone());
            let _ = produce(bytes.clone());
            let _ = list_offsets(bytes.clone());
            let _ = fetch(bytes.clone());
            let _ = sasl_handshake(bytes.clone());
            let _ = sasl_authenticate(bytes.clone());
            let _ = body(FETCH, bytes);
        }
    }

    #[test]
    fn huge_lengths_reserve_nothing() {
        let huge = Bytes::from_static(&[0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0]);
        assert!(api_versions(huge).is_none());
        let compact = Bytes::from_static(&[0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0]);
        assert!(metadata(compact).is_none());
    }
}

//! Error codes of Kafka.

use switchboard_wire::Status;

pub(super) const NONE: i16 = 0;
pub(super) const OFFSET_OUT_OF_RANGE: i16 = 1;
pub(super) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
pub(super) const LEADER_NOT_AVAILABLE: i16 = 5;
pub(super) const OUT_OF_ORDER_SEQUENCE: i16 = 45;
pub(super) const DUPLICATE_SEQUENCE: i16 = 46;
pub(super) const INVALID_PRODUCER_EPOCH: i16 = 47;
pub(super) const UNKNOWN_PRODUCER_ID: i16 = 59;
pub(super) const TOPIC_ALREADY_EXISTS: i16 = 36;
pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;

const MESSAGE_TOO_LARGE: i16 = 10;
const RECORD_LIST_TOO_LARGE: i16 = 18;
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const SASL_AUTHENTICATION_FAILED: i16 = 58;
const AUTHORIZATION_FAILED: [i16; 4] = [29, 30, 31, 53];
/// Errors that pass when the leaders are read again: of storage, of leaders that moved, of timeouts, of replicas, of
/// quotas; and of offsets, which are read again as well.
const TRANSIENT: [i16; 21] = [1, 2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 19, 20, 41, 56, 74, 75, 78, 89, 100, 103];

/// Returns whether the request may succeed after the leaders have been read again.
pub(super) fn is_transient(error: i16) -> bool {
    TRANSIENT.contains(&error) || is_of_producer(error)
}

/// Returns whether the server does not know the state of a producer, which begins again.
pub(super) fn is_of_producer(error: i16) -> bool {
    matches!(error, OUT_OF_ORDER_SEQUENCE | INVALID_PRODUCER_EPOCH | UNKNOWN_PRODUCER_ID)
}

/// Returns whether a batch may be appended although the server reports an error: replicas have not confirmed it, or the
/// leader has lost its role while it waited for them, and the next one may have it.
pub(super) fn may_be_appended(error: i16) -> bool {
    matches!(error, -1 | 3 | 6 | 7 | 9 | 13 | 20 | 56 | UNKNOWN_TOPIC_ID | DUPLICATE_SEQUENCE)
}

/// Describes an error of a request to an engine, with the server's own text, if it has one.
pub(super) fn status(engine: &str, request: &str, error: i16, text: &str) -> Status {
    let words = if text.is_empty() { name(error) } else { text };
    let message = format!("{engine}: {request} failed with error {error}: {words}");
    match error {
        MESSAGE_TOO_LARGE | RECORD_LIST_TOO_LARGE => Status::resource_exhausted(format!(
            "{message}; the limit is max.message.bytes of the topic, or message.max.bytes of the servers"
        )),
        SASL_AUTHENTICATION_FAILED | UNSUPPORTED_SASL_MECHANISM => Status::unauthenticated(message),
        _ if AUTHORIZATION_FAILED.contains(&error) => Status::permission_denied(message),
        _ if is_transient(error) || error == -1 => Status::unavailable(message),
        _ => Status::failed_precondition(message),
    }
}

/// Returns the meaning of an error that the engine is likely to meet.
fn name(error: i16) -> &'static str {
    match error {
        -1 => "the server failed",
        OFFSET_OUT_OF_RANGE => "the log does not have this offset",
        2 => "the batch was damaged on its way",
        UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_ID | 103 => "the topic is not there",
        LEADER_NOT_AVAILABLE => "the partition has no leader",
        6 | 74 | 75 => "the leader has moved",
        78 => "the leader does not know the newest offset yet",
        89 => "a quota of the cluster is used up",
        7 => "the replicas did not confirm in time",
        MESSAGE_TOO_LARGE | RECORD_LIST_TOO_LARGE => "the batch is too large",
        19 | 20 => "fewer replicas are in sync than min.insync.replicas requires",
        29..=31 | 53 => "the user may not do this",
        UNSUPPORTED_SASL_MECHANISM => "the mechanism is not enabled",
        37 => "the number of partitions is not valid",
        38 => "the number of replicas is more than the number of servers",
        44 => "a policy of the cluster refuses it",
        _ => "see the error codes of the protocol of Kafka",
    }
}

//! A call and its outcome, independent of the wire.

use bytes::Bytes;
use std::time::Duration;
use switchboard::{Code, Kind, Metadata, Status};

/// Metadata, sorted by name: HTTP keeps the order of values of one name only.
pub(crate) type Pairs = Vec<(String, Vec<u8>)>;

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: &'static str,
    pub(crate) kind: Kind,
    pub(crate) messages: Vec<Body>,
    pub(crate) metadata: Pairs,
    pub(crate) timeout: Option<Duration>,
}

/// A message of a request.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// One with this text.
    Text(String),
    /// Bytes that are not a valid message in the wire's codec.
    Bad,
}

/// The outcome of a call for its caller.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) messages: Vec<String>,
    pub(crate) failure: Option<Failure>,
    pub(crate) head: Pairs,
    pub(crate) trailers: Pairs,
}

/// How a call failed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: Option<Code>,
    pub(crate) message: String,
    pub(crate) details: Vec<(String, Vec<u8>)>,
    pub(crate) metadata: Pairs,
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Failure {
        Failure {
            code: Some(status.code()),
            message: status.message().to_owned(),
            details: status
                .details()
                .iter()
                .map(|detail| (detail.type_name.clone(), detail.value.to_vec()))
                .collect(),
            metadata: pairs(status.metadata()),
        }
    }
}

pub(crate) fn pairs(metadata: &Metadata) -> Pairs {
    sorted(metadata.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect())
}

pub(crate) fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs
}

pub(crate) fn own(list: &[(&str, &[u8])]) -> Pairs {
    sorted(list.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect())
}

impl Body {
    /// The message as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Body::Text(text) if text.is_empty() => serde_json::json!({}),
            Body::Text(text) => serde_json::json!({ "text": text }),
            Body::Bad => serde_json::json!({ "text": 5 }),
        }
    }

    /// The message as protobuf.
    pub(crate) fn proto(&self) -> Bytes {
        match self {
            Body::Text(text) => crate::probe::encode(text, switchboard::Codec::Proto).unwrap(),
            Body::Bad => Bytes::from_static(b"\xff"),
        }
    }
}

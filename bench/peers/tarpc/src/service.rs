//! The service, and its message as serde has it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The service under measurement.
#[tarpc::service]
pub(crate) trait Bench {
    /// Answers with the payload.
    async fn echo(payload: Bytes) -> Bytes;
    /// Answers with the message after setting field1 to "OK" and field2 to 100.
    async fn message(message: Box<BenchmarkMessage>) -> Box<BenchmarkMessage>;
}

/// The fields of the message in `bench.proto`, in its order.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct BenchmarkMessage {
    pub(crate) field1: String,
    pub(crate) field9: Option<String>,
    pub(crate) field18: Option<String>,
    pub(crate) field80: Option<bool>,
    pub(crate) field81: Option<bool>,
    pub(crate) field2: i32,
    pub(crate) field3: i32,
    pub(crate) field280: Option<i32>,
    pub(crate) field6: Option<i32>,
    pub(crate) field22: Option<i64>,
    pub(crate) field4: Option<String>,
    pub(crate) field5: Vec<u64>,
    pub(crate) field59: Option<bool>,
    pub(crate) field7: Option<String>,
    pub(crate) field16: Option<i32>,
    pub(crate) field130: Option<i32>,
    pub(crate) field12: Option<bool>,
    pub(crate) field17: Option<bool>,
    pub(crate) field13: Option<bool>,
    pub(crate) field14: Option<bool>,
    pub(crate) field104: Option<i32>,
    pub(crate) field100: Option<i32>,
    pub(crate) field101: Option<i32>,
    pub(crate) field102: Option<String>,
    pub(crate) field103: Option<String>,
    pub(crate) field29: Option<i32>,
    pub(crate) field30: Option<bool>,
    pub(crate) field60: Option<i32>,
    pub(crate) field271: Option<i32>,
    pub(crate) field272: Option<i32>,
    pub(crate) field150: Option<i32>,
    pub(crate) field23: Option<i32>,
    pub(crate) field24: Option<bool>,
    pub(crate) field25: Option<i32>,
    pub(crate) field78: Option<bool>,
    pub(crate) field67: Option<i32>,
    pub(crate) field68: Option<i32>,
    pub(crate) field128: Option<i32>,
    pub(crate) field129: Option<String>,
    pub(crate) field131: Option<i32>,
}

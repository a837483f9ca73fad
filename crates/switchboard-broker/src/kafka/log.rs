//! Requests about one partition, to its leader.

use super::{
    RESPONSE_TIMEOUT,
    batch::{self, Batches},
    cluster::Target,
    errors,
    messages::{self, Api, FetchLimits, Fetched},
};
use std::time::Duration;
use switchboard_wire::Status;

/// Bytes of one read.
const READ_BYTES_MAX: i32 = 1 << 20;

/// Failure of a request about a partition.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server refused it.
    Error { request: &'static str, error: i16, text: String },
    /// The server cannot be reached, or its response cannot be read.
    Status(Status),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed::Status(status)
    }
}

impl Failed {
    pub(super) fn error(api: Api, error: i16, text: String) -> Failed {
        Failed::Error { request: api.name, error, text }
    }
}

/// Records of a partition from an offset on.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) batches: Batches,
    /// Offset after the newest record.
    pub(super) end: i64,
}

impl Target {
    /// Returns the offset after the newest record.
    pub(super) async fn end(&self, topic: &str) -> Result<i64, Failed> {
        self.offset(topic, messages::LATEST).await
    }

    /// Returns the offset of the oldest record.
    pub(super) async fn start(&self, topic: &str) -> Result<i64, Failed> {
        self.offset(topic, messages::EARLIEST).await
    }

    /// Returns the offset of the first record at a time in milliseconds since 1970, or later; -1 if there is none.
    pub(super) async fn offset(&self, topic: &str, time: i64) -> Result<i64, Failed> {
        let api = messages::LIST_OFFSETS;
        let body = messages::list_offsets_request(topic, self.partition, time).0;
        let body = self.connection.request(api, &body, RESPONSE_TIMEOUT).await?;
        match messages::list_offsets(body).ok_or_else(|| self.connection.unreadable(api))? {
            (errors::NONE, offset) => Ok(offset),
            (error, _) => Err(Failed::error(api, error, String::new())),
        }
    }

    /// Reads records from an offset on, without a wait for new ones.
    pub(super) async fn read(&self, from: i64) -> Result<Chunk, Failed> {
        let api = messages::FETCH;
        let limits =
            FetchLimits { wait_ms: 0, bytes_max: READ_BYTES_MAX, partition_bytes_max: READ_BYTES_MAX };
        let body = messages::fetch_request(self.layout.topic_id, &[(self.partition, from)], limits).0;
        let body = self.connection.request(api, &body, RESPONSE_TIMEOUT).await?;
        let unreadable = || self.connection.unreadable(api);
        let (error, mut fetched) = messages::fetch(body).ok_or_else(unreadable)?;
        if error != errors::NONE {
            return Err(Failed::error(api, error, String::new()));
        }
        let Fetched { error, end, batches, .. } = fetched.pop().ok_or_else(unreadable)?;
        if error != errors::NONE {
            return Err(Failed::error(api, error, String::new()));
        }
        let batches = batch::decode(batches, from).ok_or_else(unreadable)?;
        Ok(Chunk { batches, end })
    }

    /// Appends an encoded batch; returns the offset of its first record.
    pub(super) async fn produce(&self, topic: &str, batch: &[u8], limit: Duration) -> Result<i64, Failed> {
        let api = messages::PRODUCE;
        // The server gives up on slow replicas before this client does.
        let wait_ms = limit.as_millis().saturating_sub(200).max(100) as i32;
        let body = messages::produce_request(topic, self.partition, batch, wait_ms).0;
        let body = self.connection.request(api, &body, limit).await?;
        match messages::produce(body).ok_or_else(|| self.connection.unreadable(api))? {
            (errors::NONE, offset, _) => Ok(offset),
            (error, _, text) => Err(Failed::error(api, error, text)),
        }
    }
}

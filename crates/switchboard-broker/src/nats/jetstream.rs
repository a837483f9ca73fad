//! Requests to JetStream.

use super::{Options, RESPONSE_TIMEOUT};
use async_nats::{Client, Message};
use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use switchboard_core::Result;
use switchboard_wire::{Code, Status};
use tokio::time::timeout;

/// Description of the stream.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    created: String,
    pub(super) state: State,
    config: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    /// Messages by subject, if requested.
    pub(super) subjects: Option<std::collections::HashMap<String, u64>>,
}

/// Key in the metadata of the stream, whose value is another one after the stream has lost its end.
const EPOCH: &str = "swb-epoch";

impl Info {
    /// Returns a number that identifies the log: FNV-1a of the time at which the stream was created, and of the word in
    /// its metadata.
    pub(super) fn epoch(&self) -> u64 {
        let word = self.config["metadata"][EPOCH].as_str().unwrap_or_default();
        let hash = self.created.bytes().chain(word.bytes());
        let hash = hash.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash.max(1)
    }
}

/// Begins a new epoch of a stream. Servers before 2.10 have no metadata, and keep the epoch.
pub(super) async fn begin_epoch(
    name: &str,
    client: &Client,
    options: &Options,
    info: Info,
    word: u64,
) -> Result<()> {
    let mut config = info.config;
    if !config.is_object() {
        return Err(unreadable(name));
    }
    if !config["metadata"].is_object() {
        config["metadata"] = json!({});
    }
    config["metadata"][EPOCH] = format!("{word:016x}").into();
    let _: Info =
        request(name, client, &format!("$JS.API.STREAM.UPDATE.{}", options.prefix), &config).await?;
    Ok(())
}

/// Response to a publication.
#[derive(Debug, Deserialize)]
pub(super) struct Ack {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
}

#[derive(Debug, Deserialize)]
struct Failure {
    error: Error,
}

#[derive(Debug, Deserialize)]
struct Error {
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

/// Error number of JetStream for a stream that does not exist.
const STREAM_NOT_FOUND: u32 = 10_059;

/// Describes the stream; creates it if there is none.
pub(super) async fn stream(name: &str, client: &Client, options: &Options) -> Result<Info> {
    match info(name, client, options, None).await {
        Err(status) if status.code() == Code::NotFound => {}
        info => return info,
    }
    let prefix = &options.prefix;
    let nanoseconds = |period: std::time::Duration| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    let config = json!({
        "name": prefix,
        "subjects": [format!("{prefix}.log.>")],
        "retention": "limits",
        "discard": "old",
        "storage": if options.in_memory { "memory" } else { "file" },
        "num_replicas": options.replicas,
        "max_msgs_per_subject": options.history,
        "max_age": nanoseconds(options.keep),
        "duplicate_window": nanoseconds(options.dedup_window.min(options.keep)),
        "allow_direct": true,
        "republish": {"src": format!("{prefix}.log.>"), "dest": format!("{prefix}.live.>")},
    });
    request(name, client, &format!("$JS.API.STREAM.CREATE.{prefix}"), &config).await
}

/// Describes the stream, with the number of messages of a subject.
pub(super) async fn info(
    name: &str,
    client: &Client,
    options: &Options,
    subject: Option<&str>,
) -> Result<Info> {
    let prefix = &options.prefix;
    let filter = subject.map_or_else(|| json!({}), |subject| json!({"subjects_filter": subject}));
    let info: Info = request(name, client, &format!("$JS.API.STREAM.INFO.{prefix}"), &filter).await?;
    let republishes = info.config["republish"]["dest"] == format!("{prefix}.live.>");
    if !republishes || info.config["allow_direct"] != true {
        let text = format!(
            "{name}: the stream \"{prefix}\" is not one of a bus: it needs allow_direct, and republish to {prefix}.live.>; \
             choose another prefix"
        );
        return Err(Status::failed_precondition(text));
    }
    Ok(info)
}

async fn request<T: DeserializeOwned>(name: &str, client: &Client, subject: &str, body: &Value) -> Result<T> {
    let sent = client.request(subject.to_owned(), Bytes::from(body.to_string()));
    let response = match timeout(RESPONSE_TIMEOUT, sent).await {
        Err(_) => return Err(Status::unavailable(format!("{name} does not respond"))),
        Ok(Err(error)) => {
            let text = format!("{name}: JetStream does not respond ({error}); is it enabled?");
            return Err(Status::unavailable(text));
        }
        Ok(Ok(response)) => response,
    };
    parse(name, &response.payload)
}

/// Reads the response to a publication.
pub(super) fn ack(name: &str, payload: &[u8]) -> Result<Ack> {
    parse(name, payload)
}

fn parse<T: DeserializeOwned>(name: &str, payload: &[u8]) -> Result<T> {
    if let Ok(Failure { error }) = serde_json::from_slice(payload) {
        let text = format!("{name}: {} ({})", error.description, error.err_code);
        return Err(match (error.err_code, error.code) {
            (STREAM_NOT_FOUND, _) => Status::not_found(text),
            (_, 400) => Status::failed_precondition(text),
            _ => Status::unavailable(text),
        });
    }
    serde_json::from_slice(payload).map_err(|_| unreadable(name))
}

/// Returns the error for a response that this version does not know.
pub(super) fn unreadable(name: &str) -> Status {
    Status::unavailable(format!("{name} sent an invalid response"))
}

/// Reads a number in a header.
pub(super) fn number(message: &Message, header: &str) -> Option<u64> {
    message.headers.as_ref()?.get(header)?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_codes() {
        let not_found = br#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        assert_eq!(parse::<Ack>("nats", not_found).unwrap_err().code(), Code::NotFound);
        let refused =
            br#"{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"}}"#;
        assert_eq!(parse::<Ack>("nats", refused).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(parse::<Ack>("nats", b"+OK").unwrap_err().code(), Code::Unavailable);
        let ack: Ack = parse("nats", br#"{"stream":"swb","seq":7,"duplicate":true}"#).unwrap();
        assert_eq!((ack.seq, ack.duplicate), (7, true));
    }
}

//! Conversion between a status and the error form of rpcx.

use super::metadata::{Block, Entries};
use crate::{Code, Metadata, Origin, Retry, Status};
use bytes::Bytes;
use std::time::Duration;

/// Metadata key for the text of an error. Without it clients in Go treat an error as a success.
pub(super) const ERROR: &str = "__rpcx_error__";
/// Metadata key for the number of the code, for Switchboard clients.
const STATUS: &str = "x-status";
/// Metadata key for the retry property, for Switchboard clients.
const RETRY: &str = "x-retry";
/// Metadata key for the details, for Switchboard clients: a block of type names and encoded messages.
const DETAILS: &str = "x-status-details-bin";
/// Longest text, in bytes; longer ones are truncated, because the receiver limits all metadata.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Returns the text that callers receive.
pub fn text(status: &Status) -> String {
    let (code, mut message) = (status.code(), status.message());
    if message.len() > TEXT_BYTES_MAX {
        message = &message[..message.floor_char_boundary(TEXT_BYTES_MAX)];
    }
    let plain = code == Code::Unknown || message.starts_with(PREFIX);
    if plain { message.to_owned() } else { format!("{code}: {message}") }
}

/// The encoded parts of a status.
pub(super) struct Written {
    text: String,
    code: String,
    retry: Option<String>,
    details: Vec<u8>,
}

impl Written {
    pub(super) fn of(status: &Status) -> Written {
        let (code, text) = (status.code(), text(status));
        let retry = match status.retry() {
            Retry::Safe => Some("safe".to_owned()),
            Retry::After(pause) => Some(pause.as_millis().to_string()),
            Retry::IfIdempotent | Retry::No => None,
        };
        let mut details = Vec::new();
        let parts = status.details().iter().flat_map(|detail| [detail.type_name.as_bytes(), &detail.value]);
        for part in parts {
            details.extend_from_slice(&(part.len() as u32).to_be_bytes());
            details.extend_from_slice(part);
        }
        Written { text, code: code.number().to_string(), retry, details }
    }

    pub(super) fn block<'a>(&'a self, status: &'a Status) -> Block<'a> {
        let mut block = Block::default();
        block.entry(ERROR, self.text.as_bytes());
        block.entry(STATUS, self.code.as_bytes());
        if let Some(retry) = &self.retry {
            block.entry(RETRY, retry.as_bytes());
        }
        if !self.details.is_empty() {
            block.entry(DETAILS, &self.details);
        }
        block.list(status.metadata());
        block
    }
}

/// Prefix of errors that rpcx itself defines.
const PREFIX: &str = "rpcx: ";
const NO_SERVICE: &str = "rpcx: can't find service ";
const NO_METHOD: &str = "rpcx: can't find method ";
const NO_CODEC: &str = "can not find codec for ";

/// Creates the status for an unknown service.
pub(super) fn no_service(name: &str) -> Status {
    Status::unimplemented(format!("{NO_SERVICE}{name}"))
}

/// Creates the status for a method that its service does not have.
pub(super) fn no_method(name: &str) -> Status {
    Status::unimplemented(format!("{NO_METHOD}{name}"))
}

/// Creates the status for an unsupported codec.
pub(super) fn no_codec(number: u8) -> Status {
    Status::unimplemented(format!("{NO_CODEC}{number}"))
}

/// Reads the status of an error response from all of its metadata.
pub(super) fn status(mut metadata: Metadata) -> Status {
    let text = [ERROR, "__rpcx_error__-bin"].into_iter().find_map(|name| metadata.value(name));
    let text = text
        .map_or_else(|| "an error without a text".into(), |text| String::from_utf8_lossy(text).into_owned());
    let code = metadata.text(STATUS).and_then(|number| number.parse().ok()).map(Code::from_number);
    let retry = match metadata.text(RETRY) {
        Some("safe") => Retry::Safe,
        Some(pause) => pause.parse().map_or(Retry::No, |pause| Retry::After(Duration::from_millis(pause))),
        None => Retry::No,
    };
    let mut status = match code {
        Some(code) => {
            let message = text.strip_prefix(code.name()).and_then(|rest| rest.strip_prefix(": "));
            Status::new(code, message.unwrap_or(&text)).with_retry(retry)
        }
        None => Status::new(code_of(&text), text),
    };
    for detail in Entries(metadata.value(DETAILS).map_or(&[], |block| &block[..])) {
        // A truncated block of details ends the details; the status is kept.
        let Ok((name, value)) = detail else { break };
        status = status.with_detail(String::from_utf8_lossy(name), Bytes::copy_from_slice(value));
    }
    for name in [ERROR, "__rpcx_error__-bin", STATUS, RETRY, DETAILS] {
        metadata.remove(name);
    }
    status.with_metadata(metadata).with_origin(Origin::Peer)
}

/// Returns the code for an error of a server that sends none.
fn code_of(text: &str) -> Code {
    match text {
        "context canceled" => Code::Canceled,
        "context deadline exceeded" => Code::DeadlineExceeded,
        _ if [NO_SERVICE, NO_METHOD, NO_CODEC].iter().any(|start| text.starts_with(start)) => {
            Code::Unimplemented
        }
        _ if text.starts_with("[service internal error]") => Code::Internal,
        _ => Code::Unknown,
    }
}

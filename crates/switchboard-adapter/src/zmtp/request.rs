//! Requests of REQ and DEALER peers as calls of a service, and responses.
//!
//! ```text
//! request    [return path…, empty frame]  method  [headers]  message
//! response   [return path…, empty frame]  OK | NAME OF A STATUS  message | text  [headers]
//! ```
//!
//! A request of one frame is a message for the default method, and its response is the message alone, unless the call
//! fails. Headers are lines, `name: value`.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use std::{fmt::Write, time::Duration};
use switchboard_core::Result;
use switchboard_net::plugin::{ServiceCall, ServiceResponse};
use switchboard_wire::{Codec, Metadata, Status, zmtp::patterns::Envelope};

/// Status of a response without an error.
const OK: &str = "OK";
/// Header with the codec of the messages: `application/json`, `proto`. The default is JSON.
const CONTENT_TYPE: &str = "content-type";
/// Header with the time limit of the call in milliseconds.
const TIMEOUT: &str = "timeout-ms";
/// Values of names with this end are base64.
const BINARY: &str = "-bin";
/// Bytes of the headers of a request. The server has smaller limits, which need the headers to be read.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Bytes of the return path of a request, which is held until the call has ended.
const ENVELOPE_BYTES_MAX: usize = 64 << 10;

/// A request: the way of its response, and the call.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) reply: ReplyForm,
    pub(super) call: Result<ServiceCall>,
}

/// The form of a response.
#[derive(Debug)]
pub(super) struct ReplyForm {
    envelope: Envelope,
    /// The request was a message alone.
    is_message_alone: bool,
}

/// Reads a request. `credentials` are those of the connection, for requests without their own.
///
/// # Errors
/// The text of the error for a return path that is too long: there is no response.
pub(super) fn read(
    mut frames: Vec<Bytes>,
    default_method: Option<&str>,
    credentials: &Metadata,
) -> Result<Request, String> {
    let envelope = Envelope::split_or_bare(&mut frames);
    let bytes: usize = envelope.frames().iter().map(Bytes::len).sum();
    if bytes > ENVELOPE_BYTES_MAX {
        let text = "the frames of a request before its empty one have";
        return Err(format!("{text} {bytes} bytes; the limit is {ENVELOPE_BYTES_MAX}"));
    }
    let is_message_alone = frames.len() == 1;
    let call = call(frames, default_method).map(|mut call| {
        if call.metadata.value("authorization").is_none() {
            call.metadata.extend(credentials.clone());
        }
        call
    });
    Ok(Request { reply: ReplyForm { envelope, is_message_alone }, call })
}

fn call(mut frames: Vec<Bytes>, default_method: Option<&str>) -> Result<ServiceCall> {
    let message = frames.pop().unwrap_or_default();
    let mut frames = frames.into_iter();
    let (method, headers, more) = (frames.next(), frames.next(), frames.len());
    let method = match (&method, default_method) {
        (Some(method), _) => std::str::from_utf8(method)
            .map_err(|_| Status::invalid_argument("the first frame, the method, is not UTF-8"))?,
        (None, Some(method)) => method,
        (None, None) => {
            let text = "a request of one frame names no method; send the method, pkg.Service/Method, then the message";
            return Err(Status::invalid_argument(text));
        }
    };
    if more > 0 {
        let text = format!(
            "a request has {} frames after its envelope; expected the method, optional headers, and the message",
            more.saturating_add(3)
        );
        return Err(Status::invalid_argument(text));
    }
    let mut call = ServiceCall::new(method, Codec::Json, message);
    if let Some(headers) = headers {
        read_headers(&headers, &mut call)?;
    }
    Ok(call)
}

fn read_headers(headers: &[u8], call: &mut ServiceCall) -> Result<()> {
    if headers.len() > HEADERS_BYTES_MAX {
        let text = format!("headers have {} bytes; the limit is {HEADERS_BYTES_MAX}", headers.len());
        return Err(Status::resource_exhausted(text));
    }
    let text = std::str::from_utf8(headers)
        .map_err(|_| Status::invalid_argument("the headers, the second frame, are not UTF-8"))?;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let invalid = |why: &str| {
            Status::invalid_argument(format!("line {} of the headers: {why}", at.saturating_add(1)))
        };
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("expected name: value"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match &*name {
            CONTENT_TYPE => call.codec = codec(value).map_err(|why| invalid(&why))?,
            TIMEOUT => {
                let milliseconds = value.parse().map_err(|_| invalid("timeout-ms is not a number"))?;
                call.timeout = Some(Duration::from_millis(milliseconds));
            }
            name if name.ends_with(BINARY) => {
                let value = STANDARD.decode(value).map_err(|_| invalid("the value is not base64"))?;
                call.metadata.insert(name, value).map_err(|why| invalid(&why.to_string()))?;
            }
            name => call.metadata.insert(name, value.to_owned()).map_err(|why| invalid(&why.to_string()))?,
        }
    }
    Ok(())
}

fn codec(value: &str) -> Result<Codec, String> {
    let name = value.strip_prefix("application/").unwrap_or(value);
    let found = Codec::ALL.iter().find(|codec| codec.name() == name).copied();
    found.ok_or_else(|| {
        let names: Vec<_> = Codec::ALL.iter().map(|codec| codec.name()).collect();
        format!("content-type {value:?} is unknown; expected one of {}", names.join(", "))
    })
}

impl ReplyForm {
    /// Returns the frames of the response.
    pub(super) fn frames(self, result: Result<ServiceResponse>) -> Vec<Bytes> {
        let body = match result {
            Ok(response) if self.is_message_alone => vec![response.message],
            Ok(response) => body(OK.into(), response.message, &response.metadata),
            Err(status) => {
                let name = status.code().name().to_ascii_uppercase();
                body(name.into(), status.message().to_owned().into(), status.metadata())
            }
        };
        self.envelope.wrap(body)
    }
}

fn body(status: Bytes, message: Bytes, metadata: &Metadata) -> Vec<Bytes> {
    let mut body = vec![status, message];
    if !metadata.is_empty() {
        body.push(write_headers(metadata).into());
    }
    body
}

fn write_headers(metadata: &Metadata) -> String {
    let mut text = String::new();
    for (name, value) in metadata.iter() {
        // Writing to a text does not fail.
        let _ = match name.ends_with(BINARY) {
            true => writeln!(text, "{name}: {}", STANDARD.encode(value)),
            // Other values are plain text.
            false => writeln!(text, "{name}: {}", String::from_utf8_lossy(value)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &[&'static str]) -> Vec<Bytes> {
        frames.iter().map(|frame| Bytes::from_static(frame.as_bytes())).collect()
    }

    fn parse(parts: &[&'static str]) -> Request {
        read(frames(parts), None, &Metadata::new()).unwrap()
    }

    #[test]
    fn requests_are_calls() {
        for parts in [&["", "a.B/C", "{}"][..], &["id", "", "a.B/C", "{}"], &["a.B/C", "{}"]] {
            let request = parse(parts);
            let call = request.call.unwrap();
            assert_eq!((&*call.method, call.codec, &call.message[..]), ("a.B/C", Codec::Json, &b"{}"[..]));
            let response = ServiceResponse::new(Bytes::from_static(b"1"), Metadata::new());
            let expected = [&parts[..parts.len() - 2], &["OK", "1"]].concat();
            assert_eq!(request.reply.frames(Ok(response)), frames(&expected));
        }
        // An empty message is not the end of an envelope.
        let call = parse(&["a.B/C", ""]).call.unwrap();
        assert_eq!((&*call.method, call.message.len()), ("a.B/C", 0));
    }

    #[test]
    fn headers_are_metadata() {
        let headers =
            "Content-Type: application/proto\r\ntimeout-ms: 250\nx-a: one\nx-a: two\nx-b-bin: AAE=\n\n";
        let call = parse(&["", "a.B/C", headers, "x"]).call.unwrap();
        assert_eq!((call.codec, call.timeout), (Codec::Proto, Some(Duration::from_millis(250))));
        let values: Vec<_> = call.metadata.iter().map(|(name, value)| (name, &value[..])).collect();
        assert_eq!(values, [("x-a", &b"one"[..]), ("x-a", b"two"), ("x-b-bin", &[0, 1])]);
        let mut metadata = call.metadata;
        metadata.remove("x-a");
        let response = parse(&["", "m", "x"]).reply.frames(Ok(ServiceResponse::new(Bytes::new(), metadata)));
        assert_eq!(response, frames(&["", "OK", "", "x-b-bin: AAE=\n"]));
    }

    #[test]
    fn credentials_of_the_connection_are_the_default() {
        let mut credentials = Metadata::new();
        credentials.insert("authorization", "Basic eA==").unwrap();
        let authorization = |headers| {
            let call = read(frames(&["", "m", headers, "x"]), None, &credentials).unwrap().call.unwrap();
            call.metadata.text("authorization").unwrap().to_owned()
        };
        assert_eq!(authorization("x-a: 1"), "Basic eA==");
        assert_eq!(authorization("authorization: Bearer t"), "Bearer t");
    }

    #[test]
    fn a_message_alone_calls_the_default_method() {
        let request = read(frames(&["", "{}"]), Some("a.B/C"), &Metadata::new()).unwrap();
        assert_eq!(request.call.unwrap().method, "a.B/C");
        let response = ServiceResponse::new(Bytes::from_static(b"1"), Metadata::new());
        assert_eq!(request.reply.frames(Ok(response)), frames(&["", "1"]));
        let request = read(frames(&["{}"]), Some("a.B/C"), &Metadata::new()).unwrap();
        assert_eq!(request.reply.frames(Err(Status::not_found("no"))), frames(&["NOT_FOUND", "no"]));
    }

    #[test]
    fn invalid_requests_have_the_rule_in_the_error() {
        for (parts, rule) in [
            (&["", "{}"][..], "names no method"),
            (&["", "m", "h", "x", "y"], "has 4 frames after its envelope"),
            (&["", "m", "h", "x"], "line 1 of the headers: expected name: value"),
            (
                &["", "m", "a: b\ncontent-type: text", "x"],
                "line 2 of the headers: content-type \"text\" is unknown",
            ),
            (&["", "m", "timeout-ms: -1", "x"], "timeout-ms is not a number"),
            (&["", "m", "a-bin: ?", "x"], "not base64"),
            (&["", "m", "a b: c", "x"], "not a metadata name"),
        ] {
            let status = parse(parts).call.unwrap_err();
            assert!(status.message().contains(rule), "{status}");
        }
        let bytes = vec![Bytes::new(), Bytes::from_static(&[0xFF]), Bytes::new()];
        assert!(
            read(bytes, None, &Metadata::new()).unwrap().call.unwrap_err().message().contains("not UTF-8")
        );
        let large = "x".repeat(HEADERS_BYTES_MAX + 1).into();
        let request = vec![Bytes::new(), Bytes::from_static(b"m"), large, Bytes::new()];
        assert!(
            read(request, None, &Metadata::new())
                .unwrap()
                .call
                .unwrap_err()
                .message()
                .contains("the limit is 65536")
        );
    }
}

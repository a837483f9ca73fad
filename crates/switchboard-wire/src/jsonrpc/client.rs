//! The caller's side: writing of requests, reading of responses and stream items.

use super::{ErrorObject, Scanned, Scanner, code_of, error::quoted};
use crate::{Code, Fatal, Input, Origin, Retry, Status, base64};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, time::Duration};

/// Writes a request of `method` with `params`, which are JSON; without an id it is a notification.
pub fn request(id: Option<u64>, method: &str, params: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(params.len() + method.len() + 64);
    text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    text.extend_from_slice(quoted(method).as_bytes());
    text.extend_from_slice(b",\"params\":");
    text.extend_from_slice(params);
    if let Some(id) = id {
        text.extend_from_slice(format!(",\"id\":{id}").as_bytes());
    }
    text.push(b'}');
    text
}

/// Writes the notification that ends the request `id` early.
pub fn cancel(id: u64) -> Vec<u8> {
    request(None, "rpc.cancel", format!("{{\"id\":{id}}}").as_bytes())
}

/// A text from a server.
#[derive(Clone, Debug)]
// closed: a response has a result or an error
pub enum Response {
    /// A request has ended, with its result or an error; one without an id was not readable for the server.
    End {
        /// Id of the request.
        id: Option<u64>,
        /// Result in JSON, `null` if the server sent none.
        result: Result<Bytes, Status>,
    },
    /// An item of the stream of this request.
    Item {
        /// Id of the request.
        id: u64,
        /// Item in JSON.
        item: Bytes,
    },
    /// A notification that belongs to no request.
    Other,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Streamed<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

#[derive(Deserialize)]
struct Failure {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

impl Response {
    /// Reads one text.
    ///
    /// # Errors
    /// Returns the reason why the text is not a response.
    pub fn read(text: &Bytes) -> Result<Response, String> {
        let wrong = |error: serde_json::Error| format!("not a JSON-RPC response: {error}");
        if !text.starts_with(b"{") {
            return Err("not a JSON-RPC response: expected an object".to_owned());
        }
        let Text { method, params, id, result, error } = serde_json::from_slice(text).map_err(wrong)?;
        if let Some(method) = method {
            let (true, Some(params)) = (method == "rpc.stream", params) else { return Ok(Response::Other) };
            let Streamed { id, result } = serde_json::from_str(params.get()).map_err(wrong)?;
            return Ok(Response::Item { id, item: text.slice_ref(result.get().as_bytes()) });
        }
        let id = match id.map(RawValue::get) {
            None | Some("null") => None,
            Some(id) => Some(id.parse().map_err(|_| format!("the id {id} belongs to no request"))?),
        };
        let result = match (error, result) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(result)) => Ok(text.slice_ref(result.get().as_bytes())),
            (None, None) => Ok(Bytes::from_static(b"null")),
        };
        Ok(Response::End { id, result })
    }
}

/// The code is the gRPC code if the server sends it, otherwise the meaning of the number.
impl From<Failure> for Status {
    fn from(Failure { code, message, data }: Failure) -> Status {
        let grpc_code = data.get("grpcCode").and_then(Value::as_u64);
        let grpc_code = grpc_code.and_then(|number| u16::try_from(number).ok()).map(Code::from_number);
        let code = grpc_code
            .filter(|code| *code != Code::Ok)
            .unwrap_or_else(|| i32::try_from(code).map_or(Code::Unknown, code_of));
        // The text of errors that JSON-RPC itself defines is generic, and the data has the cause.
        let message = match data.as_str() {
            Some(why) => format!("{message}: {why}"),
            None => message,
        };
        let retry = match (data["retry"].as_str(), data["retry"].as_u64()) {
            (Some("safe"), _) => Retry::Safe,
            (_, Some(pause)) => Retry::After(Duration::from_millis(pause)),
            _ if code == Code::Unavailable => Retry::IfIdempotent,
            _ => Retry::No,
        };
        let mut status = Status::new(code, message).with_origin(Origin::Peer).with_retry(retry);
        for detail in data.get("details").and_then(Value::as_array).into_iter().flatten() {
            if let (Some(name), Some(value)) = (detail["type"].as_str(), detail["value"].as_str())
                && let Some(value) = base64::decode(value)
            {
                status = status.with_detail(name, value);
            }
        }
        status
    }
}

impl From<ErrorObject> for Status {
    fn from(error: ErrorObject) -> Status {
        let data = error.data.and_then(|data| serde_json::from_str(&data).ok()).unwrap_or_default();
        Failure { code: error.code.into(), message: error.message, data }.into()
    }
}

/// Splits the bytes of a connection into texts, which follow one another with or without line ends.
#[derive(Debug, Default)]
pub struct Texts {
    scanner: Scanner,
}

impl Texts {
    /// Takes the next text of at most `max` bytes; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes that are not JSON, or for too many; the connection cannot continue.
    pub fn next(&mut self, input: &mut Input, max: usize) -> Result<Option<Bytes>, Fatal> {
        if self.scanner.scanned() == 0 {
            let blank = |byte: &u8| byte.is_ascii_whitespace();
            let blanks = input.rest().iter().take_while(|byte| blank(byte)).count();
            input.skip(blanks);
        }
        let scanned = self.scanner.scan(input.rest());
        if self.scanner.scanned() > max {
            return Err(Fatal(format!("a response is over the limit of {max} bytes (message_bytes_max)")));
        }
        match scanned {
            Scanned::End(len) => {
                self.scanner = Scanner::default();
                Ok(Some(input.take(len)))
            }
            Scanned::More => Ok(None),
            Scanned::Deep => Err(Fatal(format!("a response is nested deeper than {}", super::DEPTH_MAX))),
            Scanned::Wrong => {
                Err(Fatal("the server sent text that is not a JSON array or object".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Response {
        Response::read(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn requests_are_readable_by_a_server() {
        let text = request(Some(7), "a.B.\"C\"", b"{\"x\":1}");
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"jsonrpc":"2.0","method":"a.B.\"C\"","params":{"x":1},"id":7}"#
        );
        assert_eq!(
            String::from_utf8(cancel(7)).unwrap(),
            r#"{"jsonrpc":"2.0","method":"rpc.cancel","params":{"id":7}}"#
        );
    }

    #[test]
    fn responses_are_results_failures_or_items() {
        let Response::End { id, result } = read(r#"{"jsonrpc":"2.0","result":{"a": 1},"id":3}"#) else {
            panic!()
        };
        assert_eq!((id, &result.unwrap()[..]), (Some(3), &b"{\"a\": 1}"[..]));
        for none in [r#"{"result":null,"id":3}"#, r#"{"id":3}"#] {
            let Response::End { result, .. } = read(none) else { panic!() };
            assert_eq!(&result.unwrap()[..], b"null");
        }
        let item = r#"{"jsonrpc":"2.0","method":"rpc.stream","params":{"id":4,"result":[1]}}"#;
        let Response::Item { id, item } = read(item) else { panic!() };
        assert_eq!((id, &item[..]), (4, &b"[1]"[..]));
        assert!(matches!(read(r#"{"method":"hello","params":[]}"#), Response::Other));
        for wrong in ["[]", "{", r#"{"id":"x","result":1}"#, r#"{"error":5}"#] {
            assert!(Response::read(&Bytes::copy_from_slice(wrong.as_bytes())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn failures_convert_back_to_their_statuses() {
        let status = Status::failed_precondition("no")
            .with_detail("a.B", &b"\x08\x01"[..])
            .with_detail("c.D", &b""[..]);
        let back = Status::from(ErrorObject::from(&status));
        assert_eq!((back.code(), back.message()), (Code::FailedPrecondition, "no"));
        assert_eq!(back.details(), status.details());
        for (text, code, message) in [
            (r#"{"code":-32601,"message":"Method not found"}"#, Code::Unimplemented, "Method not found"),
            (
                r#"{"code":-32600,"message":"Invalid Request","data":"why"}"#,
                Code::InvalidArgument,
                "Invalid Request: why",
            ),
            (r#"{"code":-32014,"message":"m","data":{"grpcCode":0}}"#, Code::Unavailable, "m"),
            (r#"{"code":17,"message":"m","data":{"grpcCode":70000,"details":5}}"#, Code::Unknown, "m"),
            (r#"{"code":99999999999}"#, Code::Unknown, ""),
        ] {
            let Response::End { id: None, result } = read(&format!("{{\"error\":{text},\"id\":null}}"))
            else {
                panic!()
            };
            let status = result.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, message), "{text}");
        }
    }

    #[test]
    fn texts_follow_one_another_however_they_come() {
        let all = b" {\"a\":\"}\"}\n\n[1]{}";
        for step in [1, 3, all.len()] {
            let (mut texts, mut input, mut seen) = (Texts::default(), Input::default(), Vec::new());
            for piece in all.chunks(step) {
                input.extend(piece);
                while let Some(text) = texts.next(&mut input, 100).unwrap() {
                    seen.push(String::from_utf8(text.to_vec()).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\":\"}\"}", "[1]", "{}"]);
        }
        let mut input = Input::default();
        input.extend(b"{\"a\":1}");
        assert!(Texts::default().next(&mut input, 3).is_err());
        let mut input = Input::default();
        input.extend(b"HTTP/1.1");
        assert!(Texts::default().next(&mut input, 100).is_err());
    }
}

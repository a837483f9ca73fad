//! The outcome of a call, in the suite's format.

use crate::proto::{Error, Header, Packed, Seen};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use buffa::{Message, MessageField};
use switchboard::{Metadata, Receiver, Response, Status};

/// Prefix of the name of a message in the type of a detail.
const URL: &str = "type.googleapis.com/";

/// Notes the end of a call: why it failed.
pub fn failed(seen: &mut Seen, status: &Status) {
    let details = status.details().iter().map(|detail| Packed {
        type_url: format!("{URL}{}", detail.type_name),
        value: detail.value.clone(),
        ..Default::default()
    });
    seen.error = MessageField::some(Error {
        code: status.code().number().into(),
        message: Some(status.message().to_owned()),
        details: details.collect(),
        ..Default::default()
    });
}

/// Notes the outcome of a call with one reply; `payload` takes the part of the reply that the suite compares.
pub fn replied<R, P: Message>(
    seen: &mut Seen,
    outcome: Result<Response<R>, Status>,
    payload: fn(R) -> Option<P>,
) {
    match outcome {
        Ok(reply) => {
            seen.response_headers = headers(reply.meta());
            seen.response_trailers = headers(reply.trailers());
            // A reply counts even where it is empty.
            let payload =
                payload(reply.into_inner()).map_or_else(Vec::new, |payload| payload.encode_to_vec());
            seen.payloads.push(payload.into());
        }
        Err(status) => {
            seen.response_trailers = headers(status.metadata());
            failed(seen, &status);
        }
    }
}

/// Notes the next message of a stream; false at its end.
pub async fn received<R, P: Message>(
    seen: &mut Seen,
    replies: &mut Receiver<R>,
    payload: fn(R) -> Option<P>,
) -> bool {
    if seen.payloads.is_empty() && seen.response_headers.is_empty() {
        seen.response_headers = headers(&replies.metadata().await);
    }
    match replies.next().await {
        Ok(Some(reply)) => {
            let payload = payload(reply).map_or_else(Vec::new, |payload| payload.encode_to_vec());
            seen.payloads.push(payload.into());
            return true;
        }
        Ok(None) => {}
        Err(status) => failed(seen, &status),
    }
    seen.response_trailers = headers(&replies.trailers());
    false
}

/// Metadata as headers: names once, binary values as text.
fn headers(metadata: &Metadata) -> Vec<Header> {
    let mut headers = Vec::<Header>::new();
    for (name, value) in metadata.iter() {
        let value = match name.ends_with("-bin") {
            true => STANDARD_NO_PAD.encode(value),
            false => String::from_utf8_lossy(value).into_owned(),
        };
        match headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value),
            None => headers.push(Header { name: name.to_owned(), value: vec![value], ..Default::default() }),
        }
    }
    headers
}

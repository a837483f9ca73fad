//! hulu_pbrpc, the protocol of older servers at Baidu.
//!
//! ```text
//! "HULU" | body size u32 LE | meta size u32 LE | HuluRpcRequestMeta or HuluRpcResponseMeta | message | attachment
//! ```
//!
//! | request | field | response | field |
//! | --- | --- | --- | --- |
//! | service, without its package | 1 | error code, text | 1, 2 |
//! | index of the method in it, from 0 | 2 | correlation id, zig-zag | 3 |
//! | compress type, correlation id | 3, 4 | compress type | 4 |
//! | log id; trace, parent span, span | 5; 7, 8, 9 | size of the message, if there is an attachment | 8 |
//! | size of the message, if there is an attachment | 12 | | |
//! | name of the method, which few peers send | 14 | | |
//! | credentials | 15 | | |
//! | pairs of metadata, an addition of brpc-java | 16 | | |
//!
//! A method name that the service has takes precedence over the index: it stays correct when the methods are reordered.

use super::{
    fields,
    layout::{Sent, Sizes, put_failure},
    meta::{Meta, Pairs, Request, Response, put_nonzero},
};
use crate::{
    Metadata,
    proto::{self, Fields, Malformed},
};
use bytes::BytesMut;

pub(super) fn sizes(bytes: &[u8]) -> Option<Sizes> {
    let header = bytes.first_chunk::<12>()?;
    let meta = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let body = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    Some(Sizes { header: header.len(), meta, body: body.into() })
}

pub(super) fn set_sizes(header: &mut [u8], meta: usize, payload: usize) {
    header[4..8].copy_from_slice(&((meta + payload) as u32).to_le_bytes());
    header[8..12].copy_from_slice(&(meta as u32).to_le_bytes());
}

pub(super) fn request(bytes: &[u8], payload: usize) -> Result<Meta<'_>, Malformed> {
    let (mut meta, mut request) = (Meta::default(), Request::default());
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => request.service_name = value.bytes(),
            2 => request.method_index = Some(value.number() as i32),
            3 => meta.compress_type = value.number() as i32,
            4 => meta.correlation_id = value.number(),
            5 => request.log_id = value.number() as i64,
            7 => request.trace_id = value.number() as i64,
            8 => request.parent_span_id = value.number() as i64,
            9 => request.span_id = value.number() as i64,
            12 => meta.attachment_size = attachment(payload, value.number()),
            14 => request.method_name = value.bytes(),
            15 => meta.authentication_data = value.bytes(),
            16 => request.pairs = Pairs { fields: bytes, number: 16 },
            _ => {}
        }
    }
    meta.request = Some(request);
    Ok(meta)
}

pub(super) fn response(bytes: &[u8], payload: usize) -> Result<Meta<'_>, Malformed> {
    let (mut meta, mut response) = (Meta::default(), Response::default());
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => response.error_code = value.number() as i32,
            2 => response.error_text = value.bytes(),
            3 => meta.correlation_id = (value.number() >> 1) ^ (value.number() & 1).wrapping_neg(),
            4 => meta.compress_type = value.number() as i32,
            8 => meta.attachment_size = attachment(payload, value.number()),
            _ => {}
        }
    }
    meta.response = Some(response);
    Ok(meta)
}

/// Returns the size of the attachment behind a message of this size; negative if the message does not fit.
fn attachment(payload: usize, message: u64) -> i32 {
    let rest = usize::try_from(message).ok().and_then(|message| payload.checked_sub(message));
    rest.and_then(|rest| i32::try_from(rest).ok()).unwrap_or(-1)
}

pub(super) fn put_named(into: &mut BytesMut, service: &str, method: &str, index: u16) {
    proto::put_bytes(into, 1, service.as_bytes());
    proto::put_number(into, 2, index.into());
    proto::put_bytes(into, 14, method.as_bytes());
}

pub(super) fn put_request(into: &mut BytesMut, named: &[u8], sent: &Sent, metadata: &Metadata) {
    into.extend_from_slice(named);
    put_nonzero(into, 3, sent.compress_type);
    proto::put_number(into, 4, sent.correlation_id);
    if sent.attachment > 0 {
        proto::put_number(into, 12, sent.message as u64);
    }
    fields::put_numbers(into, [5, 7, 9, 8], metadata);
    fields::put_credentials(into, 15, metadata);
    fields::put_pairs(into, 16, metadata, &fields::NUMBERS_AND_CREDENTIALS);
}

pub(super) fn put_response(into: &mut BytesMut, failure: Option<(i32, &str)>, sent: &Sent) {
    match failure {
        None => proto::put_number(into, 1, 0),
        Some((number, text)) => put_failure(into, [1, 2], number, text),
    }
    let id = sent.correlation_id;
    proto::put_number(into, 3, id << 1 ^ (id >> 63).wrapping_neg());
    put_nonzero(into, 4, sent.compress_type);
    if sent.attachment > 0 {
        proto::put_number(into, 8, sent.message as u64);
    }
}

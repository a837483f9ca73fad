//! sofa_pbrpc, the protocol of the SOFA framework.
//!
//! ```text
//! "SOFA" | meta size u32 LE | message size u64 LE | their sum u64 LE | SofaRpcMeta | message
//! ```
//!
//! | field of `SofaRpcMeta` | request | response |
//! | --- | --- | --- |
//! | 1 type | 0 | 1 |
//! | 2 sequence id | id of the call | the same |
//! | 100 method | `package.Service.Method` | |
//! | 200 failed, 201 error code, 202 reason | | outcome of the call |
//! | 300 compress type: 1 gzip, 2 zlib, 3 Snappy | of the message | of the message |
//! | 301 expected compress type | of the response | |
//!
//! The protocol has no fields for attachments, metadata and credentials.

use super::{
    layout::{Sent, Sizes, put_failure},
    meta::{Meta, Request, Response, put_nonzero},
};
use crate::proto::{self, Fields, Malformed};
use bytes::BytesMut;

/// EINTERNAL, for a failure without a number.
const EINTERNAL: i32 = 2001;

pub(super) fn sizes(bytes: &[u8]) -> Option<Sizes> {
    let header = bytes.first_chunk::<24>()?;
    let long = |at: usize| header[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let meta = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let body = long(8).checked_add(meta.into()).filter(|body| *body == long(16));
    // Inconsistent sizes are rejected by the caller.
    Some(Sizes { header: header.len(), meta, body: body.unwrap_or(u64::MAX) })
}

pub(super) fn set_sizes(header: &mut [u8], meta: usize, payload: usize) {
    header[4..8].copy_from_slice(&(meta as u32).to_le_bytes());
    header[8..16].copy_from_slice(&(payload as u64).to_le_bytes());
    header[16..24].copy_from_slice(&((meta + payload) as u64).to_le_bytes());
}

/// Reads a meta of a request or a response: the role of the reader decides which one it is.
pub(super) fn read(bytes: &[u8]) -> Result<Meta<'_>, Malformed> {
    let mut meta = Meta::default();
    let (mut request, mut response) = (Request::default(), Response::default());
    let mut failed = false;
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            2 => meta.correlation_id = value.number(),
            100 => {
                let name = value.bytes();
                let dot = name.iter().rposition(|byte| *byte == b'.');
                request.service_name = &name[..dot.unwrap_or(0)];
                request.method_name = &name[dot.map_or(0, |dot| dot + 1)..];
            }
            200 => failed = value.number() != 0,
            201 => response.error_code = value.number() as i32,
            202 => response.error_text = value.bytes(),
            300 => meta.compress_type = standard(value.number()),
            _ => {}
        }
    }
    if failed && response.error_code == 0 {
        response.error_code = EINTERNAL;
    }
    (meta.request, meta.response) = (Some(request), Some(response));
    Ok(meta)
}

/// Converts a compress type to the numbering of baidu_std.
fn standard(compress_type: u64) -> i32 {
    match compress_type {
        1 => 2,
        2 => 3,
        3 => 1,
        other => i32::try_from(other).unwrap_or(-1),
    }
}

/// Converts a compress type from the numbering of baidu_std.
fn compress_type(standard: u64) -> u64 {
    match standard {
        1 => 3,
        2 => 1,
        3 => 2,
        other => other,
    }
}

pub(super) fn put_named(into: &mut BytesMut, service: &str, method: &str) {
    proto::put_bytes(into, 100, format!("{service}.{method}").as_bytes());
}

pub(super) fn put_request(into: &mut BytesMut, named: &[u8], sent: &Sent) {
    proto::put_number(into, 1, 0);
    proto::put_number(into, 2, sent.correlation_id);
    into.extend_from_slice(named);
    put_nonzero(into, 300, compress_type(sent.compress_type));
    put_nonzero(into, 301, compress_type(sent.compress_type));
}

pub(super) fn put_response(into: &mut BytesMut, failure: Option<(i32, &str)>, sent: &Sent) {
    proto::put_number(into, 1, 1);
    proto::put_number(into, 2, sent.correlation_id);
    proto::put_number(into, 200, failure.is_some().into());
    match failure {
        None => proto::put_number(into, 201, 0),
        Some((number, text)) => put_failure(into, [201, 202], number, text),
    }
    put_nonzero(into, 300, compress_type(sent.compress_type));
}

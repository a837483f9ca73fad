//! Conversion between [`Metadata`] and the user fields and numbers of a request.

use super::{
    error::ERROR_CODE,
    meta::{Meta, Pairs, Request, USER_FIELDS, put_nonzero, put_pair},
};
use crate::{
    Limits, Metadata, Status, base64,
    foreign::{check_count, check_size, insert},
    proto,
};
use bytes::BytesMut;

const LOG_ID: &str = "baidu-log-id";
const TRACE_ID: &str = "baidu-trace-id";
const SPAN_ID: &str = "baidu-span-id";
const PARENT_SPAN_ID: &str = "baidu-parent-span-id";
const REQUEST_ID: &str = "x-request-id";
const AUTHENTICATION: &str = "baidu-authentication";
pub(super) const AUTHENTICATION_BIN: &str = "baidu-authentication-bin";

/// Metadata keys for which requests have dedicated fields.
pub(super) const NUMBERS_AND_CREDENTIALS: [&str; 6] =
    [LOG_ID, TRACE_ID, SPAN_ID, PARENT_SPAN_ID, AUTHENTICATION, AUTHENTICATION_BIN];

/// Reads the metadata of a request: the pairs, then the dedicated fields.
///
/// # Errors
/// `ResourceExhausted` if the metadata exceeds the limits.
pub(super) fn of_request(meta: &Meta<'_>, limits: &Limits) -> Result<Metadata, Status> {
    let mut metadata = read(meta.user_fields, limits)?;
    let Some(request) = &meta.request else { return Ok(metadata) };
    add(&mut metadata, request.pairs, limits)?;
    for (name, number) in [
        (LOG_ID, request.log_id),
        (TRACE_ID, request.trace_id),
        (SPAN_ID, request.span_id),
        (PARENT_SPAN_ID, request.parent_span_id),
    ] {
        if number != 0 {
            insert(&mut metadata, name.as_bytes(), number.to_string().as_bytes());
        }
    }
    if !request.request_id.is_empty() {
        insert(&mut metadata, REQUEST_ID.as_bytes(), request.request_id);
    }
    check_count(&metadata, limits)?;
    check_size(&metadata, limits)?;
    Ok(metadata)
}

/// Converts pairs to metadata.
///
/// # Errors
/// `ResourceExhausted` if the metadata exceeds the limits.
pub(super) fn read(pairs: Pairs<'_>, limits: &Limits) -> Result<Metadata, Status> {
    let mut metadata = Metadata::new();
    add(&mut metadata, pairs, limits)?;
    check_size(&metadata, limits)?;
    Ok(metadata)
}

fn add(metadata: &mut Metadata, pairs: Pairs<'_>, limits: &Limits) -> Result<(), Status> {
    for (name, text) in pairs.iter() {
        let decoded = std::str::from_utf8(text).ok().filter(|_| name.ends_with(b"-bin"));
        let decoded = decoded.and_then(base64::decode);
        insert(metadata, name, decoded.as_deref().unwrap_or(text));
        check_count(metadata, limits)?;
    }
    Ok(())
}

/// Appends metadata as user fields.
pub(super) fn put(into: &mut BytesMut, metadata: &Metadata) {
    put_pairs(into, USER_FIELDS, metadata, &[]);
}

/// Appends metadata as pairs with field number `field`, except the keys in `own`, which have dedicated fields.
pub(super) fn put_pairs(into: &mut BytesMut, field: u32, metadata: &Metadata, own: &[&str]) {
    for (name, value) in metadata.iter().filter(|(name, _)| *name != ERROR_CODE && !own.contains(name)) {
        match name.ends_with("-bin") {
            true => put_pair(into, field, name, base64::encode(value).as_bytes()),
            false => put_pair(into, field, name, value),
        }
    }
}

/// Appends the request of a call, whose service and method are the fields `named`, and the user fields.
pub(super) fn put_request(into: &mut BytesMut, named: &[u8], timeout_ms: u64, metadata: &Metadata) {
    proto::put_message(into, 1, |request| {
        request.extend_from_slice(named);
        if !metadata.is_empty() {
            put_numbers(request, [3, 4, 5, 6], metadata);
            if let Some(id) = metadata.text(REQUEST_ID) {
                proto::put_bytes(request, 7, id.as_bytes());
            }
        }
        put_nonzero(request, 8, timeout_ms);
    });
    if metadata.is_empty() {
        return;
    }
    put_credentials(into, 7, metadata);
    let [log, trace, span, parent, text, binary] = NUMBERS_AND_CREDENTIALS;
    put_pairs(into, USER_FIELDS, metadata, &[log, trace, span, parent, text, binary, REQUEST_ID]);
}

/// Appends log id, trace id, span id and parent span id with these field numbers.
pub(super) fn put_numbers(into: &mut BytesMut, fields: [u32; 4], metadata: &Metadata) {
    for (field, name) in fields.into_iter().zip(NUMBERS_AND_CREDENTIALS) {
        let number = metadata.text(name).and_then(|text| text.parse::<i64>().ok());
        put_nonzero(into, field, number.unwrap_or(0) as u64);
    }
}

/// Appends the credentials of the caller with this field number.
pub(super) fn put_credentials(into: &mut BytesMut, field: u32, metadata: &Metadata) {
    let credentials = metadata.value(AUTHENTICATION_BIN).or_else(|| metadata.value(AUTHENTICATION));
    if let Some(credentials) = credentials {
        proto::put_bytes(into, field, credentials);
    }
}

/// Returns true if the request adds nothing to the metadata of its call.
#[inline]
pub(super) fn is_plain(meta: &Meta<'_>, request: &Request<'_>) -> bool {
    meta.user_fields.is_empty() && request.is_plain()
}

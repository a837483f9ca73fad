//! User fields and the numbers of a request as [`Metadata`], and back.

use super::{
    error::ERROR_CODE,
    meta::{self, Meta, Request, put_nonzero, put_user_field},
    proto,
};
use crate::{Limits, Metadata, Status, base64};
use bytes::{Bytes, BytesMut};

const LOG_ID: &str = "baidu-log-id";
const TRACE_ID: &str = "baidu-trace-id";
const SPAN_ID: &str = "baidu-span-id";
const PARENT_SPAN_ID: &str = "baidu-parent-span-id";
const REQUEST_ID: &str = "x-request-id";
const AUTHENTICATION: &str = "baidu-authentication";
const AUTHENTICATION_BIN: &str = "baidu-authentication-bin";
const AUTHORIZATION: &str = "authorization";

/// What a request has fields of its own for.
const OWN: [&str; 7] =
    [LOG_ID, TRACE_ID, SPAN_ID, PARENT_SPAN_ID, REQUEST_ID, AUTHENTICATION, AUTHENTICATION_BIN];

/// What a request says beside its method: the user fields, then what the call has fields of its own for.
///
/// # Errors
/// `ResourceExhausted` for more than the limits allow.
pub(super) fn of_request(bytes: &[u8], meta: &Meta<'_>, limits: &Limits) -> Result<Metadata, Status> {
    let mut metadata = if meta.has_user_fields { read(bytes, limits)? } else { Metadata::new() };
    let Some(request) = &meta.request else { return Ok(metadata) };
    for (name, number) in [
        (LOG_ID, request.log_id),
        (TRACE_ID, request.trace_id),
        (SPAN_ID, request.span_id),
        (PARENT_SPAN_ID, request.parent_span_id),
    ] {
        if number != 0 {
            insert(&mut metadata, name, number.to_string().into());
        }
    }
    if !request.request_id.is_empty() {
        insert(&mut metadata, REQUEST_ID, Bytes::copy_from_slice(request.request_id));
    }
    within(&metadata, limits)?;
    Ok(metadata)
}

/// The user fields of a meta.
///
/// # Errors
/// `ResourceExhausted` for more than the limits allow.
pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<Metadata, Status> {
    let mut metadata = Metadata::new();
    for (name, text) in meta::user_fields(bytes) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let bytes = if name.ends_with("-bin") {
            let decoded = std::str::from_utf8(text).ok().and_then(base64::decode);
            decoded.map_or_else(|| Bytes::copy_from_slice(text), Bytes::from)
        } else {
            Bytes::copy_from_slice(text)
        };
        insert(&mut metadata, name, bytes);
        if metadata.len() > limits.metadata_entries_max as usize {
            break;
        }
    }
    within(&metadata, limits)?;
    Ok(metadata)
}

/// Appends metadata as user fields.
pub(super) fn put(into: &mut BytesMut, metadata: &Metadata) {
    put_all_but(into, metadata, &[]);
}

fn put_all_but(into: &mut BytesMut, metadata: &Metadata, own: &[&str]) {
    for (name, value) in metadata.iter().filter(|(name, _)| *name != ERROR_CODE && !own.contains(name)) {
        match name.ends_with("-bin") {
            true => put_user_field(into, name, base64::encode(value).as_bytes()),
            false => put_user_field(into, name, value),
        }
    }
}

/// Appends the request of a call, whose service and method are the fields `named`, and the user fields.
pub(super) fn put_request(into: &mut BytesMut, named: &[u8], timeout_ms: u64, metadata: &Metadata) {
    let number = |name| metadata.text(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0) as u64;
    proto::put_message(into, 1, |request| {
        request.extend_from_slice(named);
        if !metadata.is_empty() {
            for (field, name) in (3..).zip([LOG_ID, TRACE_ID, SPAN_ID, PARENT_SPAN_ID]) {
                put_nonzero(request, field, number(name));
            }
            if let Some(id) = metadata.text(REQUEST_ID) {
                proto::put_bytes(request, 7, id.as_bytes());
            }
        }
        put_nonzero(request, 8, timeout_ms);
    });
    if metadata.is_empty() {
        return;
    }
    let credentials = metadata.value(AUTHENTICATION_BIN).or_else(|| metadata.value(AUTHENTICATION));
    if let Some(credentials) = credentials {
        proto::put_bytes(into, 7, credentials);
    }
    put_all_but(into, metadata, &OWN);
}

/// What the credentials of a connection add to each of its calls.
pub(super) fn of_credentials(data: &[u8]) -> Metadata {
    let mut metadata = Metadata::new();
    let text = std::str::from_utf8(data).ok();
    let Some(text) = text.filter(|text| text.bytes().all(|byte| (0x20..0x7F).contains(&byte))) else {
        insert(&mut metadata, AUTHENTICATION_BIN, Bytes::copy_from_slice(data));
        return metadata;
    };
    let names_scheme = text.split_once(' ').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    let value = if names_scheme { text.to_owned() } else { format!("Bearer {text}") };
    insert(&mut metadata, AUTHORIZATION, value.into());
    metadata
}

/// Adds the credentials of the connection to a call that brings none of its own.
pub(super) fn add_credentials(metadata: &mut Metadata, credentials: &Metadata) {
    if metadata.value(AUTHORIZATION).is_none() {
        metadata.extend(credentials.clone());
    }
}

/// Adds an entry; values that are no plain text are those of `NAME-bin`, names that are none are left out.
fn insert(metadata: &mut Metadata, name: &str, value: Bytes) {
    if metadata.insert(name, value.clone()).is_err() && !name.ends_with("-bin") {
        let _ = metadata.insert(&format!("{name}-bin"), value);
    }
}

fn within(metadata: &Metadata, limits: &Limits) -> Result<(), Status> {
    let (entries, bytes) = (metadata.len(), metadata.encoded_len());
    if entries > limits.metadata_entries_max as usize {
        let max = limits.metadata_entries_max;
        return Err(Status::resource_exhausted(format!(
            "more than {max} metadata entries (metadata_entries_max)"
        )));
    }
    if bytes > limits.metadata_bytes_max as usize {
        let max = limits.metadata_bytes_max;
        return Err(Status::resource_exhausted(format!(
            "metadata of {bytes} bytes is over the limit of {max} bytes (metadata_bytes_max)"
        )));
    }
    Ok(())
}

/// Whether the request adds nothing to the metadata of its call.
#[inline]
pub(super) fn is_plain(meta: &Meta<'_>, request: &Request<'_>) -> bool {
    !meta.has_user_fields && request.is_plain()
}

//! Conversion between the metadata of erpc and [`Metadata`].

use super::query;
use crate::{
    Limits, Metadata, Status,
    foreign::{check_count, check_size, insert},
};
use bytes::BytesMut;
use std::{str, time::Duration};

/// Metadata key for the milliseconds that are left for a call: erpc has no deadline of its own.
const TIMEOUT: &str = "x-timeout-ms";
/// Keys that erpc itself reads, in its spelling: metadata names in Go are case-sensitive.
const SPELLED: [(&str, &str); 2] =
    [("x-accept-body-codec", "X-Accept-Body-Codec"), ("x-real-ip", "X-Real-IP")];

/// Reads the metadata of a message from one or more query strings.
///
/// # Errors
/// `ResourceExhausted` if the metadata exceeds the limits.
pub(super) fn read(queries: &[&[u8]], limits: &Limits) -> Result<Metadata, Status> {
    crate::work::add(queries.iter().map(|query| query.len()).sum());
    let mut metadata = Metadata::new();
    for (name, value) in queries.iter().flat_map(|query| query::pairs(query)) {
        insert(&mut metadata, &name, &value);
        check_count(&metadata, limits)?;
    }
    check_size(&metadata, limits)?;
    Ok(metadata)
}

/// Takes the time that is left for a call.
pub(super) fn take_timeout(metadata: &mut Metadata) -> Option<Duration> {
    let milliseconds = metadata.text(TIMEOUT).and_then(|text| text.parse().ok());
    if milliseconds.is_some() {
        metadata.remove(TIMEOUT);
    }
    milliseconds.map(Duration::from_millis)
}

/// Appends the time that is left: whole milliseconds, rounded up.
pub(super) fn put_timeout(into: &mut BytesMut, timeout: Duration) {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(u64::MAX.into());
    query::put(into, TIMEOUT.as_bytes(), milliseconds.to_string().as_bytes());
}

/// Appends the metadata of the application.
pub(super) fn put(into: &mut BytesMut, metadata: &Metadata) {
    for (name, value) in metadata.iter() {
        let spelled = SPELLED.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs);
        query::put(into, spelled.as_bytes(), value);
    }
}

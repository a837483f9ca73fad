//! Conversion of names and values of other frameworks, which may be any text, to [`Metadata`].

use crate::{Limits, Metadata, Status};
use bytes::Bytes;
use std::str;

const AUTHORIZATION: &str = "authorization";

/// Adds an entry. Names become lower case, and names of values that are not plain ASCII end in `-bin`. Entries with
/// characters that metadata does not allow are skipped.
pub(crate) fn insert(metadata: &mut Metadata, name: &[u8], value: &[u8]) {
    let Ok(name) = str::from_utf8(name) else { return };
    let mut name = name.to_ascii_lowercase();
    if !name.ends_with("-bin") && !is_plain(value) {
        name.push_str("-bin");
    }
    // An error means that the name has characters that metadata does not allow.
    let _ = metadata.insert(&name, Bytes::copy_from_slice(value));
}

/// Converts the credentials of a connection to metadata of each of its calls: `authorization`, as a bearer token unless
/// they name another scheme. Credentials that are not plain text become an entry named `binary`.
pub(crate) fn credentials(data: &[u8], binary: &str) -> Metadata {
    let mut metadata = Metadata::new();
    let Some(text) = str::from_utf8(data).ok().filter(|_| is_plain(data)) else {
        insert(&mut metadata, binary.as_bytes(), data);
        return metadata;
    };
    let names_scheme = text.split_once(' ').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    let value = if names_scheme { text.to_owned() } else { format!("Bearer {text}") };
    insert(&mut metadata, AUTHORIZATION.as_bytes(), value.as_bytes());
    metadata
}

/// Adds the credentials of the connection to a call that has none of its own.
pub(crate) fn add_credentials(metadata: &mut Metadata, credentials: &Metadata) {
    if !credentials.is_empty() && metadata.value(AUTHORIZATION).is_none() {
        metadata.extend(credentials.clone());
    }
}

/// Rejects more entries than the limit. Call it after each entry, so that no further ones are stored.
pub(crate) fn check_count(metadata: &Metadata, limits: &Limits) -> Result<(), Status> {
    let max = limits.metadata_entries_max;
    if metadata.len() <= max as usize {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("more than {max} metadata entries (limit metadata_entries_max)")))
}

/// Rejects metadata that exceeds the limit in bytes; renamed entries may be longer than the received ones.
pub(crate) fn check_size(metadata: &Metadata, limits: &Limits) -> Result<(), Status> {
    match metadata.encoded_len() {
        len if len <= limits.metadata_bytes_max as usize => Ok(()),
        len => Err(too_large(len, limits)),
    }
}

/// Creates the status for metadata that exceeds the limit.
pub(crate) fn too_large(bytes: usize, limits: &Limits) -> Status {
    Status::resource_exhausted(format!(
        "metadata of {bytes} bytes is over the limit of {} bytes (metadata_bytes_max)",
        limits.metadata_bytes_max
    ))
}

fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| (0x20..0x7F).contains(byte))
}

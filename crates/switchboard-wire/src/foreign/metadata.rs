//! Names and values of other frameworks, which may be any text, as [`Metadata`].

use crate::{Limits, Metadata, Status};
use bytes::Bytes;
use std::str;

const AUTHORIZATION: &str = "authorization";

/// Adds an entry; names become lower case, and those of values that are no plain ASCII end in `-bin`. What has no place
/// here is left out.
pub(crate) fn insert(metadata: &mut Metadata, name: &[u8], value: &[u8]) {
    let Ok(name) = str::from_utf8(name) else { return };
    let mut name = name.to_ascii_lowercase();
    if !name.ends_with("-bin") && !is_plain(value) {
        name.push_str("-bin");
    }
    // An error is a name of characters that have no place here.
    let _ = metadata.insert(&name, Bytes::copy_from_slice(value));
}

/// What the credentials of a connection add to each of its calls: `authorization`, a bearer token unless they name
/// another scheme; what is no plain text is an entry called `binary`.
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

/// Adds the credentials of the connection to a call that brings none of its own.
pub(crate) fn add_credentials(metadata: &mut Metadata, credentials: &Metadata) {
    if !credentials.is_empty() && metadata.value(AUTHORIZATION).is_none() {
        metadata.extend(credentials.clone());
    }
}

/// Refuses more entries than the limit; to be asked after each, so that no more are gathered.
pub(crate) fn check_count(metadata: &Metadata, limits: &Limits) -> Result<(), Status> {
    let max = limits.metadata_entries_max;
    if metadata.len() <= max as usize {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!("more than {max} metadata entries (limit metadata_entries_max)")))
}

/// Refuses metadata over the limit in bytes; what was renamed may be longer than what came.
pub(crate) fn check_size(metadata: &Metadata, limits: &Limits) -> Result<(), Status> {
    match metadata.encoded_len() {
        len if len <= limits.metadata_bytes_max as usize => Ok(()),
        len => Err(too_large(len, limits)),
    }
}

/// The status for metadata over the limit.
pub(crate) fn too_large(bytes: usize, limits: &Limits) -> Status {
    Status::resource_exhausted(format!(
        "metadata of {bytes} bytes is over the limit of {} bytes (metadata_bytes_max)",
        limits.metadata_bytes_max
    ))
}

fn is_plain(value: &[u8]) -> bool {
    value.iter().all(|byte| (0x20..0x7F).contains(byte))
}

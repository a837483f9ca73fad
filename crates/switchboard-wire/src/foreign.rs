//! Code shared by the wires of other frameworks.

mod metadata;
#[cfg(test)]
pub(crate) mod side;
mod status;

pub(crate) use metadata::{
    add_credentials, check_count, check_size, credentials, insert, too_large as metadata_too_large,
};
pub(crate) use status::{CODE, DETAILS, PUSHBACK, details, read_details, truncated};

//! What several wires of other frameworks have in common.

mod metadata;
#[cfg(test)]
pub(crate) mod side;
mod status;

pub(crate) use metadata::{
    add_credentials, check_count, check_size, credentials, insert, too_large as metadata_too_large,
};
pub(crate) use status::{CODE, DETAILS, PUSHBACK, cut, details, read_details};

//! Names of registrations, so that the end of one does not end a newer one with the same service and id.

use std::{
    hash::{BuildHasher, RandomState},
    process,
    time::SystemTime,
};
use switchboard_core::clock;

/// Creates a name that no other registration has.
pub(crate) fn unique() -> String {
    let seed = RandomState::new();
    let now = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}{:016x}", seed.hash_one(now), seed.hash_one(process::id()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = (0..1000).map(|_| super::unique()).collect();
        assert_eq!(names.len(), 1000);
    }
}

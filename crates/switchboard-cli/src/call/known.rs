//! Imports that need no folder: those that the compiler of services knows too. The files are its own; the list is
//! not shared because the code generator would come into the binary with it.

use protox::file::{File, FileResolver};

macro_rules! known {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../switchboard-build/proto/", $name)))
    };
}

const KNOWN: [(&str, &str); 4] = [
    known!("google/api/annotations.proto"),
    known!("google/api/http.proto"),
    known!("google/api/httpbody.proto"),
    known!("switchboard/options.proto"),
];

/// Finds them; asked after the folders, so that a copy of the user's wins.
pub(super) struct KnownResolver;

impl FileResolver for KnownResolver {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match KNOWN.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

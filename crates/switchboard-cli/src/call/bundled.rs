//! Imports that need no folder: the same as in the service compiler. The files are shared; the list is not, because the
//! binary would then include the code generator.

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

/// Finds these imports; used after the folders, so that a copy of the user takes precedence.
pub(super) struct BundledImports;

impl FileResolver for BundledImports {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match KNOWN.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

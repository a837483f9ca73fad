//! Imports that need no folder: the same as in the service compiler.

use protox::file::{File, FileResolver};
use switchboard_build::IMPORTS;

/// Finds these imports; used after the folders, so that a copy of the user takes precedence.
pub(super) struct BundledImports;

impl FileResolver for BundledImports {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match IMPORTS.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

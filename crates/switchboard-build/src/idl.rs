//! The builder for `.thrift` and `.fbs` files: inputs and output directory.

use crate::{
    Error,
    builder::{Generated, Output},
    flatbuffers, thrift,
};
use std::path::{Path, PathBuf};

/// Generates code from `.thrift` or `.fbs` files: inputs and output directory. See the crate for the items generated
/// from [Thrift](crate#thrift) and from [FlatBuffers](crate#flatbuffers).
#[derive(Clone, Debug)]
#[must_use = "nothing is generated before .emit()"]
pub struct Idl {
    language: Language,
    files: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
}

/// Language of the files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    FlatBuffers,
    Thrift,
}

/// Result of reading the files.
pub(crate) struct GeneratedSources {
    /// The files and the files that they include.
    pub(crate) read_from: Vec<PathBuf>,
    pub(crate) packages: Vec<Generated>,
}

impl Idl {
    pub(crate) fn new(language: Language, file: &Path) -> Idl {
        Idl { language, files: vec![file.to_owned()], includes: Vec::new(), out_dir: None }
    }

    /// Adds a file of the same language, relative to the directory of the crate.
    pub fn file(mut self, file: impl AsRef<Path>) -> Self {
        self.files.push(file.as_ref().to_owned());
        self
    }

    /// Adds a directory in which included files are looked up, after the directory of the including file.
    pub fn include(mut self, directory: impl AsRef<Path>) -> Self {
        self.includes.push(directory.as_ref().to_owned());
        self
    }

    /// Writes to this directory, which is created, instead of Cargo's `OUT_DIR`.
    pub fn out_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.out_dir = Some(directory.as_ref().to_owned());
        self
    }

    /// Generates and writes all files, and reports the input files to Cargo.
    ///
    /// # Errors
    /// Returns an error for files that cannot be read, parsed or written, and for types that Rust cannot express.
    pub fn emit(self) -> Result<(), Error> {
        let output = Output::new(self.out_dir)?;
        let generate = match self.language {
            Language::FlatBuffers => flatbuffers::generate,
            Language::Thrift => thrift::generate,
        };
        let front = generate(&self.files, &self.includes)?;
        for file in &front.read_from {
            println!("cargo:rerun-if-changed={}", file.display());
        }
        output.write(&front.packages)
    }
}

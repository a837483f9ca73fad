//! Files of Rust from `.thrift` files, in build scripts.

use super::{package, schema::Schema};
use crate::{
    Error,
    builder::{self, Output},
};
use std::path::{Path, PathBuf};

/// Reads `.thrift` files: what to read and where to write. See the [crate](crate#thrift) for what comes out.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is generated before .emit()"]
pub struct Thrift {
    files: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
}

impl Thrift {
    /// Adds a `.thrift` file, relative to the directory of the crate.
    pub fn thrift(mut self, file: impl AsRef<Path>) -> Self {
        self.files.push(file.as_ref().to_owned());
        self
    }

    /// Adds a directory in which included files are looked up, after that of the file which includes them.
    pub fn include(mut self, directory: impl AsRef<Path>) -> Self {
        self.includes.push(directory.as_ref().to_owned());
        self
    }

    /// Writes into this directory, which is created, instead of Cargo's `OUT_DIR`.
    pub fn out_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.out_dir = Some(directory.as_ref().to_owned());
        self
    }

    /// Generates and writes everything, and tells Cargo which files were read.
    ///
    /// # Errors
    /// Files that cannot be read, understood or written, and types that Rust cannot have.
    pub fn emit(self) -> Result<(), Error> {
        if self.files.is_empty() {
            return Err(Error::new("nothing to read: add a file with .thrift(…)"));
        }
        let output = Output::new(self.out_dir)?;
        let schema = Schema::read(&self.files, &self.includes)?;
        for document in &schema.documents {
            println!("cargo:rerun-if-changed={}", document.path.display());
        }
        let packages = package::generate(&schema)?;
        let files: Vec<_> = packages
            .into_iter()
            .map(|(name, code)| builder::Generated { name, code, descriptors: None })
            .collect();
        output.write(&files)
    }
}

//! The error type of code generation.

use std::{fmt, io, path::Path};

/// Error of code generation: it names the failure, the file and line if known, and the remedy.
///
/// `Debug` writes the same text as `Display`, so that a build script whose `main` returns the error ends with a
/// readable sentence.
pub struct Error {
    text: String,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error { text: text.into(), cause: None }
    }

    /// Creates the error for a failed read, write or creation of `path`.
    pub(crate) fn io(what: &str, path: &Path, cause: io::Error) -> Error {
        let mut text = format!("cannot {what} {}: {cause}", path.display());
        if cause.kind() == io::ErrorKind::NotFound && path.is_relative() {
            let directory = std::env::current_dir().unwrap_or_default();
            text += &format!("; the path is relative to {}", directory.display());
        }
        Error { text, cause: Some(Box::new(cause)) }
    }

    /// Creates the error for a failed compilation. The debug text of the .proto compiler, unlike its display text,
    /// starts with `file:line:column`.
    #[cfg(feature = "codegen")]
    pub(crate) fn compile(cause: protox::Error, includes: &[std::path::PathBuf]) -> Error {
        let mut text = format!("{cause:?}");
        if cause.is_parse() && text.ends_with("but found 'edition'") {
            text +=
                "; editions are not read yet: compile the file with protoc or buf and use .descriptor_set(…)";
        }
        if cause.is_file_not_found() {
            let searched: Vec<_> = includes.iter().map(|dir| dir.display().to_string()).collect();
            text += &format!("; searched in {}: add its directory with .include(…)", searched.join(", "));
        }
        Error { text, cause: Some(Box::new(cause)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

//! A separate directory for each test, with input files and generated files.

// Each test crate uses only a part of this module.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::{fs, path::PathBuf};
use switchboard_build::{Error, Idl, Proto};

/// A directory that is empty when the test begins.
pub struct Workspace {
    directory: PathBuf,
}

impl Workspace {
    /// Creates the directory of the test `name`.
    pub fn new(name: &str) -> Workspace {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).unwrap();
        Workspace { directory }
    }

    /// Writes a file below the directory and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Generates into the directory `out`.
    pub fn emit(&self, proto: Proto) -> Result<(), Error> {
        proto.out_dir(self.directory.join("out")).emit()
    }

    /// Generates from `.thrift` or `.fbs` files into the directory `out`.
    pub fn emit_idl(&self, idl: Idl) -> Result<(), Error> {
        idl.out_dir(self.directory.join("out")).emit()
    }

    /// Returns a generated file with folded whitespace, so that line breaks do not matter.
    pub fn generated(&self, name: &str) -> String {
        fold(&fs::read_to_string(self.directory.join("out").join(name)).unwrap())
    }

    /// Returns a generated binary file.
    pub fn generated_bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.join("out").join(name)).unwrap()
    }

    /// Returns the text of the error for one file.
    pub fn error(&self, content: &str) -> String {
        let file = self.file("test.proto", content);
        self.emit(switchboard_build::proto(file)).unwrap_err().to_string()
    }
}

/// Folds whitespace: one space for any number of them, none beside brackets, and no comma before a closing one.
pub fn fold(text: &str) -> String {
    let mut folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for bracket in ["(", ")", "<", ">", "[", "]", ".", "::"] {
        folded = folded.replace(&format!(" {bracket}"), bracket).replace(&format!("{bracket} "), bracket);
    }
    folded.replace(",)", ")").replace(",>", ">")
}

/// Fails with the whole text if a part is missing.
#[track_caller]
pub fn has(code: &str, parts: &[&str]) {
    for part in parts {
        let part = fold(part);
        assert!(code.contains(&part), "missing: {part}\nin: {code}");
    }
}

//! Certificates and keys that a suite hands over as text, put where settings of TLS look for them: in files.

use std::{
    collections::hash_map::DefaultHasher,
    fs::{DirBuilder, OpenOptions},
    hash::{Hash, Hasher},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A folder of this process that only its user may read; removed when this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held while a file is written, so that no reader finds half of one.
    writing: Mutex<()>,
}

impl Folder {
    /// Makes the folder.
    ///
    /// # Errors
    /// Returns the errors of the file system; the folder is new, whatever was there before.
    pub fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("switchboard-conformance-{}", std::process::id()));
        if let Err(error) = std::fs::remove_dir_all(&path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder { path, writing: Mutex::default() })
    }

    /// The file with this content; one that is there already is not written again.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn file(&self, content: &[u8]) -> io::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let path = self.path().join(format!("{:016x}.pem", hasher.finish()));
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => file.write_all(content)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(path)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Remaining files are in the folder for temporary files, and can be read by this user only.
        let _ = std::fs::remove_dir_all(self.path());
    }
}

//! The folder of durable topics: its lock, the mark of its last end, and its files.
//!
//! ```text
//! lock                      locked while a bus uses the folder
//! mark                      "open BOOT"; "clean NUMBER BYTES" with the last segment after an orderly end; or "failed"
//! topics, cursors           positions of topics and of durable cursors; replaced in one step
//! 00000000000000000001.log  segments
//! ```

use std::{
    fmt, fs,
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// A segment that is written.
pub(super) trait SegmentFile: fmt::Debug + Send + Sync {
    /// Appends all bytes.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the appended bytes are on the disk.
    fn sync(&self) -> io::Result<()>;

    /// Removes the bytes after this length.
    fn truncate(&self, length: u64) -> io::Result<()>;
}

impl SegmentFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        let mut file = self;
        file.seek(SeekFrom::Start(length)).map(drop)
    }
}

/// Creates the file of a segment at a path.
pub(super) type CreateFile = fn(&Path) -> io::Result<Arc<dyn SegmentFile>>;

/// Creates a file of the file system.
pub(super) fn create_file(path: &Path) -> io::Result<Arc<dyn SegmentFile>> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    Ok(Arc::new(file))
}

/// How the last bus that used the folder ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LastEnd {
    /// In order, with this segment and its length.
    Clean { number: u64, bytes: u64 },
    /// By the end of the machine, perhaps, or after a failed `fdatasync`: the page cache may be lost.
    Crashed,
    /// By the end of its process: the machine has not been started since.
    Killed,
    /// The folder is new.
    New,
}

/// A folder that is locked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Folder {
    /// Creates the folder if it does not exist, and locks it.
    ///
    /// # Errors
    /// `FailedPrecondition` if another bus uses it, `Unavailable` if it cannot be written.
    pub(super) fn lock(path: &Path) -> Result<Folder> {
        fs::create_dir_all(path).map_err(|error| failed("create", path, &error))?;
        let name = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
        let lock = lock.map_err(|error| failed("open", &name, &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let text = format!(
                    "the folder {} of durable topics is in use by another bus; use one folder for each process",
                    path.display()
                );
                Err(Status::failed_precondition(text))
            }
            Err(TryLockError::Error(error)) => Err(failed("lock", &name, &error)),
        }
    }

    /// Returns the path of a segment.
    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:020}.log"))
    }

    /// Returns the numbers of the segments, in order.
    pub(super) fn segments(&self) -> Result<Vec<u64>> {
        let entries = fs::read_dir(&self.path).map_err(|error| failed("read", &self.path, &error))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| failed("read", &self.path, &error))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            let number = number
                .filter(|number| number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit()));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    /// Replaces a file in one step, also if the machine crashes.
    pub(super) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, path) = (self.path.join(format!("{name}.new")), self.path.join(name));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| failed("write", &path, &error))?;
        self.sync();
        Ok(())
    }

    /// Waits until the names of new files are on the disk. Not every system can do this, and files have their content
    /// without it.
    pub(super) fn sync(&self) {
        if let Ok(folder) = File::open(&self.path) {
            drop(folder.sync_all());
        }
    }

    /// Returns how the last bus that used the folder ended.
    pub(super) fn last_end(&self, has_segments: bool) -> Result<LastEnd> {
        let boot = boot_id();
        let mark = self.read("mark")?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mark = mark.unwrap_or_default();
        let words: Vec<&str> = mark.split_whitespace().collect();
        Ok(match *words.as_slice() {
            [] if !has_segments => LastEnd::New,
            ["clean", number, bytes] => match (number.parse(), bytes.parse()) {
                (Ok(number), Ok(bytes)) => LastEnd::Clean { number, bytes },
                _ => LastEnd::Crashed,
            },
            ["open", last] if boot.as_deref() == Some(last) => LastEnd::Killed,
            _ => LastEnd::Crashed,
        })
    }

    /// Notes that a bus uses the folder. Called when the segments have the epochs that topics continue in: an end
    /// before that is noticed again.
    pub(super) fn begin(&self) -> Result<()> {
        let boot = boot_id().unwrap_or_else(|| "-".to_owned());
        self.replace("mark", format!("open {boot}\n").as_bytes())
    }

    /// Notes that the page cache cannot be relied on: the next start is as one after a crash of the machine.
    pub(super) fn note_failure(&self) {
        if let Err(status) = self.replace("mark", b"failed\n") {
            // A folder without a mark reads as one after a crash as well.
            let removed = fs::remove_file(self.path.join("mark"));
            tracing::error!(target: "switchboard::files", ?removed, "the failure is not noted: {status}");
        }
    }

    /// Notes an orderly end.
    pub(super) fn end(&self, number: u64, bytes: u64) -> Result<()> {
        self.replace("mark", format!("clean {number} {bytes}\n").as_bytes())
    }
}

/// Identifies the start of the machine; `None` where the system has none: each end without order then counts as a
/// crash of the machine.
fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty() && id != "-").then(|| id.to_owned())
}

/// Returns the error of an operation on a file.
pub(super) fn failed(operation: &str, path: &Path, error: &io::Error) -> Status {
    let text = format!("cannot {operation} {}: {error}; check the disk and the permissions", path.display());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Status::resource_exhausted(text),
        _ => Status::unavailable(text),
    }
}

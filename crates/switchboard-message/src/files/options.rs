//! Options of the files of durable topics.

use std::path::{Path, PathBuf};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Folder of the durable topics of a bus, and its limits; see [`BusBuilder::open`](crate::BusBuilder::open).
///
/// ```
/// let mut files = switchboard_message::FileOptions::new("/var/lib/desk/topics");
/// files.file_bytes_max = 16 << 30;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// The folder; created if it does not exist. One bus at a time uses it.
    pub folder: PathBuf,
    /// Bytes of one segment, and one batch of publications; default 64 MiB, at least 4 KiB. A full segment is followed
    /// by a new one. A segment without an entry that a history keeps is deleted.
    pub segment_bytes: u64,
    /// Bytes of all segments; default 4 GiB, at least four segments. At three quarters, entries that histories keep are
    /// copied from the oldest segment to the newest, and the oldest is deleted: the folder then has one segment more
    /// for a moment. At the limit, publications to durable topics fail with `ResourceExhausted`.
    pub file_bytes_max: u64,
    /// Bytes of publications that wait for the file; default 64 MiB. Further ones fail with `ResourceExhausted`; a
    /// single publication is always accepted.
    pub queue_bytes_max: usize,
}

/// Smallest segment: one page.
const SEGMENT_BYTES_MIN: u64 = 4 << 10;
/// Segments that the folder has space for, at least: those that the cleaner reads and writes, and two others.
const SEGMENTS_MIN: u64 = 4;

impl FileOptions {
    /// Creates the options of a folder, with the default limits.
    pub fn new(folder: impl AsRef<Path>) -> FileOptions {
        FileOptions {
            folder: folder.as_ref().to_owned(),
            segment_bytes: 64 << 20,
            file_bytes_max: 4 << 30,
            queue_bytes_max: 64 << 20,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.segment_bytes < SEGMENT_BYTES_MIN {
            let text = format!("segment_bytes is {}; the minimum is {SEGMENT_BYTES_MIN}", self.segment_bytes);
            return Err(Status::invalid_argument(text));
        }
        let min = self.segment_bytes.saturating_mul(SEGMENTS_MIN);
        if self.file_bytes_max < min {
            let text = format!(
                "file_bytes_max is {}; the minimum is {SEGMENTS_MIN} segments, {min} bytes",
                self.file_bytes_max
            );
            return Err(Status::invalid_argument(text));
        }
        Ok(())
    }
}

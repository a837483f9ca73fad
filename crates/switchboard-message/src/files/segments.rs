//! The segments of a folder while it is written: the newest one, and those that are full.

use super::{
    FileOptions,
    folder::{CreateFile, Folder, SegmentFile, failed},
    record,
    recover::{ClosedSegment, Recovered},
    replay::{SegmentIndex, SegmentTopic},
    saved,
    segment::{self, HEAD_BYTES},
    sync::{Pending, SyncQueue},
};
use crate::{
    clock,
    log::{Log, Position, Topic},
};
use std::{collections::VecDeque, fs, sync::Arc};
use switchboard_core::Result;
use switchboard_wire::{Code, Retry, Status};

/// Segments of a folder.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) folder: Arc<Folder>,
    options: FileOptions,
    create: CreateFile,
    pub(super) current: Current,
    closed: VecDeque<ClosedSegment>,
    /// Bytes of the closed segments.
    closed_bytes: u64,
    /// Time of the last attempt to release a segment because the limit was reached.
    released_at: u64,
    /// Interval until the next one, in nanoseconds.
    release_interval: u64,
    syncs: Arc<SyncQueue>,
}

/// The segment that is written.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) file: Arc<dyn SegmentFile>,
    pub(super) index: SegmentIndex,
}

/// Interval between two attempts to release a segment at the limit, in nanoseconds: a full folder is not searched and
/// copied at every publication. It doubles with each attempt that does not help.
const RELEASE_INTERVAL: u64 = 10_000_000_000;
const RELEASE_INTERVAL_MAX: u64 = 8 * RELEASE_INTERVAL;

/// Segments whose kept entries are copied when one is full: as many bytes are written at most for each byte of a
/// publication, and three quarters of the limit may be kept entries.
const COPIES_MAX: usize = 4;

impl Segments {
    pub(super) fn new(
        folder: Arc<Folder>,
        options: FileOptions,
        create: CreateFile,
        recovered: &mut Recovered,
        syncs: Arc<SyncQueue>,
    ) -> Result<Segments> {
        let current = Current::create(&folder, create, recovered.last.saturating_add(1))?;
        let closed = std::mem::take(&mut recovered.closed);
        let closed_bytes = closed.iter().map(|closed| closed.bytes).sum();
        let (released_at, release_interval) = (0, RELEASE_INTERVAL);
        Ok(Segments {
            folder,
            options,
            create,
            current,
            closed,
            closed_bytes,
            released_at,
            release_interval,
            syncs,
        })
    }

    /// Appends records to the newest segment; all or none.
    ///
    /// # Errors
    /// `ResourceExhausted` at `file_bytes_max` and for a full disk, `DataLoss` if the files cannot be relied on any
    /// more, `Unavailable` for other failures.
    pub(super) fn append(&mut self, records: &[u8], log: &Log, now: u64) -> Result<()> {
        // First: a folder without space does not copy segments for each publication that it refuses.
        self.reserve(records.len() as u64, log, now)?;
        if self.current.bytes >= self.options.segment_bytes {
            self.roll(log, now)?;
        }
        let (file, bytes) = (&self.current.file, self.current.bytes);
        if let Err(error) = file.append(records) {
            let path = self.folder.segment(self.current.number);
            let status = failed("write", &path, &error);
            // A part of the records may be in the file.
            return Err(match file.truncate(bytes) {
                Ok(()) => status.with_retry(Retry::Safe),
                Err(error) => Status::data_loss(failed("repair", &path, &error).message()),
            });
        }
        self.current.bytes += records.len() as u64;
        Ok(())
    }

    /// Returns the bytes of one segment.
    pub(super) fn segment_bytes(&self) -> usize {
        usize::try_from(self.options.segment_bytes).unwrap_or(usize::MAX)
    }

    fn bytes(&self) -> u64 {
        self.closed_bytes + self.current.bytes
    }

    /// Checks that the folder has space, after the release of segments if necessary.
    fn reserve(&mut self, bytes: u64, log: &Log, now: u64) -> Result<()> {
        let max = self.options.file_bytes_max;
        if self.bytes().saturating_add(bytes) <= max {
            return Ok(());
        }
        if now.saturating_sub(self.released_at) >= self.release_interval {
            self.released_at = now;
            if self.current.bytes > HEAD_BYTES as u64 {
                self.roll(log, now)?;
            }
            self.release_while_useful(bytes, log, now)?;
            if self.bytes().saturating_add(bytes) <= max {
                self.release_interval = RELEASE_INTERVAL;
                return Ok(());
            }
            self.release_interval = self.release_interval.saturating_mul(2).min(RELEASE_INTERVAL_MAX);
        }
        let text = format!(
            "no space for {bytes} bytes in {}: its segments have {} bytes; the limit is file_bytes_max={max}; shorten \
             histories of durable topics, or raise the limit",
            self.options.folder.display(),
            self.bytes()
        );
        Err(Status::resource_exhausted(text).with_retry(Retry::Safe))
    }

    /// Releases segments until these bytes fit, once around at most. Ends when copies release less than a sixteenth of
    /// what they write: the next attempt continues with the segments after them.
    fn release_while_useful(&mut self, bytes: u64, log: &Log, now: u64) -> Result<()> {
        let mut left = self.closed.len();
        while left > 0 && self.bytes().saturating_add(bytes) > self.options.file_bytes_max {
            let before = self.bytes();
            self.release(log, now, COPIES_MAX)?;
            if before.saturating_sub(self.bytes()) < self.options.segment_bytes / 4 {
                return Ok(());
            }
            left = left.saturating_sub(COPIES_MAX);
        }
        Ok(())
    }

    /// Begins a new segment, and releases old ones.
    fn roll(&mut self, log: &Log, now: u64) -> Result<()> {
        self.begin_next()?;
        match self.release(log, now, COPIES_MAX) {
            Err(status) if status.code() != Code::DataLoss => {
                tracing::warn!(target: "switchboard::files", "old segments are not deleted: {status}");
                Ok(())
            }
            released => released,
        }
    }

    fn begin_next(&mut self) -> Result<()> {
        let next = Current::create(&self.folder, self.create, self.current.number.saturating_add(1))?;
        let Current { number, bytes, file, index } = std::mem::replace(&mut self.current, next);
        self.syncs.push([Pending { file, entries: None }]);
        self.closed_bytes += bytes;
        self.closed.push_back(ClosedSegment { number, bytes, index });
        Ok(())
    }

    /// Deletes the oldest segments without kept entries. At three quarters of the limit, kept entries of older segments
    /// are copied to the newest one, of so many segments.
    fn release(&mut self, log: &Log, now: u64, copies_max: usize) -> Result<()> {
        let (mut copies, mut has_saved) = (0, false);
        while let Some(oldest) = self.closed.front() {
            let is_staged =
                |(topic, part): (&Topic, &SegmentTopic)| log.is_staged(topic, part.epoch, &part.ranges);
            if oldest.index.topics.iter().any(is_staged) {
                return Ok(());
            }
            let keeps =
                |(topic, part): (&Topic, &SegmentTopic)| log.keeps(topic, part.epoch, &part.ranges, now);
            let is_kept = clock::after(oldest.index.id_time, log.limits().dedup_window) > now
                || oldest.index.topics.iter().any(keeps);
            if is_kept {
                if copies == copies_max || self.bytes() <= self.options.file_bytes_max / 4 * 3 {
                    return Ok(());
                }
                copies += 1;
                if self.current.bytes >= self.options.segment_bytes {
                    self.begin_next()?;
                }
                self.copy_oldest(log)?;
            }
            if !std::mem::replace(&mut has_saved, true) {
                // Topics without an entry in the segments continue after their last offset.
                saved::write_topics(&self.folder, &log.durable_topics())?;
            }
            self.delete_oldest()?;
        }
        Ok(())
    }

    /// Copies the kept entries of the oldest segment to the newest.
    fn copy_oldest(&mut self, log: &Log) -> Result<()> {
        let Some(oldest) = self.closed.front() else { return Ok(()) };
        let (mut records, mut copied) = (Vec::new(), Vec::new());
        for (topic, part) in &oldest.index.topics {
            for (offset, time, entry) in log.kept(topic, part.epoch, &part.ranges) {
                let position = Position { epoch: part.epoch, offset };
                if record::write_entry(&mut records, topic, position, time, &entry, false) {
                    copied.push((topic.clone(), position, time, entry.id().is_some()));
                }
            }
        }
        let path = self.folder.segment(self.current.number);
        let file = &self.current.file;
        if let Err(error) = file.append(&records) {
            let status = failed("write", &path, &error);
            file.truncate(self.current.bytes)
                .map_err(|error| Status::data_loss(failed("repair", &path, &error).message()))?;
            return Err(status);
        }
        self.syncs.sync(file)?;
        self.current.bytes += records.len() as u64;
        for (topic, position, time, has_id) in copied {
            self.current.index.add(&topic, position, time, has_id);
        }
        Ok(())
    }

    fn delete_oldest(&mut self) -> Result<()> {
        let Some(oldest) = self.closed.front() else { return Ok(()) };
        let path = self.folder.segment(oldest.number);
        fs::remove_file(&path).map_err(|error| failed("delete", &path, &error))?;
        self.closed_bytes -= oldest.bytes;
        self.closed.pop_front();
        Ok(())
    }
}

impl Current {
    fn create(folder: &Folder, create: CreateFile, number: u64) -> Result<Current> {
        let path = folder.segment(number);
        let head = segment::head(number);
        let file = create(&path).map_err(|error| failed("create", &path, &error))?;
        if let Err(error) = file.append(&head) {
            drop(fs::remove_file(&path));
            return Err(failed("write", &path, &error));
        }
        folder.sync();
        Ok(Current { number, bytes: HEAD_BYTES as u64, file, index: SegmentIndex::default() })
    }
}

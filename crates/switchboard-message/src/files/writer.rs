//! The thread that writes the entries of durable topics, and saves the positions of durable cursors.

use super::{
    folder::SegmentFile,
    record, saved,
    segments::Segments,
    sync::{self, Pending, SyncQueue},
};
use crate::{
    clock::Clock,
    log::{AppendError, Log, Position, Staged, StagedOffset, Storage, Submission, Submissions},
};
use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};
use switchboard_core::Result;
use switchboard_wire::{Code, Status};

/// Writer of a folder.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) log: Arc<Log>,
    pub(super) clock: Clock,
    pub(super) submissions: Arc<Submissions>,
    pub(super) syncs: Arc<SyncQueue>,
    pub(super) sync_thread: Option<JoinHandle<()>>,
    pub(super) segments: Segments,
    /// Time of the newest entry: each has its own, so that their order is that of their times.
    pub(super) time: u64,
    /// Records that are not written.
    pub(super) records: Vec<u8>,
    pub(super) next_save: Instant,
}

/// Bytes of records that one write has, if a segment is not smaller, and one batch of publications.
const WRITE_BYTES: usize = 1 << 20;
/// Interval between two files of cursors, and multiple of the time that one takes: it is a small part of the thread.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
const SAVE_COST: u32 = 20;

impl Writer {
    /// Writes until the bus is dropped.
    pub(super) fn run(mut self) {
        let _guard = self.syncs.end_on_panic();
        loop {
            let (submissions, is_closed) = self.submissions.take(SAVE_INTERVAL);
            if submissions.is_empty() && is_closed {
                return self.finish();
            }
            self.write(submissions);
            if switchboard_core::clock::now() >= self.next_save {
                self.save_cursors();
            }
        }
    }

    /// Writes entries in the order of their submission, with few system calls.
    fn write(&mut self, submissions: Vec<Submission>) {
        let mut batch = Vec::new();
        for submission in submissions {
            if let Some(status) = self.submissions.failed() {
                self.refuse(submission, status.into());
                continue;
            }
            let now = self.clock.now();
            let staged = self.log.stage(&submission.topic, &submission.entries, submission.ignores_ids, now);
            match staged {
                Err(error) => self.refuse(submission, error),
                Ok(staged) => match self.encode(&staged, &submission) {
                    Ok(time) => batch.push((staged, submission, time)),
                    Err(status) => {
                        sync::abort(&self.log, &self.submissions, &staged, submission, &status, now);
                    }
                },
            }
            if self.records.len() >= WRITE_BYTES.min(self.segments.segment_bytes()) {
                self.flush(std::mem::take(&mut batch));
            }
        }
        self.flush(batch);
    }

    fn refuse(&self, submission: Submission, error: AppendError) {
        self.submissions.release(submission.bytes);
        if submission.done.is_none() {
            let reason = match &error {
                AppendError::Failed(status) => status.message(),
                AppendError::Durable | AppendError::Wait(..) => {
                    "its slowest cursor is behind by the whole backlog"
                }
            };
            tracing::warn!(target: "switchboard::files", topic = %submission.topic, "a message is lost: {reason}");
        }
        submission.finish(Err(error));
    }

    /// Appends the records of a submission; returns the time of its last entry.
    fn encode(&mut self, staged: &Staged, submission: &Submission) -> Result<u64> {
        let (start, entries) = (self.records.len(), &submission.entries);
        let is_new = |offset: &StagedOffset| matches!(offset, StagedOffset::New(_));
        let mut left = staged.offsets.iter().filter(|offset| is_new(offset)).count();
        for (offset, entry) in staged.offsets.iter().zip(entries) {
            let StagedOffset::New(offset) = *offset else { continue };
            left -= 1;
            self.time = self.clock.now().max(self.time.saturating_add(1));
            let position = Position { epoch: staged.epoch, offset };
            let topic = &submission.topic;
            if !record::write_entry(&mut self.records, topic, position, self.time, entry, left > 0) {
                self.records.truncate(start);
                let text = format!("an entry of topic \"{topic}\" is larger than a file allows, 4 GiB");
                return Err(Status::resource_exhausted(text));
            }
        }
        Ok(self.time)
    }

    /// Writes the records, and appends the entries to their logs or passes them to the thread that waits for the disk.
    fn flush(&mut self, batch: Vec<(Staged, Submission, u64)>) {
        let mut written = match self.records.is_empty() {
            true => Ok(()),
            false => self.segments.append(&self.records, &self.log, self.clock.now()),
        };
        self.records.clear();
        self.records.shrink_to(2 * WRITE_BYTES);
        if let Err(status) = &written
            && status.code() == Code::DataLoss
        {
            tracing::error!(target: "switchboard::files", "{status}");
            let failed = Status::unavailable(status.message());
            self.submissions.fail(failed.clone());
            written = Err(failed);
        }
        let file: Arc<dyn SegmentFile> = self.segments.current.file.clone();
        let mut pending = Vec::new();
        for (staged, submission, time) in batch {
            if let Err(status) = &written {
                let status = Status::clone(status);
                sync::abort(&self.log, &self.submissions, &staged, submission, &status, time);
                continue;
            }
            self.note(&staged, &submission, time);
            match staged.storage {
                Storage::Synced => {
                    pending.push(Pending { file: file.clone(), entries: Some((staged, submission)) });
                }
                _ => sync::commit(&self.log, &self.submissions, &staged, submission, time),
            }
        }
        if !pending.is_empty() {
            self.syncs.push(pending);
        }
    }

    /// Notes the entries in the index of their segment.
    fn note(&mut self, staged: &Staged, submission: &Submission, time: u64) {
        for (offset, entry) in staged.offsets.iter().zip(&submission.entries) {
            let StagedOffset::New(offset) = *offset else { continue };
            let position = Position { epoch: staged.epoch, offset };
            self.segments.current.index.add(&submission.topic, position, time, entry.id().is_some());
        }
    }

    /// Saves the durable cursors, if one has moved.
    fn save_cursors(&mut self) {
        let started = switchboard_core::clock::now();
        if self.log.take_cursor_changes()
            && let Err(status) =
                saved::write_cursors(&self.segments.folder, &self.log.durable_cursors(self.clock.now()))
        {
            tracing::warn!(target: "switchboard::files", "the positions of durable cursors are not saved: {status}");
            self.log.note_cursor_change();
        }
        let pause = switchboard_core::clock::since(started).saturating_mul(SAVE_COST).max(SAVE_INTERVAL);
        self.next_save = started.checked_add(pause).unwrap_or(started);
    }

    /// Ends the thread that waits for the disk, and notes an orderly end.
    fn finish(mut self) {
        self.syncs.close();
        if let Some(thread) = self.sync_thread.take() {
            drop(thread.join());
        }
        let ended = self.end();
        if let Err(status) = ended {
            tracing::warn!(target: "switchboard::files", "the durable topics did not end in order: {status}");
        }
    }

    fn end(&mut self) -> Result<()> {
        if let Some(status) = self.submissions.failed() {
            return Err(status);
        }
        self.syncs.sync(&self.segments.current.file)?;
        let folder = &self.segments.folder;
        saved::write_topics(folder, &self.log.durable_topics())?;
        saved::write_cursors(folder, &self.log.durable_cursors(self.clock.now()))?;
        folder.end(self.segments.current.number, self.segments.current.bytes)
    }
}

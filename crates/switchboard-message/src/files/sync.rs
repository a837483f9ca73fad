//! Group commit: a thread that waits for the disk, and then appends entries to their logs.
//!
//! Entries that arrive while it waits share the next `fdatasync`.

use super::folder::SegmentFile;
use crate::log::{Log, Staged, Submission, Submissions};
use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};
use switchboard_wire::Status;

/// Queue of entries that are written and not on the disk. Bounded by the queue of submissions.
#[derive(Debug, Default)]
pub(super) struct SyncQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<Pending>,
    is_closed: bool,
}

/// Work of one `fdatasync`.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) file: Arc<dyn SegmentFile>,
    /// `None` for a segment that is full.
    pub(super) entries: Option<(Staged, Submission)>,
}

impl SyncQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, pending: impl IntoIterator<Item = Pending>) {
        self.lock().pending.extend(pending);
        self.arrived.notify_one();
    }

    /// Ends the thread after the entries so far.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Returns the next entries; none at the end.
    fn take(&self) -> Vec<Pending> {
        let is_idle = |state: &mut State| state.pending.is_empty() && !state.is_closed;
        let state = self.arrived.wait_while(self.lock(), is_idle);
        mem::take(&mut state.unwrap_or_else(PoisonError::into_inner).pending)
    }
}

/// Waits for the disk and appends to the logs, until the queue is closed and empty.
pub(super) fn run(queue: &SyncQueue, log: &Log, submissions: &Arc<Submissions>, now: impl Fn() -> u64) {
    let _guard = submissions.fail_on_panic();
    loop {
        let pending = queue.take();
        if pending.is_empty() {
            return;
        }
        let synced = sync_all(&pending);
        if let Err(error) = &synced {
            // The page cache may have dropped what was written: nothing after this can be relied on.
            let text = format!(
                "the files of the durable topics failed: fdatasync: {error}; check the disk, and restart the process"
            );
            tracing::error!(target: "switchboard::files", "{text}");
            submissions.fail(Status::unavailable(text));
        }
        for (staged, submission) in pending.into_iter().filter_map(|pending| pending.entries) {
            match submissions.failed() {
                None => commit(log, submissions, &staged, submission, now()),
                Some(status) => abort(log, submissions, &staged, submission, &status, now()),
            }
        }
    }
}

/// Waits for each file of the entries.
fn sync_all(pending: &[Pending]) -> io::Result<()> {
    let mut last: Option<&Arc<dyn SegmentFile>> = None;
    for Pending { file, .. } in pending {
        if !last.is_some_and(|last| Arc::ptr_eq(last, file)) {
            file.sync()?;
            last = Some(file);
        }
    }
    Ok(())
}

/// Appends entries that are in their file, and reports their position.
pub(super) fn commit(
    log: &Log,
    submissions: &Submissions,
    staged: &Staged,
    mut submission: Submission,
    now: u64,
) {
    let entries = mem::take(&mut submission.entries);
    let appended = log.commit(staged, entries, now);
    submissions.release(submission.bytes);
    submission.finish(appended);
}

/// Removes entries that are not in their file, and reports the error.
pub(super) fn abort(
    log: &Log,
    submissions: &Submissions,
    staged: &Staged,
    submission: Submission,
    status: &Status,
    now: u64,
) {
    log.abort(staged, &submission.entries, now);
    submissions.release(submission.bytes);
    submission.finish(Err(status.clone().into()));
}

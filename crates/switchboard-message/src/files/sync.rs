//! Group commit: a thread that waits for the disk, and then appends entries to their logs.
//!
//! Entries that arrive while it waits share the next `fdatasync`.

use super::folder::{Folder, SegmentFile};
use crate::log::{Log, Staged, Submission, Submissions};
use std::{
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Queue of entries that are written and not on the disk. Bounded by the queue of submissions.
#[derive(Debug)]
pub(super) struct SyncQueue {
    state: Mutex<State>,
    arrived: Condvar,
    folder: Arc<Folder>,
    submissions: Arc<Submissions>,
    /// Held during an `fdatasync`: the system reports an error to one caller alone.
    syncing: Mutex<()>,
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
    pub(super) fn new(folder: Arc<Folder>, submissions: Arc<Submissions>) -> SyncQueue {
        let (state, syncing) = (Mutex::default(), Mutex::default());
        SyncQueue { state, arrived: Condvar::new(), folder, submissions, syncing }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds entries. After a panic of a thread, they are dropped: their publishers receive an error.
    pub(super) fn push(&self, pending: impl IntoIterator<Item = Pending>) {
        let mut state = self.lock();
        if !state.is_closed {
            state.pending.extend(pending);
            self.arrived.notify_one();
        }
    }

    /// Waits until the bytes of a file are on the disk. A failure is final: the page cache may have dropped what was
    /// written, so that no submission is accepted from then on, and the next start is as one after a crash.
    pub(super) fn sync(&self, file: &Arc<dyn SegmentFile>) -> Result<()> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync().map_err(|error| {
            let text = format!(
                "the files of the durable topics failed: fdatasync: {error}; check the disk, and restart the process"
            );
            tracing::error!(target: "switchboard::files", "{text}");
            // Before another caller can sync the file, which would succeed.
            self.submissions.fail(Status::unavailable(text.clone()));
            self.folder.note_failure();
            Status::data_loss(text)
        })
    }

    /// Ends both threads if one of them panics: no publisher waits for ever.
    pub(super) fn end_on_panic(self: &Arc<Self>) -> EndOnPanic {
        EndOnPanic(self.clone())
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

/// Refuses all submissions, and empties both queues, when it is dropped by a panic.
#[derive(Debug)]
pub(super) struct EndOnPanic(Arc<SyncQueue>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let EndOnPanic(queue) = self;
        queue
            .submissions
            .fail(Status::internal("a thread that writes durable topics has panicked; restart the process"));
        queue.close();
        let pending = mem::take(&mut queue.lock().pending);
        drop((pending, queue.submissions.take(Duration::ZERO)));
    }
}

/// Waits for the disk and appends to the logs, until the queue is closed and empty.
pub(super) fn run(queue: &Arc<SyncQueue>, log: &Log, submissions: &Submissions, now: impl Fn() -> u64) {
    let _guard = queue.end_on_panic();
    loop {
        let pending = queue.take();
        if pending.is_empty() {
            return;
        }
        // A failure is that of all submissions.
        let _ = sync_all(queue, &pending);
        for (staged, submission) in pending.into_iter().filter_map(|pending| pending.entries) {
            match submissions.failed() {
                None => commit(log, submissions, &staged, submission, now()),
                Some(status) => abort(log, submissions, &staged, submission, &status, now()),
            }
        }
    }
}

/// Waits for each file of the entries.
fn sync_all(queue: &SyncQueue, pending: &[Pending]) -> Result<()> {
    let mut last: Option<&Arc<dyn SegmentFile>> = None;
    for Pending { file, .. } in pending {
        if !last.is_some_and(|last| Arc::ptr_eq(last, file)) {
            queue.sync(file)?;
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

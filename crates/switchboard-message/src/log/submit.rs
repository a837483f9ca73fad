//! Queue of publications to durable topics, from their publishers to the thread that writes the files.

use super::{AppendError, Appended, Entry, Log, NameRef, Topic};
use smallvec::SmallVec;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Retry, Status};
use tokio::sync::{Notify, oneshot};

/// Entries for one durable topic: all or none are accepted.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) topic: Topic,
    /// Entries with a known publication id are appended as well.
    pub(crate) ignores_ids: bool,
    pub(crate) entries: SmallVec<[Entry; 1]>,
    /// Bytes in [`Submissions`].
    pub(crate) bytes: usize,
    /// `None` if no publisher waits for the outcome.
    pub(crate) done: Option<oneshot::Sender<Submitted>>,
}

/// Outcome of a submission.
pub(crate) type Submitted = Result<Appended, Refused>;

/// Reason why a submission was not accepted.
#[derive(Debug)]
pub(crate) enum Refused {
    Failed(Status),
    /// The backlog is full, and the publisher waits at most this long; with its entries.
    Wait(Arc<Notify>, Duration, SmallVec<[Entry; 1]>),
}

/// Queue of a bus. Its bytes are those of all submissions without an outcome, also after they left the queue.
#[derive(Debug)]
pub(crate) struct Submissions {
    state: Mutex<State>,
    arrived: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<Submission>,
    bytes: usize,
    is_closed: bool,
    /// The files cannot be written any more.
    failed: Option<Status>,
}

impl Submissions {
    pub(crate) fn new(bytes_max: usize) -> Submissions {
        Submissions { state: Mutex::default(), arrived: Condvar::new(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, submission: Submission) -> Result<()> {
        let mut state = self.lock();
        if let Some(status) = &state.failed {
            return Err(status.clone());
        }
        if state.is_closed {
            return Err(Status::unavailable("the files of the durable topics are closed"));
        }
        if state.bytes > 0 && state.bytes.saturating_add(submission.bytes) > self.bytes_max {
            let text = format!(
                "the queue of topic \"{}\" to its file is full; the limit is queue_bytes_max={}; await publications, \
                 or publish later",
                submission.topic, self.bytes_max
            );
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        state.bytes = state.bytes.saturating_add(submission.bytes);
        state.queue.push(submission);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for submissions, at most this long; returns all, and whether the queue is closed.
    pub(crate) fn take(&self, wait: Duration) -> (Vec<Submission>, bool) {
        let state = self.lock();
        let is_idle = |state: &mut State| state.queue.is_empty() && !state.is_closed;
        let waited = self.arrived.wait_timeout_while(state, wait, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut state.queue), state.is_closed)
    }

    /// Refuses further submissions; those in the queue are written.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Refuses all submissions from now on, with this error.
    pub(crate) fn fail(&self, status: Status) {
        self.lock().failed.get_or_insert(status);
    }

    /// Returns the error of a bus whose files cannot be written any more.
    pub(crate) fn failed(&self) -> Option<Status> {
        self.lock().failed.clone()
    }

    /// Notes that submissions with these bytes have an outcome.
    pub(crate) fn release(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }
}

impl Log {
    /// Passes entries for a durable topic to its files; the outcome follows if `waits`.
    pub(crate) fn submit(
        &self,
        name: NameRef<'_>,
        entries: SmallVec<[Entry; 1]>,
        waits: bool,
    ) -> Result<Option<oneshot::Receiver<Submitted>>> {
        let Some(submissions) = &self.submissions else {
            let text = format!(
                "topic \"{}\" is durable, and the bus has no files; create the bus with BusBuilder::open",
                name.name
            );
            return Err(Status::failed_precondition(text));
        };
        let topic = match name.topic {
            Some(topic) => topic.clone(),
            None => Topic::new(name.name)?,
        };
        let (done, outcome) = if waits {
            let (done, outcome) = oneshot::channel();
            (Some(done), Some(outcome))
        } else {
            (None, None)
        };
        let bytes = entries.iter().map(Entry::charged_bytes).sum();
        submissions.push(Submission { topic, ignores_ids: name.ignores_ids, entries, bytes, done })?;
        Ok(outcome)
    }
}

impl Submission {
    /// Reports the outcome to the publisher, if it still waits.
    pub(crate) fn finish(mut self, outcome: Result<Appended, AppendError>) {
        let Some(done) = self.done.take() else { return };
        let outcome = outcome.map_err(|error| match error {
            AppendError::Failed(status) => Refused::Failed(status),
            AppendError::Wait(room, limit) => Refused::Wait(room, limit, std::mem::take(&mut self.entries)),
            AppendError::Durable => {
                Refused::Failed(Status::internal("a durable topic was appended to in memory"))
            }
        });
        drop(done.send(outcome));
    }
}

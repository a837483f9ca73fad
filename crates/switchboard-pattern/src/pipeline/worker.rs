//! Workers: receive tasks, publish results, acknowledge.

use super::{Pipeline, lost, result_id};
use crate::Result;
use serde::Serialize;
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use switchboard_message::{Delivery, Message, Position, Subscription};

/// Receives tasks. Dropping it leaves its unacknowledged tasks to the other workers.
#[derive(Debug)]
pub struct Worker<T> {
    pipeline: Pipeline,
    tasks: Subscription<T>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    redelivered: AtomicU64,
    finished: AtomicU64,
    rejected: AtomicU64,
}

/// Counters of a [`Worker`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Tasks that were received.
    pub received: u64,
    /// Tasks among them that had been delivered before.
    pub redelivered: u64,
    /// Tasks that were finished.
    pub finished: u64,
    /// Tasks that were rejected.
    pub rejected: u64,
}

impl<T> Worker<T> {
    pub(super) fn new(pipeline: &Pipeline, tasks: Subscription<T>) -> Worker<T> {
        Worker { pipeline: pipeline.clone(), tasks, counts: Arc::default() }
    }

    /// Receives the next task; `None` after the bus has closed the subscription. Cancel safe. The worker receives no
    /// more while it holds [`unacknowledged_max`](Pipeline::unacknowledged_max) tasks.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Lost`](crate::ErrorKind::Lost) for tasks that the topic no longer had: the next call
    /// continues. This does not happen with [`Pipeline::topic_options`] and [`Pipeline::hold`], unless the process of
    /// the topics ends. Also the errors of [`Subscription::next`].
    pub async fn next(&mut self) -> Result<Option<Task<T>>> {
        loop {
            return match self.tasks.next().await? {
                Some(Delivery::Entry(message)) => {
                    self.counts.received.fetch_add(1, Ordering::Relaxed);
                    if message.attempt() > 1 {
                        self.counts.redelivered.fetch_add(1, Ordering::Relaxed);
                    }
                    let (pipeline, counts) = (self.pipeline.clone(), self.counts.clone());
                    Ok(Some(Task { pipeline, message, counts }))
                }
                Some(Delivery::Gap(gap)) => Err(lost(&gap)),
                Some(_) => continue,
                None => Ok(None),
            };
        }
    }

    /// Waits until the acknowledgements so far have reached the process of the topics. Call it before a worker ends by
    /// itself: tasks whose acknowledgement is lost are done again.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_message::Bus::settled`].
    pub async fn settled(&self) -> Result<()> {
        Ok(self.pipeline.bus.settled().await?)
    }

    /// Returns the counters.
    pub fn stats(&self) -> WorkerStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerStats {
            received: count(&self.counts.received),
            redelivered: count(&self.counts.redelivered),
            finished: count(&self.counts.finished),
            rejected: count(&self.counts.rejected),
        }
    }
}

/// A task. Dereferences to its content. A task that is dropped is delivered again after
/// [`ack_wait`](Pipeline::ack_wait), or at once when its worker ends.
#[derive(Debug)]
pub struct Task<T> {
    pipeline: Pipeline,
    message: Message<T>,
    counts: Arc<Counts>,
}

impl<T> Task<T> {
    /// Returns true if the task was delivered before: it may have been done.
    pub fn is_redelivered(&self) -> bool {
        self.message.attempt() > 1
    }

    /// Returns the number of this delivery, from 1.
    pub fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// Returns the position in the topic of tasks, which identifies the task.
    pub fn position(&self) -> Position {
        self.message.position()
    }

    /// Finishes the task without a result. Returns false if another worker has finished it.
    pub fn finish(&self) -> bool {
        self.counts.finished.fetch_add(1, Ordering::Relaxed);
        self.message.ack()
    }

    /// Publishes the result, and finishes the task once the bus has accepted the result. A second result of the task is
    /// dropped by the bus within two minutes, and flagged by the sink after them. If the future is dropped, the task is
    /// not finished.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a pipeline without results, and the
    /// errors of [`switchboard_message::Bus::publish`]: the task is not finished then.
    pub async fn finish_with<R: Serialize + Sync>(&self, result: &R) -> Result<bool> {
        let Some(topic) = &self.pipeline.results else { return Err(self.pipeline.without_results()) };
        self.pipeline.bus.publish(topic, result).id(result_id(self.position())).await?;
        Ok(self.finish())
    }

    /// Leaves the task to any worker, at once.
    pub fn reject(&self) -> bool {
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        self.message.reject()
    }
}

impl<T> Deref for Task<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.message
    }
}

//! Sender of tasks.

use super::Pipeline;
use crate::Result;
use bytes::Bytes;
use serde::Serialize;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use switchboard_core::{clock, codec};
use switchboard_message::{Bus, Position, Publication};
use switchboard_wire::Codec;

/// Sends the tasks of a pipeline. Cheap to clone.
#[derive(Clone)]
pub struct Ventilator {
    bus: Bus,
    tasks: String,
    ids: Arc<Ids>,
}

/// Ids of tasks: a lost publication is repeated, and appended once.
struct Ids {
    run: u64,
    next: AtomicU64,
}

impl Ids {
    fn next(&self) -> Bytes {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.run.to_be_bytes());
        id[8..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Bytes::copy_from_slice(&id)
    }
}

impl Ventilator {
    pub(super) fn new(pipeline: &Pipeline) -> Ventilator {
        let ids = Arc::new(Ids { run: clock::random(), next: AtomicU64::new(0) });
        Ventilator { bus: pipeline.bus.clone(), tasks: pipeline.tasks.clone(), ids }
    }

    /// Sends a task; resolves once the bus has accepted it. Waits while the backlog is full. A future that is dropped
    /// may have sent it, or not.
    ///
    /// # Errors
    /// Returns the errors of [`Bus::publish`]; over a lost connection after 30 s.
    pub async fn push<T: Serialize + Sync>(&self, task: &T) -> Result<Position> {
        Ok(self.bus.publish(&self.tasks, task).id(self.ids.next()).await?)
    }

    /// Sends a task that has an id of the application: a second one with it, sent within two minutes, is not accepted
    /// as another task.
    ///
    /// # Errors
    /// Returns the errors of [`push`](Self::push).
    pub async fn push_once<T: Serialize + Sync>(&self, id: impl Into<Bytes>, task: &T) -> Result<Position> {
        Ok(self.bus.publish(&self.tasks, task).id(id).await?)
    }

    /// Sends several tasks: all, or none. Resolves to the position of the last. At most `batch_entries_max` of the bus,
    /// 1,024 by default.
    ///
    /// # Errors
    /// Returns the errors of [`push`](Self::push), and those of the limit.
    pub async fn push_batch<T: Serialize>(&self, tasks: &[T]) -> Result<Position> {
        let publication = |task| {
            let mut publication =
                Publication::new(Codec::Postcard, codec::serde::encode(task, Codec::Postcard)?);
            publication.id = self.ids.next();
            Ok::<_, switchboard_wire::Status>(publication)
        };
        let publications = tasks.iter().map(publication).collect::<Result<_, _>>()?;
        Ok(self.bus.publish_batch_encoded(&self.tasks, publications).await?)
    }
}

impl fmt::Debug for Ventilator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ventilator").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

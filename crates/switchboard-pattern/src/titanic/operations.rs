//! The thread of the store: operations that arrive together share a sync.

use super::{
    RequestId,
    service::Shared,
    store::{Fetched, Store},
};
use bytes::Bytes;
use std::time::SystemTime;
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::sync::{mpsc, oneshot};

/// Operations that wait for the store. Each is of a worker or of a request in execution, which wait for it.
pub(super) const OPERATIONS_MAX: usize = 256;

/// Returns the time in seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Operation of the store.
#[derive(Debug)]
pub(super) enum Operation {
    Close { id: RequestId },
    Expire { before: u64 },
    Fetch { id: RequestId },
    Load { id: RequestId },
    Reply { id: RequestId, body: Vec<Bytes> },
    Store { id: RequestId, service: Bytes, body: Vec<Bytes> },
}

/// Result of an [`Operation`].
#[derive(Debug)]
pub(super) enum Done {
    Closed(bool),
    Expired(u64),
    Fetched(Fetched),
    Loaded(Option<(Bytes, Vec<Bytes>)>),
    Stored,
}

/// Passes operations to the thread of the store.
#[derive(Clone, Debug)]
pub(super) struct StoreHandle(mpsc::Sender<(Operation, oneshot::Sender<Result<Done>>)>);

impl StoreHandle {
    pub(super) fn new(operations: mpsc::Sender<(Operation, oneshot::Sender<Result<Done>>)>) -> StoreHandle {
        StoreHandle(operations)
    }

    /// Runs an operation; changes are on disk when the future resolves.
    pub(super) async fn run(&self, operation: Operation) -> Result<Done> {
        let ended = || Status::unavailable("the store is closed");
        let (sender, done) = oneshot::channel();
        self.0.send((operation, sender)).await.map_err(|_| ended())?;
        done.await.map_err(|_| ended())?
    }
}

/// Runs operations until the last handle is dropped. All that wait share a sync.
pub(super) fn run_store(
    mut store: Store,
    mut operations: mpsc::Receiver<(Operation, oneshot::Sender<Result<Done>>)>,
    is_synced: bool,
    shared: &Shared,
) {
    let mut results = Vec::new();
    while let Some(first) = operations.blocking_recv() {
        let mut next = Some(first);
        let mut stored = Vec::new();
        while let Some((operation, done)) = next {
            if let Operation::Store { id, .. } = operation {
                stored.push(id);
            }
            results.push((apply(&mut store, operation), done));
            next = if results.len() < OPERATIONS_MAX { operations.try_recv().ok() } else { None };
        }
        let flushed = store.flush(is_synced);
        if flushed.is_err() {
            // Their clients learn of a failure: they must not be executed later. A restart before the next flush that
            // succeeds may still execute them.
            for id in stored {
                store.close(id);
            }
        }
        shared.measure(&store);
        for (result, done) in results.drain(..) {
            let result = match (&flushed, result) {
                (Err(failure), Ok(Done::Closed(_) | Done::Expired(_) | Done::Stored)) => {
                    Err(Status::new(failure.code(), failure.message()))
                }
                (_, result) => result,
            };
            // The worker may have ended.
            let _ = done.send(result);
        }
    }
}

fn apply(store: &mut Store, operation: Operation) -> Result<Done> {
    match operation {
        Operation::Close { id } => Ok(Done::Closed(store.close(id))),
        Operation::Expire { before } => {
            let old = store.before(before);
            let count = old.into_iter().filter(|id| store.close(*id)).count();
            Ok(Done::Expired(count as u64))
        }
        Operation::Fetch { id } => store.fetch(id).map(Done::Fetched),
        Operation::Load { id } => store.request(id).map(Done::Loaded),
        Operation::Reply { id, body } => store.put_reply(id, &body).map(|_| Done::Stored),
        Operation::Store { id, service, body } => {
            store.put_request(id, now_s(), &service, &body).map(|()| Done::Stored)
        }
    }
}

//! Thread pool for work that would block a connection's turn.

use crate::Result;
use std::{
    future::Future,
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
};
use switchboard_wire::Status;
use tokio::{runtime::Runtime, task::JoinHandle};

/// Runs `work` on a thread pool that drives no connections; the pool starts with its first use and has as
/// many threads as the machine has cores.
///
/// Dropping the returned future cancels `work` at its next await.
///
/// # Errors
/// `Internal` if `work` panics.
pub async fn spawn_cpu<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    spawn_boxed(Box::pin(work)).await
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Runs boxed work: this code is compiled for each type of result, not for each method.
async fn spawn_boxed<T: Send + 'static>(work: Work<T>) -> Result<T> {
    static POOL: OnceLock<Option<Runtime>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().thread_name("switchboard-cpu").enable_all().build().ok()
    });
    let Some(pool) = pool else {
        return Err(Status::unavailable("the operating system gives no threads for spawned methods"));
    };
    Spawned(pool.spawn(work)).await
}

struct Spawned<T>(JoinHandle<Result<T>>);

impl<T> Future for Spawned<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|joined| joined.unwrap_or_else(|_| Err(Status::internal("handler panicked"))))
    }
}

impl<T> Drop for Spawned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

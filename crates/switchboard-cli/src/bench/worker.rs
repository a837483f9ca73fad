//! Starts the threads on which load is generated and served.
//!
//! A worker is a thread with a current-thread runtime whose tasks never move, and a spinner that keeps it from sleeping
//! between two messages; only this module creates one.

use super::floor::spin;
use std::{
    num::NonZero,
    pin::Pin,
    thread::{self, JoinHandle},
};
use tokio::{
    runtime,
    task::{self, LocalSet},
};

/// A started worker.
pub struct Worker<T> {
    thread: JoinHandle<Result<T, String>>,
}

impl<T> Worker<T> {
    /// Waits for the work to end.
    ///
    /// # Errors
    /// When the worker had no runtime or panicked.
    pub fn join(self) -> Result<T, String> {
        self.thread.join().unwrap_or_else(|_| Err("a worker panicked: see the lines above".to_owned()))
    }
}

/// Starts `work` on a separate thread, named `name`.
///
/// # Errors
/// When the system has no thread left.
pub fn start<T, F>(name: &str, work: impl FnOnce() -> F + Send + 'static) -> Result<Worker<T>, String>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    start_boxed(name, Box::new(|| Box::pin(work())))
}

/// The work of a thread, boxed: compiled once for each result type, not for each load.
type Work<T> = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = T>>> + Send>;

fn start_boxed<T: Send + 'static>(name: &str, work: Work<T>) -> Result<Worker<T>, String> {
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .event_interval(256)
                .enable_all()
                .build()
                .map_err(|error| format!("cannot start a runtime: {error}"))?;
            Ok(LocalSet::new().block_on(&runtime, async move {
                task::spawn_local(spin::keep_awake());
                task::spawn_local(::switchboard::runtime::keep_awake(std::time::Duration::from_micros(100)));
                work().await
            }))
        })
        .map_err(|error| format!("cannot start thread {name}: {error}"))?;
    Ok(Worker { thread })
}

/// Returns the number of cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

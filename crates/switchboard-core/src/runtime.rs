//! Pinned workers: each has one thread, one single-threaded runtime and a spinner.
//!
//! Work never moves between workers, so a call uses no other core's cache and no contended lock. Sleeping and
//! waking is the largest cost of a lone call, so after traffic a worker polls for a short time before it
//! sleeps.

mod pool;
mod spin;

pub use pool::spawn_cpu;
pub use spin::keep_awake;
#[doc(hidden)]
pub use spin::traffic;

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    pin::{Pin, pin},
    process::{ExitCode, Termination},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::{AbortHandle, JoinHandle},
};

/// Runs `future` on the first of as many workers as the machine has cores, and returns when it ends.
///
/// Servers and clients that are started inside use all workers. They also work under any other tokio runtime,
/// on the threads of that runtime.
///
/// # Panics
/// Panics if the operating system cannot create a thread or an epoll instance, and if `future` panics.
pub fn run<F: Future>(future: F) -> F::Output {
    Runtime::new().run(future)
}

/// Ends a process with what `main` returned: an error is printed as its [`Display`](std::fmt::Display) says, where the
/// standard library prints it as [`Debug`]. `#[switchboard::main]` calls it for functions that return a `Result`.
pub fn exit<T: Termination, E: fmt::Display>(result: Result<T, E>) -> ExitCode {
    match result {
        Ok(value) => value.report(),
        Err(error) => {
            // The alternate form has the causes of an `anyhow::Error` in it.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Settings of the workers; [`run`] uses the defaults.
#[derive(Clone, Debug)]
#[must_use = "a runtime does nothing until `run`"]
pub struct Runtime {
    workers: usize,
    spin: Duration,
}

impl Default for Runtime {
    fn default() -> Self {
        Runtime::new()
    }
}

impl Runtime {
    /// Creates settings with as many workers as cores and 100 us of spin.
    pub fn new() -> Runtime {
        Runtime {
            workers: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            spin: Duration::from_micros(100),
        }
    }

    /// Sets the number of workers; 0 means 1.
    pub fn workers(mut self, workers: usize) -> Runtime {
        self.workers = workers.max(1);
        self
    }

    /// Sets how long a worker polls after the last traffic before it sleeps, unless another thread takes its
    /// core; with zero it sleeps at once.
    pub fn spin(mut self, spin: Duration) -> Runtime {
        self.spin = spin;
        self
    }

    /// Runs `future` on the first worker; the other workers end with it.
    ///
    /// # Panics
    /// Panics under the same conditions as [`run`].
    pub fn run<F: Future>(self, future: F) -> F::Output {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("it was driven to its end")
    }

    /// Implements [`run`](Runtime::run) without its type parameter, so that it is compiled once.
    fn drive(self, future: Pin<&mut dyn Future<Output = ()>>) {
        let end = Arc::new(Notify::new());
        let (handles, threads): (Vec<_>, Vec<_>) = (1..self.workers)
            .map(|at| {
                let (send, receive) = mpsc::channel();
                let (end, spin) = (end.clone(), self.spin);
                let thread = thread::Builder::new()
                    .name(format!("switchboard-{at}"))
                    .spawn(move || {
                        let runtime = single();
                        let stop = end.clone();
                        let ended = stop.notified();
                        let (answer, workers) = mpsc::channel::<Arc<Workers>>();
                        send.send((runtime.handle().clone(), answer))
                            .expect("the starter waits for its workers");
                        let Ok(workers) = workers.recv() else { return };
                        CURRENT.set(Some(CurrentWorker { workers, at }));
                        runtime.block_on(async {
                            spawn(spin::keep_awake(spin));
                            ended.await;
                        });
                    })
                    .expect("the operating system gives a thread");
                (receive.recv().expect("a worker starts"), thread)
            })
            .unzip();
        let first = single();
        let all = std::iter::once(first.handle()).chain(handles.iter().map(|(handle, _)| handle));
        let workers = Arc::new(Workers { all: all.cloned().map(Worker::new).collect() });
        for (_, answer) in &handles {
            // A worker that panicked has printed its message.
            let _ = answer.send(workers.clone());
        }
        let before = CURRENT.replace(Some(CurrentWorker { workers, at: 0 }));
        first.block_on(async {
            spawn(spin::keep_awake(self.spin));
            future.await;
        });
        CURRENT.set(before);
        end.notify_waiters();
        for thread in threads {
            // A worker that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

/// Number of task polls between two polls of the sockets. With thousands of callers, polling the sockets at
/// every 61st task, the default, splits the batches that one system call carries; 256 polls take about 50 us.
const EVENT_INTERVAL: u32 = 256;

fn single() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
        .expect("the operating system gives an epoll instance")
}

/// The workers of one [`Runtime::run`].
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    connections: AtomicUsize,
}

impl Worker {
    fn new(handle: Handle) -> Worker {
        Worker { handle, connections: AtomicUsize::new(0) }
    }
}

#[derive(Clone)]
struct CurrentWorker {
    workers: Arc<Workers>,
    at: usize,
}

// Of the thread: code that runs on a worker finds it there, also where the application is in between.
thread_local! {
    static CURRENT: RefCell<Option<CurrentWorker>> = const { RefCell::new(None) };
}

/// Returns the index of this worker, if this thread is one.
#[doc(hidden)]
pub fn worker_index() -> Option<usize> {
    CURRENT.with_borrow(|place| place.as_ref().map(|place| place.at))
}

/// Returns the number of workers that serve this thread's connections.
#[doc(hidden)]
pub fn worker_count() -> usize {
    CURRENT
        .with_borrow(|place| place.as_ref().map(|place| place.workers.all.len()))
        .unwrap_or_else(|| Handle::try_current().map_or(1, |handle| handle.metrics().num_workers()))
}

/// Assigns a connection to the worker with the fewest, or to the runtime of this thread. `make` runs there
/// and returns the future to drive; aborting the handle closes the connection.
#[doc(hidden)]
pub fn deal<F>(make: impl FnOnce(usize) -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let workers = CURRENT.with_borrow(|place| place.as_ref().map(|place| place.workers.clone()));
    let Some(workers) = workers else {
        return spawn(async move { make(0).await }).abort_handle();
    };
    let load = |worker: &Worker| worker.connections.load(Ordering::Relaxed);
    let at = (0..workers.all.len()).min_by_key(|at| load(&workers.all[*at])).unwrap_or(0);
    workers.all[at].connections.fetch_add(1, Ordering::Relaxed);
    let handle = workers.all[at].handle.clone();
    let counted = ConnectionCount { workers, at };
    let task: Task = Box::pin(async move {
        let _counted = counted;
        make(at).await;
    });
    handle.spawn(task).abort_handle()
}

type Task<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Spawns a task on the runtime of this thread.
///
/// The future is boxed, because tokio's task code, a thousand lines, is compiled for each type of future and
/// each scheduler: too much for tasks that are spawned once per connection.
#[doc(hidden)]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let task: Task<T> = Box::pin(future);
    tokio::spawn(task)
}

/// Counts a connection on this worker; `None` on a thread that is no worker.
#[doc(hidden)]
pub fn count_connection() -> Option<ConnectionCount> {
    let CurrentWorker { workers, at } = CURRENT.with_borrow(Clone::clone)?;
    workers.all[at].connections.fetch_add(1, Ordering::Relaxed);
    Some(ConnectionCount { workers, at })
}

/// A connection in the count of its worker, until it is dropped.
#[derive(Debug)]
#[doc(hidden)]
pub struct ConnectionCount {
    workers: Arc<Workers>,
    at: usize,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.workers.all[self.at].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

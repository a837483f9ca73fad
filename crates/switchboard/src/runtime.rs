//! Pinned workers: one thread, one single-threaded runtime, and a spinner each.
//!
//! Work never moves between workers, so a call touches no other core's cache and needs no lock that anybody
//! contends for. Sleeping and waking is the largest cost of a lone call, so a worker polls on for a moment after
//! traffic before it sleeps.

mod pool;
mod spin;

pub use pool::spawn_cpu;
pub use spin::keep_awake;
pub(crate) use spin::traffic;

use std::{
    cell::RefCell,
    future::Future,
    pin::{Pin, pin},
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

/// Runs `future` on the first of as many workers as the machine has cores, and ends with it.
///
/// Servers and clients that are started inside use all workers. Under any other tokio runtime they work too, on
/// that runtime's threads.
///
/// # Panics
/// When the operating system gives no thread or no epoll instance, and when `future` panics.
pub fn run<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Runtime::new().run(future)
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
    /// As many workers as cores, 100 us of spin.
    pub fn new() -> Runtime {
        Runtime {
            workers: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            spin: Duration::from_micros(100),
        }
    }

    /// How many workers; 0 means 1.
    pub fn workers(mut self, workers: usize) -> Runtime {
        self.workers = workers.max(1);
        self
    }

    /// How long a worker polls on after the last traffic before it sleeps, unless somebody else takes its core; zero
    /// sleeps at once.
    pub fn spin(mut self, spin: Duration) -> Runtime {
        self.spin = spin;
        self
    }

    /// Runs `future` on the first worker; the other workers end with it.
    ///
    /// # Panics
    /// As [`run`].
    pub fn run<F>(self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("it was driven to its end")
    }

    /// What [`run`](Runtime::run) does, compiled once.
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
                        CURRENT.set(Some(Place { workers, at }));
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
            // A worker that died has printed why.
            let _ = answer.send(workers.clone());
        }
        let before = CURRENT.replace(Some(Place { workers, at: 0 }));
        first.block_on(async {
            spawn(spin::keep_awake(self.spin));
            future.await;
        });
        CURRENT.set(before);
        end.notify_waiters();
        for thread in threads {
            // Same: its panic was printed.
            let _ = thread.join();
        }
    }
}

/// Tasks that are polled before the sockets are looked at again. With thousands of callers a look at every 61st, as
/// by default, cuts the batches that one system call carries; 256 take about 50 us.
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
struct Place {
    workers: Arc<Workers>,
    at: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// The number of this worker, if this thread is one.
pub(crate) fn worker_index() -> Option<usize> {
    CURRENT.with_borrow(|place| place.as_ref().map(|place| place.at))
}

/// How many workers serve this thread's connections.
pub(crate) fn worker_count() -> usize {
    CURRENT
        .with_borrow(|place| place.as_ref().map(|place| place.workers.all.len()))
        .unwrap_or_else(|| Handle::try_current().map_or(1, |handle| handle.metrics().num_workers()))
}

/// Gives a connection to the worker with the fewest, or to the runtime of this thread. `make` runs there and
/// returns what is to be driven; aborting the handle cuts the connection.
pub(crate) fn deal<F>(make: impl FnOnce(usize) -> F + Send + 'static) -> AbortHandle
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
    let counted = Counted { workers, at };
    let task: Task = Box::pin(async move {
        let _counted = counted;
        make(at).await;
    });
    handle.spawn(task).abort_handle()
}

type Task<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts a task on the runtime of this thread.
///
/// As a box, since what tokio has around a future is compiled for each future and kind of scheduler, a thousand lines
/// of it: too much for tasks that are started once per connection.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let task: Task<T> = Box::pin(future);
    tokio::spawn(task)
}

/// Takes a connection off the count however its task ends.
struct Counted {
    workers: Arc<Workers>,
    at: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.workers.all[self.at].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

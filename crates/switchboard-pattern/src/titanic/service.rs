//! The server: workers of the three services, and the thread of the store.

use super::{
    RequestId,
    dispatch::Dispatcher,
    operations::{Done, OPERATIONS_MAX, Operation, StoreHandle, now_s, run_store},
    store::{Fetched, Store, StoreLimits},
};
use crate::{
    majordomo::{self, Worker},
    task::Task,
};
use bytes::Bytes;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use switchboard_core::Result;
use switchboard_socket::{Message, SocketOptions};
use switchboard_wire::Status;
use tokio::sync::mpsc;

/// The server of Titanic. It ends when it is dropped.
#[derive(Debug)]
pub struct Titanic {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
    _tasks: Vec<Task>,
}

/// Builder of a [`Titanic`].
#[derive(Clone, Debug)]
pub struct TitanicBuilder {
    endpoint: String,
    folder: PathBuf,
    options: TitanicOptions,
    socket: SocketOptions,
}

/// Limits and times of a server of Titanic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TitanicOptions {
    /// Time of an execution, after which the request is executed again. Default 30 s.
    pub execution_timeout: Duration,
    /// Pause between heartbeats to the broker, which has to be about that of the broker. Default 1 s.
    pub heartbeat_interval: Duration,
    /// Time after which a request is deleted, with its reply if it has one. Default 7 days.
    pub keep: Duration,
    /// Maximum number of requests in execution. Default 64.
    pub outstanding_max: usize,
    /// Maximum number of requests in execution of one service, so that a slow service leaves room for others. Default
    /// 16.
    pub outstanding_per_service_max: usize,
    /// Maximum number of stored requests, those with a reply included; further ones are refused with status 500.
    /// Default 100,000.
    pub requests_max: usize,
    /// Pause after a failed execution, before the next one of the service. Default 1 s.
    pub retry_pause: Duration,
    /// Maximum number of bytes of stored requests and replies; further ones are refused with status 500, and replies
    /// are fetched from the service again later. The file may have twice as many, and 1 MiB. Default 1 GiB.
    pub store_bytes_max: u64,
    /// Time at which a request is confirmed. Default [`SyncPolicy::Always`].
    pub sync: SyncPolicy,
    /// Number of workers of each of the three services, which is the number of requests that are stored at the same
    /// time. Default 4.
    pub workers: usize,
}

/// Time at which a request is confirmed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// After it is synced to the disk: it survives a loss of power. Requests that arrive at the same time share a sync.
    Always,
    /// After it is passed to the system: it survives the end of the process, by any signal.
    Never,
}

/// Counters of a server since its start, and its store now.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TitanicStats {
    /// Requests that were closed by clients.
    pub closed: u64,
    /// Bytes at the end of the log that were no records at the start; a file `titanic.damaged-OFFSET` has them.
    pub damaged_bytes: u64,
    /// Executions that returned a reply.
    pub executed: u64,
    /// Executions that failed, to be repeated.
    pub failed: u64,
    /// Requests that were deleted after the time `keep`.
    pub expired: u64,
    /// Bytes of stored requests and replies.
    pub live_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Requests in execution.
    pub outstanding: usize,
    /// Requests that were refused: a limit was reached, or the disk could not be written.
    pub refused: u64,
    /// Stored requests, those with a reply included.
    pub requests: usize,
    /// Requests that were stored since the start.
    pub stored: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    closed: AtomicU64,
    damaged_bytes: AtomicU64,
    pub(super) executed: AtomicU64,
    pub(super) failed: AtomicU64,
    expired: AtomicU64,
    live_bytes: AtomicU64,
    log_bytes: AtomicU64,
    pub(super) outstanding: AtomicUsize,
    refused: AtomicU64,
    requests: AtomicUsize,
    stored: AtomicU64,
}

impl Default for TitanicOptions {
    fn default() -> TitanicOptions {
        TitanicOptions {
            execution_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(1),
            keep: Duration::from_secs(7 * 86_400),
            outstanding_max: 64,
            outstanding_per_service_max: 16,
            requests_max: 100_000,
            retry_pause: Duration::from_secs(1),
            store_bytes_max: 1 << 30,
            sync: SyncPolicy::Always,
            workers: 4,
        }
    }
}

impl Titanic {
    /// Returns a builder of a server that stores in a folder, at the broker of an endpoint.
    pub fn builder(endpoint: &str, folder: impl AsRef<Path>) -> TitanicBuilder {
        TitanicBuilder {
            endpoint: endpoint.to_owned(),
            folder: folder.as_ref().to_owned(),
            options: TitanicOptions::default(),
            socket: SocketOptions::default(),
        }
    }

    /// Returns the counters since the start, and the size of the store.
    pub fn stats(&self) -> TitanicStats {
        let shared = &self.shared;
        TitanicStats {
            closed: shared.closed.load(Relaxed),
            damaged_bytes: shared.damaged_bytes.load(Relaxed),
            executed: shared.executed.load(Relaxed),
            failed: shared.failed.load(Relaxed),
            expired: shared.expired.load(Relaxed),
            live_bytes: shared.live_bytes.load(Relaxed),
            log_bytes: shared.log_bytes.load(Relaxed),
            outstanding: shared.outstanding.load(Relaxed),
            refused: shared.refused.load(Relaxed),
            requests: shared.requests.load(Relaxed),
            stored: shared.stored.load(Relaxed),
        }
    }

    /// Ends the server, and waits until the folder may be opened again.
    pub async fn close(mut self) {
        let Some(thread) = self.thread.take() else { return };
        drop(self);
        // A panic in the thread has closed the folder as well.
        let _ = tokio::task::spawn_blocking(|| thread.join()).await;
    }
}

impl TitanicBuilder {
    /// Changes the limits and times.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut TitanicOptions)) -> TitanicBuilder {
        change(&mut self.options);
        self
    }

    /// Changes the options of the sockets, such as their security.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> TitanicBuilder {
        change(&mut self.socket);
        self
    }

    /// Opens the folder and starts the server on the runtime of this thread. The log is read once.
    ///
    /// # Errors
    /// Returns `FailedPrecondition` if another server has opened the folder or if its log has another format,
    /// `Internal` if it cannot be read, and `InvalidArgument` for options that are 0 and for an endpoint that is not
    /// valid.
    pub async fn start(self) -> Result<Titanic> {
        let options = &self.options;
        let zeros = [options.workers, options.outstanding_max, options.outstanding_per_service_max];
        if zeros.contains(&0) || options.heartbeat_interval.is_zero() {
            return Err(Status::invalid_argument(
                "workers, outstanding_max, outstanding_per_service_max or heartbeat_interval of the server is 0; the \
                 minimum is above 0",
            ));
        }
        let limits = StoreLimits { requests_max: options.requests_max, bytes_max: options.store_bytes_max };
        let folder = self.folder.clone();
        let opened = tokio::task::spawn_blocking(move || Store::open(&folder, limits)).await;
        let store = opened.map_err(|_| Status::internal("reading the log has failed with a panic"))??;
        let shared = Arc::new(Shared::default());
        shared.damaged_bytes.store(store.damaged_bytes, Relaxed);
        let (pending, is_synced) = (store.pending(), options.sync == SyncPolicy::Always);
        let (operations, receiver) = mpsc::channel(OPERATIONS_MAX);
        let of_thread = shared.clone();
        of_thread.measure(&store);
        let thread = thread::Builder::new()
            .name("titanic-store".to_owned())
            .spawn(move || run_store(store, receiver, is_synced, &of_thread))
            .map_err(|error| {
                Status::internal(format!("the thread of the store cannot be started: {error}"))
            })?;
        let handle = StoreHandle::new(operations);
        let client = majordomo::Client::builder(&self.endpoint)
            .timeout(options.execution_timeout)
            .outstanding_max(options.outstanding_max)
            .socket_options(|socket| {
                let linger = socket.timeouts.linger;
                *socket = self.socket.clone();
                socket.timeouts.linger = linger;
            })
            .connect()?;
        let (added, receiver) = mpsc::channel(OPERATIONS_MAX);
        let dispatcher = Dispatcher::new(client, handle.clone(), shared.clone(), options);
        let mut tasks = vec![Task::spawn(dispatcher.run(pending, receiver))];
        tasks.push(Task::spawn(expire(handle.clone(), shared.clone(), options.keep)));
        for service in Service::ALL {
            for _ in 0..options.workers {
                let worker = self.worker(service)?;
                let server =
                    Server { service, store: handle.clone(), shared: shared.clone(), added: added.clone() };
                tasks.push(Task::spawn(server.run(worker)));
            }
        }
        Ok(Titanic { shared, thread: Some(thread), _tasks: tasks })
    }

    fn worker(&self, service: Service) -> Result<Worker> {
        let builder = Worker::builder(&self.endpoint, service.name());
        let builder = builder.heartbeat_interval(self.options.heartbeat_interval);
        let builder = builder.socket_options(|socket| {
            let linger = socket.timeouts.linger;
            *socket = self.socket.clone();
            socket.timeouts.linger = linger;
        });
        builder.connect()
    }
}

/// A service of the protocol.
#[derive(Clone, Copy, Debug)]
enum Service {
    Close,
    Reply,
    Request,
}

impl Service {
    const ALL: [Service; 3] = [Service::Close, Service::Reply, Service::Request];

    fn name(self) -> &'static str {
        match self {
            Service::Close => "titanic.close",
            Service::Reply => "titanic.reply",
            Service::Request => "titanic.request",
        }
    }
}

/// A worker of one of the services.
struct Server {
    service: Service,
    store: StoreHandle,
    shared: Arc<Shared>,
    added: mpsc::Sender<(RequestId, Bytes)>,
}

impl Server {
    async fn run(self, mut worker: Worker) {
        while let Some(request) = worker.next().await {
            let body = request.body().clone();
            let reply = match self.service {
                Service::Close => self.close(&body).await,
                Service::Reply => self.fetch(&body).await,
                Service::Request => self.store(body).await,
            };
            let reply = reply.unwrap_or_else(|failure| {
                self.shared.refused.fetch_add(1, Relaxed);
                Message::from(format!("500 {}", failure.message()))
            });
            // Without a session the client gets no reply.
            let _ = request.reply(reply).await;
        }
    }

    async fn store(&self, body: Message) -> Result<Message> {
        let mut frames = body.into_frames();
        if frames.len() < 2 || !majordomo::is_service(&frames[0]) {
            return Ok(Message::from("400 request is not the name of a service and a body"));
        }
        let (id, service) = (RequestId::random()?, frames.remove(0));
        let name = Bytes::copy_from_slice(&service);
        self.store.run(Operation::Store { id, service, body: frames }).await?;
        self.shared.stored.fetch_add(1, Relaxed);
        // Waits while the dispatcher is busy. The request is stored in any case.
        let _ = self.added.send((id, name)).await;
        Ok(Message::from([Bytes::from_static(b"200"), Bytes::from(id.to_string())]))
    }

    async fn fetch(&self, body: &Message) -> Result<Message> {
        let Some(id) = read_id(body) else { return Ok(Message::from("400 unknown number")) };
        Ok(match self.store.run(Operation::Fetch { id }).await? {
            Done::Fetched(Fetched::Pending) => Message::from("300 pending"),
            Done::Fetched(Fetched::Reply(frames)) => {
                Message::from([&[Bytes::from_static(b"200")], &*frames].concat())
            }
            _ => Message::from("400 unknown number"),
        })
    }

    async fn close(&self, body: &Message) -> Result<Message> {
        let Some(id) = read_id(body) else {
            return Ok(Message::from("400 number is not 32 hexadecimal characters"));
        };
        if let Done::Closed(true) = self.store.run(Operation::Close { id }).await? {
            self.shared.closed.fetch_add(1, Relaxed);
        }
        Ok(Message::from("200"))
    }
}

fn read_id(body: &Message) -> Option<RequestId> {
    match body.frames() {
        [id] => std::str::from_utf8(id).ok()?.parse().ok(),
        _ => None,
    }
}

/// Deletes requests after their time.
async fn expire(store: StoreHandle, shared: Arc<Shared>, keep: Duration) {
    let pause = (keep / 16).clamp(Duration::from_millis(50), Duration::from_secs(60));
    loop {
        tokio::time::sleep(pause).await;
        let before = now_s().saturating_sub(keep.as_secs());
        match store.run(Operation::Expire { before }).await {
            Ok(Done::Expired(count)) => _ = shared.expired.fetch_add(count, Relaxed),
            Ok(_) => {}
            Err(failure) => {
                tracing::warn!(target: "switchboard::pattern", %failure, "titanic: deleting old requests has failed");
            }
        }
    }
}

impl Shared {
    pub(super) fn measure(&self, store: &Store) {
        let (requests, live, log) = store.sizes();
        self.requests.store(requests, Relaxed);
        self.live_bytes.store(live, Relaxed);
        self.log_bytes.store(log, Relaxed);
    }
}

//! Workers: a DEALER socket, and a task that sends heartbeats while the program works.

use super::command::{self, GONE, ToWorker};
use crate::task::Task;
use bytes::Bytes;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Dealer, Endpoint, Message, SocketOptions};
use switchboard_wire::Status;
use tokio::{
    sync::{Notify, mpsc},
    time::{MissedTickBehavior, interval, sleep},
};

/// Requests of ended sessions that wait for the program before a session fails.
const REQUESTS_MAX: usize = 4;

/// Time to write the last reply and DISCONNECT after the worker is dropped.
const LINGER: Duration = Duration::from_secs(1);

/// A worker of one service: it receives one request at a time. For several at a time, connect several workers.
///
/// A task of the worker sends heartbeats, also while the program works on a request. When the broker is silent, is
/// gone or disconnects the worker, the worker registers again.
#[derive(Debug)]
pub struct Worker {
    requests: mpsc::Receiver<Request>,
    shared: Arc<Shared>,
    _task: Task,
}

/// Builder of a [`Worker`].
#[derive(Clone, Debug)]
pub struct WorkerBuilder {
    endpoint: String,
    service: Bytes,
    heartbeat_interval: Duration,
    liveness: u32,
    pause: Duration,
    socket: SocketOptions,
}

/// A request that the worker has to reply to. A request that is dropped without a final reply ends the session of the
/// worker with the broker, which then delivers the request again if its client allows it; the worker registers again.
#[derive(Debug)]
pub struct Request {
    client: Bytes,
    body: Message,
    session: Arc<Session>,
    is_done: bool,
    shared: Arc<Shared>,
}

/// Counters of a worker.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Final replies.
    pub replies: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Registrations at the broker; more than one after a failure.
    pub sessions: u64,
}

#[derive(Debug, Default)]
struct Shared {
    replies: AtomicU64,
    requests: AtomicU64,
    /// Number of the current session.
    sessions: AtomicU64,
    /// The socket of the session, to say good-bye.
    dealer: Mutex<Option<Dealer>>,
}

/// One registration at the broker, with a socket of its own.
#[derive(Debug)]
struct Session {
    number: u64,
    dealer: Dealer,
    /// A request has no final reply yet.
    is_busy: AtomicBool,
    /// The program has dropped the request.
    abandoned: Notify,
}

impl Worker {
    /// Starts a worker with default options, see [`WorkerBuilder::connect`].
    ///
    /// # Errors
    /// Those of [`WorkerBuilder::connect`].
    pub async fn connect(endpoint: &str, service: &str) -> Result<Worker> {
        Worker::builder(endpoint, service).connect().await
    }

    /// Returns a builder of a worker for a service of the broker at an endpoint.
    pub fn builder(endpoint: &str, service: &str) -> WorkerBuilder {
        let mut socket = SocketOptions::default();
        socket.timeouts.linger = Some(LINGER);
        WorkerBuilder {
            endpoint: endpoint.to_owned(),
            service: Bytes::copy_from_slice(service.as_bytes()),
            heartbeat_interval: Duration::from_secs(1),
            liveness: 4,
            pause: Duration::from_millis(250),
            socket,
        }
    }

    /// Receives the next request; waits while the broker is not reachable. `None` if the task of the worker has ended,
    /// with its runtime. Cancel safe.
    pub async fn next(&mut self) -> Option<Request> {
        loop {
            let request = self.requests.recv().await?;
            // The client of an ended session gets no reply.
            if request.session.number == self.shared.sessions.load(Relaxed) {
                return Some(request);
            }
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> WorkerStats {
        WorkerStats {
            replies: self.shared.replies.load(Relaxed),
            requests: self.shared.requests.load(Relaxed),
            sessions: self.shared.sessions.load(Relaxed),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(dealer) = self.shared.replace_dealer(None) {
            // A broker that is gone needs no notice.
            let _ = dealer.try_send(command::disconnect());
        }
    }
}

impl WorkerBuilder {
    /// Sets the pause between heartbeats, which has to be about that of the broker. Default 1 s.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> WorkerBuilder {
        self.heartbeat_interval = interval;
        self
    }

    /// Sets the number of intervals without a message of the broker, after which the worker registers again. Default
    /// 4.
    #[must_use]
    pub fn liveness(mut self, intervals: u32) -> WorkerBuilder {
        self.liveness = intervals;
        self
    }

    /// Sets the maximum pause before the worker registers again after a session has ended; each is random between its
    /// half and the whole. Default 250 ms.
    #[must_use]
    pub fn reconnect_pause(mut self, pause: Duration) -> WorkerBuilder {
        self.pause = pause;
        self
    }

    /// Changes the options of the socket, such as its security. The worker sets `routing.immediate` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> WorkerBuilder {
        change(&mut self.socket);
        self
    }

    /// Starts the worker on the runtime of this thread. It registers once the broker is reachable.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an option that is 0, for a name that is not 1 to 255 bytes of printable text or
    /// begins with `mmi.`, and for an endpoint that is not valid.
    #[expect(clippy::unused_async, reason = "a later version may wait for the first connection")]
    pub async fn connect(mut self) -> Result<Worker> {
        if !command::is_service(&self.service) || self.service.starts_with(b"mmi.") {
            let name = self.service.escape_ascii();
            return Err(Status::invalid_argument(format!(
                "service name \"{name}\" is not valid; it has 1 to 255 bytes of printable text and does not begin with mmi."
            )));
        }
        if self.heartbeat_interval.is_zero() || self.liveness == 0 {
            return Err(Status::invalid_argument(
                "heartbeat_interval or liveness of the worker is 0; the minimum is above 0",
            ));
        }
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        // A READY that waits for a broker must not arrive after its session.
        self.socket.routing.immediate = true;
        self.endpoint.parse::<Endpoint>()?;
        let shared = Arc::new(Shared::default());
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let task = Task::spawn(run(self, shared.clone(), sender));
        Ok(Worker { requests, shared, _task: task })
    }
}

impl Request {
    /// Returns the frames of the request.
    pub fn body(&self) -> &Message {
        &self.body
    }

    /// Sends a part of the reply before the final one. Waits while the queue of the socket is full. Cancel safe: a
    /// future that is dropped while it waits has sent nothing.
    ///
    /// # Errors
    /// Returns `Aborted` if the session with the broker has ended: the reply has no way to its client.
    pub async fn partial(&self, body: impl Into<Message>) -> Result<()> {
        self.send(false, body.into()).await
    }

    /// Sends the final reply, as [`partial`](Self::partial). A future that is dropped while it waits has dropped the
    /// request.
    ///
    /// # Errors
    /// Those of [`partial`](Self::partial).
    pub async fn reply(mut self, body: impl Into<Message>) -> Result<()> {
        // The next request may arrive at once.
        self.session.is_busy.store(false, Relaxed);
        self.send(true, body.into()).await?;
        self.is_done = true;
        self.shared.replies.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn send(&self, is_final: bool, body: Message) -> Result<()> {
        let reply = command::worker_reply(is_final, self.client.clone(), body.into_frames());
        self.session.dealer.send(reply).await.map_err(|error| {
            let text = "the session of the worker with the broker has ended; the reply was dropped";
            Status::aborted(text).with_source(error)
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_done {
            self.session.abandoned.notify_one();
        }
    }
}

impl Shared {
    fn replace_dealer(&self, dealer: Option<Dealer>) -> Option<Dealer> {
        std::mem::replace(&mut *self.dealer.lock().unwrap_or_else(PoisonError::into_inner), dealer)
    }
}

/// Runs one session after the other.
async fn run(builder: WorkerBuilder, shared: Arc<Shared>, requests: mpsc::Sender<Request>) {
    loop {
        let number = shared.sessions.fetch_add(1, Relaxed).wrapping_add(1);
        let Ok(dealer) = Dealer::with_options(builder.socket.clone()) else { return };
        if dealer.connect_to(&builder.endpoint).await.is_err()
            || dealer.send(command::ready(builder.service.clone())).await.is_err()
        {
            return;
        }
        shared.replace_dealer(Some(dealer.clone()));
        let session = Session { number, dealer, is_busy: AtomicBool::new(false), abandoned: Notify::new() };
        let session = Arc::new(session);
        let reason = session.run(&builder, &shared, &requests).await;
        tracing::debug!(
            target: "switchboard::pattern", service = %builder.service.escape_ascii(), reason,
            "majordomo: session of the worker ended"
        );
        shared.replace_dealer(None);
        // The program may still have a request, with a handle of the socket.
        let ended = session.clone();
        tokio::spawn(async move { ended.dealer.close().await });
        sleep(builder.pause.mul_f64(0.5 + clock::fraction() / 2.0)).await;
    }
}

impl Session {
    /// Runs until the session ends; returns the reason.
    async fn run(
        self: &Arc<Session>,
        builder: &WorkerBuilder,
        shared: &Arc<Shared>,
        requests: &mpsc::Sender<Request>,
    ) -> &'static str {
        let expiry = builder.heartbeat_interval.saturating_mul(builder.liveness);
        let mut heartbeats = interval(builder.heartbeat_interval);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeats.tick().await;
        let mut seen = clock::now();
        loop {
            tokio::select! {
                message = self.dealer.recv() => {
                    let Ok(message) = message else { return "the socket is closed" };
                    let frames = message.into_frames();
                    if matches!(&*frames, [only] if &**only == GONE) {
                        return "the connection ended";
                    }
                    seen = clock::now();
                    if let Err(reason) = self.receive(frames, shared, requests) {
                        return reason;
                    }
                }
                () = self.abandoned.notified() => {
                    let _ = self.dealer.try_send(command::disconnect());
                    return "the program dropped a request";
                }
                _ = heartbeats.tick() => {
                    if clock::since(seen) >= expiry {
                        return "the broker is silent";
                    }
                    // Without room the broker does not read, and its silence ends the session.
                    let _ = self.dealer.try_send(command::heartbeat());
                }
            }
        }
    }

    /// Handles a command of the broker.
    ///
    /// # Errors
    /// Returns the reason for which the session ends.
    fn receive(
        self: &Arc<Session>,
        frames: Vec<Bytes>,
        shared: &Arc<Shared>,
        requests: &mpsc::Sender<Request>,
    ) -> Result<(), &'static str> {
        let (client, body) = match command::read_to_worker(frames)? {
            ToWorker::Disconnect => return Err("the broker disconnected the worker"),
            ToWorker::Heartbeat => return Ok(()),
            ToWorker::Request { client, body } => (client, Message::from(body)),
        };
        shared.requests.fetch_add(1, Relaxed);
        if self.is_busy.swap(true, Relaxed) {
            return Err("the broker sent a request before the reply to the last one");
        }
        let (session, shared) = (self.clone(), shared.clone());
        let request = Request { client, body, session, is_done: false, shared };
        requests.try_send(request).map_err(|_| "the program does not take requests")
    }
}

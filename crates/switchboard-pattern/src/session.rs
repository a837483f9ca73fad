//! Sessions of a worker with a broker: a DEALER socket, heartbeats, and registration after failures.

use crate::{
    route::{self, GONE},
    stall::Stall,
    task::Task,
};
use bytes::Bytes;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Dealer, Endpoint, ErrorKind, Message, SocketOptions};
use switchboard_wire::Status;
use tokio::{
    sync::{Notify, mpsc},
    time::{MissedTickBehavior, interval, sleep},
};

/// Requests of ended sessions that wait for the program before a session fails.
const REQUESTS_MAX: usize = 4;

/// Time to write the last reply and the notice of the end after the worker is dropped.
const LINGER: Duration = Duration::from_secs(1);

/// Commands between a worker and its broker.
pub(crate) trait Protocol: fmt::Debug + Send + Sync {
    fn ready(&self) -> Message;

    /// Returns the heartbeat to be sent; `None` if the protocol has none in this state.
    fn heartbeat(&self, is_busy: bool) -> Option<Message>;

    fn disconnect(&self) -> Option<Message>;

    /// Returns true if the broker sends no heartbeats.
    fn is_silent_allowed(&self) -> bool;

    /// Reads a command of the broker.
    ///
    /// # Errors
    /// Returns the rule that the frames violate.
    fn read(&self, frames: Vec<Bytes>) -> Result<FromBroker, &'static str>;

    fn reply(&self, is_final: bool, envelope: &[Bytes], body: Vec<Bytes>) -> Message;
}

/// Command of a broker to a worker.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum FromBroker {
    Disconnect,
    Heartbeat,
    /// The envelope is repeated in replies.
    Request {
        envelope: Vec<Bytes>,
        body: Vec<Bytes>,
    },
}

/// Options of a worker.
#[derive(Clone, Debug)]
pub(crate) struct SessionOptions {
    pub(crate) endpoint: String,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) liveness: u32,
    pub(crate) pause: Duration,
    pub(crate) socket: SocketOptions,
}

/// Receives requests, one session after the other.
#[derive(Debug)]
pub(crate) struct Sessions {
    requests: mpsc::Receiver<SessionRequest>,
    shared: Arc<Shared>,
    _task: Task,
}

/// A request in a session.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    pub(crate) body: Message,
    envelope: Vec<Bytes>,
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

#[derive(Debug)]
struct Shared {
    protocol: Box<dyn Protocol>,
    replies: AtomicU64,
    requests: AtomicU64,
    /// Number of the current session.
    sessions: AtomicU64,
    /// The socket of the session, to report the end of the worker.
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

impl SessionOptions {
    pub(crate) fn new(endpoint: &str) -> SessionOptions {
        let mut socket = SocketOptions::default();
        socket.timeouts.linger = Some(LINGER);
        SessionOptions {
            endpoint: endpoint.to_owned(),
            heartbeat_interval: Duration::from_secs(1),
            liveness: 4,
            pause: Duration::from_millis(250),
            socket,
        }
    }

    /// Starts the worker on the runtime of this thread. It registers once the broker is reachable.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an option that is 0, for an endpoint that is not valid, and for options of the
    /// socket that are not valid.
    pub(crate) fn connect(mut self, protocol: Box<dyn Protocol>) -> Result<Sessions> {
        if self.heartbeat_interval.is_zero() || self.liveness == 0 {
            return Err(Status::invalid_argument(
                "heartbeat_interval or liveness of the worker is 0; the minimum is above 0",
            ));
        }
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        // A READY that waits for a broker must not arrive after its session.
        self.socket.routing.immediate = true;
        route::remove_time_limits(&mut self.socket);
        self.endpoint.parse::<Endpoint>()?;
        let dealer = Dealer::with_options(self.socket.clone())?;
        let shared = Arc::new(Shared {
            protocol,
            replies: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            dealer: Mutex::new(None),
        });
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let task = Task::spawn(run(self, shared.clone(), sender, dealer));
        Ok(Sessions { requests, shared, _task: task })
    }
}

impl SessionOptions {
    /// Returns a random pause between half of the maximum and the maximum.
    fn pause(&self) -> Duration {
        self.pause.mul_f64(0.5 + clock::fraction() / 2.0)
    }
}

impl Sessions {
    /// Receives the next request. `None` if the task of the worker has ended, with its runtime. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<SessionRequest> {
        loop {
            let request = self.requests.recv().await?;
            // The client of an ended session gets no reply.
            if request.session.number == self.shared.sessions.load(Relaxed) {
                return Some(request);
            }
        }
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        WorkerStats {
            replies: self.shared.replies.load(Relaxed),
            requests: self.shared.requests.load(Relaxed),
            sessions: self.shared.sessions.load(Relaxed),
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        if let Some(dealer) = self.shared.replace_dealer(None)
            && let Some(disconnect) = self.shared.protocol.disconnect()
        {
            // A broker that is gone needs no notice.
            let _ = dealer.try_send(disconnect);
        }
    }
}

impl SessionRequest {
    /// Sends a part of the reply. Waits while the queue of the socket is full. Cancel safe: a future that is dropped
    /// while it waits has sent nothing.
    ///
    /// # Errors
    /// Returns `Aborted` if the session has ended.
    pub(crate) async fn partial(&self, body: Message) -> Result<()> {
        self.send(false, body).await
    }

    /// Sends the final reply.
    ///
    /// # Errors
    /// Returns `Aborted` if the session has ended.
    pub(crate) async fn reply(mut self, body: Message) -> Result<()> {
        // The next request may arrive at once.
        self.session.is_busy.store(false, Relaxed);
        self.send(true, body).await?;
        self.is_done = true;
        self.shared.replies.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn send(&self, is_final: bool, body: Message) -> Result<()> {
        let reply = self.shared.protocol.reply(is_final, &self.envelope, body.into_frames());
        self.session.dealer.send(reply).await.map_err(|error| {
            let text = "the session of the worker with the broker has ended; the reply was dropped";
            Status::aborted(text).with_source(error)
        })
    }
}

impl Drop for SessionRequest {
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
async fn run(
    options: SessionOptions,
    shared: Arc<Shared>,
    requests: mpsc::Sender<SessionRequest>,
    first: Dealer,
) {
    let mut first = Some(first);
    loop {
        let number = shared.sessions.fetch_add(1, Relaxed).wrapping_add(1);
        let dealer = match register(&options, &shared, first.take()).await {
            Ok(dealer) => dealer,
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) => {
                tracing::warn!(target: "switchboard::pattern", %error, "a worker cannot register; it tries again");
                sleep(options.pause()).await;
                continue;
            }
        };
        shared.replace_dealer(Some(dealer.clone()));
        let session = Session { number, dealer, is_busy: AtomicBool::new(false), abandoned: Notify::new() };
        let session = Arc::new(session);
        let reason = session.run(&options, &shared, &requests).await;
        tracing::debug!(
            target: "switchboard::pattern", protocol = ?shared.protocol, reason, "session of the worker ended"
        );
        shared.replace_dealer(None);
        // The program may still have a request, with a handle of the socket.
        let ended = session.clone();
        tokio::spawn(async move { ended.dealer.close().await });
        sleep(options.pause()).await;
    }
}

/// Sends READY to the broker, with a new socket if there is none yet.
async fn register(
    options: &SessionOptions,
    shared: &Shared,
    dealer: Option<Dealer>,
) -> switchboard_socket::Result<Dealer> {
    let dealer = match dealer {
        Some(dealer) => dealer,
        None => Dealer::with_options(options.socket.clone())?,
    };
    dealer.connect_to(&options.endpoint).await?;
    dealer.send(shared.protocol.ready()).await?;
    Ok(dealer)
}

impl Session {
    /// Runs until the session ends; returns the reason.
    async fn run(
        self: &Arc<Session>,
        options: &SessionOptions,
        shared: &Arc<Shared>,
        requests: &mpsc::Sender<SessionRequest>,
    ) -> &'static str {
        let expiry = options.heartbeat_interval.saturating_mul(options.liveness);
        let mut heartbeats = interval(options.heartbeat_interval);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeats.tick().await;
        let mut seen = clock::now();
        let mut stall = Stall::new(options.heartbeat_interval.saturating_mul(2));
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
                    if let Some(disconnect) = shared.protocol.disconnect() {
                        let _ = self.dealer.try_send(disconnect);
                    }
                    return "the program dropped a request";
                }
                _ = heartbeats.tick() => {
                    if stall.check(clock::now()) {
                        seen = clock::now();
                    }
                    if clock::since(seen) >= expiry && !shared.protocol.is_silent_allowed() {
                        return "the broker is silent";
                    }
                    if let Some(heartbeat) = shared.protocol.heartbeat(self.is_busy.load(Relaxed)) {
                        // Without room the broker does not read, and its silence ends the session.
                        let _ = self.dealer.try_send(heartbeat);
                    }
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
        requests: &mpsc::Sender<SessionRequest>,
    ) -> Result<(), &'static str> {
        let (envelope, body) = match shared.protocol.read(frames)? {
            FromBroker::Disconnect => return Err("the broker disconnected the worker"),
            FromBroker::Heartbeat => return Ok(()),
            FromBroker::Request { envelope, body } => (envelope, Message::from(body)),
        };
        shared.requests.fetch_add(1, Relaxed);
        if self.is_busy.swap(true, Relaxed) {
            return Err("the broker sent a request before the reply to the last one");
        }
        let (session, shared) = (self.clone(), shared.clone());
        let request = SessionRequest { body, envelope, session, is_done: false, shared };
        requests.try_send(request).map_err(|_| "the program does not take requests")
    }
}

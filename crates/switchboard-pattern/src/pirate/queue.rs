//! The queue between clients and workers: two ROUTER sockets, and a task that passes their messages through [`State`].

mod state;

use crate::{
    route::{self, GONE, Sent},
    stall::Stall,
    task::Task,
};
use bytes::Bytes;
use state::{Sink, State};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Endpoint, Message, Router, SocketOptions};
use switchboard_wire::Status;
use tokio::time::{MissedTickBehavior, interval};

/// Bounds of the pause between two looks at the clock.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(250);

/// A queue that passes each request to the worker that waits for the longest time. It ends when it is dropped.
///
/// A request whose worker is gone is lost: its client has to send it again, as [`Client`](super::Client) does.
#[derive(Debug)]
pub struct Queue {
    clients: Endpoint,
    workers: Endpoint,
    state: Arc<Mutex<State>>,
    _task: Task,
}

/// Builder of a [`Queue`].
#[derive(Clone, Debug)]
pub struct QueueBuilder {
    options: QueueOptions,
    socket: SocketOptions,
}

/// Limits and times of a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Time without a message of a worker that works on a request, after which the worker is removed: the time of the
    /// slowest request. Default 30 s.
    pub busy_expiry: Duration,
    /// Pause between heartbeats to a Paranoid Pirate worker. Default 1 s.
    pub heartbeat_interval: Duration,
    /// Number of intervals without a message of an idle Paranoid Pirate worker, after which it is removed. Default 4.
    pub liveness: u32,
    /// Maximum number of bytes of the requests that wait, with 64 bytes for each frame and 128 for each request;
    /// further ones are dropped and counted, and their clients send them again. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// Maximum number of requests that wait; further ones are dropped and counted. Default 10,000.
    pub queue_requests_max: usize,
    /// Time that a request waits before it is dropped. Choose the time of the attempts of the clients: they have sent
    /// the request again by then. Default 10 s.
    pub request_wait_max: Duration,
    /// Maximum number of workers; messages of further ones are ignored and counted. Default 10,000.
    pub workers_max: usize,
}

/// Counters of a queue since its start, and its workers and requests now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Workers that wait for a request.
    pub idle: usize,
    /// Messages that are neither requests nor of the protocol of workers; they were dropped.
    pub invalid: u64,
    /// Requests that were dropped because their client was gone.
    pub orphaned: u64,
    /// Requests that were dropped because the queue was full.
    pub refused: u64,
    /// Registrations of workers above `workers_max`.
    pub refused_workers: u64,
    /// Replies that were passed to clients.
    pub replies: u64,
    /// Replies that were dropped: their client was gone or did not read, or their worker had been removed.
    pub replies_dropped: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were dropped after `request_wait_max`.
    pub requests_expired: u64,
    /// Requests that were lost with their worker.
    pub requests_lost: u64,
    /// Requests that wait for a worker.
    pub waiting: usize,
    /// Bytes of the requests that wait for a worker.
    pub waiting_bytes: usize,
    /// Workers.
    pub workers: usize,
    /// Workers that were removed because they were silent.
    pub workers_expired: u64,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            busy_expiry: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(1),
            liveness: 4,
            queue_bytes_max: 64 << 20,
            queue_requests_max: 10_000,
            request_wait_max: Duration::from_secs(10),
            workers_max: 10_000,
        }
    }
}

impl Queue {
    /// Starts a queue with default options at an endpoint for clients and one for workers, see [`QueueBuilder::bind`].
    ///
    /// # Errors
    /// Returns the errors of [`QueueBuilder::bind`].
    pub async fn bind(clients: &str, workers: &str) -> Result<Queue> {
        Queue::builder().bind(clients, workers).await
    }

    /// Returns a builder with default options.
    pub fn builder() -> QueueBuilder {
        QueueBuilder { options: QueueOptions::default(), socket: route::listener_options() }
    }

    /// Returns the endpoint of the clients, with the port that the system chose.
    pub fn clients_endpoint(&self) -> &Endpoint {
        &self.clients
    }

    /// Returns the endpoint of the workers, with the port that the system chose.
    pub fn workers_endpoint(&self) -> &Endpoint {
        &self.workers
    }

    /// Returns the counters since the start, and the workers and requests now.
    pub fn stats(&self) -> QueueStats {
        lock(&self.state).stats()
    }
}

impl QueueBuilder {
    /// Changes the limits and times.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut QueueOptions)) -> QueueBuilder {
        change(&mut self.options);
        self
    }

    /// Changes the options of both sockets, such as their security. The queue sets `routing.mandatory` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> QueueBuilder {
        change(&mut self.socket);
        self
    }

    /// Binds an endpoint for clients and one for workers, and starts the queue on the runtime of this thread.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for options that are 0, and the errors of
    /// [`Router::bind_to`](switchboard_socket::Router::bind_to).
    pub async fn bind(mut self, clients: &str, workers: &str) -> Result<Queue> {
        let options = &self.options;
        if options.heartbeat_interval.is_zero() || options.liveness == 0 || options.workers_max == 0 {
            return Err(Status::invalid_argument(
                "heartbeat_interval, liveness or workers_max of the queue is 0; the minimum is above 0",
            ));
        }
        self.socket.routing.mandatory = true;
        route::remove_time_limits(&mut self.socket);
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        let (front, back) = (Router::with_options(self.socket.clone())?, Router::with_options(self.socket)?);
        let (clients, workers) = (front.bind_to(clients).await?, back.bind_to(workers).await?);
        let tick = (self.options.heartbeat_interval / 4).clamp(TICK_MIN, TICK_MAX);
        let stall = Stall::new(self.options.heartbeat_interval.max(tick * 2));
        let state = Arc::new(Mutex::new(State::new(self.options)));
        let task = Task::spawn(run(Peers { front, back }, state.clone(), tick, stall));
        Ok(Queue { clients, workers, state, _task: task })
    }
}

/// Handles messages until the sockets are closed.
async fn run(mut peers: Peers, state: Arc<Mutex<State>>, tick: Duration, mut stall: Stall) {
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (front, back) = (peers.front.clone(), peers.back.clone());
    loop {
        tokio::select! {
            message = back.recv() => {
                let Ok(message) = message else { return };
                lock(&state).worker_message(clock::now(), message, &mut peers);
            }
            message = front.recv() => {
                let Ok(message) = message else { return };
                lock(&state).client_message(clock::now(), message, &mut peers);
            }
            _ = ticks.tick() => {
                let (mut state, now) = (lock(&state), clock::now());
                if stall.check(now) {
                    state.forgive(now);
                }
                state.tick(now, &mut peers);
            }
        }
        // The tasks that write the messages may be on this thread.
        tokio::task::consume_budget().await;
    }
}

struct Peers {
    front: Router,
    back: Router,
}

impl Sink for Peers {
    fn to_client(&mut self, message: Message) -> Sent {
        route::pass(&self.front, message)
    }

    fn to_worker(&mut self, message: Message) -> Sent {
        route::pass(&self.back, message)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

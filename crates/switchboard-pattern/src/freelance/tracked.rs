//! The client that knows which servers are alive.

mod agent;

use crate::{
    route::{self, GONE},
    task::Task,
};
use agent::{Agent, Command};
use bytes::Bytes;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Message, Router, SocketOptions};
use switchboard_wire::{Retry, Status};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::timeout_at,
};

/// A client that sends PING to its servers, and each request to the first one in its list that is alive. When the
/// server fails, or does not reply for a time, the request is sent to the next one that is alive.
///
/// Clones share the connections, and requests of all of them are outstanding at the same time.
#[derive(Clone, Debug)]
pub struct TrackedClient {
    commands: mpsc::Sender<Command>,
    permits: Arc<Semaphore>,
    counts: Arc<Counts>,
    builder: Arc<TrackedBuilder>,
    _task: Arc<Task>,
}

/// Builder of a [`TrackedClient`].
#[derive(Clone, Debug)]
pub struct TrackedBuilder {
    servers: Vec<Bytes>,
    attempt_timeout: Duration,
    expiry: Duration,
    outstanding_max: usize,
    ping_interval: Duration,
    socket: SocketOptions,
    timeout: Duration,
}

/// Counters of a client and its clones.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TrackedStats {
    /// Servers that answered their last PING.
    pub alive: usize,
    /// Requests without a reply in time.
    pub failures: u64,
    /// Replies to requests that were over, and messages that are no replies.
    pub replies_dropped: u64,
    /// Replies.
    pub replies: u64,
    /// Requests that were sent to a further server.
    pub retries: u64,
}

#[derive(Debug, Default)]
struct Counts {
    alive: AtomicUsize,
    failures: AtomicU64,
    replies: AtomicU64,
    replies_dropped: AtomicU64,
    retries: AtomicU64,
}

impl TrackedClient {
    /// Creates a client of these servers with default options, see [`TrackedBuilder::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`TrackedBuilder::connect`].
    pub async fn connect<T: AsRef<str>>(servers: &[T]) -> Result<TrackedClient> {
        TrackedClient::builder(servers).connect().await
    }

    /// Returns a builder of a client of these servers, in the order of preference. An endpoint is the text that the
    /// server has as its routing id.
    pub fn builder<T: AsRef<str>>(servers: &[T]) -> TrackedBuilder {
        TrackedBuilder {
            servers: servers
                .iter()
                .map(|server| Bytes::copy_from_slice(server.as_ref().as_bytes()))
                .collect(),
            attempt_timeout: Duration::from_secs(1),
            expiry: Duration::from_secs(6),
            outstanding_max: 1000,
            ping_interval: Duration::from_secs(2),
            socket: SocketOptions::default(),
            timeout: Duration::from_secs(5),
        }
    }

    /// Sends a request and returns the first reply. Waits while `outstanding_max` requests are outstanding. A future
    /// that is dropped abandons the request.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` without a reply in time, and `InvalidArgument` for a message without frames.
    pub async fn request(&self, body: impl Into<Message>) -> Result<Message> {
        let body = body.into().into_frames();
        if body.is_empty() {
            return Err(Status::invalid_argument("the request has no frame"));
        }
        let deadline = clock::after(clock::now(), self.builder.timeout);
        let exchange = async {
            let _permit = self.permits.acquire().await.ok()?;
            let (sender, reply) = oneshot::channel();
            self.commands.send(Command { body, reply: sender }).await.ok()?;
            reply.await.ok()
        };
        match timeout_at(deadline.into(), exchange).await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(Status::canceled("the client is closed with its runtime")),
            Err(_) => {
                self.counts.failures.fetch_add(1, Relaxed);
                let (alive, count) = (self.counts.alive.load(Relaxed), self.builder.servers.len());
                let text = format!(
                    "no reply within {:?}; {alive} of {count} servers are alive",
                    self.builder.timeout
                );
                Err(Status::deadline_exceeded(text).with_retry(Retry::IfIdempotent))
            }
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> TrackedStats {
        TrackedStats {
            alive: self.counts.alive.load(Relaxed),
            failures: self.counts.failures.load(Relaxed),
            replies: self.counts.replies.load(Relaxed),
            replies_dropped: self.counts.replies_dropped.load(Relaxed),
            retries: self.counts.retries.load(Relaxed),
        }
    }
}

impl TrackedBuilder {
    /// Sets the time after which a request is sent to a further server. Default 1 s.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> TrackedBuilder {
        self.attempt_timeout = timeout;
        self
    }

    /// Sets the time without a message after which a server is not alive. The end of a connection is noticed at once.
    /// Default 6 s.
    #[must_use]
    pub fn expiry(mut self, expiry: Duration) -> TrackedBuilder {
        self.expiry = expiry;
        self
    }

    /// Sets the maximum number of outstanding requests; further ones wait. Default 1000.
    #[must_use]
    pub fn outstanding_max(mut self, requests: usize) -> TrackedBuilder {
        self.outstanding_max = requests;
        self
    }

    /// Sets the pause between PINGs to a server. Default 2 s.
    #[must_use]
    pub fn ping_interval(mut self, interval: Duration) -> TrackedBuilder {
        self.ping_interval = interval;
        self
    }

    /// Changes the options of the socket, such as its security. The client sets `routing.mandatory` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> TrackedBuilder {
        change(&mut self.socket);
        self
    }

    /// Sets the time of a request, with all servers that it is sent to. Default 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> TrackedBuilder {
        self.timeout = timeout;
        self
    }

    /// Creates the client on the runtime of this thread. Connections are established in the background.
    ///
    /// # Errors
    /// Returns `InvalidArgument` without servers, for options that are 0, and for an endpoint that is not valid.
    pub async fn connect(mut self) -> Result<TrackedClient> {
        if self.servers.is_empty() {
            return Err(Status::invalid_argument("the client has no servers; name at least one endpoint"));
        }
        let is_any_zero = self.ping_interval.is_zero() || self.expiry.is_zero() || self.outstanding_max == 0;
        if is_any_zero || self.outstanding_max > Semaphore::MAX_PERMITS {
            return Err(Status::invalid_argument(
                "ping_interval, expiry or outstanding_max of the client is 0; the minimum is above 0",
            ));
        }
        self.socket.routing.mandatory = true;
        route::remove_time_limits(&mut self.socket);
        self.socket.routing.routing_id = Bytes::new();
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        let router = Router::with_options(self.socket.clone())?;
        for server in &self.servers {
            router.connect_to(&String::from_utf8_lossy(server)).await?;
        }
        let counts = Arc::new(Counts::default());
        let permits = Arc::new(Semaphore::new(self.outstanding_max));
        let (commands, receiver) = mpsc::channel(64);
        let builder = Arc::new(self);
        let task = Arc::new(Task::spawn(Agent::new(router, builder.clone(), counts.clone()).run(receiver)));
        Ok(TrackedClient { commands, permits, counts, builder, _task: task })
    }
}

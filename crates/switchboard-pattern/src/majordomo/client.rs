//! Clients: requests to named services, many at a time.

mod connection;
mod replies;

use super::command::{self, Extension};
use crate::route::{self, GONE};
use bytes::Bytes;
use connection::{Connection, Counts};
pub use replies::{Replies, Reply};
use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Endpoint, Message, SocketOptions};
use switchboard_wire::{Code, Retry, Status};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout_at,
};

/// A client of a broker. Clones share its connections, and requests of all of them are outstanding at the same time.
///
/// A reply has no number in the protocol, so each outstanding request has a connection of its own, which
/// is used again after its final reply. With [`ClientBuilder::extended`] all share one.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// Builder of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    endpoint: String,
    is_extended: bool,
    outstanding_max: usize,
    retries: u32,
    socket: SocketOptions,
    timeout: Duration,
}

/// Options of one request.
#[derive(Debug)]
#[must_use]
pub struct RequestBuilder<'a> {
    client: &'a Client,
    service: Bytes,
    deliveries_max: u8,
    priority: u8,
    retries: u32,
    timeout: Duration,
}

/// Counters of a client and its clones.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Connections, those that wait for a request included.
    pub connections: usize,
    /// Requests that failed with another code than `DeadlineExceeded`.
    pub failures: u64,
    /// Requests without a final reply.
    pub outstanding: usize,
    /// Replies of failed and dropped requests that arrived later, and messages that are no replies.
    pub replies_dropped: u64,
    /// Final replies.
    pub replies: u64,
    /// Requests that were sent, retries included.
    pub requests: u64,
    /// Requests that were sent again after a failure.
    pub retries: u64,
    /// Requests without a final reply in time.
    pub timeouts: u64,
}

#[derive(Debug)]
struct Inner {
    builder: ClientBuilder,
    counts: Arc<Counts>,
    permits: Arc<Semaphore>,
    /// Connections without an outstanding request; with the extension the one that all share.
    free: Mutex<Vec<Connection>>,
}

impl Client {
    /// Creates a client with default options, see [`ClientBuilder::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`ClientBuilder::connect`].
    pub fn connect(endpoint: &str) -> Result<Client> {
        Client::builder(endpoint).connect()
    }

    /// Returns a builder of a client for the broker at an endpoint.
    pub fn builder(endpoint: &str) -> ClientBuilder {
        let mut socket = SocketOptions::default();
        // Requests of a client that is gone need not be written.
        socket.timeouts.linger = Some(Duration::ZERO);
        ClientBuilder {
            endpoint: endpoint.to_owned(),
            is_extended: false,
            outstanding_max: 64,
            retries: 0,
            socket,
            timeout: Duration::from_secs(30),
        }
    }

    /// Sends a request with the options of the client and returns its final reply, see [`RequestBuilder::send`].
    ///
    /// # Errors
    /// Returns the errors of [`RequestBuilder::send`].
    pub async fn request(&self, service: &str, body: impl Into<Message>) -> Result<Message> {
        self.call(service).send(body).await
    }

    /// Returns true if a worker of the service is registered (`mmi.service`).
    ///
    /// # Errors
    /// Returns `Unimplemented` if the broker has no such service, and the errors of [`RequestBuilder::send`].
    pub async fn has_service(&self, service: &str) -> Result<bool> {
        match self.request("mmi.service", service).await?.body() {
            b"200" => Ok(true),
            b"404" => Ok(false),
            _ => Err(Status::unimplemented("the broker does not have the service mmi.service")),
        }
    }

    /// Begins a request to a service, with options of its own.
    pub fn call(&self, service: &str) -> RequestBuilder<'_> {
        RequestBuilder {
            client: self,
            service: Bytes::copy_from_slice(service.as_bytes()),
            deliveries_max: 1,
            priority: 0,
            retries: self.0.builder.retries,
            timeout: self.0.builder.timeout,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> ClientStats {
        let (inner, counts) = (&self.0, &self.0.counts);
        ClientStats {
            connections: counts.connections.load(Relaxed),
            failures: counts.failures.load(Relaxed),
            outstanding: inner.builder.outstanding_max.saturating_sub(inner.permits.available_permits()),
            replies_dropped: counts.replies_dropped.load(Relaxed),
            replies: counts.replies.load(Relaxed),
            requests: counts.requests.load(Relaxed),
            retries: counts.retries.load(Relaxed),
            timeouts: counts.timeouts.load(Relaxed),
        }
    }
}

impl ClientBuilder {
    /// Sends requests with the extension of this module, for a [`Broker`](super::Broker) of it: all requests share one
    /// connection, they have priorities and deliveries, and failures are reported at once. Default false.
    #[must_use]
    pub fn extended(mut self, is_extended: bool) -> ClientBuilder {
        self.is_extended = is_extended;
        self
    }

    /// Sets the maximum number of requests without a final reply; further ones wait. Without the extension each needs
    /// a connection. Default 64.
    #[must_use]
    pub fn outstanding_max(mut self, requests: usize) -> ClientBuilder {
        self.outstanding_max = requests;
        self
    }

    /// Sets the number of times that a request is sent again after `DeadlineExceeded` or `Unavailable`. A service may
    /// then execute it several times. Default 0.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> ClientBuilder {
        self.retries = retries;
        self
    }

    /// Changes the options of the sockets, such as their security. The client sets `routing.immediate` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> ClientBuilder {
        change(&mut self.socket);
        self
    }

    /// Sets the time of an attempt, from the call to its final reply. Default 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = timeout;
        self
    }

    /// Creates the client. Connections are established with the first requests.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an endpoint that is not valid and for `outstanding_max` 0.
    pub fn connect(mut self) -> Result<Client> {
        self.endpoint.parse::<Endpoint>()?;
        if self.outstanding_max == 0 || self.outstanding_max > Semaphore::MAX_PERMITS {
            return Err(Status::invalid_argument("outstanding_max of the client is 0; the minimum is 1"));
        }
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        // A request that waits for a broker must not be sent after it has failed.
        self.socket.routing.immediate = true;
        route::remove_time_limits(&mut self.socket);
        let permits = Arc::new(Semaphore::new(self.outstanding_max));
        let (counts, free) = (Arc::new(Counts::default()), Mutex::new(Vec::new()));
        Ok(Client(Arc::new(Inner { builder: self, counts, permits, free })))
    }
}

impl RequestBuilder<'_> {
    /// Sets the number of workers that the broker may pass the request to, one after the other when they fail; a
    /// service may then execute it several times. Needs the extension. Default 1: a request whose worker fails is lost,
    /// which is reported as `Unavailable`.
    pub fn deliveries_max(mut self, deliveries: u8) -> Self {
        self.deliveries_max = deliveries;
        self
    }

    /// Sets the priority in the queue of the service: requests of a higher one are delivered first, also if others
    /// never are. Needs the extension. Default 0.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the number of retries, see [`ClientBuilder::retries`].
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the time of an attempt, see [`ClientBuilder::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends the request and returns its final reply; the parts before it are dropped. Waits while `outstanding_max`
    /// requests are outstanding. A future that is dropped abandons the request: its reply is dropped.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` without a final reply in time, `Unavailable` if the connection to the broker ended or
    /// the worker is gone, and `InvalidArgument` for a name that is not 1 to 255 bytes of printable text and for
    /// options that need the extension. With the extension `ResourceExhausted` names the limit of the broker that was
    /// reached; without, the broker drops the request, and its time passes.
    pub async fn send(self, body: impl Into<Message>) -> Result<Message> {
        let body = body.into();
        let mut left = self.retries;
        loop {
            let failure = match self.attempt(&body).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let may_retry = matches!(failure.code(), Code::DeadlineExceeded | Code::Unavailable);
            if !may_retry || left == 0 {
                return Err(failure);
            }
            left = left.saturating_sub(1);
            self.client.0.counts.retries.fetch_add(1, Relaxed);
        }
    }

    /// Sends the request and returns its replies, the parts before the final one included. Retries do not apply.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub async fn stream(self, body: impl Into<Message>) -> Result<Replies> {
        self.start(body.into()).await
    }

    async fn attempt(&self, body: &Message) -> Result<Message> {
        let mut replies = self.start(body.clone()).await?;
        while let Some(reply) = replies.next().await? {
            if reply.is_final() {
                return Ok(reply.into_body());
            }
        }
        Err(Status::internal("the replies ended without a final one"))
    }

    async fn start(&self, body: Message) -> Result<Replies> {
        let deadline = clock::after(clock::now(), self.timeout);
        let extension = self.extension()?;
        let inner = &self.client.0;
        let permit = match timeout_at(deadline.into(), inner.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Status::canceled("the client is closed")),
            Err(_) => {
                inner.counts.timeouts.fetch_add(1, Relaxed);
                let limit = inner.builder.outstanding_max;
                let text = format!("{limit} requests of the client are outstanding (outstanding_max)");
                return Err(Status::deadline_exceeded(text).with_retry(Retry::Safe));
            }
        };
        self.begin(body, extension, deadline, permit)
            .await
            .inspect_err(|failure| inner.counts.failed(failure))
    }

    async fn begin(
        &self,
        body: Message,
        extension: Option<Extension>,
        deadline: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Result<Replies> {
        let inner = &self.client.0;
        let connection = inner.connection().await?;
        let (tag, replies) = connection.expect(extension.is_some());
        let extension = extension.map(|extension| Extension { tag, ..extension });
        let request = command::client_request(self.service.clone(), extension, body.into_frames());
        let replies =
            Replies::new(self.client.0.clone(), connection, tag, replies, (deadline, self.timeout), permit);
        replies.send(request).await?;
        inner.counts.requests.fetch_add(1, Relaxed);
        Ok(replies)
    }

    fn extension(&self) -> Result<Option<Extension>> {
        if !command::is_service(&self.service) {
            let name = self.service.escape_ascii();
            return Err(Status::invalid_argument(format!(
                "service name \"{name}\" is not valid; it has 1 to 255 bytes of printable text"
            )));
        }
        if !self.client.0.builder.is_extended {
            if self.priority > 0 || self.deliveries_max > 1 {
                return Err(Status::invalid_argument(
                    "priority and deliveries_max are not in MDP/0.2; build the client with extended(true)",
                ));
            }
            return Ok(None);
        }
        let wait_ms = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        Ok(Some(Extension { priority: self.priority, deliveries_max: self.deliveries_max, wait_ms, tag: 0 }))
    }
}

impl Inner {
    /// Returns the connection for a request.
    async fn connection(&self) -> Result<Connection> {
        {
            let mut free = self.free();
            while let Some(connection) = free.pop() {
                if !connection.is_open() {
                    continue;
                }
                if self.builder.is_extended {
                    free.push(connection.clone());
                }
                return Ok(connection);
            }
        }
        let connection = Connection::open(&self.builder.endpoint, &self.builder.socket, &self.counts).await?;
        let mut free = self.free();
        if self.builder.is_extended {
            // Another request may have been faster.
            match free.last() {
                Some(first) => return Ok(first.clone()),
                None => free.push(connection.clone()),
            }
        }
        Ok(connection)
    }

    /// Keeps a connection for the next request.
    fn release(&self, connection: Connection) {
        if !self.builder.is_extended {
            self.free().push(connection);
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

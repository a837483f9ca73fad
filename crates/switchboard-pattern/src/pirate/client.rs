//! The Lazy Pirate client.

use crate::route;
use std::time::Duration;
use switchboard_core::{Result, clock};
use switchboard_socket::{Endpoint, Error, Message, Req, SocketOptions};
use switchboard_wire::{Code, Retry, Status};
use tokio::time::{sleep_until, timeout_at};

/// A client that sends a request again, on a new socket, when its reply does not arrive in time. A server may execute
/// a request several times.
///
/// One request at a time: use several clients for several requests.
#[derive(Debug)]
pub struct Client {
    builder: ClientBuilder,
    /// A socket whose last reply has arrived.
    socket: Option<Req>,
    stats: ClientStats,
}

/// Builder of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    endpoint: String,
    retries: u32,
    socket: SocketOptions,
    timeout: Duration,
}

/// Counters of a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Requests that failed after all retries.
    pub failures: u64,
    /// Replies.
    pub replies: u64,
    /// Requests that were sent again.
    pub retries: u64,
}

impl Client {
    /// Creates a client with default options, see [`ClientBuilder::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`ClientBuilder::connect`].
    pub fn connect(endpoint: &str) -> Result<Client> {
        Client::builder(endpoint).connect()
    }

    /// Returns a builder of a client for the server or queue at an endpoint.
    pub fn builder(endpoint: &str) -> ClientBuilder {
        let mut socket = SocketOptions::default();
        // A request that has failed must not be sent later.
        socket.timeouts.linger = Some(Duration::ZERO);
        ClientBuilder {
            endpoint: endpoint.to_owned(),
            retries: 3,
            socket,
            timeout: Duration::from_millis(2500),
        }
    }

    /// Sends a request and returns its reply. A future that is dropped abandons the request.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` without a reply in time after all retries, and `InvalidArgument` for a message
    /// without frames.
    pub async fn request(&mut self, body: impl Into<Message>) -> Result<Message> {
        let body = body.into();
        for attempt in 0..=self.builder.retries {
            if attempt > 0 {
                self.stats.retries += 1;
            }
            let deadline = clock::after(clock::now(), self.builder.timeout);
            let socket = match self.socket.take() {
                Some(socket) => socket,
                None => self.open().await?,
            };
            match timeout_at(deadline.into(), exchange(&socket, &body)).await {
                Ok(Ok(reply)) => {
                    self.socket = Some(socket);
                    self.stats.replies += 1;
                    return Ok(reply);
                }
                Ok(Err(error)) => {
                    let failure = Status::from(error);
                    if failure.code() == Code::InvalidArgument {
                        self.socket = Some(socket);
                        return Err(failure);
                    }
                    // The connection ended. The rest of the time is the pause before the next attempt.
                    drop(socket);
                    let pause = self.builder.timeout.mul_f64(clock::fraction() / 4.0);
                    sleep_until(clock::after(clock::now(), pause).min(deadline).into()).await;
                }
                Err(_) => {}
            }
        }
        self.stats.failures += 1;
        let ClientBuilder { endpoint, retries, timeout, .. } = &self.builder;
        let text = format!("no reply from {endpoint} within {timeout:?} after {retries} retries");
        Err(Status::deadline_exceeded(text).with_retry(Retry::IfIdempotent))
    }

    async fn open(&self) -> Result<Req> {
        let socket = Req::with_options(self.builder.socket.clone())?;
        socket.connect_to(&self.builder.endpoint).await?;
        Ok(socket)
    }

    /// Returns the counters.
    pub fn stats(&self) -> ClientStats {
        self.stats.clone()
    }
}

impl ClientBuilder {
    /// Sets the number of times that a request is sent again. Default 3.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> ClientBuilder {
        self.retries = retries;
        self
    }

    /// Changes the options of the socket, such as its security.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> ClientBuilder {
        change(&mut self.socket);
        route::remove_time_limits(&mut self.socket);
        self
    }

    /// Sets the time of an attempt. Default 2.5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = timeout;
        self
    }

    /// Creates the client. Its connection is established with the first request.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an endpoint that is not valid.
    pub fn connect(self) -> Result<Client> {
        self.endpoint.parse::<Endpoint>()?;
        Ok(Client { builder: self, socket: None, stats: ClientStats::default() })
    }
}

async fn exchange(socket: &Req, body: &Message) -> Result<Message, Error> {
    socket.send(body.clone()).await?;
    socket.recv().await
}

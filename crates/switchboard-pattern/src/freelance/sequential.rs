//! The client that tries one server after the other.

use crate::pirate;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_socket::{Message, SocketOptions};
use switchboard_wire::{Code, Retry, Status};

/// A client that sends a request to one server, and to the next one when no reply arrives in time. It begins with the
/// server that replied last. Each server has a REQ socket.
///
/// One request at a time: use several clients for several requests.
#[derive(Debug)]
pub struct SequentialClient {
    servers: Vec<pirate::Client>,
    first: usize,
    timeout: Duration,
    stats: SequentialStats,
}

/// Counters of a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SequentialStats {
    /// Requests to which no server replied.
    pub failures: u64,
    /// Replies.
    pub replies: u64,
    /// Requests that were sent to a further server.
    pub retries: u64,
}

impl SequentialClient {
    /// Creates a client of these servers with default options of sockets and a time to wait for each server, 1 s in
    /// the guide of ZeroMQ.
    ///
    /// # Errors
    /// Returns the errors of [`with_options`](Self::with_options).
    pub fn connect<T: AsRef<str>>(servers: &[T], timeout: Duration) -> Result<SequentialClient> {
        SequentialClient::with_options(servers, timeout, &SocketOptions::default())
    }

    /// Creates a client with options of its sockets, such as their security. `timeouts.linger` is not used.
    ///
    /// # Errors
    /// Returns `InvalidArgument` without servers, and for an endpoint that is not valid.
    pub fn with_options<T: AsRef<str>>(
        servers: &[T],
        timeout: Duration,
        options: &SocketOptions,
    ) -> Result<SequentialClient> {
        if servers.is_empty() {
            return Err(Status::invalid_argument("the client has no servers; name at least one endpoint"));
        }
        let connect = |endpoint: &T| {
            let builder = pirate::Client::builder(endpoint.as_ref()).retries(0).timeout(timeout);
            let builder = builder.socket_options(|socket| {
                *socket = options.clone();
                socket.timeouts.linger = Some(Duration::ZERO);
            });
            builder.connect()
        };
        let servers = servers.iter().map(connect).collect::<Result<_>>()?;
        Ok(SequentialClient { servers, first: 0, timeout, stats: SequentialStats::default() })
    }

    /// Sends a request and returns the first reply. A future that is dropped abandons the request.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if no server replied in time, and `InvalidArgument` for a message without frames.
    pub async fn request(&mut self, body: impl Into<Message>) -> Result<Message> {
        let (body, count) = (body.into(), self.servers.len());
        for step in 0..count {
            self.stats.retries += u64::from(step > 0);
            let index = (self.first + step) % count;
            match self.servers[index].request(body.clone()).await {
                Ok(reply) => {
                    self.first = index;
                    self.stats.replies += 1;
                    return Ok(reply);
                }
                Err(failure) if failure.code() == Code::InvalidArgument => return Err(failure),
                Err(_) => {}
            }
        }
        self.stats.failures += 1;
        let text = format!("none of {count} servers replied within {:?}", self.timeout);
        Err(Status::deadline_exceeded(text).with_retry(Retry::IfIdempotent))
    }

    /// Returns the counters.
    pub fn stats(&self) -> SequentialStats {
        self.stats.clone()
    }
}

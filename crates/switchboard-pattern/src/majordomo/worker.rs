//! Workers of a service.

use super::command::{self, WorkerProtocol};
use crate::session::{SessionOptions, SessionRequest, Sessions, WorkerStats};
use bytes::Bytes;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_socket::{Message, SocketOptions};
use switchboard_wire::Status;

/// A worker of one service: it receives one request at a time. For several at a time, connect several workers.
///
/// A task of the worker sends heartbeats, also while the program works on a request. When the broker is silent, is
/// gone or disconnects the worker, the worker registers again.
#[derive(Debug)]
pub struct Worker(Sessions);

/// Builder of a [`Worker`].
#[derive(Clone, Debug)]
pub struct WorkerBuilder {
    service: Bytes,
    options: SessionOptions,
}

/// A request that the worker has to reply to. A request that is dropped without a final reply ends the session of the
/// worker with the broker, which then delivers the request again if its client allows it; the worker registers again.
#[derive(Debug)]
pub struct Request(SessionRequest);

impl Worker {
    /// Starts a worker with default options, see [`WorkerBuilder::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`WorkerBuilder::connect`].
    pub fn connect(endpoint: &str, service: &str) -> Result<Worker> {
        Worker::builder(endpoint, service).connect()
    }

    /// Returns a builder of a worker for a service of the broker at an endpoint.
    pub fn builder(endpoint: &str, service: &str) -> WorkerBuilder {
        let service = Bytes::copy_from_slice(service.as_bytes());
        WorkerBuilder { service, options: SessionOptions::new(endpoint) }
    }

    /// Receives the next request; waits while the broker is not reachable. `None` if the task of the worker has ended,
    /// with its runtime. Cancel safe.
    pub async fn next(&mut self) -> Option<Request> {
        self.0.next().await.map(Request)
    }

    /// Returns the counters.
    pub fn stats(&self) -> WorkerStats {
        self.0.stats()
    }
}

impl WorkerBuilder {
    /// Sets the pause between heartbeats, which has to be about that of the broker. Default 1 s.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> WorkerBuilder {
        self.options.heartbeat_interval = interval;
        self
    }

    /// Sets the number of intervals without a message of the broker, after which the worker registers again. Default
    /// 4.
    #[must_use]
    pub fn liveness(mut self, intervals: u32) -> WorkerBuilder {
        self.options.liveness = intervals;
        self
    }

    /// Sets the maximum pause before the worker registers again after a session has ended; each is random between its
    /// half and the whole. Default 250 ms.
    #[must_use]
    pub fn reconnect_pause(mut self, pause: Duration) -> WorkerBuilder {
        self.options.pause = pause;
        self
    }

    /// Changes the options of the socket, such as its security. The worker sets `routing.immediate` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> WorkerBuilder {
        change(&mut self.options.socket);
        self
    }

    /// Starts the worker on the runtime of this thread. It registers once the broker is reachable.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an option that is 0, for a name that is not 1 to 255 bytes of printable text or
    /// begins with `mmi.`, and for an endpoint that is not valid.
    pub fn connect(self) -> Result<Worker> {
        if !command::is_service(&self.service) || self.service.starts_with(b"mmi.") {
            let name = self.service.escape_ascii();
            return Err(Status::invalid_argument(format!(
                "service name \"{name}\" is not valid; it has 1 to 255 bytes of printable text and does not begin \
                 with mmi."
            )));
        }
        Ok(Worker(self.options.connect(Box::new(WorkerProtocol(self.service)))?))
    }
}

impl Request {
    /// Returns the frames of the request.
    pub fn body(&self) -> &Message {
        &self.0.body
    }

    /// Sends a part of the reply before the final one. Waits while the queue of the socket is full. Cancel safe: a
    /// future that is dropped while it waits has sent nothing.
    ///
    /// # Errors
    /// Returns `Aborted` if the session with the broker has ended: the reply has no way to its client.
    pub async fn partial(&self, body: impl Into<Message>) -> Result<()> {
        self.0.partial(body.into()).await
    }

    /// Sends the final reply, as [`partial`](Self::partial). A future that is dropped while it waits has dropped the
    /// request.
    ///
    /// # Errors
    /// Returns the errors of [`partial`](Self::partial).
    pub async fn reply(self, body: impl Into<Message>) -> Result<()> {
        self.0.reply(body.into()).await
    }
}

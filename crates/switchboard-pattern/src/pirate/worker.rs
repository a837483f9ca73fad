//! Workers of a queue, with and without heartbeats.

use crate::session::{FromBroker, Protocol, SessionOptions, SessionRequest, Sessions, WorkerStats};
use bytes::Bytes;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_socket::{Message, SocketOptions};

const READY: &[u8] = &[1];
const HEARTBEAT: &[u8] = &[2];

/// A worker of a queue: it receives one request at a time. For several at a time, connect several workers.
///
/// A Paranoid Pirate worker sends heartbeats while it waits for a request, and registers again when the queue is
/// silent. Both kinds register again when their connection ends.
#[derive(Debug)]
pub struct Worker(Sessions);

/// Builder of a [`Worker`].
#[derive(Clone, Debug)]
pub struct WorkerBuilder {
    is_simple: bool,
    options: SessionOptions,
}

/// A request that the worker has to reply to. A request that is dropped without a reply is lost, and its client has to
/// send it again; the worker registers again.
#[derive(Debug)]
pub struct Request(SessionRequest);

impl Worker {
    /// Starts a Paranoid Pirate worker with default options, see [`WorkerBuilder::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`WorkerBuilder::connect`].
    pub fn connect(endpoint: &str) -> Result<Worker> {
        Worker::builder(endpoint).connect()
    }

    /// Returns a builder of a worker for the queue at an endpoint.
    pub fn builder(endpoint: &str) -> WorkerBuilder {
        WorkerBuilder { is_simple: false, options: SessionOptions::new(endpoint) }
    }

    /// Receives the next request; waits while the queue is not reachable. `None` if the task of the worker has ended,
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
    /// Makes a Simple Pirate worker: without heartbeats, for queues without them. Default false: Paranoid Pirate.
    #[must_use]
    pub fn simple(mut self, is_simple: bool) -> WorkerBuilder {
        self.is_simple = is_simple;
        self
    }

    /// Sets the pause between heartbeats, which has to be about that of the queue. Default 1 s.
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> WorkerBuilder {
        self.options.heartbeat_interval = interval;
        self
    }

    /// Sets the number of intervals without a message of the queue, after which the worker registers again. Default 4.
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

    /// Starts the worker on the runtime of this thread. It registers once the queue is reachable.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an option that is 0 and for an endpoint that is not valid.
    pub fn connect(self) -> Result<Worker> {
        let protocol: Box<dyn Protocol> = if self.is_simple { Box::new(Simple) } else { Box::new(Paranoid) };
        Ok(Worker(self.options.connect(protocol)?))
    }
}

impl Request {
    /// Returns the frames of the request.
    pub fn body(&self) -> &Message {
        &self.0.body
    }

    /// Sends the reply. Waits while the queue of the socket is full. A future that is dropped while it waits has
    /// dropped the request.
    ///
    /// # Errors
    /// Returns `Aborted` if the session with the queue has ended: the reply has no way to its client.
    pub async fn reply(self, body: impl Into<Message>) -> Result<()> {
        self.0.reply(body.into()).await
    }
}

/// Commands of the Paranoid Pirate Protocol.
#[derive(Debug)]
struct Paranoid;

impl Protocol for Paranoid {
    fn ready(&self) -> Message {
        Message::from(READY)
    }

    /// A queue may take a heartbeat for the end of a request, as that of the guide does.
    fn heartbeat(&self, is_busy: bool) -> Option<Message> {
        (!is_busy).then(|| Message::from(HEARTBEAT))
    }

    fn disconnect(&self) -> Option<Message> {
        None
    }

    fn is_silent_allowed(&self) -> bool {
        false
    }

    fn read(&self, frames: Vec<Bytes>) -> Result<FromBroker, &'static str> {
        match &*frames {
            [heartbeat] if &**heartbeat == HEARTBEAT => Ok(FromBroker::Heartbeat),
            _ => read_request(frames),
        }
    }

    fn reply(&self, _is_final: bool, envelope: &[Bytes], body: Vec<Bytes>) -> Message {
        Message::from([envelope, &body].concat())
    }
}

/// Messages of a REQ socket, which begin with an empty frame.
#[derive(Debug)]
struct Simple;

impl Protocol for Simple {
    fn ready(&self) -> Message {
        Message::from([Bytes::new(), Bytes::from_static(READY)])
    }

    fn heartbeat(&self, _is_busy: bool) -> Option<Message> {
        None
    }

    fn disconnect(&self) -> Option<Message> {
        None
    }

    fn is_silent_allowed(&self) -> bool {
        true
    }

    fn read(&self, mut frames: Vec<Bytes>) -> Result<FromBroker, &'static str> {
        if frames.first().is_none_or(|frame| !frame.is_empty()) {
            return Err("message does not begin with an empty frame");
        }
        frames.remove(0);
        read_request(frames)
    }

    fn reply(&self, _is_final: bool, envelope: &[Bytes], body: Vec<Bytes>) -> Message {
        Message::from([&[Bytes::new()], envelope, &body].concat())
    }
}

/// Splits a request into its addresses, up to the first empty frame, and its body.
fn read_request(mut frames: Vec<Bytes>) -> Result<FromBroker, &'static str> {
    let Some(end) = frames.iter().position(Bytes::is_empty) else { return Err("request has no empty frame") };
    let body = frames.split_off(end.saturating_add(1));
    if body.is_empty() {
        return Err("request has no body");
    }
    Ok(FromBroker::Request { envelope: frames, body })
}

//! Servers of the Freelance Protocol.

use crate::{
    route::{self, Sent},
    task::Task,
};
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};
use switchboard_core::Result;
use switchboard_socket::{Endpoint, Message, Router, SocketOptions};
use switchboard_wire::Status;
use tokio::sync::mpsc;

/// Memory of a request without its frames, and of a frame without its bytes, as the limits count them.
const REQUEST_BYTES: usize = 128;
const FRAME_BYTES: usize = 64;

/// A server: it receives requests, and answers PING while the program works.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    requests: mpsc::Receiver<ServerRequest>,
    shared: Arc<Shared>,
    _task: Task,
}

/// Builder of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    public: String,
    queue_bytes_max: usize,
    queue_requests_max: usize,
    socket: SocketOptions,
}

/// A request that the server has to reply to. A request that is dropped has no reply, and its client tries another
/// server. Several requests may be worked on at the same time.
#[derive(Debug)]
pub struct ServerRequest {
    client: Bytes,
    control: Bytes,
    body: Message,
    bytes: usize,
    shared: Arc<Shared>,
}

/// Counters of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Messages that are neither PING nor a request; they were dropped.
    pub invalid: u64,
    /// Requests that were dropped because the queue was full.
    pub refused: u64,
    /// Replies.
    pub replies: u64,
    /// Replies that were dropped because their client was gone or did not read.
    pub replies_dropped: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes of the requests that wait for the program.
    pub waiting_bytes: usize,
}

#[derive(Debug)]
struct Shared {
    router: Router,
    invalid: AtomicU64,
    refused: AtomicU64,
    replies: AtomicU64,
    replies_dropped: AtomicU64,
    requests: AtomicU64,
    waiting_bytes: AtomicUsize,
}

impl Server {
    /// Starts a server with default options at an endpoint that clients connect to by the same text, so it has no port
    /// 0 and no `*`.
    ///
    /// # Errors
    /// Returns the errors of [`ServerBuilder::bind`].
    pub async fn bind(endpoint: &str) -> Result<Server> {
        Server::builder(endpoint).bind(endpoint).await
    }

    /// Returns a builder of a server that clients connect to at a public endpoint, which is its routing id.
    pub fn builder(public: &str) -> ServerBuilder {
        ServerBuilder {
            public: public.to_owned(),
            queue_bytes_max: 16 << 20,
            queue_requests_max: 1000,
            socket: route::listener_options(),
        }
    }

    /// Returns the endpoint that is bound, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Receives the next request. `None` if the task of the server has ended, with its runtime. Cancel safe.
    pub async fn next(&mut self) -> Option<ServerRequest> {
        let request = self.requests.recv().await?;
        self.shared.waiting_bytes.fetch_sub(request.bytes, Relaxed);
        Some(request)
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        let shared = &self.shared;
        ServerStats {
            invalid: shared.invalid.load(Relaxed),
            refused: shared.refused.load(Relaxed),
            replies: shared.replies.load(Relaxed),
            replies_dropped: shared.replies_dropped.load(Relaxed),
            requests: shared.requests.load(Relaxed),
            waiting_bytes: shared.waiting_bytes.load(Relaxed),
        }
    }
}

impl ServerBuilder {
    /// Sets the maximum number of bytes of the requests that wait for the program, with 64 bytes for each frame and
    /// 128 for each request; further ones are dropped and counted. Default 16 MiB.
    #[must_use]
    pub fn queue_bytes_max(mut self, bytes: usize) -> ServerBuilder {
        self.queue_bytes_max = bytes;
        self
    }

    /// Sets the maximum number of requests that wait for the program; further ones are dropped and counted. Default
    /// 1000.
    #[must_use]
    pub fn queue_requests_max(mut self, requests: usize) -> ServerBuilder {
        self.queue_requests_max = requests;
        self
    }

    /// Changes the options of the socket, such as its security. The server sets `routing.routing_id` and
    /// `routing.mandatory` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> ServerBuilder {
        change(&mut self.socket);
        self
    }

    /// Binds an endpoint and starts the server on the runtime of this thread.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a public endpoint that is not 1 to 255 bytes and for `queue_requests_max` 0, and
    /// the errors of [`Router::bind_to`](switchboard_socket::Router::bind_to).
    pub async fn bind(mut self, endpoint: &str) -> Result<Server> {
        if !(1..=255).contains(&self.public.len()) || self.queue_requests_max == 0 {
            return Err(Status::invalid_argument(format!(
                "public endpoint of the server has {} bytes, and queue_requests_max is {}; the limits are 1 to 255 \
                 bytes, and above 0",
                self.public.len(),
                self.queue_requests_max
            )));
        }
        self.socket.routing.routing_id = Bytes::copy_from_slice(self.public.as_bytes());
        self.socket.routing.mandatory = true;
        route::remove_time_limits(&mut self.socket);
        let router = Router::with_options(self.socket)?;
        let endpoint = router.bind_to(endpoint).await?;
        let shared = Arc::new(Shared {
            router,
            invalid: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            replies_dropped: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            waiting_bytes: AtomicUsize::new(0),
        });
        let (sender, requests) = mpsc::channel(self.queue_requests_max);
        let task = Task::spawn(run(shared.clone(), sender, self.queue_bytes_max));
        Ok(Server { endpoint, requests, shared, _task: task })
    }
}

impl ServerRequest {
    /// Returns the frames of the request.
    pub fn body(&self) -> &Message {
        &self.body
    }

    /// Sends the reply. Does not wait.
    ///
    /// # Errors
    /// Returns `Unavailable` if the client is gone, and `ResourceExhausted` if it does not read its replies.
    pub fn reply(self, body: impl Into<Message>) -> Result<()> {
        let frames = [&[self.client, self.control], &*body.into().into_frames()].concat();
        let sent = route::pass(&self.shared.router, Message::from(frames));
        let counter = if sent == Sent::Passed { &self.shared.replies } else { &self.shared.replies_dropped };
        counter.fetch_add(1, Relaxed);
        match sent {
            Sent::Passed => Ok(()),
            Sent::Full => Err(Status::resource_exhausted(
                "the queue of the client is full (queues.send_messages_max); the reply was dropped",
            )),
            Sent::Gone => Err(Status::unavailable("the client is gone; the reply was dropped")),
        }
    }
}

/// Handles messages until the socket is closed or the server is dropped.
async fn run(shared: Arc<Shared>, requests: mpsc::Sender<ServerRequest>, bytes_max: usize) {
    while let Ok(message) = shared.router.recv().await {
        match message.frames() {
            [client, ping] if &**ping == b"PING" => {
                // A client that does not read is not a client of a live server.
                let _ =
                    route::pass(&shared.router, Message::from([client.clone(), Bytes::from_static(b"PONG")]));
            }
            [_, _, _, ..] => {
                shared.requests.fetch_add(1, Relaxed);
                if !enqueue(&shared, &requests, &message, bytes_max) {
                    shared.refused.fetch_add(1, Relaxed);
                }
            }
            _ => {
                shared.invalid.fetch_add(1, Relaxed);
            }
        }
        tokio::task::consume_budget().await;
    }
}

/// Passes a request to the program. Returns false if its queue is full.
fn enqueue(
    shared: &Arc<Shared>,
    requests: &mpsc::Sender<ServerRequest>,
    message: &Message,
    bytes_max: usize,
) -> bool {
    let frames = message.frames().iter().map(|frame| frame.len().saturating_add(FRAME_BYTES));
    let bytes = frames.fold(REQUEST_BYTES, usize::saturating_add);
    let Ok(permit) = requests.try_reserve() else { return false };
    if shared.waiting_bytes.load(Relaxed).saturating_add(bytes) > bytes_max {
        return false;
    }
    // A copy, because the frames are parts of a larger buffer.
    let mut frames = message.detached().into_frames().into_iter();
    let (Some(client), Some(control)) = (frames.next(), frames.next()) else { return false };
    shared.waiting_bytes.fetch_add(bytes, Relaxed);
    let body = Message::new(frames);
    permit.send(ServerRequest { client, control, body, bytes, shared: shared.clone() });
    true
}

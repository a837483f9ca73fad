//! The client that sends to all servers.

use crate::route;
use bytes::Bytes;
use std::time::Duration;
use switchboard_core::{Result, clock};
use switchboard_socket::{Dealer, Message, SocketOptions};
use switchboard_wire::{Retry, Status};
use tokio::{task::JoinSet, time::timeout_at};

/// A client that sends each request to all servers and returns the first reply. All of them execute it, so requests
/// must be idempotent and cheap. A server that is not reachable is left out.
///
/// A request has an empty frame and its number before the body, and a server repeats both: a REP server repeats the
/// first frame that it receives. One request at a time: use several clients for several requests.
#[derive(Debug)]
pub struct ShotgunClient {
    servers: Vec<Dealer>,
    number: u64,
    timeout: Duration,
    stats: ShotgunStats,
}

/// Counters of a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShotgunStats {
    /// Requests to which no server replied.
    pub failures: u64,
    /// Requests to which a server replied.
    pub replies: u64,
}

impl ShotgunClient {
    /// Creates a client of these servers with default options of sockets and a time to wait for the first reply.
    ///
    /// # Errors
    /// Returns the errors of [`with_options`](Self::with_options).
    pub async fn connect<T: AsRef<str>>(servers: &[T], timeout: Duration) -> Result<ShotgunClient> {
        ShotgunClient::with_options(servers, timeout, SocketOptions::default()).await
    }

    /// Creates a client with options of its sockets, such as their security. The client sets `routing.immediate` and
    /// `timeouts.linger` itself.
    ///
    /// # Errors
    /// Returns `InvalidArgument` without servers, and for an endpoint that is not valid.
    pub async fn with_options<T: AsRef<str>>(
        servers: &[T],
        timeout: Duration,
        mut options: SocketOptions,
    ) -> Result<ShotgunClient> {
        if servers.is_empty() {
            return Err(Status::invalid_argument("the client has no servers; name at least one endpoint"));
        }
        // A request that was abandoned must not be sent later.
        options.routing.immediate = true;
        options.timeouts.linger = Some(Duration::ZERO);
        route::remove_time_limits(&mut options);
        let mut dealers = Vec::with_capacity(servers.len());
        for endpoint in servers {
            let dealer = Dealer::with_options(options.clone())?;
            dealer.connect_to(endpoint.as_ref()).await?;
            dealers.push(dealer);
        }
        let stats = ShotgunStats::default();
        Ok(ShotgunClient { servers: dealers, number: clock::random(), timeout, stats })
    }

    /// Sends a request to all servers and returns the first reply. A future that is dropped abandons the request.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if no server replied in time, and `InvalidArgument` for a message without frames.
    pub async fn request(&mut self, body: impl Into<Message>) -> Result<Message> {
        let body = body.into().into_frames();
        if body.is_empty() {
            return Err(Status::invalid_argument("the request has no frame"));
        }
        let deadline = clock::after(clock::now(), self.timeout);
        self.number = self.number.wrapping_add(1);
        let number = Bytes::copy_from_slice(&self.number.to_be_bytes());
        let mut exchanges = JoinSet::new();
        for server in &self.servers {
            let request = Message::from([&[Bytes::new(), number.clone()], &*body].concat());
            exchanges.spawn(exchange(server.clone(), request, number.clone()));
        }
        let first = async {
            loop {
                match exchanges.join_next().await {
                    Some(Ok(Some(reply))) => return Some(reply),
                    Some(_) => {}
                    None => return None,
                }
            }
        };
        if let Ok(Some(reply)) = timeout_at(deadline.into(), first).await {
            self.stats.replies += 1;
            return Ok(reply);
        }
        self.stats.failures += 1;
        let text = format!("none of {} servers replied within {:?}", self.servers.len(), self.timeout);
        Err(Status::deadline_exceeded(text).with_retry(Retry::IfIdempotent))
    }

    /// Returns the counters.
    pub fn stats(&self) -> ShotgunStats {
        self.stats.clone()
    }
}

/// Sends a request once the server is connected, and returns its reply without those of earlier requests. `None` if
/// the socket is closed.
async fn exchange(server: Dealer, request: Message, number: Bytes) -> Option<Message> {
    server.send(request).await.ok()?;
    loop {
        let mut frames = server.recv().await.ok()?.into_frames();
        if matches!(&*frames, [empty, known, _, ..] if empty.is_empty() && *known == number) {
            frames.drain(..2);
            return Some(Message::from(frames));
        }
    }
}

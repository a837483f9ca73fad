//! A connection to the broker: a DEALER socket, and a task that passes its replies to their requests.

use super::super::command::{self, ToClient};
use crate::{route::GONE, task::Task};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Dealer, Message, SocketOptions};
use switchboard_wire::{Code, Status};
use tokio::sync::mpsc;

/// Replies of a request that wait for the program; a request with more of them fails.
const REPLIES_MAX: usize = 256;

/// Bytes of the replies of a request that wait for the program; a request with more of them fails.
const REPLIES_BYTES_MAX: usize = 16 << 20;

/// Counters of a client.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicUsize,
    pub(super) failures: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) replies_dropped: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) timeouts: AtomicU64,
}

impl Counts {
    pub(super) fn failed(&self, failure: &Status) {
        let counter = if failure.code() == Code::DeadlineExceeded { &self.timeouts } else { &self.failures };
        counter.fetch_add(1, Relaxed);
    }
}

/// Handle of a connection. The connection closes when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Shared {
    dealer: Dealer,
    /// Outstanding requests. Without the extension there is one, and its tag is not sent.
    pending: Mutex<HashMap<u64, Pending>>,
    is_open: AtomicBool,
    counts: Arc<Counts>,
}

/// An outstanding request.
#[derive(Debug)]
struct Pending {
    replies: mpsc::Sender<Event>,
    /// Bytes of the replies that wait for the program.
    waiting_bytes: Arc<AtomicUsize>,
}

/// Replies to a request.
#[derive(Debug)]
pub(super) struct Events {
    events: mpsc::Receiver<Event>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Reply, or reason without one.
#[derive(Debug)]
pub(super) enum Event {
    ConnectionLost,
    Reply(ToClient),
}

impl Connection {
    pub(super) async fn open(
        endpoint: &str,
        options: &SocketOptions,
        counts: &Arc<Counts>,
    ) -> Result<Connection> {
        let dealer = Dealer::with_options(options.clone())?;
        dealer.connect_to(endpoint).await?;
        counts.connections.fetch_add(1, Relaxed);
        let shared = Arc::new(Shared {
            dealer,
            pending: Mutex::default(),
            is_open: AtomicBool::new(true),
            counts: counts.clone(),
        });
        let task = Arc::new(Task::spawn(run(shared.clone())));
        Ok(Connection { shared, _task: task })
    }

    /// Returns false once the socket is closed, such as with its runtime.
    pub(super) fn is_open(&self) -> bool {
        self.shared.is_open.load(Relaxed)
    }

    /// Registers a request; returns its tag and its replies.
    pub(super) fn expect(&self, is_tagged: bool) -> (u64, Events) {
        let (replies, events) = mpsc::channel(REPLIES_MAX);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let mut pending = self.shared.pending();
        let mut tag = 0;
        if is_tagged {
            tag = clock::random();
            while pending.contains_key(&tag) {
                tag = clock::random();
            }
        }
        pending.insert(tag, Pending { replies, waiting_bytes: waiting_bytes.clone() });
        (tag, Events { events, waiting_bytes })
    }

    /// Ends a request.
    pub(super) fn forget(&self, tag: u64) {
        self.shared.pending().remove(&tag);
    }

    /// Sends a message once the connection is established and has room.
    pub(super) async fn send(&self, message: Message) -> Result<()> {
        Ok(self.shared.dealer.send(message).await?)
    }
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, HashMap<u64, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, message: Message) {
        let frames = message.into_frames();
        if matches!(&*frames, [only] if &**only == GONE) {
            let pending = std::mem::take(&mut *self.pending());
            for request in pending.into_values() {
                // Without room the request fails when it has taken the replies before.
                let _ = request.replies.try_send(Event::ConnectionLost);
            }
            return;
        }
        let is_taken = match command::read_to_client(frames) {
            Ok(reply) => self.pass(reply),
            Err(rule) => {
                tracing::debug!(target: "switchboard::pattern", rule, "majordomo: invalid reply");
                false
            }
        };
        if !is_taken {
            self.counts.replies_dropped.fetch_add(1, Relaxed);
        }
    }

    /// Passes a reply to its request. Returns false if it has none.
    fn pass(&self, reply: ToClient) -> bool {
        let mut pending = self.pending();
        let tag = reply.tagged.map_or(0, |tagged| tagged.tag);
        let is_final = reply.is_final;
        let Some(request) = pending.get(&tag) else { return false };
        let bytes = reply.bytes();
        let waiting = request.waiting_bytes.load(Relaxed);
        // One reply may be larger: the limit of messages applies to it.
        let has_room = waiting == 0 || waiting.saturating_add(bytes) <= REPLIES_BYTES_MAX;
        if has_room {
            request.waiting_bytes.fetch_add(bytes, Relaxed);
        }
        let is_taken = has_room && request.replies.try_send(Event::Reply(reply)).is_ok();
        if is_final || !is_taken {
            // Its end without a final reply is an error for the request.
            pending.remove(&tag);
        }
        is_taken
    }
}

impl Events {
    /// Receives the next event; `None` once the request has failed. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await?;
        if let Event::Reply(reply) = &event {
            self.waiting_bytes.fetch_sub(reply.bytes(), Relaxed);
        }
        Some(event)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.counts.connections.fetch_sub(1, Relaxed);
    }
}

/// Passes replies until the socket is closed.
async fn run(shared: Arc<Shared>) {
    while let Ok(message) = shared.dealer.recv().await {
        shared.receive(message);
    }
    shared.is_open.store(false, Relaxed);
    shared.pending().clear();
}

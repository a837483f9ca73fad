//! Server push: messages that a server sends without a request, on the connection that its client has opened.
//!
//! A handler takes the [`Pusher`] of its call and keeps it; a client's channel delivers messages to
//! [`Pushes`]. Neither side waits: if the peer does not keep up, the server rejects further messages, and the
//! client drops them.

use crate::{
    Result,
    forward::{Forward, ForwardEntry},
};
use futures_core::Stream;
use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Poll, Waker},
};
pub use switchboard_wire::wire::Push;
use switchboard_wire::{Retry, Status, wire::PushLimits};
use tokio::sync::Notify;

/// Maximum bytes of messages of a channel that wait for their reader.
const UNREAD_BYTES_MAX: usize = 1 << 20;
/// Queued bytes up to which forwarded entries are added: more entries stay in their log.
const FORWARD_BYTES: usize = 64 << 10;

/// Sends push messages to the peer of a call, during the call and after it, as long as its connection lives.
/// Obtained from [`Cx::pusher`](crate::Cx::pusher); clones send to the same connection.
#[derive(Clone)]
pub struct Pusher(Arc<Outgoing>);

/// Queue of messages to one peer.
pub(crate) struct Outgoing {
    /// Wakes the task of the connection.
    task: Waker,
    waiting: Mutex<Waiting>,
    /// Set if `waiting` is not empty.
    any: AtomicBool,
    limits: switchboard_wire::Limits,
    wire_limits: PushLimits,
    /// Maximum number of queued bytes.
    bytes_max: usize,
    /// Wakes forwarded subscriptions when there is room for their entries, and at the end.
    room: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Push>,
    bytes: usize,
    /// The connection has ended.
    closed: bool,
}

impl Pusher {
    #[doc(hidden)]
    pub fn new(task: Waker, limits: &crate::Limits, wire_limits: PushLimits) -> Pusher {
        Pusher(Arc::new(Outgoing {
            task,
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            limits: limits.wire(),
            wire_limits,
            bytes_max: limits.outbox_bytes_max(),
            room: Notify::new(),
        }))
    }

    /// Queues a message after earlier ones. It does not wait, and there is no acknowledgement.
    ///
    /// # Errors
    /// `Unavailable` once the connection has ended; `ResourceExhausted` if the peer does not read earlier
    /// messages (`outbox_bytes_max`), or if the message or metadata exceeds the limits of the listener or of
    /// the wire; `InvalidArgument` for a path of more than 254 bytes on eRPC, and 1 KiB on rpcx.
    pub fn push(&self, push: Push) -> Result<()> {
        self.0.check(&push)?;
        let waiting = self.0.lock();
        if waiting.closed {
            return Err(closed());
        }
        let (bytes, max) = (waiting.bytes, self.0.bytes_max);
        if bytes >= max {
            let text = format!(
                "{bytes} bytes wait for a peer that does not read, over the limit of {max} bytes (outbox_bytes_max)"
            );
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        self.0.append(waiting, push);
        Ok(())
    }

    /// Pushes the entries of a subscription until it ends, each with the name of its topic as the path, and with the
    /// message and the codec of its publication.
    ///
    /// The next entry is read when less than 64 KiB wait for the peer, or less than `outbox_bytes_max`. A peer that
    /// reads slowly therefore holds no more than that and one entry for each `forward`, and its cursor falls behind in
    /// the log, where the options of the topic apply. An entry of a group that acknowledges is acknowledged when it is
    /// queued.
    ///
    /// Ends with `Ok` when the subscription ends. Spawn it: it has no end of its own before that of the connection.
    /// Cancel safe, as [`Sender::forward`](crate::Sender::forward).
    ///
    /// # Errors
    /// `Unavailable` once the connection has ended, the errors of the subscription, `DataLoss` for entries that are
    /// missing, and those of [`push`](Self::push) for an entry over the limits of the peer.
    pub async fn forward<F: Forward>(&self, source: F) -> Result<()> {
        let mut entries = pin!(source.entries().await?);
        let room = FORWARD_BYTES.min(self.0.bytes_max);
        loop {
            // Registered before the queue is checked: a change in between is not missed.
            let mut changed = pin!(self.0.room.notified());
            changed.as_mut().enable();
            let has_room = {
                let waiting = self.0.lock();
                if waiting.closed {
                    return Err(closed());
                }
                waiting.bytes < room
            };
            let next = poll_fn(|cx| {
                if has_room && let Poll::Ready(entry) = entries.as_mut().poll_next(cx) {
                    return Poll::Ready(Some(entry));
                }
                changed.as_mut().poll(cx).map(|()| None)
            });
            let Some(entry) = next.await else { continue };
            let Some(entry) = entry.transpose()? else { return Ok(()) };
            let (codec, message) = entry.encoded();
            let push = Push::new(entry.topic(), message.clone()).with_codec(codec);
            self.0.check(&push)?;
            let waiting = self.0.lock();
            if waiting.closed {
                return Err(closed());
            }
            self.0.append(waiting, push);
            entry.forwarded();
        }
    }

    /// Returns whether the connection has ended, so that pushing fails.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Returns whether messages are queued.
    #[inline]
    #[doc(hidden)]
    pub fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Takes the next message for the peer.
    #[doc(hidden)]
    pub fn next(&self) -> Option<Push> {
        let mut waiting = self.0.lock();
        let push = waiting.queue.pop_front();
        let (before, room) = (waiting.bytes, FORWARD_BYTES.min(self.0.bytes_max));
        waiting.bytes -= push.as_ref().map_or(0, Push::memory_bytes);
        let has_room = before >= room && waiting.bytes < room;
        self.0.any.store(!waiting.queue.is_empty(), Ordering::Release);
        drop(waiting);
        if has_room {
            self.0.room.notify_waiters();
        }
        push
    }

    /// Returns the number of queued bytes.
    #[doc(hidden)]
    pub fn queued_bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Closes the queue at the end of the connection.
    #[doc(hidden)]
    pub fn close(&self) {
        let mut waiting = self.0.lock();
        *waiting = Waiting { closed: true, ..Waiting::default() };
        self.0.any.store(false, Ordering::Release);
        drop(waiting);
        self.0.room.notify_waiters();
    }
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a message, and wakes the task of the connection for the first one.
    fn append(&self, mut waiting: MutexGuard<'_, Waiting>, push: Push) {
        waiting.bytes += push.memory_bytes();
        waiting.queue.push_back(push);
        let first = waiting.queue.len() == 1;
        self.any.store(true, Ordering::Release);
        drop(waiting);
        if first {
            self.task.wake_by_ref();
        }
    }

    fn check(&self, push: &Push) -> Result<()> {
        let (path, max) = (push.path.len(), self.wire_limits.path);
        if path > max {
            let text = format!("a path of {path} bytes is over the {max} bytes of the wire");
            return Err(Status::invalid_argument(text));
        }
        let (metadata, max) = (push.metadata.encoded_len(), self.wire_limits.metadata);
        if metadata > max {
            let text = format!("metadata of {metadata} bytes is over the {max} bytes of the wire");
            return Err(Status::resource_exhausted(text));
        }
        for (what, bytes, max, limit) in [
            ("a message", push.message.len(), self.limits.message_bytes_max, "message_bytes_max"),
            ("metadata", metadata, self.limits.metadata_bytes_max, "metadata_bytes_max"),
        ] {
            if bytes > max as usize {
                let text = format!("{what} of {bytes} bytes is over the limit of {max} bytes ({limit})");
                return Err(Status::resource_exhausted(text));
            }
        }
        Ok(())
    }
}

fn closed() -> Status {
    Status::unavailable("the connection has ended")
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Receives the push messages of a channel's servers; `ChannelBuilder::pushes` connects it.
///
/// Clones read from the same queue; each message is delivered once. A channel that has lost its connection
/// opens a new one only with its next call, so servers can push only to clients that are connected.
#[derive(Clone, Default)]
pub struct Pushes(Arc<Unread>);

#[derive(Default)]
struct Unread {
    waiting: Mutex<Waiting>,
    lost: AtomicU64,
    came: Notify,
}

impl Pushes {
    /// Creates an empty queue.
    pub fn new() -> Pushes {
        Pushes::default()
    }

    /// Waits for the next message. Cancel safe.
    pub async fn next(&self) -> Push {
        loop {
            if let Some(push) = self.take() {
                return push;
            }
            self.0.came.notified().await;
        }
    }

    /// Returns the number of messages that were dropped because 1 MiB of messages was already queued.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<Push> {
        let mut waiting = self.lock();
        let push = waiting.queue.pop_front()?;
        waiting.bytes -= push.memory_bytes();
        if !waiting.queue.is_empty() {
            // Wakes another reader, because notifications are not counted.
            self.0.came.notify_one();
        }
        Some(push)
    }

    /// Queues a message for the reader, or drops it.
    #[doc(hidden)]
    pub fn put(&self, push: Push) {
        let mut waiting = self.lock();
        if waiting.bytes >= UNREAD_BYTES_MAX {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += push.memory_bytes();
        waiting.queue.push_back(push);
        drop(waiting);
        self.0.came.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushes").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, limits::Source};
    use switchboard_wire::Code;

    const WIRE_LIMITS: PushLimits = PushLimits { path: 254, metadata: 17_000 };

    #[test]
    fn a_peer_that_does_not_read_is_sent_no_more() {
        let mut limits = crate::Limits::default();
        limits.set(Limit::OutboxBytesMax, 65_536, Source::Listener).unwrap();
        let pusher = Pusher::new(Waker::noop().clone(), &limits, WIRE_LIMITS);
        let one = Push::new("News/Flash", vec![0; 40_000]);
        for _ in 0..2 {
            pusher.push(one.clone()).unwrap();
        }
        let status = pusher.push(one.clone()).unwrap_err();
        assert_eq!((status.code(), status.retry()), (Code::ResourceExhausted, Retry::Safe));
        assert!(pusher.any() && pusher.queued_bytes() > 80_000);
        assert_eq!(pusher.next(), Some(one.clone()));
        pusher.push(one).unwrap();
        pusher.close();
        assert_eq!((pusher.any(), pusher.queued_bytes(), pusher.next()), (false, 0, None));
        let status = pusher.push(Push::new("News/Flash", "")).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }

    #[test]
    fn messages_over_a_limit_are_rejected() {
        let pusher = Pusher::new(Waker::noop().clone(), &crate::Limits::default(), WIRE_LIMITS);
        let metadata = |bytes: usize| {
            let mut metadata = switchboard_wire::Metadata::new();
            metadata.insert("large", vec![b'x'; bytes]).unwrap();
            metadata
        };
        for (push, code) in [
            (Push::new("n".repeat(255), ""), Code::InvalidArgument),
            (Push::new("a/b", vec![0; (4 << 20) + 1]), Code::ResourceExhausted),
            (Push::new("a/b", "").with_metadata(metadata(16_500)), Code::ResourceExhausted),
            (Push::new("a/b", "").with_metadata(metadata(17_500)), Code::ResourceExhausted),
        ] {
            assert_eq!(pusher.push(push).unwrap_err().code(), code);
        }
        assert!(!pusher.any());
    }

    #[tokio::test]
    async fn readers_share_the_queue_and_excess_messages_are_dropped() {
        let pushes = Pushes::new();
        let readers: Vec<_> = (0..2).map(|_| pushes.clone()).collect();
        let readers: Vec<_> =
            readers.into_iter().map(|pushes| tokio::spawn(async move { pushes.next().await })).collect();
        tokio::task::yield_now().await;
        pushes.put(Push::new("a", "1"));
        pushes.put(Push::new("a", "2"));
        let mut heard = Vec::new();
        for reader in readers {
            heard.push(reader.await.unwrap().message);
        }
        heard.sort();
        assert_eq!(heard, ["1", "2"]);
        for _ in 0..5 {
            pushes.put(Push::new("a", vec![0; 300_000]));
        }
        assert_eq!(pushes.lost(), 1);
        assert_eq!(pushes.next().await.message.len(), 300_000);
    }
}

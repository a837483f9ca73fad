//! State of a socket, shared by its handles, the tasks of its connections, and its inproc peers.
//!
//! ```text
//! send ─► [sending: select a peer, encode] ─► pending ─► task of the connection ══► peer
//! recv ◄─ [consumer: next lane] ◄─ lane ◄─ task of the connection ◄══ peer
//! ```
//!
//! Cost of a message to a connection: one lock of `sending`, a copy of its bytes into the pending batch, its end in a
//! list. The task of the connection takes the whole batch with one lock and writes it with one system call. Cost of a
//! received message: one lock of the consumer and a reference count; the task of the connection takes the lock of a
//! lane once per read of up to 64 KiB. An inproc message takes the two locks of its sender and the one of its receiver.
//! A publisher encodes a small message once; it costs each subscriber a comparison and its end in a list.
//!
//! Order of locks: names of inproc, consumer, turn, sending, filter or lane, arrivals. `sending` of another socket is
//! locked with none of the own locks but the consumer held. An inproc message is added to the lane and the arrivals of
//! its receiver with `sending` of its sender held. Wakers are called without `sending`.

mod attach;
mod batch;
mod exchange;
mod filter;
mod inbox;
mod lane;
mod peer;
mod publish;
mod receive;
mod segments;
mod send;
mod spin;
mod stats;
mod stream;
mod subscribe;
mod turn;

pub use stats::{PeerStats, SocketStats};

pub(crate) use attach::{Attach, Attached};
pub(crate) use batch::Batch;
pub(crate) use peer::{Command, PeerMetadata};

use crate::{
    Endpoint, Error, ErrorKind, PeerId, Result, SocketOptions,
    monitor::{Event, Monitors},
};
use bytes::Bytes;
use filter::Filter;
use inbox::Inbox;
use peer::Peers;
use segments::Segments;
use spin::Spin;
use std::{
    collections::{BTreeMap, HashMap},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};
use switchboard_core::clock;
use switchboard_wire::zmtp::{
    Limits, Properties, Settings, SocketType,
    patterns::{Rotation, Routes, Subscriptions},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore, watch},
};
use turn::Turn;

/// State of a socket.
#[derive(Debug)]
pub(crate) struct Core {
    this: Weak<Core>,
    /// Process that created the socket.
    process: u32,
    pub(crate) kind: SocketType,
    pub(crate) options: SocketOptions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) inbox: Inbox,
    /// Wakes senders that wait for room or for a peer.
    pub(crate) room: Notify,
    sending: Mutex<Sending>,
    turn: Mutex<Turn>,
    filter: Mutex<Filter>,
    pub(crate) monitors: Monitors,
    pub(crate) phase: watch::Sender<Phase>,
    /// Number of tasks of this socket.
    tasks: watch::Sender<usize>,
    pub(crate) endpoints: Mutex<Vec<Attachment>>,
    pub(crate) runtime: Handle,
    /// Permits of accepted connections whose handshake is not complete.
    pub(crate) handshakes: Arc<Semaphore>,
    /// A queue that drops messages is half full or full: the sender yields, so that the tasks of connections run.
    pub(crate) should_yield: AtomicBool,
    /// A peer is in this process.
    pub(crate) has_inproc: AtomicBool,
    /// Sends that wait for room or for a peer, each with one message.
    pub(crate) waiting_sends: AtomicUsize,
    /// Number of times that a full inproc peer got room.
    resumed: AtomicU32,
    /// Waits for room at inproc peers.
    spin: Spin,
}

/// State of a socket: open, or closing with a deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Unsent messages are written until this time; forever if there is none.
    Closing(Option<Instant>),
    Open,
}

/// An endpoint that is bound or connected.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) endpoint: Endpoint,
    pub(crate) is_bound: bool,
    /// Ends the task of the endpoint. The value is the time at which it was stopped.
    pub(crate) stop: watch::Sender<Option<Instant>>,
    /// Peer of a connecting endpoint that keeps messages while it is not connected.
    pub(crate) peer: Option<PeerId>,
    /// Releases the name of an inproc endpoint that is bound, or that waits to be bound.
    pub(crate) release: fn(&str, &Weak<Core>) -> bool,
}

/// Peers, and the state by which messages are passed to them.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) peers: Peers,
    /// Peers to which PUSH, DEALER, REQ and PAIR send.
    pub(crate) rotation: Rotation<PeerId>,
    pub(crate) routes: Routes<PeerId>,
    /// Subscriptions of the peers of PUB and XPUB.
    pub(crate) subscribers: Subscriptions<PeerId>,
    /// Groups that the peers of RADIO joined.
    pub(crate) groups: HashMap<Bytes, Vec<PeerId>>,
    /// Subscriptions of this SUB or XSUB, or groups of this DISH, with the number of each.
    pub(crate) wanted: BTreeMap<Bytes, u32>,
    pub(crate) is_closing: bool,
    /// Messages that were dropped, for peers that are gone and for unknown ones too.
    pub(crate) dropped: u64,
    /// A drop for an unknown routing id was reported.
    pub(crate) is_dropping: bool,
    matching: Vec<PeerId>,
    /// The only subscriber of the next message, with the option `subscriptions.manual_last_value`.
    next_only_to: Option<PeerId>,
    /// Small messages of publishers.
    segments: Segments,
}

impl Core {
    /// Creates the state of a socket on the runtime of this thread.
    pub(crate) fn new(kind: SocketType, options: SocketOptions) -> Result<Arc<Core>> {
        options.check(kind)?;
        let runtime = Handle::try_current().map_err(|_| {
            let text = format!("{kind} needs a runtime of tokio: create it inside of one, or use `blocking`");
            Error::new(ErrorKind::State, text)
        })?;
        let settings = Arc::new(settings(kind, &options)?);
        let mut routes = Routes::new(clock::random() as u32);
        if options.routing.handover {
            routes = routes.with_handover();
        }
        let sending = Sending {
            peers: Peers::default(),
            rotation: Rotation::new(),
            routes,
            subscribers: Subscriptions::new(options.limits.subscriptions_max),
            groups: HashMap::new(),
            wanted: BTreeMap::new(),
            is_closing: false,
            dropped: 0,
            is_dropping: false,
            matching: Vec::new(),
            next_only_to: None,
            segments: Segments::default(),
        };
        Ok(Arc::new_cyclic(|this| Core {
            this: this.clone(),
            process: std::process::id(),
            kind,
            settings,
            inbox: Inbox::default(),
            room: Notify::new(),
            sending: Mutex::new(sending),
            turn: Mutex::new(Turn::new(kind, &options.requests)),
            filter: Mutex::new(Filter::new(options.subscriptions.invert_matching)),
            monitors: Monitors::default(),
            phase: watch::channel(Phase::Open).0,
            tasks: watch::channel(0).0,
            endpoints: Mutex::default(),
            runtime,
            handshakes: Arc::new(Semaphore::new(options.limits.handshakes_max.min(Semaphore::MAX_PERMITS))),
            should_yield: AtomicBool::new(false),
            has_inproc: AtomicBool::new(false),
            waiting_sends: AtomicUsize::new(0),
            resumed: AtomicU32::new(0),
            spin: Spin::default(),
            options,
        }))
    }

    /// Checks that no fork has separated this process from the threads of the socket, before a call that waits.
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] in a fork.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text =
            format!("{} belongs to the process {}: create sockets after a fork", self.kind, self.process);
        Err(Error::new(ErrorKind::State, text))
    }

    pub(crate) fn this(&self) -> &Weak<Core> {
        &self.this
    }

    pub(crate) fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn endpoints(&self) -> MutexGuard<'_, Vec<Attachment>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spawns a task of this socket. A future that is not `Unpin` is passed in a box.
    pub(crate) fn spawn(self: &Arc<Core>, task: impl Future + Send + Unpin + 'static) {
        self.runtime.spawn(CountedTask { task, _count: TaskCount::new(self.clone()) });
    }

    /// Puts a peer with room back into the rotation, and wakes the senders.
    pub(crate) fn resume(&self, peer: PeerId) {
        {
            let mut sending = self.sending();
            let sending = &mut *sending;
            if let Some(peer) = sending.peers.find(peer) {
                peer.is_suspended = false;
                peer.is_dropping = false;
            }
            sending.rotation.resume(peer);
        }
        self.resumed.fetch_add(1, Ordering::Release);
        self.room.notify_waiters();
    }

    /// Begins to close: endpoints end, and connections write what they have.
    pub(crate) fn close(self: &Arc<Core>) {
        // Closing counts as a task: the monitors end after its events.
        let _counted = TaskCount::new(self.clone());
        let deadline = self.linger_end(clock::now());
        let is_first = self.phase.send_if_modified(|phase| {
            let is_open = *phase == Phase::Open;
            if is_open {
                *phase = Phase::Closing(deadline);
            }
            is_open
        });
        if !is_first {
            return;
        }
        let endpoints = std::mem::take(&mut *self.endpoints());
        for attachment in endpoints {
            attachment.stop.send_replace(Some(clock::now()));
            self.release(&attachment);
            self.monitors.emit(|| Event::Closed { endpoint: attachment.endpoint.to_string() });
        }
        let (wakers, inproc) = {
            let mut sending = self.sending();
            sending.is_closing = true;
            sending.leave()
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
        for (core, peer) in inproc {
            if let Some(core) = core.upgrade() {
                core.detach(peer, Batch::default(), "the other socket was closed");
            }
        }
        self.room.notify_waiters();
        self.inbox.readable.notify_waiters();
    }

    /// Waits until all tasks of the socket have ended.
    pub(crate) async fn ended(&self) {
        let mut tasks = self.tasks.subscribe();
        // The sender is a part of this socket, so the channel is open.
        let _ = tasks.wait_for(|count| *count == 0).await;
    }

    /// Waits until the socket closes, then until its unsent messages are out of time.
    pub(crate) async fn out_of_time(&self) {
        let mut phase = self.phase.subscribe();
        let closing = phase.wait_for(|phase| *phase != Phase::Open).await.map(|phase| *phase);
        match closing {
            Ok(Phase::Closing(Some(deadline))) => tokio::time::sleep_until(deadline.into()).await,
            _ => std::future::pending().await,
        }
    }

    /// Releases the name of an inproc endpoint; returns false if the endpoint has none.
    fn release(&self, attachment: &Attachment) -> bool {
        match &attachment.endpoint {
            Endpoint::Inproc(name) => (attachment.release)(name, &self.this),
            _ => false,
        }
    }

    /// Ends an endpoint; returns false if there is none.
    pub(crate) fn end_endpoint(&self, endpoint: &Endpoint, is_bound: bool) -> bool {
        let attachment = {
            let mut endpoints = self.endpoints();
            let at = endpoints.iter().position(|attachment| {
                attachment.endpoint.is_same(endpoint) && attachment.is_bound == is_bound
            });
            at.map(|at| endpoints.swap_remove(at))
        };
        let Some(attachment) = attachment else { return false };
        if let Some(peer) = attachment.peer {
            // No further messages for it. Those that wait have the time of linger.
            self.retire(peer);
        }
        attachment.stop.send_replace(Some(clock::now()));
        let is_released = self.release(&attachment);
        if !is_bound && !is_released {
            self.disconnect_inproc(endpoint);
        }
        self.monitors.emit(|| Event::Closed { endpoint: endpoint.to_string() });
        true
    }

    /// Returns the time at which unsent messages of an endpoint that was stopped are dropped; `None` means never.
    pub(crate) fn linger_end(&self, stopped: Instant) -> Option<Instant> {
        self.options.timeouts.linger.map(|linger| clock::after(stopped, linger))
    }
}

/// A task of a socket. An async block would have room for the future twice.
struct CountedTask<T> {
    task: T,
    /// Dropped after the task.
    _count: TaskCount,
}

impl<T: Future + Unpin> Future for CountedTask<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.task).poll(cx).map(drop)
    }
}

/// Counts a task until it ends.
struct TaskCount(Arc<Core>);

impl TaskCount {
    fn new(core: Arc<Core>) -> TaskCount {
        core.tasks.send_modify(|count| *count += 1);
        TaskCount(core)
    }
}

impl Drop for TaskCount {
    fn drop(&mut self) {
        let core = &self.0;
        let mut is_last = false;
        core.tasks.send_modify(|count| {
            *count -= 1;
            is_last = *count == 0;
        });
        if is_last && *core.phase.borrow() != Phase::Open {
            core.monitors.end();
        }
    }
}

/// Returns the settings of the connections.
fn settings(kind: SocketType, options: &SocketOptions) -> Result<Settings> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    let mut properties = Properties::new();
    for (name, value) in &options.metadata {
        properties.insert(name, value.clone()).map_err(|why| invalid(format!("option metadata: {why}")))?;
    }
    let limits = Limits {
        frame_bytes_max: options.limits.message_bytes_max,
        message_bytes_max: options.limits.message_bytes_max,
        message_frames_max: options.limits.message_frames_max,
        ..Limits::default()
    };
    Settings::new(kind)
        .with_limits(limits)
        .with_mechanism(options.security.mechanism())
        .with_properties(properties)
        .with_identity(options.routing.routing_id.clone())
        .map_err(|why| invalid(format!("option routing.routing_id: {why}")))
}

//! The memory that an HTTP connection holds for its peer, reported to the server's memory budget, and the pauses of the
//! connection under memory pressure.
//!
//! | part | counted |
//! | --- | --- |
//! | unread | bytes of bodies that wait in hyper: from the socket until a reader takes them |
//! | requests | bodies while they are collected, messages until their call ends, queues of streams |
//! | replies | until the socket has taken them: hyper drops a piece then |
//!
//! Under memory pressure, if a connection holds more than the read limit, its requests do not begin and its streams of
//! replies wait. Its socket is not read either, unless the excess is replies; then HTTP/2 grants no window. The
//! connection still reads a little from time to time, because window updates and cancellations of the peer arrive
//! there.

use crate::http::HttpState;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};
use switchboard_core::memory::{LARGE, PAUSE, Pressure, ReportedBytes, Restrictions};
use switchboard_driver::serving::going_away;
use switchboard_net::connection::Wakes;
use switchboard_wire::{MethodId, Status};
use tokio::time::Sleep;

/// Smaller changes are not reported, and smaller pieces are counted together with later ones.
pub(super) const CHANGE: usize = ReportedBytes::CHANGE_MIN;
/// Bodies over this size are refused under severe memory pressure.
const BODY_MAX: usize = 64 << 10;
/// Aborted requests that have no response yet. A peer with more of them at once gets a less exact reason for the
/// oldest.
const ABORTED_MAX: usize = 64;

/// Timer after which the budget is checked again.
pub(super) type Pause = Option<Pin<Box<Sleep>>>;

/// The memory that one connection holds.
pub(super) struct ConnectionMemory {
    shared: Arc<HttpState>,
    wakes: Arc<Wakes>,
    /// Bytes by [`Part`].
    parts: [AtomicUsize; 3],
    paused: AtomicBool,
    unread: Mutex<Unread>,
    /// Most bytes that hyper keeps unread.
    unread_max: usize,
    /// The last number of a request.
    requests: AtomicU64,
    /// The latest aborted requests, with their statuses; `has_aborted` is set while there are any.
    aborted: Mutex<VecDeque<(u64, Status)>>,
    has_aborted: AtomicBool,
    /// A request has begun.
    has_requests: AtomicBool,
    /// Wakers of tasks that wait for more of a body, by the body's number.
    waiting: Mutex<BTreeMap<u64, Waker>>,
}

#[derive(Clone, Copy)]
enum Part {
    Unread,
    Requests,
    Replies,
}

#[derive(Default)]
struct Unread {
    bytes: usize,
    reported: ReportedBytes,
    /// Bodies that have not ended.
    bodies: usize,
    /// Waker of the task that reads the socket, while it is paused.
    reader: Option<Waker>,
}

impl ConnectionMemory {
    pub(super) fn new(shared: Arc<HttpState>, wakes: Arc<Wakes>, unread_max: usize) -> Arc<ConnectionMemory> {
        Arc::new(ConnectionMemory {
            shared,
            wakes,
            parts: Default::default(),
            paused: AtomicBool::new(false),
            unread: Mutex::default(),
            unread_max,
            requests: AtomicU64::new(0),
            aborted: Mutex::default(),
            has_aborted: AtomicBool::new(false),
            has_requests: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    pub(super) fn shared(&self) -> &Arc<HttpState> {
        &self.shared
    }

    /// Records that a request begins.
    pub(super) fn begin_request(&self) {
        self.has_requests.store(true, Relaxed);
    }

    /// Returns whether any request has begun.
    pub(super) fn has_requests(&self) -> bool {
        self.has_requests.load(Relaxed)
    }

    /// Counts a call that waits in its handler.
    pub(super) fn park(&self) {
        self.wakes.park_stream();
    }

    /// Counts a call that no longer waits.
    pub(super) fn unpark(&self) {
        self.wakes.unpark_stream();
    }

    /// Wakes the reader of every incomplete body, so that it checks whether the server aborts the remaining calls.
    pub(super) fn end_bodies(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.into_values().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an empty charge for requests.
    pub(super) fn charge(self: &Arc<ConnectionMemory>) -> MemoryCharge {
        MemoryCharge {
            connection_memory: self.clone(),
            part: Part::Requests,
            reported: ReportedBytes::default(),
        }
    }

    /// Returns a piece of a reply; the piece and `before` bytes that precede it are counted until the last reference to
    /// the piece is dropped.
    pub(super) fn counted(self: &Arc<ConnectionMemory>, bytes: Bytes, before: usize) -> Bytes {
        let mut charge = MemoryCharge {
            connection_memory: self.clone(),
            part: Part::Replies,
            reported: ReportedBytes::default(),
        };
        charge.set(bytes.len() + before);
        Bytes::from_owner(MeteredBytes { bytes, _charge: charge })
    }

    fn change(&self, part: Part, before: usize, now: usize) {
        let part = &self.parts[part as usize];
        if now > before {
            part.fetch_add(now - before, Relaxed);
        } else {
            part.fetch_sub(before - now, Relaxed);
        }
        self.shared.memory.change(before, now);
        self.wakes.set_held(self.total());
        if now < before && self.paused.load(Relaxed) {
            self.look();
        }
    }

    fn total(&self) -> usize {
        self.parts.iter().map(|part| part.load(Relaxed)).sum()
    }

    fn part(&self, part: Part) -> usize {
        self.parts[part as usize].load(Relaxed)
    }

    /// Returns the restrictions, and updates whether the connection counts as paused.
    fn look(&self) -> Restrictions {
        let was_paused = self.paused.load(Relaxed);
        let restrictions = self.shared.memory.restrictions(was_paused);
        if restrictions.pressure != Pressure::Normal || was_paused {
            let paused = restrictions.pressure != Pressure::Normal && self.total() > restrictions.read_limit;
            if self.paused.swap(paused, Relaxed) != paused {
                self.shared.memory.pause(paused);
                self.wakes.set_paused(paused);
            }
        }
        restrictions
    }

    /// Ready when a request may begin. Calls that have begun continue; otherwise no memory would be released.
    pub(super) fn poll_begin(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
        self.poll_memory(cx, pause, |restrictions| {
            self.part(Part::Requests) + self.part(Part::Replies) > restrictions.read_limit
        })
    }

    /// Ready when a stream may send its next message.
    pub(super) fn poll_reply(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
        self.poll_memory(cx, pause, |restrictions| {
            self.part(Part::Replies)
                > if restrictions.pressure == Pressure::Exhausted { 0 } else { restrictions.read_limit }
        })
    }

    /// Ready when the wait ends. It checks again at intervals, for which it needs the timer.
    fn poll_memory(
        &self,
        cx: &mut Context<'_>,
        pause: &mut Pause,
        waits: impl Fn(Restrictions) -> bool,
    ) -> Poll<()> {
        loop {
            let restrictions = self.look();
            if restrictions.pressure == Pressure::Normal || !waits(restrictions) {
                *pause = None;
                return Poll::Ready(());
            }
            ready!(poll_pause(cx, pause));
        }
    }

    /// Ready when the socket may be read.
    ///
    /// # Errors
    /// The memory budget is exhausted and too many bytes of bodies are unread: the connection must end.
    #[inline]
    pub(super) fn poll_read(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<io::Result<()>> {
        let restrictions = self.look();
        if restrictions.pressure == Pressure::Normal {
            Poll::Ready(Ok(()))
        } else {
            self.poll_scarce(restrictions, cx, pause)
        }
    }

    #[cold]
    fn poll_scarce(
        &self,
        restrictions: Restrictions,
        cx: &mut Context<'_>,
        pause: &mut Pause,
    ) -> Poll<io::Result<()>> {
        let mut unread = self.unread();
        if restrictions.pressure == Pressure::Exhausted && unread.bytes > BODY_MAX {
            let status = self.shared.memory.aborts();
            tracing::warn!("http connection closed: {}", status.message());
            return Poll::Ready(Err(io::Error::other(status.message().to_owned())));
        }
        // The bytes that are read go into queues and bodies. Replies do not count: window updates and cancellations of
        // the peer release them.
        if unread.bytes + self.part(Part::Requests) > restrictions.read_limit {
            unread.reader = Some(cx.waker().clone());
            return poll_pause(cx, pause).map(Ok);
        }
        *pause = None;
        Poll::Ready(Ok(()))
    }

    /// Counts bytes of bodies that arrived on the socket.
    pub(super) fn came(&self, bytes: usize) {
        if bytes > 0 {
            let mut unread = self.unread();
            unread.bytes = (unread.bytes + bytes).min(self.unread_max);
            self.report(&mut unread);
        }
    }

    /// Handles a request without a body.
    pub(super) fn no_body(&self) {
        let mut unread = self.unread();
        if unread.bodies == 0 {
            unread.bytes = 0;
            self.report(&mut unread);
        }
    }

    /// Counts a body that begins.
    fn begin_body(&self) {
        self.unread().bodies += 1;
    }

    /// Counts bytes of a body that a reader took.
    fn read(&self, bytes: usize) {
        let mut unread = self.unread();
        unread.bytes = unread.bytes.saturating_sub(bytes);
        self.report(&mut unread);
    }

    /// Counts a body that ends; `bytes` were read and not yet reported.
    fn end_body(&self, bytes: usize) {
        let mut unread = self.unread();
        unread.bodies -= 1;
        // hyper has discarded the rest.
        unread.bytes = if unread.bodies == 0 { 0 } else { unread.bytes.saturating_sub(bytes) };
        self.report(&mut unread);
    }

    fn report(&self, unread: &mut Unread) {
        let bytes = unread.bytes;
        if let Some(before) = unread.reported.set(bytes) {
            self.change(Part::Unread, before, bytes);
        }
        if bytes <= LARGE
            && let Some(reader) = unread.reader.take()
        {
            reader.wake();
        }
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the status that refuses the rest of a request of which `bytes` have arrived, if memory does not suffice,
    /// and records it.
    fn aborts(&self, request: u64, bytes: usize) -> Option<Status> {
        if bytes <= BODY_MAX || self.shared.memory.restrictions(false).pressure < Pressure::Severe {
            return None;
        }
        let status = self.shared.memory.refuses_rest();
        self.note_abort(request, &status);
        Some(status)
    }

    fn note_abort(&self, request: u64, status: &Status) {
        let mut aborted = self.aborted();
        if aborted.len() == ABORTED_MAX {
            aborted.pop_front();
        }
        aborted.push_back((request, status.clone()));
        self.has_aborted.store(true, Relaxed);
    }

    /// Returns and removes the status with which the request was aborted, if it was.
    pub(super) fn take_abort(&self, request: Option<u64>) -> Option<Status> {
        if !self.has_aborted.load(Relaxed) {
            return None;
        }
        let mut aborted = self.aborted();
        let at = aborted.iter().position(|(other, _)| Some(*other) == request)?;
        let (_, status) = aborted.remove(at)?;
        self.has_aborted.store(!aborted.is_empty(), Relaxed);
        Some(status)
    }

    fn aborted(&self) -> MutexGuard<'_, VecDeque<(u64, Status)>> {
        self.aborted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        // No other object refers to it any more.
        let unread = self.unread().reported.get();
        self.shared.memory.change(unread, 0);
        if *self.paused.get_mut() {
            self.shared.memory.pause(false);
        }
    }
}

fn poll_pause(cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
    ready!(pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE))).as_mut().poll(cx));
    *pause = None;
    Poll::Ready(())
}

/// Bytes that a connection holds; dropping the charge releases them.
pub(super) struct MemoryCharge {
    connection_memory: Arc<ConnectionMemory>,
    part: Part,
    reported: ReportedBytes,
}

impl MemoryCharge {
    /// Sets the number of bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        if let Some(before) = self.reported.set(bytes) {
            self.connection_memory.change(self.part, before, bytes);
        }
    }

    /// Returns the memory of the connection.
    pub(super) fn connection_memory(&self) -> &ConnectionMemory {
        &self.connection_memory
    }

    /// Returns the status that refuses a reply of this length, if memory does not suffice for it.
    pub(super) fn drops(&self, method: MethodId, bytes: usize) -> Option<Status> {
        let memory = &self.connection_memory.shared.memory;
        let restrictions = memory.restrictions(false);
        self.notes(method, bytes);
        if bytes <= LARGE && restrictions.pressure != Pressure::Normal {
            memory.note_small(method);
        }
        (bytes > LARGE && bytes > restrictions.reply_bytes_max).then(|| memory.drops(bytes))
    }

    /// Records a call that holds this many bytes of replies.
    pub(super) fn notes(&self, method: MethodId, bytes: usize) {
        if bytes > LARGE {
            self.connection_memory.shared.memory.note(method, bytes);
        }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The owner of a counted piece.
struct MeteredBytes {
    bytes: Bytes,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for MeteredBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The memory of a body that is arriving, until it ends.
pub(super) struct BodyCharge {
    charge: MemoryCharge,
    number: u64,
    /// Bytes that wait for the rest of the body or message.
    bytes: usize,
    /// Bytes that were read and not yet reported.
    read: usize,
    has_begun: bool,
    /// Its waker is registered.
    waits: bool,
    pause: Pause,
}

impl BodyCharge {
    pub(super) fn new(connection_memory: &Arc<ConnectionMemory>) -> BodyCharge {
        connection_memory.begin_body();
        let number = connection_memory.requests.fetch_add(1, Relaxed);
        BodyCharge {
            charge: connection_memory.charge(),
            number,
            bytes: 0,
            read: 0,
            has_begun: false,
            waits: false,
            pause: None,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Ready when memory suffices for the body.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_begun {
            ready!(self.charge.connection_memory.poll_begin(cx, &mut self.pause));
            self.has_begun = true;
        }
        Poll::Ready(())
    }

    /// Counts bytes that a reader took out of hyper.
    pub(super) fn read(&mut self, bytes: usize) {
        self.read += bytes;
        if self.read >= CHANGE {
            self.charge.connection_memory.read(std::mem::take(&mut self.read));
        }
    }

    /// Sets the bytes that wait for the rest.
    ///
    /// # Errors
    /// The status that refuses the rest, if memory does not suffice for it.
    pub(super) fn collects(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes = bytes;
        self.charge.set(bytes);
        self.charge.connection_memory.aborts(self.number, bytes).map_or(Ok(()), Err)
    }

    /// Registers the waker for more of the body.
    ///
    /// # Errors
    /// The server aborts the remaining calls.
    pub(super) fn poll_more(&mut self, cx: &Context<'_>) -> Result<(), Status> {
        let connection_memory = &self.charge.connection_memory;
        connection_memory.waiting().insert(self.number, cx.waker().clone());
        self.waits = true;
        // Checked after the waker is registered, so that the abort is not missed.
        if !connection_memory.shared.ending.load(Relaxed) {
            return Ok(());
        }
        let status = going_away();
        connection_memory.note_abort(self.number, &status);
        Err(status)
    }

    /// Bytes that wait for the rest.
    pub(super) fn collected(&self) -> usize {
        self.bytes
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        if self.waits {
            self.charge.connection_memory.waiting().remove(&self.number);
        }
        self.charge.connection_memory.end_body(self.read);
    }
}

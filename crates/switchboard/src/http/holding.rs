//! What a connection of HTTP holds for its peer, told to the server's account, and what it may do while room is scarce.
//!
//! hyper keeps its buffers to itself, but what it holds are the pieces that it got from us and has not sent yet, and
//! those that it gave to us. So a piece of a reply is counted until hyper drops it, which is when the socket has taken
//! it; a request is counted while it is collected, and until its call ends. Pieces under a kilobyte are not.
//!
//! A connection that holds more than others while room is scarce begins no further call that brings a body, and its
//! streams of replies wait. It is read all the same: HTTP/2 tells there how much its peer takes.

use crate::{
    Status,
    driver::Wakes,
    memory::{LARGE, Level, PAUSE},
    server::Shared,
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};
use switchboard_wire::MethodId;
use tokio::time::Sleep;

/// Smaller changes are not told, and smaller pieces not counted.
const CHANGE: usize = 1 << 10;
/// Bodies over this size are not taken in while room is scarce.
const BODY_MAX: usize = 64 << 10;
/// Requests that were cut and not answered yet; who cuts more of them off at once hears a less exact reason.
const CUT_MAX: usize = 64;

/// What one connection holds.
pub(super) struct Holding {
    shared: Arc<Shared>,
    wakes: Arc<Wakes>,
    held: AtomicUsize,
    paused: AtomicBool,
    /// The last number of a request.
    requests: AtomicU64,
    /// Requests whose bodies found no room, by number, the last ones; and whether there are any.
    cut: Mutex<VecDeque<u64>>,
    has_cut: AtomicBool,
}

impl Holding {
    pub(super) fn new(shared: Arc<Shared>, wakes: Arc<Wakes>) -> Arc<Holding> {
        Arc::new(Holding {
            shared,
            wakes,
            held: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            cut: Mutex::default(),
            has_cut: AtomicBool::new(false),
        })
    }

    /// Nothing yet, of something that the connection will hold.
    pub(super) fn weight(self: &Arc<Holding>) -> Weight {
        Weight { holding: self.clone(), told: 0 }
    }

    /// A piece of a reply, counted for as long as anybody has it.
    pub(super) fn counted(self: &Arc<Holding>, bytes: Bytes) -> Bytes {
        if bytes.len() < CHANGE {
            return bytes;
        }
        let mut weight = self.weight();
        weight.set(bytes.len());
        Bytes::from_owner(Counted { bytes, _weight: weight })
    }

    fn change(&self, before: usize, now: usize) {
        let held = match now > before {
            true => self.held.fetch_add(now - before, Relaxed) + (now - before),
            false => self.held.fetch_sub(before - now, Relaxed) - (before - now),
        };
        self.shared.memory.change(before, now);
        self.wakes.set_held(held);
        if now < before && self.paused.load(Relaxed) {
            self.is_paused();
        }
    }

    /// Whether the connection holds so much that it has to wait.
    fn is_paused(&self) -> bool {
        let was_paused = self.paused.load(Relaxed);
        let room = self.shared.memory.room(was_paused);
        let paused = room.level != Level::Calm && self.held.load(Relaxed) > room.line;
        if self.paused.swap(paused, Relaxed) != paused {
            self.shared.memory.pause(paused);
            self.wakes.set_paused(paused);
        }
        paused
    }

    /// Ready when the connection may go on. It looks again now and then, for which it needs the timer.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>, timer: &mut Option<Pin<Box<Sleep>>>) -> Poll<()> {
        while self.is_paused() {
            ready!(timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE))).as_mut().poll(cx));
            *timer = None;
        }
        *timer = None;
        Poll::Ready(())
    }

    /// A number for a request.
    pub(super) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }

    /// Whether there is no room for the rest of a request of which there are so many bytes; that is noted.
    pub(super) fn cuts(&self, request: u64, bytes: usize) -> bool {
        if bytes <= BODY_MAX || self.shared.memory.room(false).level < Level::Hard {
            return false;
        }
        let mut cut = self.cut();
        if cut.len() == CUT_MAX {
            cut.pop_front();
        }
        cut.push_back(request);
        self.has_cut.store(true, Relaxed);
        true
    }

    /// Why the request was cut, if it was.
    pub(super) fn was_cut(&self, request: u64) -> Option<Status> {
        if !self.has_cut.load(Relaxed) {
            return None;
        }
        let mut cut = self.cut();
        let at = cut.iter().position(|other| *other == request)?;
        cut.remove(at);
        self.has_cut.store(!cut.is_empty(), Relaxed);
        Some(self.shared.memory.refuses_rest())
    }

    fn cut(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if *self.paused.get_mut() {
            self.shared.memory.pause(false);
        }
    }
}

/// Some bytes that a connection holds; dropped, it holds them no more.
pub(super) struct Weight {
    holding: Arc<Holding>,
    told: usize,
}

impl Weight {
    /// It is so many now.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes != self.told && (bytes == 0 || bytes.abs_diff(self.told) >= CHANGE) {
            self.holding.change(self.told, bytes);
            self.told = bytes;
        }
    }

    /// Why there is no room for a reply of this length, if there is none.
    pub(super) fn drops(&self, method: MethodId, bytes: usize) -> Option<Status> {
        let memory = &self.holding.shared.memory;
        if bytes <= LARGE {
            return None;
        }
        memory.note(method, bytes);
        (bytes > memory.room(false).left).then(|| memory.drops(bytes))
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The owner of a piece.
struct Counted {
    bytes: Bytes,
    _weight: Weight,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is held of a request while it comes.
pub(super) struct Coming {
    weight: Weight,
    number: u64,
    /// Its messages go on one by one.
    streams: bool,
    bytes: usize,
    has_begun: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Coming {
    pub(super) fn new(holding: &Arc<Holding>, number: u64, streams: bool) -> Coming {
        Coming { weight: holding.weight(), number, streams, bytes: 0, has_begun: false, timer: None }
    }

    /// Ready when there is room for a request to begin; what has begun goes on, or nothing would ever end.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_begun { Poll::Ready(()) } else { self.weight.holding.poll_room(cx, &mut self.timer) }
    }

    /// Some of it came, which ends with a message or in one; whether there is room for the rest.
    pub(super) fn came(&mut self, bytes: usize, ends: bool) -> bool {
        self.has_begun = true;
        self.bytes = if self.streams && ends { 0 } else { self.bytes + bytes };
        self.weight.set(self.bytes);
        !self.weight.holding.cuts(self.number, self.bytes)
    }
}

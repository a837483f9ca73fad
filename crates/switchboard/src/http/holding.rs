//! What a connection of HTTP holds for its peer, told to the server's account, and what it may do while room is scarce.
//!
//! | part | counted |
//! | --- | --- |
//! | unread | what has come of bodies and waits in hyper: from the socket until somebody reads the body |
//! | requests | bodies while they are collected, messages until their call ends, queues of streams |
//! | replies | until the socket has taken them: hyper drops a piece then |
//!
//! While room is scarce and a connection holds more than the line, its requests are not begun, its streams of replies
//! wait, and with much unread its socket is not read, so that HTTP/2 opens no window. From time to time a little is
//! read all the same: there the peer says how much it takes, and what it gives up.

use crate::{
    Status,
    driver::Wakes,
    memory::{LARGE, Level, PAUSE, Room},
    server::Shared,
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};
use switchboard_wire::MethodId;
use tokio::time::Sleep;

/// Smaller changes are not told, and smaller pieces counted together with later ones.
pub(super) const CHANGE: usize = 1 << 10;
/// Bodies over this size are not taken in while room is scarce.
const BODY_MAX: usize = 64 << 10;
/// Requests that were cut and not answered yet; who cuts more of them off at once hears a less exact reason.
const CUT_MAX: usize = 64;

/// Until there may be room again.
pub(super) type Pause = Option<Pin<Box<Sleep>>>;

/// What one connection holds.
pub(super) struct Holding {
    shared: Arc<Shared>,
    wakes: Arc<Wakes>,
    /// By [`Part`].
    parts: [AtomicUsize; 3],
    paused: AtomicBool,
    unread: Mutex<Unread>,
    /// The most that hyper keeps unread.
    unread_max: usize,
    /// The last number of a request.
    requests: AtomicU64,
    /// Requests whose bodies found no room, the last ones; and whether there are any.
    cut: Mutex<VecDeque<(u64, Status)>>,
    has_cut: AtomicBool,
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
    told: usize,
    /// Bodies that have not ended.
    bodies: usize,
    /// Who reads the socket, and does not now.
    reader: Option<Waker>,
}

impl Holding {
    pub(super) fn new(shared: Arc<Shared>, wakes: Arc<Wakes>, unread_max: usize) -> Arc<Holding> {
        Arc::new(Holding {
            shared,
            wakes,
            parts: Default::default(),
            paused: AtomicBool::new(false),
            unread: Mutex::default(),
            unread_max,
            requests: AtomicU64::new(0),
            cut: Mutex::default(),
            has_cut: AtomicBool::new(false),
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Nothing yet, of requests.
    pub(super) fn weight(self: &Arc<Holding>) -> Weight {
        Weight { holding: self.clone(), part: Part::Requests, told: 0 }
    }

    /// A piece of a reply, and `before` bytes that go before it, counted for as long as anybody has the piece.
    pub(super) fn counted(self: &Arc<Holding>, bytes: Bytes, before: usize) -> Bytes {
        let mut weight = Weight { holding: self.clone(), part: Part::Replies, told: 0 };
        weight.set(bytes.len() + before);
        Bytes::from_owner(Counted { bytes, _weight: weight })
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

    /// How much room there is, and whether the connection counts as paused.
    fn look(&self) -> Room {
        let was_paused = self.paused.load(Relaxed);
        let room = self.shared.memory.room(was_paused);
        if room.level != Level::Calm || was_paused {
            let paused = room.level != Level::Calm && self.total() > room.line;
            if self.paused.swap(paused, Relaxed) != paused {
                self.shared.memory.pause(paused);
                self.wakes.set_paused(paused);
            }
        }
        room
    }

    /// Ready when a request may begin. What has begun goes on, or nothing would ever end.
    pub(super) fn poll_begin(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
        self.poll_room(cx, pause, |room| self.part(Part::Requests) + self.part(Part::Replies) > room.line)
    }

    /// Ready when a stream may send its next message.
    pub(super) fn poll_reply(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
        self.poll_room(cx, pause, |room| {
            self.part(Part::Replies) > if room.level == Level::Full { 0 } else { room.line }
        })
    }

    /// Ready when it does not have to wait any more. It looks again now and then, for which it needs the timer.
    fn poll_room(&self, cx: &mut Context<'_>, pause: &mut Pause, waits: impl Fn(Room) -> bool) -> Poll<()> {
        loop {
            let room = self.look();
            if room.level == Level::Calm || !waits(room) {
                *pause = None;
                return Poll::Ready(());
            }
            ready!(poll_pause(cx, pause));
        }
    }

    /// Ready when the socket may be read.
    ///
    /// # Errors
    /// There is no room at all, and too much of bodies is unread: the connection is to end.
    #[inline]
    pub(super) fn poll_read(&self, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<io::Result<()>> {
        let room = self.look();
        if room.level == Level::Calm { Poll::Ready(Ok(())) } else { self.poll_scarce(room, cx, pause) }
    }

    #[cold]
    fn poll_scarce(&self, room: Room, cx: &mut Context<'_>, pause: &mut Pause) -> Poll<io::Result<()>> {
        let mut unread = self.unread();
        if room.level == Level::Full && unread.bytes > BODY_MAX {
            let status = self.shared.memory.cuts();
            tracing::warn!("http connection closed: {}", status.message());
            return Poll::Ready(Err(io::Error::other(status.message().to_owned())));
        }
        if unread.bytes > room.line {
            unread.reader = Some(cx.waker().clone());
            return poll_pause(cx, pause).map(Ok);
        }
        *pause = None;
        Poll::Ready(Ok(()))
    }

    /// So much of bodies came on the socket.
    pub(super) fn came(&self, bytes: usize) {
        if bytes > 0 {
            let mut unread = self.unread();
            unread.bytes = (unread.bytes + bytes).min(self.unread_max);
            self.tell(&mut unread);
        }
    }

    /// There is a request without a body.
    pub(super) fn no_body(&self) {
        let mut unread = self.unread();
        if unread.bodies == 0 {
            unread.bytes = 0;
            self.tell(&mut unread);
        }
    }

    /// A body begins.
    fn begin_body(&self) {
        self.unread().bodies += 1;
    }

    /// Somebody has read so much of a body.
    fn read(&self, bytes: usize) {
        let mut unread = self.unread();
        unread.bytes = unread.bytes.saturating_sub(bytes);
        self.tell(&mut unread);
    }

    /// A body ends of which so much was read that was not told.
    fn end_body(&self, bytes: usize) {
        let mut unread = self.unread();
        unread.bodies -= 1;
        // What is left is what hyper has thrown away.
        unread.bytes = if unread.bodies == 0 { 0 } else { unread.bytes.saturating_sub(bytes) };
        self.tell(&mut unread);
    }

    fn tell(&self, unread: &mut Unread) {
        let bytes = unread.bytes;
        if is_told(unread.told, bytes) {
            self.change(Part::Unread, unread.told, bytes);
            unread.told = bytes;
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

    /// Why there is no room for the rest of a request of which there are so many bytes; that is noted.
    fn cuts(&self, request: u64, bytes: usize) -> Option<Status> {
        if bytes <= BODY_MAX || self.shared.memory.room(false).level < Level::Hard {
            return None;
        }
        let status = self.shared.memory.refuses_rest();
        let mut cut = self.cut();
        if cut.len() == CUT_MAX {
            cut.pop_front();
        }
        cut.push_back((request, status.clone()));
        self.has_cut.store(true, Relaxed);
        Some(status)
    }

    /// Why the request was cut, if it was.
    pub(super) fn was_cut(&self, request: Option<u64>) -> Option<Status> {
        if !self.has_cut.load(Relaxed) {
            return None;
        }
        let mut cut = self.cut();
        let at = cut.iter().position(|(other, _)| Some(*other) == request)?;
        let (_, status) = cut.remove(at)?;
        self.has_cut.store(!cut.is_empty(), Relaxed);
        Some(status)
    }

    fn cut(&self) -> MutexGuard<'_, VecDeque<(u64, Status)>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Nobody else has anything of it any more.
        let unread = self.unread().told;
        self.shared.memory.change(unread, 0);
        if *self.paused.get_mut() {
            self.shared.memory.pause(false);
        }
    }
}

fn is_told(told: usize, bytes: usize) -> bool {
    bytes != told && (bytes == 0 || bytes.abs_diff(told) >= CHANGE)
}

fn poll_pause(cx: &mut Context<'_>, pause: &mut Pause) -> Poll<()> {
    ready!(pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE))).as_mut().poll(cx));
    *pause = None;
    Poll::Ready(())
}

/// Some bytes that a connection holds; dropped, it holds them no more.
pub(super) struct Weight {
    holding: Arc<Holding>,
    part: Part,
    told: usize,
}

impl Weight {
    /// It is so many now.
    pub(super) fn set(&mut self, bytes: usize) {
        if is_told(self.told, bytes) {
            self.holding.change(self.part, self.told, bytes);
            self.told = bytes;
        }
    }

    /// Whose it is.
    pub(super) fn holding(&self) -> &Holding {
        &self.holding
    }

    /// Why there is no room for a reply of this length, if there is none.
    pub(super) fn drops(&self, method: MethodId, bytes: usize) -> Option<Status> {
        let memory = &self.holding.shared.memory;
        let room = memory.room(false);
        self.notes(method, bytes);
        if bytes <= LARGE && room.level != Level::Calm {
            memory.note_small(method);
        }
        (bytes > LARGE && bytes > room.left).then(|| memory.drops(bytes))
    }

    /// Takes note of a call that holds so much of its replies.
    pub(super) fn notes(&self, method: MethodId, bytes: usize) {
        if bytes > LARGE {
            self.holding.shared.memory.note(method, bytes);
        }
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

/// What is held of a body while it comes, until it ends.
pub(super) struct Coming {
    weight: Weight,
    number: u64,
    /// What of it waits for the rest.
    bytes: usize,
    /// What was read of it and not told.
    read: usize,
    has_begun: bool,
    pause: Pause,
}

impl Coming {
    pub(super) fn new(holding: &Arc<Holding>) -> Coming {
        holding.begin_body();
        let number = holding.requests.fetch_add(1, Relaxed);
        Coming { weight: holding.weight(), number, bytes: 0, read: 0, has_begun: false, pause: None }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Ready when there is room for it.
    pub(super) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_begun {
            ready!(self.weight.holding.poll_begin(cx, &mut self.pause));
            self.has_begun = true;
        }
        Poll::Ready(())
    }

    /// Somebody has taken so much of it out of hyper.
    pub(super) fn read(&mut self, bytes: usize) {
        self.read += bytes;
        if self.read >= CHANGE {
            self.weight.holding.read(std::mem::take(&mut self.read));
        }
    }

    /// So much of it waits for the rest.
    ///
    /// # Errors
    /// Why there is no room for that, if it is still to come.
    pub(super) fn collects(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes = bytes;
        self.weight.set(bytes);
        self.weight.holding.cuts(self.number, bytes).map_or(Ok(()), Err)
    }

    /// What waits for the rest.
    pub(super) fn collected(&self) -> usize {
        self.bytes
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.weight.holding.end_body(self.read);
    }
}

//! The task of a worker that drives all of its subscribers.

use crate::{
    Adapter, CloseReason, Connected, EngineCounters, EngineStats, Handoff, NotSent, Options,
    counters::CountedEngine,
    handoff::HandoffPipe,
    link::Link,
    mailbox::{Mailbox, Wakes},
    subscriber::{
        BLOCKED, BUSY, CLOSING, LAGGED, LINGERING, PAUSED, READ_CLOSED, READ_QUEUED, READ_STOPPED, RESUMED,
        SubscriberId,
    },
    subscribers::{Subscribers, link_waker},
};
use bytes::BytesMut;
use mio::Events;
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io::{self, ErrorKind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_core::{clock, memory::MemoryBudget, runtime};
use switchboard_net::connection::Pause;
use switchboard_wire::Input;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
    time::Sleep,
};

/// Events of sockets that are taken at once.
const EVENTS: usize = 1024;
/// Commands that are handled at once.
const COMMANDS: usize = 1024;
/// Bytes that are read at once, and the capacity of the input of a subscriber.
const READ_BYTES: usize = 64 << 10;
/// Reads of one subscriber in a row, before it is the turn of the next.
const READS: usize = 4;

/// A function that runs between two turns of an engine.
type Query<A> = Box<dyn FnOnce(&mut A, &mut Subscribers) + Send>;

/// A message in the mailbox of an engine.
pub(crate) enum Message<A: Adapter> {
    Connect(Handoff<A::Connection>),
    Command(A::Command),
    Query(Query<A>),
    Drain(Duration),
}

/// Sends connections and commands to an engine, from any thread. Cheap to clone.
///
/// A mailbox holds at most [`Options::mailbox_commands_max`] messages.
pub struct Handle<A: Adapter> {
    mailbox: Mailbox<Message<A>>,
}

impl<A: Adapter> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Handle { mailbox: self.mailbox.clone() }
    }
}

impl<A: Adapter> fmt::Debug for Handle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl<A: Adapter> Handle<A> {
    /// Sends a command.
    ///
    /// # Errors
    /// The command, if the mailbox is full or the engine has ended.
    pub fn try_send(&self, command: A::Command) -> Result<(), NotSent<A::Command>> {
        self.mailbox.try_send(Message::Command(command)).map_err(|refused| match refused {
            NotSent::Full(Message::Command(command)) => NotSent::Full(command),
            NotSent::Closed(Message::Command(command)) => NotSent::Closed(command),
            _ => unreachable!("the mailbox returns what was sent"),
        })
    }

    /// Sends a command as soon as the mailbox has room. Cancel safe: a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The command, if the engine has ended.
    pub async fn send(&self, command: A::Command) -> Result<(), A::Command> {
        self.mailbox.send(Message::Command(command)).await.map_err(|refused| match refused {
            Message::Command(command) => command,
            _ => unreachable!("the mailbox returns what was sent"),
        })
    }

    /// Hands a connection to the engine, which drives it from now on.
    ///
    /// # Errors
    /// The connection, if the mailbox is full or the engine has ended.
    pub fn hand_over(&self, handoff: Handoff<A::Connection>) -> Result<(), NotSent<Handoff<A::Connection>>> {
        self.mailbox.try_send(Message::Connect(handoff)).map_err(|refused| match refused {
            NotSent::Full(Message::Connect(handoff)) => NotSent::Full(handoff),
            NotSent::Closed(Message::Connect(handoff)) => NotSent::Closed(handoff),
            _ => unreachable!("the mailbox returns what was sent"),
        })
    }

    /// Runs a function on the engine, between two of its turns, and returns its result; `None` if the engine has ended.
    /// The function must not block.
    pub async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut A, &mut Subscribers) -> T + Send + 'static,
    ) -> Option<T> {
        let (send, receive) = oneshot::channel();
        let message = Message::Query(Box::new(move |adapter, subscribers| {
            // A caller that was dropped does not want it any more.
            let _ = send.send(query(adapter, subscribers));
        }));
        self.mailbox.send(message).await.ok()?;
        receive.await.ok()
    }

    /// Ends the engine: the adapter notifies the subscribers, those that are left after `notice` are closed, except
    /// [busy](Subscribers::set_busy) ones, and the engine ends when all are gone.
    pub async fn drain(&self, notice: Duration) {
        // An engine that has ended has nothing to drain.
        let _ = self.mailbox.send(Message::Drain(notice)).await;
    }
}

/// Drives all subscribers of a worker. A future that ends when the engine has drained.
pub struct Engine<A: Adapter> {
    adapter: A,
    subscribers: Subscribers,
    mailbox: Mailbox<Message<A>>,
    wakes: Arc<Wakes>,
    poll: AsyncFd<mio::Poll>,
    events: Events,
    messages: VecDeque<Message<A>>,
    /// Memory of reads; its contents are used at once.
    scratch: Box<[u8]>,
    input: Input,
    /// Indices of woken pipes, and of due timers.
    woken: Vec<u32>,
    due: Vec<u32>,
    started: Instant,
    /// Wakes the task at the next second, if a timer is set.
    tick: Option<Pin<Box<Sleep>>>,
    pause: Pause,
    /// When the subscribers that are left are closed; the engine takes no more.
    drain_ends: Option<Instant>,
    drain_tick: Option<Pin<Box<Sleep>>>,
    turns: u64,
    counters: Option<CountedEngine>,
}

impl<A: Adapter> Engine<A> {
    /// Creates an engine. Must be called on the worker that will run it.
    ///
    /// # Errors
    /// That of the system, if it gives no poll instance.
    pub fn new(
        adapter: A,
        options: Options,
        memory: Option<Arc<MemoryBudget>>,
    ) -> io::Result<(Engine<A>, Handle<A>)> {
        Engine::create(|_| adapter, options, memory)
    }

    /// Creates an engine whose adapter keeps a handle to it.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn create(
        make: impl FnOnce(Handle<A>) -> A,
        options: Options,
        memory: Option<Arc<MemoryBudget>>,
    ) -> io::Result<(Engine<A>, Handle<A>)> {
        let poll = mio::Poll::new()?;
        let registry = poll.registry().try_clone()?;
        // Its replacement is unsafe and requires that the value owns the descriptor until it is dropped, and that the
        // descriptor never changes. Both are true of a poll instance.
        #[expect(deprecated)]
        let poll = AsyncFd::with_interest(poll, Interest::READABLE)?;
        let mailbox = Mailbox::new(options.mailbox_commands_max);
        let wakes = mailbox.wakes();
        let engine = Engine {
            adapter: make(Handle { mailbox: mailbox.clone() }),
            subscribers: Subscribers::new(options, memory, Some(registry), wakes.clone()),
            mailbox: mailbox.clone(),
            wakes,
            poll,
            events: Events::with_capacity(EVENTS),
            messages: VecDeque::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            input: Input::new(BytesMut::with_capacity(READ_BYTES)).sharing(false),
            woken: Vec::new(),
            due: Vec::new(),
            started: clock::now(),
            tick: None,
            pause: Pause::default(),
            drain_ends: None,
            drain_tick: None,
            turns: 0,
            counters: None,
        };
        Ok((engine, Handle { mailbox }))
    }

    /// Counts in these counters, as the engine of a worker. [`Engines`](crate::Engines) do so for theirs.
    #[must_use]
    pub fn with_counters(mut self, counters: &EngineCounters, worker: usize) -> Engine<A> {
        self.counters = Some(counters.add(worker));
        self
    }

    /// Drives the subscribers until the engine has drained.
    pub async fn run(mut self) {
        poll_fn(|cx| {
            let polled = self.turn(cx);
            self.count();
            polled
        })
        .await;
    }

    /// Stores the counters.
    fn count(&self) {
        if let Some(counters) = &self.counters {
            counters.set(EngineStats {
                worker: 0,
                subscribers: self.subscribers.count(),
                buffers: self.subscribers.open_buffers,
                held_bytes: self.subscribers.held_bytes,
                lagged: self.subscribers.lagged_total,
                turns: self.turns,
            });
        }
    }

    /// One turn: commands, timers, readable subscribers, and then everything that is to be written.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pause.poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.turns = self.turns.wrapping_add(1);
        let end = clock::after(clock::now(), self.subscribers.options.turn_max);
        loop {
            self.wakes.take(cx.waker(), &mut self.woken);
            self.woken();
            self.sockets(cx);
            let more_commands = self.commands(end);
            self.timers();
            self.read(end);
            let all_written = self.subscribers.write_outboxes(end) & self.subscribers.write_buffers(end);
            self.notify_adapter();
            let has_work = more_commands
                || !all_written
                || !self.subscribers.to_read.is_empty()
                || !self.subscribers.to_write.is_empty()
                || !self.subscribers.dirty.is_empty();
            if self.drain_ends.is_some() && self.has_drained(cx) {
                return Poll::Ready(());
            }
            if !has_work {
                self.set_tick(cx);
                return Poll::Pending;
            }
            if clock::now() >= end {
                self.pause.begin(cx);
                return match self.pause.poll(cx) {
                    Poll::Ready(()) => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    Poll::Pending => Poll::Pending,
                };
            }
        }
    }

    /// Pipes without a descriptor that can be read or written.
    fn woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        for index in woken.drain(..) {
            if self.subscribers.pages.id(index).is_some() {
                self.subscribers.queue_read(index);
                self.subscribers.unblock(index);
            }
        }
        self.woken = woken;
    }

    /// Takes the events of the sockets. The inner poll instance is drained before the outer readiness is cleared.
    fn sockets(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut ready)) = self.poll.poll_read_ready_mut(cx) {
            loop {
                match ready.get_inner_mut().poll(&mut self.events, Some(Duration::ZERO)) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => {
                        tracing::error!("fan-out engine: poll: {error}");
                        break;
                    }
                }
                let mut taken = 0;
                for event in &self.events {
                    taken += 1;
                    let index = event.token().0 as u32;
                    if self.subscribers.pages.id(index).is_none() {
                        continue;
                    }
                    if event.is_read_closed() || event.is_error() {
                        self.subscribers.pages.at_mut(index).flags |= READ_CLOSED;
                    }
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        self.subscribers.queue_read(index);
                    }
                    if event.is_writable() {
                        self.subscribers.unblock(index);
                    }
                }
                if taken > 0 {
                    runtime::traffic(clock::now());
                }
                if taken < EVENTS {
                    break;
                }
            }
            ready.clear_ready();
        }
    }

    /// Handles messages of other threads; returns whether there are more. Stops while a write pass of a buffer that is
    /// more than half full has not ended: otherwise a burst would drop bytes that no subscriber was offered.
    fn commands(&mut self, end: Instant) -> bool {
        let mut more = self.mailbox.take(COMMANDS - self.messages.len().min(COMMANDS), &mut self.messages);
        let mut handled = 0;
        while let Some(message) = self.messages.pop_front() {
            match message {
                Message::Connect(handoff) => self.connect(handoff),
                Message::Command(command) => self.adapter.command(command, &mut self.subscribers),
                Message::Query(query) => query(&mut self.adapter, &mut self.subscribers),
                Message::Drain(notice) => {
                    self.drain_ends = Some(clock::now() + notice);
                    self.adapter.draining(&mut self.subscribers);
                }
            }
            handled += 1;
            if self.subscribers.is_congested() && !self.subscribers.write_buffers(end) {
                more = true;
                break;
            }
            if handled % 64 == 0 && clock::now() >= end {
                break;
            }
        }
        more | !self.messages.is_empty()
    }

    fn connect(&mut self, handoff: Handoff<A::Connection>) {
        let Handoff { pipe, first, address, guard, connection } = handoff;
        if self.drain_ends.is_some() {
            return;
        }
        let link = |index, wakes: &Arc<Wakes>| match pipe {
            HandoffPipe::Socket(socket) => Link::Socket(socket),
            HandoffPipe::Pipe(io) => Link::pipe(io, link_waker(index, wakes)),
        };
        let Some(id) = self.subscribers.insert(link, address, guard) else { return };
        self.adapter.connected(Connected { id, address, connection }, &mut self.subscribers);
        if !first.is_empty() {
            let mut input = Input::new(first).sharing(false);
            self.receive(id, &mut input);
            self.keep_rest(id, input);
        }
        // A pipe is polled once, to register its waker; a socket may have become readable before it was registered.
        if self.subscribers.is_connected(id) {
            self.subscribers.queue_read(id.index);
        }
    }

    /// Reads the subscribers that are ready until `end`.
    fn read(&mut self, end: Instant) {
        let mut left = self.subscribers.to_read.len();
        while left > 0 {
            let Some(index) = self.subscribers.to_read.pop_front() else { return };
            left -= 1;
            if let Some(id) = self.subscribers.pages.id(index) {
                self.read_one(id);
            } else {
                self.subscribers.pages.at_mut(index).flags &= !READ_QUEUED;
            }
            if left.is_multiple_of(32) && clock::now() >= end {
                return;
            }
        }
    }

    fn read_one(&mut self, id: SubscriberId) {
        self.subscribers.pages.at_mut(id.index).flags &= !READ_QUEUED;
        self.handle_kept(id);
        for _ in 0..READS {
            let Some(subscriber) = self.subscribers.pages.get_mut(id) else { return };
            if subscriber.has(PAUSED) {
                // Resuming queues it again.
                if subscriber.has(READ_CLOSED) {
                    self.adapter.read_closed(id, &mut self.subscribers);
                }
                return;
            }
            if subscriber.outbox.as_ref().is_some_and(|outbox| outbox.len() >= READ_BYTES)
                && subscriber.has(BLOCKED | LAGGED)
            {
                // The peer sends and does not read: what it sends must not pile up as replies.
                subscriber.flags |= READ_STOPPED;
                return;
            }
            let n = match subscriber.link.read(&mut self.scratch) {
                Ok(0) => return self.read_closed(id),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.subscribers.remove(id.index, CloseReason::Peer),
            };
            let emptied = n < self.scratch.len() && matches!(subscriber.link, Link::Socket(_));
            let emptied = emptied && !subscriber.has(READ_CLOSED);
            if !subscriber.has(CLOSING | LINGERING) {
                self.received(id, n);
            }
            if emptied {
                return;
            }
        }
        if self.subscribers.is_connected(id) {
            self.subscribers.queue_read(id.index);
        }
    }

    /// Gives the bytes that were kept during a pause to the adapter: none, if it has only to continue.
    fn handle_kept(&mut self, id: SubscriberId) {
        let subscriber = self.subscribers.pages.at_mut(id.index);
        if subscriber.has(RESUMED) {
            subscriber.flags &= !RESUMED;
            self.received(id, 0);
        }
    }

    /// The peer has closed its sending side: it gets the replies that its socket has room for.
    fn read_closed(&mut self, id: SubscriberId) {
        if !self.subscribers.pages.at(id.index).has(BLOCKED | LAGGED) {
            self.subscribers.flush(id.index);
        }
        if self.subscribers.is_connected(id) {
            self.subscribers.remove(id.index, CloseReason::Peer);
        }
    }

    /// Gives the first `n` bytes of the scratch memory to the adapter, after those that were kept.
    fn received(&mut self, id: SubscriberId, n: usize) {
        let kept = self.subscribers.pages.at_mut(id.index).input.take();
        if let Some(mut input) = kept {
            input.extend(&self.scratch[..n]);
            self.receive(id, &mut input);
            if !input.is_empty()
                && let Some(subscriber) = self.subscribers.pages.get_mut(id)
            {
                subscriber.input = Some(input);
            }
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend(&self.scratch[..n]);
            self.receive(id, &mut input);
            let rest = input.len();
            if rest > 0
                && let Some(subscriber) = self.subscribers.pages.get_mut(id)
            {
                let kept = Input::new(BytesMut::from(input.rest())).sharing(false);
                subscriber.input = Some(Box::new(kept));
            }
            input.skip(rest);
            self.input = input;
        }
        self.subscribers.charge(id.index);
    }

    fn receive(&mut self, id: SubscriberId, input: &mut Input) {
        if let Err(reason) = self.adapter.received(id, input, &mut self.subscribers) {
            self.subscribers.close(id, reason);
        }
    }

    fn keep_rest(&mut self, id: SubscriberId, input: Input) {
        if !input.is_empty()
            && let Some(subscriber) = self.subscribers.pages.get_mut(id)
            && !subscriber.has(CLOSING)
        {
            subscriber.input = Some(Box::new(input));
        }
    }

    /// Fires the timers that are due.
    fn timers(&mut self) {
        let now = self.seconds();
        let mut due = std::mem::take(&mut self.due);
        self.subscribers.wheel.advance(now, &mut due, &mut self.subscribers.pages);
        for index in due.drain(..) {
            let Some(id) = self.subscribers.pages.id(index) else { continue };
            if self.subscribers.pages.at(index).has(CLOSING) {
                self.subscribers.remove(index, CloseReason::TimedOut);
            } else {
                self.adapter.due(id, &mut self.subscribers);
            }
        }
        self.due = due;
    }

    /// Returns the whole seconds since the start of the engine.
    fn seconds(&self) -> u32 {
        u32::try_from(clock::now().saturating_duration_since(self.started).as_secs()).unwrap_or(u32::MAX)
    }

    /// Sets the wake-up for the next second, if a timer is set.
    fn set_tick(&mut self, cx: &mut Context<'_>) {
        if self.subscribers.wheel.is_empty() {
            self.tick = None;
            return;
        }
        let next = self.started + Duration::from_secs(u64::from(self.seconds()) + 1);
        let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next.into())));
        if tick.deadline() != next.into() {
            tick.as_mut().reset(next.into());
        }
        // It is ready if the second has just ended: the waker makes the task look again.
        if tick.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Notifies the adapter of what happened to subscribers while they were read and written.
    fn notify_adapter(&mut self) {
        loop {
            if let Some((id, buffer, lost)) = self.subscribers.lagged.pop_front() {
                if self.subscribers.is_connected(id) {
                    self.subscribers.lagging = Some((id, buffer, lost));
                    self.adapter.lagged(id, buffer, lost, &mut self.subscribers);
                    self.subscribers.lagging = None;
                    self.subscribers.continue_lagged(id);
                }
            } else if let Some(id) = self.subscribers.drained.pop_front() {
                if self.subscribers.is_connected(id) {
                    self.adapter.drained(id, &mut self.subscribers);
                }
            } else if let Some(ended) = self.subscribers.ended.pop_front() {
                self.adapter.disconnected(ended.id, &ended.reason, ended.state, &mut self.subscribers);
            } else {
                return;
            }
        }
    }

    /// Closes the subscribers whose time is over; returns whether all are gone.
    fn has_drained(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(ends) = self.drain_ends else { return false };
        if clock::now() >= ends {
            for index in 0..self.subscribers.pages.used() {
                if let Some(id) = self.subscribers.pages.id(index)
                    && !self.subscribers.pages.at(index).has(BUSY)
                {
                    self.subscribers.close(id, CloseReason::Stopped);
                }
            }
            // What they were sent is written, and they are given the time to read it.
            self.notify_adapter();
            let end = clock::after(clock::now(), self.subscribers.options.turn_max);
            self.subscribers.write_outboxes(end);
        } else {
            let tick = self.drain_tick.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends.into())));
            if tick.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        self.subscribers.count() == 0
    }
}

impl<A: Adapter> Drop for Engine<A> {
    fn drop(&mut self) {
        self.mailbox.close();
        for index in 0..self.subscribers.pages.used() {
            self.subscribers.remove(index, CloseReason::Stopped);
        }
        self.notify_adapter();
    }
}

impl<A: Adapter> fmt::Debug for Engine<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("subscribers", &self.subscribers.count()).finish_non_exhaustive()
    }
}

//! Messages of other threads to an engine: commands, and wake-ups of pipes without a descriptor.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};
use tokio::sync::Notify;

/// A bounded queue of commands for an engine, from any thread.
pub(crate) struct Mailbox<C> {
    shared: Arc<Shared<C>>,
}

pub(crate) struct Shared<C> {
    state: Mutex<State<C>>,
    wakes: Arc<Wakes>,
    /// Notified when a full mailbox has room again, and when the engine has ended.
    room: Notify,
    commands_max: usize,
}

struct State<C> {
    commands: VecDeque<C>,
    closed: bool,
}

/// The waker of an engine's task, and the pipes that it must look at.
#[derive(Default)]
pub(crate) struct Wakes {
    state: Mutex<WakeState>,
}

#[derive(Default)]
struct WakeState {
    links: Vec<u32>,
    task: Option<Waker>,
    /// Set if the task was woken since it last looked: the first sender wakes it, the others find it woken.
    woken: bool,
}

/// A command that a mailbox did not take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NotSent<C> {
    /// The mailbox holds as many commands as it may.
    Full(C),
    /// The engine has ended.
    Closed(C),
}

impl<C> NotSent<C> {
    /// Returns the command.
    pub fn into_command(self) -> C {
        match self {
            NotSent::Full(command) | NotSent::Closed(command) => command,
        }
    }
}

impl<C> fmt::Display for NotSent<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSent::Full(_) => "the mailbox of the fan-out engine is full (mailbox_commands_max)",
            NotSent::Closed(_) => "the fan-out engine has ended",
        })
    }
}

impl<C: fmt::Debug> std::error::Error for NotSent<C> {}

impl<C> Clone for Mailbox<C> {
    fn clone(&self) -> Self {
        Mailbox { shared: self.shared.clone() }
    }
}

impl<C> fmt::Debug for Mailbox<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("commands", &self.lock().commands.len()).finish()
    }
}

impl<C> Mailbox<C> {
    pub(crate) fn new(commands_max: usize) -> Mailbox<C> {
        let state = Mutex::new(State { commands: VecDeque::new(), closed: false });
        let shared = Shared { state, wakes: Arc::default(), room: Notify::new(), commands_max };
        Mailbox { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a command into the mailbox, and wakes the engine if it is not awake already.
    ///
    /// # Errors
    /// The command, if the mailbox is full or the engine has ended.
    pub(crate) fn try_send(&self, command: C) -> Result<(), NotSent<C>> {
        {
            let mut state = self.lock();
            if state.closed {
                return Err(NotSent::Closed(command));
            }
            if state.commands.len() >= self.shared.commands_max {
                return Err(NotSent::Full(command));
            }
            state.commands.push_back(command);
        }
        self.shared.wakes.wake_task();
        Ok(())
    }

    /// Puts a command into the mailbox as soon as there is room. Cancel safe: a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The command, if the engine has ended.
    pub(crate) async fn send(&self, command: C) -> Result<(), C> {
        let mut command = Some(command);
        loop {
            let mut room = std::pin::pin!(self.shared.room.notified());
            // Registered before the attempt, so that room made in between is not missed.
            room.as_mut().enable();
            let Some(next) = command.take() else { return Ok(()) };
            match self.try_send(next) {
                Ok(()) => return Ok(()),
                Err(NotSent::Closed(command)) => return Err(command),
                Err(NotSent::Full(refused)) => command = Some(refused),
            }
            room.await;
        }
    }

    pub(crate) fn wakes(&self) -> Arc<Wakes> {
        self.shared.wakes.clone()
    }

    /// Moves at most `max` commands to `into`; returns whether there were more.
    pub(crate) fn take(&self, max: usize, into: &mut VecDeque<C>) -> bool {
        let mut state = self.lock();
        let was_full = state.commands.len() >= self.shared.commands_max;
        let taken = state.commands.len().min(max);
        into.extend(state.commands.drain(..taken));
        let more = !state.commands.is_empty();
        drop(state);
        if was_full && taken > 0 {
            self.shared.room.notify_waiters();
        }
        more
    }

    /// Refuses all further commands and drops those that wait.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.commands)
        };
        drop(waiting);
        self.shared.room.notify_waiters();
    }
}

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, WakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake_task(&self) {
        let task = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.woken, true) { None } else { state.task.clone() }
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Stores the waker of the engine's task, and moves the woken pipes to `links`. Later wake-ups reach the task.
    pub(crate) fn take(&self, task: &Waker, links: &mut Vec<u32>) {
        let mut state = self.lock();
        state.woken = false;
        links.append(&mut state.links);
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }
}

/// Wakes an engine for one pipe.
pub(crate) struct LinkWaker {
    index: u32,
    queued: AtomicBool,
    wakes: Arc<Wakes>,
}

impl LinkWaker {
    pub(crate) fn new(index: u32, wakes: Arc<Wakes>) -> Arc<LinkWaker> {
        Arc::new(LinkWaker { index, queued: AtomicBool::new(false), wakes })
    }

    /// Lets the pipe be queued again; called before it is polled, so that no wake-up is lost.
    pub(crate) fn rearm(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.wakes.lock().links.push(self.index);
            self.wakes.wake_task();
        }
    }
}

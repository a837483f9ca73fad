//! Work of the tasks of connections: messages, commands, and their ends.

use super::{Batch, Command, Core, Sending, peer::Sink};
use crate::PeerId;
use std::{mem, task::Waker};

/// Work of the task of a connection, from one visit of the socket.
#[derive(Debug, Default)]
pub(crate) struct Duties {
    pub(crate) commands: Vec<Command>,
    /// The connection must end.
    pub(crate) abort: Option<Box<str>>,
    /// The socket is closing.
    pub(crate) is_closing: bool,
}

impl Core {
    /// Ends the connection of a peer that broke a rule.
    pub(crate) fn abort(&self, id: PeerId, reason: &str) {
        let waker = self.sending().abort(id, reason);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Passes a command to the task of a connection.
    pub(crate) fn command_to(&self, id: PeerId, command: Command) {
        let waker = self.sending().peers.find(id).and_then(|peer| peer.command(command));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets a connection end once its messages are written. It gets no further ones.
    pub(crate) fn retire(&self, id: PeerId) {
        let waker = {
            let mut sending = self.sending();
            sending.rotation.remove(id);
            sending.peers.find(id).and_then(|peer| match &mut peer.sink {
                Sink::Wire(wire) => {
                    wire.is_retiring = true;
                    wire.task()
                }
                Sink::Inproc { .. } => None,
            })
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Visits the socket for the task of a connection: reports what was written, and takes the commands and, if `batch`
    /// is empty, the messages that wait. `waker` is woken by the next ones.
    pub(crate) fn exchange(
        &self,
        id: PeerId,
        written: (usize, usize),
        batch: &mut Batch,
        waker: &Waker,
    ) -> Duties {
        let mut duties = Duties::default();
        let mut has_room = false;
        {
            let mut sending = self.sending();
            duties.is_closing = sending.is_closing;
            let sending = &mut *sending;
            let Some(peer) = sending.peers.find(id) else {
                duties.abort = Some("the peer is gone".into());
                return duties;
            };
            let Sink::Wire(wire) = &mut peer.sink else { return duties };
            duties.is_closing |= wire.is_retiring;
            wire.set_task(waker);
            wire.writing = wire.writing.saturating_sub(written.0);
            wire.writing_bytes = wire.writing_bytes.saturating_sub(written.1);
            duties.commands = mem::take(&mut wire.commands);
            duties.abort = wire.abort.take();
            if batch.is_empty() {
                wire.take_pending(batch, &mut sending.segments);
            }
            if batch.is_empty() && duties.commands.is_empty() && duties.abort.is_none() {
                wire.wait();
            }
            if written.0 > 0 && !peer.is_full(&self.options.queues, self.this()) {
                has_room = true;
                peer.is_dropping = false;
                if mem::take(&mut peer.is_suspended) {
                    sending.rotation.resume(id);
                }
            }
        }
        if has_room {
            self.room.notify_waiters();
        }
        duties
    }

    /// Returns true if messages wait for the peer.
    pub(crate) fn has_unsent(&self, id: PeerId) -> bool {
        self.sending().peers.find(id).is_some_and(|peer| peer.unsent() > 0)
    }
}

impl Sending {
    pub(super) fn abort(&mut self, id: PeerId, reason: &str) -> Option<Waker> {
        match &mut self.peers.find(id)?.sink {
            Sink::Wire(wire) => {
                wire.abort = Some(reason.into());
                wire.task()
            }
            Sink::Inproc { .. } => None,
        }
    }
}

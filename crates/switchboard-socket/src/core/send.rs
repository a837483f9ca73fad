//! Passing of messages to peers, by socket type.

use super::{
    Batch, Core, Sending,
    peer::{Delivery, Sink},
    turn::Turn,
};
use crate::{Error, ErrorKind, Message, PeerId, Result, monitor::Event};
use bytes::Bytes;
use std::{
    pin::pin,
    sync::{
        PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
};
use switchboard_core::clock;
use switchboard_net::transport::BoxFuture;
use switchboard_wire::zmtp::{SocketType, patterns::Envelope};

/// Reasons of drops.
const GONE: &str = "the peer is gone";
const UNKNOWN: &str = "no peer has the routing id";

impl Core {
    /// Sends a message that [`try_send`](Self::try_send) returned: waits up to the option `timeouts.send`. In a box,
    /// because callers that need not wait would move the whole future with each message.
    pub(crate) fn send_later(&self, message: Message) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.wait_to_send(message))
    }

    async fn wait_to_send(&self, message: Message) -> Result<()> {
        self.check_process()?;
        let mut message = Some(message);
        let _waiting = WaitingSend::new(&self.waiting_sends);
        let deadline = self.options.timeouts.send.map(|limit| clock::after(clock::now(), limit));
        let has_inproc = self.has_inproc.load(Ordering::Relaxed);
        loop {
            let resumed = self.resumed.load(Ordering::Acquire);
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            self.send_now(&mut message)?;
            if message.is_none() {
                return Ok(());
            }
            // Room that other sends take may come again and again.
            if deadline.is_some_and(|deadline| deadline <= clock::now()) {
                return Err(self.no_room());
            }
            let is_resumed = || self.resumed.load(Ordering::Acquire) != resumed;
            if has_inproc && self.spin.poll(deadline, is_resumed).await {
                continue;
            }
            match deadline {
                None => room.await,
                Some(deadline) => {
                    tokio::time::timeout_at(deadline.into(), room).await.map_err(|_| self.no_room())?;
                }
            }
        }
    }

    /// Returns the error for a message that would have to wait.
    pub(crate) fn no_room(&self) -> Error {
        let peers = self.sending().peers.len();
        let text = match peers {
            0 => format!("{} has no peer to send to", self.kind),
            _ => format!(
                "{}: the queues of all {peers} peers are full (queues.send_messages_max {}, send_bytes_max {})",
                self.kind, self.options.queues.send_messages_max, self.options.queues.send_bytes_max
            ),
        };
        Error::new(ErrorKind::TimedOut, text)
    }

    /// Sends a message, or returns it if it has to wait.
    pub(crate) fn try_send(&self, message: Message) -> Result<Option<Message>> {
        let mut message = Some(message);
        self.send_now(&mut message)?;
        Ok(message)
    }

    /// Sends a message, or leaves it if it has to wait. By reference: a message that is passed by value is moved in
    /// each function, and a load of bytes that were stored just before in other widths waits for the stores.
    #[inline]
    pub(crate) fn send_now(&self, message: &mut Option<Message>) -> Result<()> {
        match self.kind {
            SocketType::Dealer | SocketType::Pair | SocketType::Push => self.rotate(message),
            _ => {
                if let Some(sent) = message.take() {
                    *message = self.try_send_other(sent)?;
                }
                Ok(())
            }
        }
    }

    fn try_send_other(&self, message: Message) -> Result<Option<Message>> {
        match self.kind {
            SocketType::Channel | SocketType::Client | SocketType::Scatter => {
                single_frame(self.kind, &message)?;
                let mut message = Some(message);
                self.rotate(&mut message)?;
                Ok(message)
            }
            SocketType::Pub | SocketType::Xpub => self.publish(message),
            SocketType::Radio => self.broadcast(message),
            SocketType::Rep => self.reply(message),
            SocketType::Req => self.request(message),
            SocketType::Router => self.route(message),
            SocketType::Peer | SocketType::Server => {
                if message.frames().len() != 2 {
                    single_frame(self.kind, &message)?;
                }
                self.route(message)
            }
            SocketType::Stream => self.send_raw(message),
            SocketType::Xsub => self.send_upstream(message),
            kind => Err(Error::new(ErrorKind::State, format!("{kind} receives only"))),
        }
    }

    /// Sends to the next peer with room.
    #[inline]
    fn rotate(&self, message: &mut Option<Message>) -> Result<()> {
        if let Some(message) = message {
            check_frames(message)?;
        }
        let mut sending = self.sending();
        sending.check_open()?;
        let waker = self.rotate_in(&mut sending, message);
        drop(sending);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    #[inline]
    fn rotate_in(&self, sending: &mut Sending, message: &mut Option<Message>) -> Option<Waker> {
        while let Some(id) = sending.rotation.select() {
            let Some(peer) = sending.peers.find(id) else {
                sending.rotation.remove(id);
                continue;
            };
            match peer.deliver(message, &self.options.queues, self.this()) {
                Delivery::Sent(waker) => return waker,
                Delivery::Full => {
                    peer.is_suspended = true;
                    sending.rotation.suspend(id);
                }
            }
        }
        None
    }

    fn request(&self, message: Message) -> Result<Option<Message>> {
        check_frames(&message)?;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.may_send()?;
        let Turn::Req { requests, pending, is_lost, .. } = &mut *turn else { return Ok(Some(message)) };
        let mut sending = self.sending();
        sending.check_open()?;
        // The peer is chosen first, because a request belongs to one.
        let Some(id) = self.select_with_room(&mut sending) else { return Ok(Some(message)) };
        let Some(peer) = sending.peers.find(id) else { return Ok(Some(message)) };
        let body = message.into_frames();
        let Ok(frames) = requests.request(id, body) else { return Ok(None) };
        *pending = Some(id);
        *is_lost = false;
        let mut request = Some(Message::from(frames));
        let delivery = peer.deliver(&mut request, &self.options.queues, self.this());
        drop(sending);
        drop(turn);
        if let Delivery::Sent(Some(waker)) = delivery {
            waker.wake();
        }
        Ok(None)
    }

    /// Returns the next peer that has room.
    fn select_with_room(&self, sending: &mut Sending) -> Option<PeerId> {
        loop {
            let id = sending.rotation.select()?;
            match sending.peers.find(id) {
                None => {
                    sending.rotation.remove(id);
                }
                Some(peer) if peer.is_full(&self.options.queues, self.this()) => {
                    peer.is_suspended = true;
                    sending.rotation.suspend(id);
                }
                Some(_) => return Some(id),
            }
        }
    }

    /// Replies to the last request; the reply is dropped if its peer is gone or full.
    fn reply(&self, message: Message) -> Result<Option<Message>> {
        check_frames(&message)?;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.may_send()?;
        let Turn::Rep(due) = &mut *turn else { return Ok(Some(message)) };
        let sending = self.sending();
        sending.check_open()?;
        let Some((id, envelope)) = due.take() else { return Ok(Some(message)) };
        drop(turn);
        let reply = Message::from(Envelope::wrap(envelope, message.into_frames()));
        self.send_or_drop(sending, Some(id), reply);
        Ok(None)
    }

    /// Sends to the peer that the first frame names.
    fn route(&self, message: Message) -> Result<Option<Message>> {
        let is_mandatory = self.options.routing.mandatory || self.kind != SocketType::Router;
        let Some((route, body)) = message.split_first() else {
            let text = format!("message to {} has no frame after the routing id", self.kind);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        };
        let mut sending = self.sending();
        sending.check_open()?;
        let id = sending.routes.find(&route);
        if !is_mandatory {
            self.send_or_drop(sending, id, body);
            return Ok(None);
        }
        let Some(peer) = id.and_then(|id| sending.peers.find(id)) else {
            let text = format!("no peer has the routing id \"{}\"", route.escape_ascii());
            return Err(Error::new(ErrorKind::Unreachable, text));
        };
        let mut body = Some(body);
        match peer.deliver(&mut body, &self.options.queues, self.this()) {
            Delivery::Full => {
                peer.is_suspended = true;
                Ok(body.map(|body| body.behind(route)))
            }
            Delivery::Sent(waker) => {
                drop(sending);
                wake(waker);
                Ok(None)
            }
        }
    }

    /// Passes a message to a peer; drops and counts it if the peer is gone or full.
    pub(super) fn send_or_drop(
        &self,
        mut sending: std::sync::MutexGuard<'_, Sending>,
        id: Option<PeerId>,
        message: Message,
    ) {
        let state = &mut *sending;
        let Some(peer) = id.and_then(|id| state.peers.find(id)) else {
            state.dropped += 1;
            let is_first = !std::mem::replace(&mut state.is_dropping, true);
            drop(sending);
            if is_first {
                let reason = if id.is_some() { GONE } else { UNKNOWN };
                self.monitors.emit(|| Event::Dropped { peer: id, count: 1, reason });
            }
            return;
        };
        // A publisher has messages in its segments that wait for the peer. They are older than this one.
        peer.seal(&mut state.segments);
        match peer.deliver(&mut Some(message), &self.options.queues, self.this()) {
            Delivery::Full => {
                let id = peer.id;
                let is_first = sending.count_drops(id, 1);
                drop(sending);
                self.report_drop(is_first, id);
            }
            Delivery::Sent(waker) => {
                if peer.should_yield(&self.options.queues) {
                    self.should_yield.store(true, Ordering::Relaxed);
                }
                drop(sending);
                wake(waker);
            }
        }
    }

    /// Lets the tasks of connections run if a queue that drops messages fills up: on a runtime with one thread, a
    /// loop that only sends would leave them no time.
    #[inline]
    pub(crate) async fn make_room(&self) {
        if self.should_yield.load(Ordering::Relaxed) {
            self.should_yield.store(false, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }
}

/// Counts a send while it waits; a future that is dropped does not wait any more.
struct WaitingSend<'a>(&'a AtomicUsize);

impl WaitingSend<'_> {
    fn new(count: &AtomicUsize) -> WaitingSend<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingSend(count)
    }
}

impl Drop for WaitingSend<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sending {
    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closing { Err(Error::closed()) } else { Ok(()) }
    }

    /// Counts dropped messages; returns true if they are the first ones in a row.
    pub(super) fn count_drops(&mut self, id: PeerId, count: u64) -> bool {
        self.dropped += count;
        self.peers.find(id).is_some_and(|peer| {
            peer.dropped += count;
            !std::mem::replace(&mut peer.is_dropping, true)
        })
    }

    /// Wakes all tasks, and returns the other ends of inproc peers.
    pub(super) fn leave(&mut self) -> (Vec<Waker>, Vec<(Weak<Core>, PeerId)>) {
        let (mut wakers, mut inproc) = (Vec::new(), Vec::new());
        for peer in self.peers.iter_mut() {
            match &mut peer.sink {
                Sink::Inproc { core, peer, .. } => inproc.push((core.clone(), *peer)),
                Sink::Wire(wire) => wakers.extend(wire.task()),
            }
        }
        (wakers, inproc)
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[inline]
pub(super) fn check_frames(message: &Message) -> Result<()> {
    if message.frames().is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "message has no frame"));
    }
    Ok(())
}

fn single_frame(kind: SocketType, message: &Message) -> Result<()> {
    let frames = message.frames().len();
    if frames == 1 {
        return Ok(());
    }
    let text = format!("message to {kind} has {frames} frames; the type sends one");
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// Sent to each new peer with the option `routing.probe`.
pub(super) fn probe(batch: &mut Batch) {
    batch.push(&Message::from(Bytes::new()));
}

//! Receiving of messages, by socket type.

use super::{Core, lane::Lane, turn::Turn};
use crate::{Error, ErrorKind, Message, Result};
use std::{
    pin::pin,
    sync::{MutexGuard, PoisonError, atomic::Ordering},
};
use switchboard_core::clock;
use switchboard_net::transport::BoxFuture;
use switchboard_wire::zmtp::{
    SocketType,
    patterns::{Change, Envelope, Reply},
};

impl Core {
    /// Receives a message after [`try_recv`](Self::try_recv) found none: waits up to the option `timeouts.receive`.
    /// Cancel safe. In a box, because callers that need not wait would move the whole future with each message.
    pub(crate) fn recv_later(&self) -> BoxFuture<'_, Result<Message>> {
        Box::pin(self.wait_to_receive())
    }

    async fn wait_to_receive(&self) -> Result<Message> {
        self.check_process()?;
        let deadline = self.options.timeouts.receive.map(|limit| clock::after(clock::now(), limit));
        if self.has_inproc.load(Ordering::Relaxed)
            && self.inbox.spin.poll(deadline, || self.inbox.has_news()).await
            && let Some(message) = self.try_recv()?
        {
            return Ok(message);
        }
        loop {
            let mut readable = pin!(self.inbox.readable.notified());
            readable.as_mut().enable();
            if let Some(message) = self.try_recv()? {
                // A notification is for one receiver; others may wait for the messages that are left.
                if self.inbox.has_messages() {
                    self.inbox.readable.notify_one();
                }
                return Ok(message);
            }
            // Messages that other receivers take, or that no subscription matches, may arrive again and again.
            if deadline.is_some_and(|deadline| deadline <= clock::now()) {
                return Err(self.nothing_received());
            }
            match deadline {
                None => readable.await,
                Some(deadline) => tokio::time::timeout_at(deadline.into(), readable)
                    .await
                    .map_err(|_| self.nothing_received())?,
            }
        }
    }

    pub(crate) fn nothing_received(&self) -> Error {
        let text = match self.options.timeouts.receive {
            Some(limit) => format!("{} received no message within {limit:?} (timeouts.receive)", self.kind),
            None => format!("{} has no message", self.kind),
        };
        Error::new(ErrorKind::TimedOut, text)
    }

    /// Returns the next message, `None` if there is none now.
    #[inline]
    pub(crate) fn try_recv(&self) -> Result<Option<Message>> {
        let mut message = None;
        match self.kind {
            SocketType::Pull | SocketType::Dealer | SocketType::Pair => self.inbox.pop_into(&mut message),
            _ => message = self.try_recv_other()?,
        }
        if message.is_none() && *self.phase.borrow() != super::Phase::Open {
            return Err(Error::closed());
        }
        Ok(message)
    }

    fn try_recv_other(&self) -> Result<Option<Message>> {
        Ok(match self.kind {
            SocketType::Pub | SocketType::Push | SocketType::Radio | SocketType::Scatter => {
                return Err(Error::new(ErrorKind::State, format!("{} sends only", self.kind)));
            }
            SocketType::Sub | SocketType::Dish => self.inbox.try_pop(|_, message| {
                let filter = self.filter();
                let first = message.frames().first().map_or(&[][..], |frame| frame);
                filter.matches(self.kind, first).then_some(message)
            }),
            SocketType::Router | SocketType::Server | SocketType::Stream | SocketType::Peer => {
                self.inbox.try_pop(|lane, message| Some(message.behind(lane.route.clone())))
            }
            SocketType::Rep => {
                let may_receive = || self.turn().may_receive();
                self.inbox.try_pop_if(may_receive, |lane, message| self.receive_request(lane, message))?
            }
            SocketType::Xpub if self.options.subscriptions.is_manual() => {
                self.inbox.try_pop(|lane, message| {
                    if Change::read(message.frames()).is_some() {
                        *self.turn() = Turn::Xpub(Some(lane.peer));
                    }
                    Some(message)
                })
            }
            SocketType::Req => {
                let may_receive = || self.turn().may_receive();
                let reply =
                    self.inbox.try_pop_if(may_receive, |lane, message| self.receive_reply(lane, message))?;
                if reply.is_none() {
                    self.turn().check_lost()?;
                }
                reply
            }
            _ => self.inbox.try_pop(|_, message| Some(message)),
        })
    }

    /// Returns true if sockets of this type receive.
    pub(crate) fn receives(&self) -> bool {
        !matches!(self.kind, SocketType::Pub | SocketType::Push | SocketType::Radio | SocketType::Scatter)
    }

    /// Returns true if sockets of this type send.
    pub(crate) fn sends(&self) -> bool {
        !matches!(self.kind, SocketType::Dish | SocketType::Gather | SocketType::Pull | SocketType::Sub)
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn filter(&self) -> MutexGuard<'_, super::filter::Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the envelope of a request for its reply. A message without an envelope is dropped.
    fn receive_request(&self, lane: &Lane, message: Message) -> Option<Message> {
        let mut frames = message.into_frames();
        let envelope = Envelope::split(&mut frames)?;
        if let Turn::Rep(due) = &mut *self.turn() {
            *due = Some((lane.peer, envelope));
        }
        Some(Message::from(frames))
    }

    /// Returns the body of the expected reply. A late reply is dropped, and a malformed one closes its connection.
    fn receive_reply(&self, lane: &Lane, message: Message) -> Option<Message> {
        let mut turn = self.turn();
        let Turn::Req { requests, pending, is_lost, .. } = &mut *turn else { return None };
        match requests.reply(lane.peer, message.into_frames()) {
            Reply::Body(frames) => {
                *pending = None;
                *is_lost = false;
                Some(Message::from(frames))
            }
            Reply::Late => None,
            Reply::Malformed => {
                drop(turn);
                self.abort(lane.peer, "a reply does not begin with the envelope of REQ");
                None
            }
        }
    }
}

//! A DEALER of the application: messages to its peers in turn, and messages of all of them.

use super::router::{Peers, Queued, ZmtpRouter};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, mpsc};

/// A DEALER: sends each message to one of its peers, in turn among those that have room, and receives from all.
///
/// Peers are those of the types that [`Zmtp::dealer`](super::Zmtp::dealer) maps to it. A REP needs an empty frame
/// before the request, and its reply begins with the same frames up to that one.
///
/// ```no_run
/// use bytes::Bytes;
/// use switchboard_adapter::{SocketType, Zmtp, ZmtpRouterOptions};
/// use switchboard_message::Bus;
///
/// # async fn work() -> switchboard_core::Result<()> {
/// let (zmtp, mut workers) = Zmtp::new(Bus::new()).dealer([SocketType::Rep], ZmtpRouterOptions::default());
/// // … Server::new().plugin(zmtp)
/// # drop(zmtp);
/// workers.send(vec![Bytes::from_static(b"7"), Bytes::new(), Bytes::from_static(b"task")]).await?;
/// let result = workers.recv().await;                                      // "7", "", the result
/// # drop(result);
/// # Ok(())
/// # }
/// ```
pub struct ZmtpDealer {
    received: mpsc::Receiver<Queued>,
    sender: ZmtpDealerSender,
}

/// Sends messages to the peers of a [`ZmtpDealer`]. Cheap to clone.
#[derive(Clone)]
pub struct ZmtpDealerSender {
    peers: Arc<Peers>,
}

/// The room of a peer, once it has some.
type Room = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

impl ZmtpDealer {
    /// Creates a dealer of the peers of a router.
    pub(super) fn new(router: ZmtpRouter) -> ZmtpDealer {
        let (received, peers) = router.into_parts();
        ZmtpDealer { received, sender: ZmtpDealerSender { peers } }
    }

    /// Returns the next message of any peer; `None` when the plugin and its servers are gone. Peers are not read while
    /// the application does not receive.
    ///
    /// Cancel safe: a dropped `recv` loses no message.
    pub async fn recv(&mut self) -> Option<Vec<Bytes>> {
        self.received.recv().await.map(|queued| queued.message.frames)
    }

    /// Returns a handle that sends to the peers.
    pub fn sender(&self) -> ZmtpDealerSender {
        self.sender.clone()
    }

    /// Sends a message to one of the peers; see [`ZmtpDealerSender::send`].
    ///
    /// # Errors
    /// Returns the errors of [`ZmtpDealerSender::send`].
    pub async fn send(&self, frames: Vec<Bytes>) -> Result<()> {
        self.sender.send(frames).await
    }
}

impl ZmtpDealerSender {
    /// Sends a message to the next peer that has room; waits until there is one. The message is lost if the peer
    /// disconnects before it has read it.
    ///
    /// Cancel safe: a dropped `send` has sent nothing, or the whole message.
    ///
    /// # Errors
    /// `InvalidArgument` for a message without frames.
    pub async fn send(&self, mut frames: Vec<Bytes>) -> Result<()> {
        let permits = self.peers.permits(&frames)?;
        loop {
            let mut added = pin!(self.peers.added());
            // Before the peers are listed, so that none is missed.
            added.as_mut().enable();
            if let Some((number, route, permit)) = self.peers.next_with_room(permits) {
                match route.send(frames, permit).await {
                    Ok(()) => {
                        self.peers.set_last(number);
                        return Ok(());
                    }
                    Err(returned) => {
                        self.peers.set_last(number);
                        frames = returned;
                        continue;
                    }
                }
            }
            let routes = self.peers.in_turn();
            let wait =
                |room: Arc<tokio::sync::Semaphore>| Some(Box::pin(room.acquire_many_owned(permits)) as Room);
            let mut rooms: Vec<Option<Room>> =
                routes.iter().map(|(_, route)| wait(route.room.clone())).collect();
            let found = poll_fn(|cx| {
                for (at, room) in rooms.iter_mut().enumerate() {
                    match room.as_mut().map(|waiting| waiting.as_mut().poll(cx)) {
                        Some(Poll::Ready(Ok(permit))) => return Poll::Ready(Some((at, permit))),
                        // The peer has disconnected.
                        Some(Poll::Ready(Err(_))) => *room = None,
                        Some(Poll::Pending) | None => {}
                    }
                }
                added.as_mut().poll(cx).map(|()| None)
            });
            let Some((at, permit)) = found.await else { continue };
            let (number, route) = &routes[at];
            match route.send(frames, permit).await {
                Ok(()) => {
                    self.peers.set_last(*number);
                    return Ok(());
                }
                Err(returned) => frames = returned,
            }
        }
    }

    /// Sends a message to the next peer that has room, if there is one.
    ///
    /// # Errors
    /// `Unavailable` without a peer, `ResourceExhausted` if no peer has room, `InvalidArgument` for a message without
    /// frames.
    pub fn try_send(&self, mut frames: Vec<Bytes>) -> Result<()> {
        let permits = self.peers.permits(&frames)?;
        if let Some((number, route, permit)) = self.peers.next_with_room(permits) {
            match route.try_send(frames, permit) {
                Ok(()) => {
                    self.peers.set_last(number);
                    return Ok(());
                }
                Err(returned) => frames = returned,
            }
        }
        let routes = self.peers.in_turn();
        if routes.is_empty() {
            return Err(Status::unavailable("no peer is connected to this DEALER"));
        }
        for (number, route) in &routes {
            let Ok(permit) = route.room.clone().try_acquire_many_owned(permits) else { continue };
            match route.try_send(frames, permit) {
                Ok(()) => {
                    self.peers.set_last(*number);
                    return Ok(());
                }
                Err(returned) => frames = returned,
            }
        }
        let text = format!("none of the {} peers of this DEALER has room (peer_bytes_max)", routes.len());
        Err(Status::resource_exhausted(text))
    }

    /// Returns the number of connected peers.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }
}

impl fmt::Debug for ZmtpDealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmtpDealer").field("peers", &self.sender.peers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ZmtpDealerSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmtpDealerSender").field("peers", &self.peers()).finish_non_exhaustive()
    }
}

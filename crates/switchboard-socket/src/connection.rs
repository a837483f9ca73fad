//! A connection to a peer: handshake, then one task that reads and writes until either side ends it.

mod handshake;
mod link;
mod raw;
mod seal;
#[cfg(test)]
mod tests;
mod watch;

use crate::{
    PeerId,
    core::{Attach, Batch, Core, PeerMetadata},
    monitor::Event,
};
use bytes::Bytes;
use handshake::Ends;
use link::Link;
use raw::RawLink;
use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_net::{net::Io, transport::BoxFuture};
use switchboard_wire::zmtp::{Properties, SocketType};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, watch as channel},
    time::timeout,
};

/// Time for the peer to read the last messages and to close its side. Closing a socket with unread bytes would reset
/// the connection and lose what the peer has not read.
const CLOSE_READ_TIME: Duration = Duration::from_millis(500);

/// Reason for the end of a connection whose peer does not read.
const OUT_OF_TIME: &str = "unsent messages are out of time (timeouts.linger)";

/// End of a connection.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) reason: String,
    /// The handshake was complete.
    pub(crate) was_open: bool,
    /// This side ended the connection: it is not established again.
    pub(crate) is_final: bool,
}

/// Side of a connection, which determines its end.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The peer connected.
    Accepted {
        /// Address of the peer.
        address: Arc<str>,
        /// Permit of its handshake.
        permit: Option<OwnedSemaphorePermit>,
    },
    /// This side connected.
    Connected {
        /// Routing id of the peer, instead of its own one.
        route: Option<Bytes>,
        /// The peer that connects again.
        known: Option<PeerId>,
        /// Ends the connection once its messages are written.
        stop: channel::Receiver<Option<Instant>>,
    },
}

/// A connection before its handshake, by its origin.
struct Incoming {
    ends: Ends,
    known: Option<PeerId>,
    route: Option<Bytes>,
    stop: Option<channel::Receiver<Option<Instant>>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    fn new(endpoint: &Arc<str>, origin: Origin) -> Incoming {
        let endpoint = endpoint.clone();
        match origin {
            Origin::Accepted { address, permit } => {
                let ends = Ends { endpoint, address, is_accepted: true };
                Incoming { ends, known: None, route: None, stop: None, permit }
            }
            Origin::Connected { known, route, stop } => {
                let ends = Ends { address: endpoint.clone(), endpoint, is_accepted: false };
                Incoming { ends, known, route, stop: Some(stop), permit: None }
            }
        }
    }
}

/// Returns the task that runs a connection from its handshake to its end.
pub(crate) fn run(core: Arc<Core>, io: Box<dyn Io>, endpoint: Arc<str>, origin: Origin) -> ConnectionTask {
    let incoming = Incoming::new(&endpoint, origin);
    let stage = match core.kind {
        SocketType::Stream => Stage::Closing(Box::pin(async move {
            run_raw(&core, io, incoming).await.unwrap_or_else(|reason| failed(&core, &endpoint, reason))
        })),
        _ => Stage::Opening(Box::pin(async move {
            open(&core, io, incoming).await.map_err(|reason| failed(&core, &endpoint, reason))
        })),
    };
    ConnectionTask(stage)
}

fn failed(core: &Core, endpoint: &str, reason: String) -> Ended {
    tracing::debug!(target: "switchboard::socket", %endpoint, reason, "handshake failed");
    core.monitors.emit(|| Event::HandshakeFailed { endpoint: endpoint.to_owned(), reason: reason.clone() });
    Ended { reason, was_open: false, is_final: false }
}

/// The task of a connection; resolves to its end. The parts that an idle connection does not need are in boxes: ten
/// thousand idle connections need as many tasks.
pub(crate) struct ConnectionTask(Stage);

enum Stage {
    Opening(BoxFuture<'static, Result<OpenConnection, Ended>>),
    Open(OpenConnection),
    /// Also the whole connection of a STREAM.
    Closing(BoxFuture<'static, Ended>),
    Over,
}

impl Future for ConnectionTask {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            match &mut self.0 {
                Stage::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(open) => self.0 = Stage::Open(open),
                    Err(ended) => return Poll::Ready(ended),
                },
                Stage::Open(open) => {
                    let reason = ready!(open.poll(cx));
                    if let Stage::Open(open) = mem::replace(&mut self.0, Stage::Over) {
                        self.0 = Stage::Closing(Box::pin(open.close(reason)));
                    }
                }
                Stage::Closing(closing) => return closing.as_mut().poll(cx),
                Stage::Over => return Poll::Pending,
            }
        }
    }
}

/// A connection after its handshake.
struct OpenConnection {
    link: Link,
    ends: EndReasons,
}

impl OpenConnection {
    /// Returns the reason for which the connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        match self.link.poll(cx) {
            Poll::Pending => self.ends.poll(&self.link, cx),
            ended => ended,
        }
    }

    async fn close(self, reason: String) -> Ended {
        let OpenConnection { link, ends } = self;
        drop(ends);
        let (core, id, is_flushed) = (link.core().clone(), link.id(), link.is_flushed());
        let (io, unsent) = link.into_parts();
        close(&core, id, unsent, reason, is_flushed.then_some(io)).await
    }
}

/// Runs the handshake of a connection and adds it to its socket.
///
/// # Errors
/// Returns the reason for which the handshake failed.
async fn open(core: &Arc<Core>, mut io: Box<dyn Io>, incoming: Incoming) -> Result<OpenConnection, String> {
    let Incoming { ends, known, route, stop, permit } = incoming;
    let limit = core.options.timeouts.handshake;
    let handshake = timeout(limit, handshake::run(core, &mut *io, &ends))
        .await
        .unwrap_or_else(|_| Err(format!("handshake not complete within {limit:?} (timeouts.handshake)")))?;
    let metadata = PeerMetadata {
        address: ends.address,
        user_id: handshake.user_id.as_str().into(),
        properties: handshake.peer.properties.clone(),
    };
    let peer = &handshake.peer;
    let identity = route.as_ref().unwrap_or(&peer.identity);
    let attached =
        core.attach(Attach { endpoint: &ends.endpoint, kind: peer.socket, identity, known, metadata })?;
    opened(core, &ends.endpoint, attached.id, handshake.peer.socket);
    drop(permit);
    let ends = EndReasons::new(core, attached.id, stop);
    Ok(OpenConnection { link: Link::new(core.clone(), io, handshake, attached), ends })
}

/// Runs a connection of a STREAM, which has no handshake.
///
/// # Errors
/// Returns the reason for which the socket refuses the connection.
async fn run_raw(core: &Arc<Core>, io: Box<dyn Io>, incoming: Incoming) -> Result<Ended, String> {
    let Incoming { ends, route, stop, permit, .. } = incoming;
    let metadata =
        PeerMetadata { address: ends.address, user_id: "".into(), properties: Properties::default() };
    let (endpoint, identity) = (&ends.endpoint, &route.unwrap_or_default());
    let kind = SocketType::Stream;
    let attached = core.attach(Attach { endpoint, kind, identity, known: None, metadata })?;
    let id = attached.id;
    opened(core, endpoint, id, kind);
    drop(permit);
    let mut link = RawLink::new(core.clone(), io, attached);
    let mut lingered = None;
    let linked = poll_fn(|cx| match link.poll(cx) {
        // The application may end a connection whose peer does not read.
        Poll::Pending if link.is_closing() => {
            let lingered = lingered.get_or_insert_with(|| Box::pin(linger(core, clock::now())));
            lingered.as_mut().poll(cx).map(|()| OUT_OF_TIME.to_owned())
        }
        polled => polled,
    });
    let reason = tokio::select! {
        biased;
        reason = linked => reason,
        reason = stopped(core, id, stop) => reason,
    };
    let (is_flushed, is_final) = (link.is_flushed(), link.is_closing());
    let (io, unsent) = link.into_parts();
    let ended = close(core, id, unsent, reason, is_flushed.then_some(io)).await;
    Ok(Ended { is_final, ..ended })
}

fn opened(core: &Core, endpoint: &Arc<str>, peer: PeerId, kind: SocketType) {
    core.monitors.emit(|| Event::HandshakeSucceeded {
        endpoint: endpoint.to_string(),
        peer,
        socket_type: kind.name(),
    });
}

/// Waits until a connection must end: its socket closes or its endpoint was stopped, and its messages are out of time.
async fn stopped(core: &Arc<Core>, id: PeerId, stop: Option<channel::Receiver<Option<Instant>>>) -> String {
    let retired = async {
        match stop {
            Some(stop) => retired(core, id, stop).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = core.out_of_time() => OUT_OF_TIME.to_owned(),
        () = retired => "the endpoint was disconnected".to_owned(),
    }
}

/// Ends a connection at its socket, and closes it gracefully if everything was written.
async fn close(
    core: &Arc<Core>,
    id: PeerId,
    unsent: Batch,
    reason: String,
    flushed: Option<Box<dyn Io>>,
) -> Ended {
    core.detach(id, unsent, &reason);
    if let Some(io) = flushed {
        Box::pin(close_gracefully(io)).await;
    }
    Ended { reason, was_open: true, is_final: false }
}

/// Reasons for which a connection ends besides those of its link. Each is awaited when it can occur: most connections
/// have no heartbeats, were accepted, and belong to a socket that is open.
#[derive(Default)]
struct EndReasons {
    awaited: Vec<BoxFuture<'static, String>>,
    /// The time without bytes of the peer is awaited.
    is_watched: bool,
    /// The time of the unsent messages is awaited.
    is_closing: bool,
}

impl EndReasons {
    fn new(core: &Arc<Core>, id: PeerId, stop: Option<channel::Receiver<Option<Instant>>>) -> EndReasons {
        let mut ends = EndReasons::default();
        if let Some(stop) = stop {
            let core = core.clone();
            ends.awaited.push(Box::pin(async move {
                retired(&core, id, stop).await;
                "the endpoint was disconnected".to_owned()
            }));
        }
        ends
    }

    fn poll(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<String> {
        let (core, id) = (link.core(), link.id());
        if let Some(activity) = link.activity().filter(|_| !self.is_watched) {
            self.is_watched = true;
            let (core, activity) = (core.clone(), activity.clone());
            self.awaited.push(Box::pin(async move { activity.expired(&core, id).await }));
        }
        if link.is_closing() && !self.is_closing {
            self.is_closing = true;
            let core = core.clone();
            self.awaited.push(Box::pin(async move {
                core.out_of_time().await;
                OUT_OF_TIME.to_owned()
            }));
        }
        let mut polled = self.awaited.iter_mut().map(|end| end.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }
}

/// Lets the connection write its messages after its endpoint was stopped; returns when they are out of time.
async fn retired(core: &Arc<Core>, id: PeerId, mut stop: channel::Receiver<Option<Instant>>) {
    let stopped = stop.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
    core.retire(id);
    // Without a sender the endpoint has ended too.
    linger(core, stopped.unwrap_or_else(clock::now)).await;
}

/// Waits until the messages of a connection that ends since `stopped` are out of time.
async fn linger(core: &Core, stopped: Instant) {
    match core.linger_end(stopped) {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Ends the sending side, and reads until the peer ends its own.
async fn close_gracefully(mut io: Box<dyn Io>) {
    let read = async {
        io.shutdown().await?;
        let mut rest = [0; 1024];
        while io.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    // The peer may be gone already.
    let _ = timeout(CLOSE_READ_TIME, read).await;
}

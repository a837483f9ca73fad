//! A connection to a peer: handshake, then one task that reads and writes until either side ends it.

mod handshake;
mod link;
mod seal;
#[cfg(test)]
mod tests;
mod watch;

use crate::{
    PeerId,
    core::{Attach, Core, PeerMetadata},
    monitor::Event,
};
use handshake::Ends;
use link::Link;
use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_net::net::Io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, watch as channel},
    time::timeout,
};
use watch::Activity;

/// Time for the peer to read the last messages and to close its side. Closing a socket with unread bytes would reset
/// the connection and lose what the peer has not read.
const CLOSE_READ_TIME: Duration = Duration::from_millis(500);

/// End of a connection.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) reason: String,
    /// The handshake was complete.
    pub(crate) was_open: bool,
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
        /// The peer that connects again.
        known: Option<PeerId>,
        /// Ends the connection once its messages are written.
        stop: channel::Receiver<Option<Instant>>,
    },
}

/// Runs a connection from its handshake to its end.
pub(crate) async fn run(core: &Arc<Core>, mut io: Box<dyn Io>, endpoint: &Arc<str>, origin: Origin) -> Ended {
    let (known, stop, permit, address) = match origin {
        Origin::Accepted { address, permit } => (None, None, permit, address),
        Origin::Connected { known, stop } => (known, Some(stop), None, endpoint.clone()),
    };
    let ends = Ends { endpoint: endpoint.clone(), address };
    let limit = core.options.timeouts.handshake;
    let handshake = match timeout(limit, handshake::run(core, &mut *io, &ends)).await {
        Ok(handshake) => handshake,
        Err(_) => Err(format!("handshake not complete within {limit:?} (timeouts.handshake)")),
    };
    let handshake = handshake.and_then(|handshake| {
        let metadata = PeerMetadata {
            address: ends.address,
            user_id: handshake.user_id.as_str().into(),
            properties: handshake.peer.properties.clone(),
        };
        let attached = core.attach(Attach { endpoint, peer: &handshake.peer, known, metadata })?;
        Ok((handshake, attached))
    });
    let (handshake, attached) = match handshake {
        Ok(pair) => pair,
        Err(reason) => {
            tracing::debug!(target: "switchboard::socket", %endpoint, reason, "handshake failed");
            core.monitors
                .emit(|| Event::HandshakeFailed { endpoint: endpoint.to_string(), reason: reason.clone() });
            return Ended { reason, was_open: false };
        }
    };
    let id = attached.id;
    core.monitors.emit(|| Event::HandshakeSucceeded {
        endpoint: endpoint.to_string(),
        peer: id,
        socket_type: handshake.peer.socket.name(),
    });
    drop(permit);
    let activity = Arc::new(Activity::new(&core.options.heartbeats));
    let mut link = Link::new(core.clone(), io, handshake, attached, activity.clone());
    let reason = tokio::select! {
        biased;
        reason = poll_fn(|cx| link.poll(cx)) => reason,
        reason = activity.expired(core, id) => reason,
        () = core.out_of_time() => "unsent messages are out of time (timeouts.linger)".to_owned(),
        () = retired(core, id, stop) => "the endpoint was disconnected".to_owned(),
    };
    let is_flushed = link.is_flushed();
    let (io, unsent) = link.into_parts();
    core.detach(id, unsent, &reason);
    if is_flushed {
        close_gracefully(io).await;
    }
    Ended { reason, was_open: true }
}

/// Lets the connection write its messages after its endpoint was stopped; returns when they are out of time.
async fn retired(core: &Arc<Core>, id: PeerId, stop: Option<channel::Receiver<Option<Instant>>>) {
    let Some(mut stop) = stop else { return std::future::pending().await };
    let stopped = stop.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
    core.retire(id);
    // Without a sender the endpoint has ended too.
    match core.linger_end(stopped.unwrap_or_else(clock::now)) {
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

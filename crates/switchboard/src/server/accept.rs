//! Accepting, sniffing and handing over connections.

use super::{Open, Shared};
use crate::{
    Limits, Peer,
    driver::{Accepted, Connection, Wakes},
    net::{Io, Listener, Pipe},
    runtime,
};
use bytes::BytesMut;
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};
use switchboard_wire::{
    native,
    sniff::{self, Protocol, Sniffed},
};
use tokio::{io::AsyncReadExt, sync::watch, time::timeout};

/// After a failed accept, usually for want of file descriptors: time for some to be closed.
const PAUSE: Duration = Duration::from_millis(50);

/// What a connection may hold before its protocol is known.
const FIRST_BYTES: usize = 512;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Accepts until the server stops.
pub(super) async fn run(
    mut listener: Listener,
    shared: Arc<Shared>,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
) {
    let limits = Arc::new(limits);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted {
            Ok((pipe, address, socket)) => {
                let peer = Peer { wire: "", address, socket };
                accept(pipe, peer, &shared, &limits);
            }
            Err(error) => {
                tracing::warn!("accept: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn accept(pipe: Pipe, peer: Peer, shared: &Arc<Shared>, limits: &Arc<Limits>) {
    shared.metrics.accepted.fetch_add(1, Ordering::Relaxed);
    let wakes = Arc::new(Wakes::default());
    let key = NEXT.fetch_add(1, Ordering::Relaxed);
    {
        let mut open = shared.open();
        if open.len() >= shared.limits.connections_max() {
            tracing::warn!(peer = %peer.address, "closed: {} connections are open (connections_max)", open.len());
            return;
        }
        open.insert(key, Open { wakes: wakes.clone(), cut: None });
    }
    let (listed, limits) = (Listed { key, shared: shared.clone() }, limits.clone());
    let cut = runtime::deal(move |shard| async move {
        match pipe.adopt() {
            Ok(io) => serve(io, peer, listed.shared.clone(), limits, wakes, shard).await,
            Err(error) => tracing::warn!(peer = %peer.address, "closed: {error}"),
        }
        drop(listed);
    });
    match shared.open().get_mut(&key) {
        Some(open) => open.cut = Some(cut),
        // The server was cut meanwhile, or the connection has ended already.
        None => cut.abort(),
    }
}

/// Takes the connection off the list however its task ends.
struct Listed {
    key: u64,
    shared: Arc<Shared>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.open().remove(&self.key);
    }
}

/// Finds out which protocol the peer speaks and runs it to the end.
async fn serve(
    mut io: Box<dyn Io>,
    mut peer: Peer,
    shared: Arc<Shared>,
    limits: Arc<Limits>,
    wakes: Arc<Wakes>,
    shard: usize,
) {
    let mut first = BytesMut::with_capacity(FIRST_BYTES);
    let peeked = until_drained(peek(&mut io, &mut first), &shared, &wakes);
    let protocol = match timeout(limits.sniff_timeout(), peeked).await {
        Ok(Some(protocol)) => protocol,
        Ok(None) => {
            if !first.is_empty() {
                shared.metrics.unknown_protocol.fetch_add(1, Ordering::Relaxed);
                let bytes = &first[..first.len().min(4)];
                tracing::debug!(peer = %peer.address, "closed: the first bytes {bytes:02x?} are of no protocol known here");
            }
            return;
        }
        Err(_) => {
            shared.metrics.unknown_protocol.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(peer = %peer.address, "closed: no protocol shown within {:?} (sniff_timeout)", limits.sniff_timeout());
            return;
        }
    };
    match protocol {
        Protocol::Native => {
            peer.wire = "native";
            let wire = native::Server::new(limits.wire(), shared.table.clone());
            let (age, grace) = (limits.connection_age(), limits.drain_timeout());
            let retire = wakes.clone();
            let accepted = Accepted { io, input: first, peer, settings: limits, shared, wakes, shard };
            let connection = Connection::new(accepted, wire);
            match age {
                None => connection.await,
                // Boxed, or every connection would have room for the timers.
                Some(age) => Box::pin(until_old(connection, age, grace, &retire)).await,
            }
        }
        #[cfg(feature = "http")]
        Protocol::Http1 | Protocol::Http2 => {
            // Boxed, or every native connection would have room for one of HTTP.
            Box::pin(crate::http::serve(io, first, peer, shared, &limits, shard)).await;
        }
        _ => {}
    }
}

/// Runs a connection to its end, which is to be near once it has this age.
async fn until_old(connection: impl Future<Output = ()>, age: Duration, grace: Duration, wakes: &Wakes) {
    let mut connection = pin!(connection);
    if timeout(age, &mut connection).await.is_err() {
        wakes.retire();
        // What has not ended by then is cut.
        let _ = timeout(grace, connection).await;
    }
}

/// Waits for the first bytes of a peer, but not once the server drains: a peer that has not begun is not waited for.
async fn until_drained(
    peek: impl Future<Output = Option<Protocol>>,
    shared: &Shared,
    wakes: &Wakes,
) -> Option<Protocol> {
    let mut peek = pin!(peek);
    poll_fn(|cx| {
        wakes.take(cx.waker(), &mut Vec::new());
        match peek.as_mut().poll(cx) {
            Poll::Pending if shared.draining.load(Ordering::Relaxed) => Poll::Ready(None),
            polled => polled,
        }
    })
    .await
}

/// Reads until the protocol is known; none when the peer speaks nothing that is known, or has gone.
async fn peek(io: &mut Box<dyn Io>, first: &mut BytesMut) -> Option<Protocol> {
    loop {
        match sniff::sniff(first) {
            Sniffed::Protocol(protocol) => return Some(protocol),
            Sniffed::Unknown => return None,
            Sniffed::More => {}
        }
        if !matches!(io.read_buf(first).await, Ok(n) if n > 0) {
            return None;
        }
    }
}

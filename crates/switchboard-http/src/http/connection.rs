//! One HTTP connection: hyper on the bytes of the socket, and graceful shutdown.

use super::{
    HttpState, connection_memory::ConnectionMemory, pings::Pings, router::RequestRouter, socket::Prefixed,
    turn::Turn,
};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Instant,
};
use switchboard_core::{Limit, Limits, clock, layer::BoxFuture, metrics::ConnectionProtocol};
use switchboard_driver::{driver::Accepted, serving::Drain};
use switchboard_net::connection::Aging;
use tokio::sync::watch;

/// Most streams that an HTTP/2 peer may have open; peers queue the calls above this limit.
const STREAMS_MAX: u64 = 1000;
/// Streams that a peer may open and reset before the server accepts them: the defence against rapid resets.
const RESETS_MAX: usize = 200;
/// Flow control of HTTP/2: bytes that may be in flight to one stream and to the connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of replies that one HTTP/2 stream may buffer for its peer.
const SEND_BUFFER: usize = 256 << 10;
/// The smallest buffer that hyper accepts for HTTP/1.1; also what it gets for reading bodies besides a head.
const BUFFER_LEAST: usize = 8 << 10;
const READ_BUFFER: usize = 64 << 10;

/// Serves one connection to its end. If the connection is upgraded to a WebSocket, that is the end of the WebSocket.
///
/// When the server drains, the peer is notified and running calls may complete.
///
/// The future is boxed, so that this crate has its code.
pub fn serve(accepted: Accepted, shared: Arc<HttpState>) -> BoxFuture<'static, ()> {
    Box::pin(run(accepted, shared))
}

async fn run(accepted: Accepted, shared: Arc<HttpState>) {
    let Accepted { io, input: first, peer, settings, shared: server, wakes, shard } = accepted;
    let is_http2 = first.starts_with(b"PRI ");
    let drain = shared.drain_http.subscribe();
    let old = settings.connection_age().map(|age| clock::after(clock::now(), age));
    let unread_max = if is_http2 { CONNECTION_WINDOW as usize } else { http1_buffer(&settings) };
    let connection_memory = ConnectionMemory::new(shared.clone(), wakes.clone(), unread_max);
    let front = RequestRouter::new(&peer, connection_memory.clone(), &settings, shard);
    let upgrades = front.upgrades.clone();
    let protocol = if is_http2 { ConnectionProtocol::HTTP2 } else { ConnectionProtocol::HTTP1 };
    let counts = (shared.clone(), shard, protocol);
    let pings = is_http2.then(|| Pings::new(settings.ping_interval_min()));
    let served = connection_memory.clone();
    let turn = Turn::new(settings.connection_turn_max());
    let io = TokioIo::new(Prefixed { first, io, counts, pings, connection_memory, pause: None, turn });
    let ended = if is_http2 {
        let connection = http2(&settings).serve_connection(io, front);
        let shut_down = |connection: Pin<&mut http2::Connection<_, _, _>>| connection.graceful_shutdown();
        until_end(connection, shut_down, drain, (old, &settings), &served, || false).await
    } else {
        let connection = http1(&settings).serve_connection(io, front).with_upgrades();
        let shut_down =
            |connection: Pin<&mut http1::UpgradeableConnection<_, _>>| connection.graceful_shutdown();
        // No request has begun: the buffer is empty or has an incomplete head.
        let is_unused = || !served.has_requests();
        until_end(connection, shut_down, drain, (old, &settings), &served, is_unused).await
    };
    if let Some(upgrade) = upgrades.take() {
        let aging = old.map(|end| Aging { end, grace: settings.drain_timeout(), wakes: wakes.clone() });
        let run =
            upgrade.run(|io, input| Accepted { io, input, peer, settings, shared: server, wakes, shard });
        return match aging {
            None => run.await,
            Some(aging) => Box::pin(aging.until_old(run)).await,
        };
    }
    if let Err(error) = ended {
        if error.is_parse() {
            shared.metrics.protocol_errors.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(peer = %peer.address, "http connection ended: {error}");
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper counts the wait for the next request as part of reading its head.
        .header_read_timeout(limits.idle_timeout())
        .max_header_size(limits.get(Limit::MetadataBytesMax) as usize)
        .max_buf_size(http1_buffer(limits));
    builder
}

/// Most bytes that hyper reads ahead on HTTP/1.1.
fn http1_buffer(limits: &Limits) -> usize {
    (limits.get(Limit::MetadataBytesMax) as usize).max(BUFFER_LEAST) + READ_BUFFER
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // gRPC clients would report the date header as metadata.
        .auto_date_header(false)
        .keep_alive_interval(limits.idle_timeout())
        .keep_alive_timeout(limits.keepalive_timeout())
        .max_header_list_size(limits.get(Limit::MetadataBytesMax) as u32)
        .max_concurrent_streams(limits.get(Limit::CallsMax).min(STREAMS_MAX) as u32)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// Runs the connection. When the server drains, or the connection reaches its maximum age, starts a graceful shutdown.
/// A connection that is unused when the server drains is closed, and incomplete bodies are refused when the remaining
/// calls are aborted.
async fn until_end<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    shut_down: fn(Pin<&mut C>),
    mut drain: watch::Receiver<Drain>,
    (old, limits): (Option<Instant>, &Limits),
    connection_memory: &ConnectionMemory,
    is_unused: impl Fn() -> bool,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let is_old = {
        let mut drains = pin!(drain.wait_for(|drain| *drain != Drain::Open));
        let mut old = old.map(|old| Box::pin(tokio::time::sleep_until(old.into())));
        let first = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Err(ended));
            }
            if old.as_mut().is_some_and(|old| old.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(true));
            }
            drains.as_mut().poll(cx).map(|_| Ok(false))
        });
        match first.await {
            Ok(is_old) => is_old,
            Err(ended) => return ended,
        }
    };
    shut_down(connection.as_mut());
    if !is_old && is_unused() {
        return Ok(());
    }
    let mut ending = pin!(drain.wait_for(|drain| *drain == Drain::Ending));
    let mut has_ended = false;
    let last = std::future::poll_fn(|cx| {
        if !has_ended && ending.as_mut().poll(cx).is_ready() {
            has_ended = true;
            connection_memory.end_bodies();
        }
        connection.as_mut().poll(cx)
    });
    if is_old {
        // Calls that have not ended by then are aborted.
        return tokio::time::timeout(limits.drain_timeout(), last).await.unwrap_or(Ok(()));
    }
    last.await
}

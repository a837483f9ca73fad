//! HTTP/2: one connection with a stream per call, driven by the task of the caller.
//!
//! Callers encode their request directly into the connection of `h2`, under its lock, and the connection's task writes
//! the requests of all callers. There is no task and no queue between a caller and its stream.

use super::{
    codes,
    link::{self, Common, HttpResponse, Link},
    pipe::{LastReceived, Pipe},
    upload::{Upload, Uploader},
};
use crate::client::{connection::ConnectionEnd, options::Options};
use ::http::{HeaderMap, Request};
use bytes::Bytes;
use h2::{Ping, PingPong, Reason, RecvStream, client};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use switchboard_core::{Limit, Result};
use switchboard_net::net::Io;
use switchboard_wire::{Code, Retry, Status};
use tokio::time::Sleep;

/// Window of the connection: unlimited, because a stream without a reader must not stop the others. Each stream has its
/// own window.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Maximum frame size that is accepted: large frames reduce their number for large replies.
const FRAME_MAX: u32 = 64 << 10;
/// Maximum factor by which a server may lengthen the keepalive time.
const PING_BACKOFF_MAX: u32 = 256;

pub(super) struct Http2 {
    /// `None` once the channel was dropped.
    sender: Mutex<Option<client::SendRequest<Bytes>>>,
}

/// Factor by which a channel lengthens its keepalive time: a server that gets too many pings closes the connection with
/// ENHANCE_YOUR_CALM, which doubles the factor.
#[derive(Clone, Debug)]
pub(in crate::client) struct PingBackoff(Arc<AtomicU32>);

impl Default for PingBackoff {
    fn default() -> Self {
        PingBackoff(Arc::new(AtomicU32::new(1)))
    }
}

impl PingBackoff {
    fn factor(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn double(&self) {
        let doubled = |factor: u32| Some((factor * 2).min(PING_BACKOFF_MAX));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, doubled);
    }
}

impl Http2 {
    pub(super) async fn open(io: Box<dyn Io>, options: &Options) -> Result<(Http2, Driver)> {
        let received = LastReceived::new();
        let (sender, mut connection) = client::Builder::new()
            .enable_push(false)
            .initial_window_size(options.limits.get(Limit::StreamWindowBytes) as u32)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME_MAX)
            .max_header_list_size(options.limits.get(Limit::MetadataBytesMax) as u32)
            .handshake(Pipe::new(io, received.clone()))
            .await
            .map_err(|error| {
                codes::from_path(Code::Unavailable, format!("the connection could not be opened: {error}"))
                    .with_retry(Retry::Safe)
            })?;
        let ping = connection.ping_pong().expect("taken only once");
        let driver = Driver {
            connection,
            ping,
            received,
            keepalive: options.keepalive,
            ping_backoff: options.http.ping_backoff.clone(),
            pinged: None,
            busy: None,
            sleep: None,
        };
        Ok((Http2 { sender: Mutex::new(Some(sender)) }, driver))
    }

    /// Sends the head, and the body if it is complete.
    #[inline]
    pub(super) fn begin(&self, common: &Common, head: Request<()>, body: Upload) -> Result<Exchange> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &mut *sender else { return Err(retired()) };
        // A handle is not ready while its last stream waits for the peer's limit of streams; a clone queues behind it,
        // and the limit of calls bounds the queue.
        if sender.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            *sender = sender.clone();
        }
        let alone = matches!(body, Upload::Nothing);
        let sent = sender.send_request(head, alone).and_then(|(response, mut stream)| match body {
            Upload::Nothing => Ok((response, None)),
            Upload::One(body) => stream.send_data(body, true).map(|()| (response, None)),
            Upload::Many(requests) => Ok((response, Some(Uploader { stream, requests }))),
        });
        match sent {
            Ok((response, uploader)) => Ok(Exchange { response, uploader }),
            Err(error) => {
                let status = status(common, &error);
                if error.is_io() || error.is_go_away() {
                    // Not sent: the connection had ended, or the server accepts no more calls.
                    common.close();
                    return Err(status.with_retry(Retry::Safe));
                }
                Err(status)
            }
        }
    }

    pub(super) fn retire(&self) {
        // The connection closes once all streams and senders are dropped.
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn retired() -> Status {
    codes::from_path(Code::Unavailable, "the channel was dropped".into()).with_retry(Retry::Safe)
}

/// An opened stream.
pub(super) struct Exchange {
    response: client::ResponseFuture,
    uploader: Option<Uploader>,
}

impl Exchange {
    pub(super) fn uploader(&mut self) -> Option<Uploader> {
        self.uploader.take()
    }

    #[inline]
    pub(super) async fn response(self) -> Result<HttpResponse, h2::Error> {
        let (head, body) = self.response.await?.into_parts();
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            body: link::Body::Http2(Body { stream: body, taken: 0 }),
        })
    }
}

/// The body of a response. Credit for a chunk is released when the next one is requested, so that a reader that stops
/// also stops the server.
pub(super) struct Body {
    stream: RecvStream,
    taken: usize,
}

impl Body {
    #[inline]
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        if self.taken > 0 && !self.stream.is_end_stream() {
            // Fails for a stream that was reset; `poll_data` then returns the reason.
            let _ = self.stream.flow_control().release_capacity(std::mem::take(&mut self.taken));
        }
        match ready!(self.stream.poll_data(cx)) {
            Some(Ok(chunk)) => {
                self.taken = chunk.len();
                Poll::Ready(Some(Ok(chunk)))
            }
            // The server has responded and needs no more of the request: the response is complete.
            Some(Err(error)) if error.is_reset() && error.reason() == Some(Reason::NO_ERROR) => {
                Poll::Ready(None)
            }
            other => Poll::Ready(other),
        }
    }

    #[inline]
    pub(super) async fn trailers(&mut self) -> Result<Option<HeaderMap>, h2::Error> {
        match poll_fn(|cx| self.stream.poll_trailers(cx)).await {
            Err(error) if error.is_reset() && error.reason() == Some(Reason::NO_ERROR) => Ok(None),
            trailers => trailers,
        }
    }
}

/// Converts an error of HTTP/2 into the status of the call; the codes are those of the gRPC specification.
pub(super) fn status(common: &Common, error: &h2::Error) -> Status {
    let reason = error.reason().unwrap_or(Reason::INTERNAL_ERROR);
    if error.is_go_away() && error.is_remote() {
        let text = match reason {
            Reason::NO_ERROR => format!("{} takes no more calls: the server is going away", common.peer),
            _ => format!("{} takes no more calls: {error}", common.peer),
        };
        common.close();
        // Streams that the server processes do not get this error: this one was not processed.
        return codes::from_path(Code::Unavailable, text).with_retry(Retry::Safe);
    }
    if error.is_io() {
        return common.ended.get().cloned().unwrap_or_else(|| common.lost("the server closed it"));
    }
    if error.is_go_away() {
        return common.ended.get().cloned().unwrap_or_else(|| common.lost(&error.to_string()));
    }
    let (code, what) = match (error.is_remote(), reason) {
        (true, Reason::REFUSED_STREAM) => {
            let text = format!("{} refused the call before it began: {error}", common.peer);
            return codes::from_path(Code::Unavailable, text).with_retry(Retry::Safe);
        }
        (true, Reason::CANCEL) => (Code::Canceled, "canceled the call"),
        (true, Reason::ENHANCE_YOUR_CALM) => (Code::ResourceExhausted, "reset the call"),
        (true, Reason::INADEQUATE_SECURITY) => (Code::PermissionDenied, "reset the call"),
        (true, _) => (Code::Internal, "reset the call"),
        (false, _) => (Code::Internal, "sent an invalid HTTP/2 response"),
    };
    codes::from_path(code, format!("{} {what}: {error}", common.peer))
}

/// Drives the connection and pings a silent server while calls wait.
pub(super) struct Driver {
    connection: client::Connection<Pipe, Bytes>,
    ping: PingPong,
    received: Arc<LastReceived>,
    keepalive: Duration,
    ping_backoff: PingBackoff,
    pinged: Option<Instant>,
    /// Time since which calls wait.
    busy: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(super) async fn run(self, link: Arc<Link>) -> ConnectionEnd {
        let mut end = Ending { link, driver: self };
        let status = poll_fn(|cx| end.driver.poll(end.link.common(), cx)).await;
        let _ = end.link.common().ended.set(status.clone());
        if end.driver.received.any_received() {
            ConnectionEnd::Responded
        } else {
            ConnectionEnd::Silent(status)
        }
    }

    fn poll(&mut self, common: &Common, cx: &mut Context<'_>) -> Poll<Status> {
        loop {
            if let Poll::Ready(end) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(match end {
                    Ok(()) => common.lost("the server closed it"),
                    Err(error) => {
                        if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && error.is_remote() {
                            self.ping_backoff.double();
                        }
                        common.lost(&error.to_string())
                    }
                });
            }
            if common.calls.load(Ordering::Relaxed) == 0 {
                (self.pinged, self.busy) = (None, None);
                return Poll::Pending;
            }
            match self.check_keepalive(common, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                // A ping must be written.
                Poll::Ready(None) => {}
            }
        }
    }

    /// Ready with `None` after a ping, with a status when the keepalive has failed.
    fn check_keepalive(&mut self, common: &Common, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        let keepalive = self.keepalive.saturating_mul(self.ping_backoff.factor());
        let busy = *self.busy.get_or_insert_with(switchboard_core::clock::now);
        let last = self.received.last().max(busy).max(self.pinged.unwrap_or(busy));
        let wanted = switchboard_core::clock::after(last, keepalive);
        // A timer that fires early costs one empty poll; resetting it with every read would cost more.
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted.into())));
        ready!(sleep.as_mut().poll(cx));
        let mut next = wanted;
        let now = switchboard_core::clock::now();
        if wanted <= now {
            if self.pinged.is_some_and(|pinged| pinged > self.received.last()) {
                return Poll::Ready(Some(
                    common.lost(&format!("no data received for {:?} (keepalive)", keepalive * 2)),
                ));
            }
            self.pinged = Some(now);
            next = switchboard_core::clock::after(now, keepalive);
            // The last pong must be taken before the next ping can be sent.
            let _ = self.ping.poll_pong(cx);
            // Fails while an older ping has no pong yet; that one then counts.
            let _ = self.ping.send_ping(Ping::opaque());
        }
        sleep.as_mut().reset(next.into());
        Poll::Ready(None)
    }
}

/// Closes the connection for new calls when the task ends, also with its runtime.
struct Ending {
    link: Arc<Link>,
    driver: Driver,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let common = self.link.common();
        common.close();
        let _ = common.ended.set(common.lost("its runtime has ended, or it was aborted"));
    }
}

//! HTTP/2: one connection with a stream per call, sent from where the caller is polled.
//!
//! Callers encode their request straight into the connection of `h2`, under its lock, and its task writes what all of
//! them left. No task and no queue lies between a caller and its stream.

use super::{
    codes,
    link::{self, Answer, Common, Link},
    pipe::{Heard, Pipe},
    upload::{Upload, Uploader},
};
use crate::{
    Code, Limit, Result, Retry, Status,
    client::{connection::Ended, options::Options},
    net::Io,
};
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
use tokio::time::Sleep;

/// Flow control of the connection as a whole: none, since a stream that nobody reads must not stop the others. Each
/// stream has its own window.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Largest frame taken: fewer frames for large replies.
const FRAME_MAX: u32 = 64 << 10;
/// How many times longer a server may make the pauses between signs of life.
const CALM_MAX: u32 = 256;

pub(super) struct Http2 {
    /// None once the channel was dropped.
    sender: Mutex<Option<client::SendRequest<Bytes>>>,
}

/// How many times longer than set a channel waits before it asks for a sign of life: a server that finds pings too
/// many says so and ends the connection.
#[derive(Clone, Debug)]
pub(in crate::client) struct Calm(Arc<AtomicU32>);

impl Default for Calm {
    fn default() -> Self {
        Calm(Arc::new(AtomicU32::new(1)))
    }
}

impl Calm {
    fn factor(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn double(&self) {
        let doubled = |factor: u32| Some((factor * 2).min(CALM_MAX));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, doubled);
    }
}

impl Http2 {
    pub(super) async fn open(io: Box<dyn Io>, options: &Options) -> Result<(Http2, Driver)> {
        let heard = Heard::new();
        let (sender, mut connection) = client::Builder::new()
            .enable_push(false)
            .initial_window_size(options.limits.get(Limit::StreamWindowBytes) as u32)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME_MAX)
            .max_header_list_size(options.limits.get(Limit::MetadataBytesMax) as u32)
            .handshake(Pipe::new(io, heard.clone()))
            .await
            .map_err(|error| {
                codes::from_path(Code::Unavailable, format!("the connection could not be opened: {error}"))
                    .with_retry(Retry::Safe)
            })?;
        let ping = connection.ping_pong().expect("nobody took it before");
        let driver = Driver {
            connection,
            ping,
            heard,
            silence: options.keepalive,
            calm: options.http.calm.clone(),
            pinged: None,
            busy: None,
            sleep: None,
        };
        Ok((Http2 { sender: Mutex::new(Some(sender)) }, driver))
    }

    /// Sends the head, and the body if it is whole.
    #[inline]
    pub(super) fn begin(&self, common: &Common, head: Request<()>, body: Upload) -> Result<Exchange> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &mut *sender else { return Err(retired()) };
        // A handle waits when its last stream could not be opened for the peer's limit of streams; a fresh one queues
        // behind it, and the limit of calls bounds the queue.
        if sender.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
            *sender = sender.clone();
        }
        let alone = matches!(body, Upload::Nothing);
        let sent = sender.send_request(head, alone).and_then(|(answer, mut stream)| match body {
            Upload::Nothing => Ok((answer, None)),
            Upload::One(body) => stream.send_data(body, true).map(|()| (answer, None)),
            Upload::Many(requests) => Ok((answer, Some(Uploader { stream, requests }))),
        });
        match sent {
            Ok((answer, uploader)) => Ok(Exchange { answer, uploader }),
            Err(error) => {
                let status = status(common, &error);
                if error.is_io() || error.is_go_away() {
                    // Not sent: the connection had ended, or the server had said that it takes no more.
                    common.close();
                    return Err(status.with_retry(Retry::Safe));
                }
                Err(status)
            }
        }
    }

    pub(super) fn retire(&self) {
        // The connection closes once nobody holds a stream or a sender.
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn retired() -> Status {
    codes::from_path(Code::Unavailable, "the channel was dropped".into()).with_retry(Retry::Safe)
}

/// A stream that was opened.
pub(super) struct Exchange {
    answer: client::ResponseFuture,
    uploader: Option<Uploader>,
}

impl Exchange {
    pub(super) fn uploader(&mut self) -> Option<Uploader> {
        self.uploader.take()
    }

    #[inline]
    pub(super) async fn answer(self) -> Result<Answer, h2::Error> {
        let (head, body) = self.answer.await?.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: link::Body::Http2(Body { stream: body, taken: 0 }),
        })
    }
}

/// The frames of an answer. Credit for a chunk goes back when the next one is asked for, so that a reader that
/// stops also stops the server.
pub(super) struct Body {
    stream: RecvStream,
    taken: usize,
}

impl Body {
    #[inline]
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        if self.taken > 0 && !self.stream.is_end_stream() {
            // Refused for a stream that was reset, which the next line tells better.
            let _ = self.stream.flow_control().release_capacity(std::mem::take(&mut self.taken));
        }
        match ready!(self.stream.poll_data(cx)) {
            Some(Ok(chunk)) => {
                self.taken = chunk.len();
                Poll::Ready(Some(Ok(chunk)))
            }
            // The server has answered and wants no more of the request: nothing is missing.
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

/// What an error of HTTP/2 means for the call; the codes are those of the gRPC specification.
pub(super) fn status(common: &Common, error: &h2::Error) -> Status {
    let reason = error.reason().unwrap_or(Reason::INTERNAL_ERROR);
    if error.is_go_away() && error.is_remote() {
        let text = format!("{} takes no more calls: {error}", common.peer);
        common.close();
        // Streams that it names get no error of this kind: this one it has not looked at.
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
        (true, Reason::ENHANCE_YOUR_CALM) => (Code::ResourceExhausted, "cut the call"),
        (true, Reason::INADEQUATE_SECURITY) => (Code::PermissionDenied, "cut the call"),
        (true, _) => (Code::Internal, "cut the call"),
        (false, _) => (Code::Internal, "sent an answer that breaks HTTP/2"),
    };
    codes::from_path(code, format!("{} {what}: {error}", common.peer))
}

/// Drives the connection and asks a silent server for a sign of life while calls wait.
pub(super) struct Driver {
    connection: client::Connection<Pipe, Bytes>,
    ping: PingPong,
    heard: Arc<Heard>,
    silence: Duration,
    calm: Calm,
    pinged: Option<Instant>,
    /// Since when calls wait.
    busy: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(super) async fn run(self, link: Arc<Link>) -> Ended {
        let mut end = Ending { link, driver: self };
        let status = poll_fn(|cx| end.driver.poll(end.link.common(), cx)).await;
        let _ = end.link.common().ended.set(status.clone());
        if end.driver.heard.anything() { Ended::Heard } else { Ended::Unheard(status) }
    }

    fn poll(&mut self, common: &Common, cx: &mut Context<'_>) -> Poll<Status> {
        loop {
            if let Poll::Ready(end) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(match end {
                    Ok(()) => common.lost("the server closed it"),
                    Err(error) => {
                        if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) && error.is_remote() {
                            self.calm.double();
                        }
                        common.lost(&error.to_string())
                    }
                });
            }
            if common.calls.load(Ordering::Relaxed) == 0 {
                (self.pinged, self.busy) = (None, None);
                return Poll::Pending;
            }
            match self.check_life(common, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                // A ping waits to be written.
                Poll::Ready(None) => {}
            }
        }
    }

    /// Ready with nothing after a ping, with a status when the server is given up.
    fn check_life(&mut self, common: &Common, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        let silence = self.silence.saturating_mul(self.calm.factor());
        let busy = *self.busy.get_or_insert_with(crate::clock::now);
        let wanted = self.heard.last().max(busy).max(self.pinged.unwrap_or(busy)) + silence;
        // An alarm that rings too early costs one empty turn; moving it with every read would cost more.
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted.into())));
        ready!(sleep.as_mut().poll(cx));
        let mut next = wanted;
        let now = crate::clock::now();
        if wanted <= now {
            if self.pinged.is_some_and(|pinged| pinged > self.heard.last()) {
                return Poll::Ready(Some(
                    common.lost(&format!("no sign of life for {:?} (keepalive)", silence * 2)),
                ));
            }
            self.pinged = Some(now);
            next = now + silence;
            // The answer to the last one has to be taken before the next can go.
            let _ = self.ping.poll_pong(cx);
            // An older ping is still without an answer: that one counts.
            let _ = self.ping.send_ping(Ping::opaque());
        }
        sleep.as_mut().reset(next.into());
        Poll::Ready(None)
    }
}

/// However the task ends, also with its runtime, the connection takes no more calls.
struct Ending {
    link: Arc<Link>,
    driver: Driver,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let common = self.link.common();
        common.close();
        let _ = common.ended.set(common.lost("its runtime has ended, or it was cut"));
    }
}

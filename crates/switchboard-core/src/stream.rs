//! Streams of messages: the handles of handlers and callers, at the two ends of a bounded queue.
//!
//! On the server the handler's future is the source of the replies: `HandlerItems` polls it, so a stream needs no task
//! of its own.

mod forward;
mod sink;
mod source;

use crate::{
    Cx, Result,
    codec::FieldNames,
    compression::{Message, Packing},
    queue::{Change, Items, MessageBatch, Queue, RawReceiver},
    runtime,
};
use bytes::Bytes;
use futures_core::Stream;
use source::Source;
use std::{
    fmt,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_wire::{Codec, Metadata, Status};

/// Sends the messages of a stream.
pub struct Sender<T> {
    queue: Arc<Queue>,
    codec: Codec,
    encode: fn(&T, Codec) -> Result<Bytes>,
    /// A client's sender ends its direction of the stream when it is dropped; a server's direction ends when the
    /// handler returns.
    ends: bool,
    packing: Packing,
}

impl<T> Sender<T> {
    #[doc(hidden)]
    pub fn new(
        queue: Arc<Queue>,
        codec: Codec,
        encode: fn(&T, Codec) -> Result<Bytes>,
        ends: bool,
        packing: Packing,
    ) -> Self {
        Sender { queue, codec, encode, ends, packing }
    }

    /// Sends one message; waits while the queue is full.
    ///
    /// Cancel safe: a message whose `send` was dropped before it returned was not sent.
    ///
    /// # Errors
    /// `Canceled` when the other side has disconnected, or the status with which the call ended.
    pub async fn send(&self, message: T) -> Result<()> {
        let mut encoded = Some(self.packing.pack((self.encode)(&message, self.codec)?));
        drop(message);
        poll_fn(|cx| self.queue.poll_push(cx, &mut encoded)).await
    }

    /// Sends every message of `input`, until it ends: of a [`Receiver`], or of any other stream. A handler of a trait
    /// may return the stream instead, and one of a `.proto` file may with `returns_streams` of its build script.
    ///
    /// ```
    /// use switchboard::{Cx, Receiver, Result, Sender};
    ///
    /// #[switchboard::service]
    /// trait Squares {
    ///     async fn below(&self, end: u64, cx: &Cx, out: Sender<u64>) -> Result<()>;
    /// }
    ///
    /// struct Table;
    ///
    /// impl Squares for Table {
    ///     async fn below(&self, end: u64, _: &Cx, out: Sender<u64>) -> Result<()> {
    ///         // Any `Stream` of results will do, such as those of the crates `futures` and `tokio-stream`.
    ///         let squares: Receiver<u64> = (0..end).map(|number| number * number).collect();
    ///         out.pipe(squares).await
    ///     }
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let mut squares = SquaresClient::local(Table).below(3).await?;
    /// assert_eq!((squares.next().await?, squares.next().await?), (Some(0), Some(1)));
    /// # Ok::<_, switchboard::Status>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`send`](Self::send) and of the input.
    pub async fn pipe<E: Into<Status>>(
        &self,
        input: impl Stream<Item = std::result::Result<T, E>>,
    ) -> Result<()> {
        let mut input = pin!(input);
        while let Some(message) = poll_fn(|cx| input.as_mut().poll_next(cx)).await {
            self.send(message.map_err(Into::into)?).await?;
        }
        Ok(())
    }

    /// Ends the stream of messages; dropping a client's sender does the same.
    pub fn finish(self) {
        drop(self);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.ends {
            self.queue.finish(Ok(Metadata::new()));
        }
    }
}

/// Receives the messages of a stream.
pub struct Receiver<T> {
    queue: Arc<Queue>,
    codec: Codec,
    decode: Decode<T>,
    bytes_max: usize,
    batch: MessageBatch,
    /// Changes that layers make to the messages.
    change: Option<Change>,
    /// Observes the progress of the stream, and may retry it.
    follow: Option<Box<dyn Follow>>,
    /// Messages that this process produces, instead of those of the queue.
    source: Option<Source<T>>,
    /// The stream has failed.
    is_over: bool,
}

/// How a [`Receiver`] decodes a message.
enum Decode<T> {
    /// Ignores unknown fields.
    Lenient(fn(Codec, Bytes) -> Result<T>),
    /// Refuses unknown fields, and suggests one of these names instead.
    Strict(fn(Codec, Bytes, FieldNames) -> Result<T>, FieldNames),
}

/// Observes a stream of replies for the balancer that selected its endpoint. If it is dropped before the end, the
/// reader has dropped the stream.
#[doc(hidden)]
pub trait Follow: Send + Sync {
    /// A message has arrived: from now on the stream cannot be retried.
    fn came(&mut self);
    /// The stream has ended successfully.
    fn ended(&mut self);
    /// The stream has failed; returns true if it is retried; then [`poll_again`](Self::poll_again) returns the next
    /// attempt.
    fn failed(&mut self, status: &Status) -> bool;
    /// Returns the queue of the attempt that replaces a failed one; `None` if there is no such attempt.
    fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Queue>>>>;
}

impl<T> Receiver<T> {
    #[doc(hidden)]
    pub fn new(
        queue: Arc<Queue>,
        codec: Codec,
        decode: fn(Codec, Bytes) -> Result<T>,
        bytes_max: usize,
    ) -> Self {
        Receiver {
            queue,
            codec,
            decode: Decode::Lenient(decode),
            bytes_max,
            batch: MessageBatch::default(),
            change: None,
            follow: None,
            source: None,
            is_over: false,
        }
    }

    /// Creates the typed stream of a request; for generated code.
    pub fn of_request(raw: RawReceiver, codec: Codec, decode: fn(Codec, Bytes) -> Result<T>) -> Self {
        let change = raw.0.take_change();
        let mut receiver = Receiver::new(raw.0, codec, decode, usize::MAX);
        receiver.change = change;
        receiver
    }

    #[doc(hidden)]
    pub fn followed_by(mut self, follow: Option<Box<dyn Follow>>) -> Self {
        self.follow = follow;
        self
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let Some(follow) = &mut self.follow else { return self.batch.poll_next(&self.queue, cx) };
        loop {
            match std::task::ready!(follow.poll_again(cx)) {
                None => {}
                Some(Ok(queue)) => {
                    self.queue = queue;
                    self.batch = MessageBatch::default();
                }
                Some(Err(status)) => {
                    self.follow = None;
                    return Poll::Ready(Some(Err(status)));
                }
            }
            let next = std::task::ready!(self.batch.poll_next(&self.queue, cx));
            match &next {
                Some(Ok(_)) => follow.came(),
                Some(Err(status)) if follow.failed(status) => continue,
                Some(Err(_)) => self.follow = None,
                None => {
                    follow.ended();
                    self.follow = None;
                }
            }
            return Poll::Ready(next);
        }
    }

    /// Returns the next message; `None` at the end.
    ///
    /// Cancel safe: a dropped `next` loses no message.
    ///
    /// # Errors
    /// The status with which the call ended, or a message that cannot be decoded. After an error the stream is over.
    pub async fn next(&mut self) -> Result<Option<T>> {
        if self.source.is_some() {
            return poll_fn(|cx| self.poll_source(cx)).await.transpose();
        }
        match poll_fn(|cx| self.poll_message(cx)).await {
            None => Ok(None),
            Some(Err(status)) => Err(status),
            Some(Ok(message)) => self.read(message).map(Some),
        }
    }

    fn read(&mut self, message: Message) -> Result<T> {
        let message = (self.queue.unpack(message))
            .and_then(|message| check_reply(&message, self.bytes_max).map(|()| message))
            .and_then(|message| match &mut self.change {
                None => Ok(message),
                Some(change) => change(message),
            })
            .inspect_err(|status| {
                self.batch.clear();
                self.queue.close(status.clone());
            })?;
        match self.decode {
            Decode::Lenient(decode) => decode(self.codec, message),
            Decode::Strict(decode, names) => decode(self.codec, message, names),
        }
    }

    /// Returns metadata that the server sent before its first message; waits until the metadata, a message or the end
    /// has arrived. Empty on a server.
    pub async fn metadata(&mut self) -> Metadata {
        poll_fn(|cx| self.queue.poll_head(!self.batch.is_empty(), cx)).await
    }

    /// Returns metadata that arrived with the end; empty before it.
    pub fn trailers(&self) -> Metadata {
        self.queue.trailers()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.queue.close(Status::canceled("the reader of the stream was dropped"));
    }
}

/// Decodes a stream of messages as [`read_request`](crate::codec::read_request) decodes one.
///
/// # Errors
/// `InvalidArgument` if the call does not say what it wants.
pub fn receive_request<T>(
    cx: &Cx,
    codec: Codec,
    raw: RawReceiver,
    read: fn(Codec, Bytes) -> Result<T>,
    strict: fn(Codec, Bytes, FieldNames) -> Result<T>,
) -> Result<Receiver<T>> {
    let mut receiver = Receiver::of_request(raw, codec, read);
    if cx.refuses_unknown_fields().map_err(|status| cx.failed(status))? {
        receiver.decode = Decode::Strict(strict, FieldNames::of_request(cx));
    }
    Ok(receiver)
}

/// The replies of a handler that writes to a [`Sender`].
pub(crate) struct HandlerItems {
    queue: Arc<Queue>,
    batch: MessageBatch,
    cx: Arc<Cx>,
    handler: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>,
    outcome: Result<()>,
}

/// Bytes that a handler may buffer ahead of the connection.
const HANDLER_ROOM: usize = 64 << 10;

/// Starts a streaming handler: `run` gets the context and a sender for its replies. For generated code.
pub fn stream_reply<T, F>(
    cx: Cx,
    codec: Codec,
    encode: fn(&T, Codec) -> Result<Bytes>,
    run: impl FnOnce(Arc<Cx>, Sender<T>) -> F,
) -> crate::Reply
where
    T: 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let queue = Arc::new(Queue::new(HANDLER_ROOM));
    let cx = Arc::new(cx);
    let handler = run(cx.clone(), Sender::new(queue.clone(), codec, encode, false, cx.packing()));
    let handler: Pin<Box<dyn Future<Output = _> + Send>> =
        if cx.method().spawn { Box::pin(runtime::spawn_cpu(handler)) } else { Box::pin(handler) };
    crate::Reply::many(Box::pin(HandlerItems {
        queue,
        batch: MessageBatch::default(),
        cx,
        handler: Some(handler),
        outcome: Ok(()),
    }))
}

impl Items for HandlerItems {
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        loop {
            if let Some(item) = this.batch.next(&this.queue) {
                return Poll::Ready(Some(Ok(item)));
            }
            let Some(handler) = &mut this.handler else {
                return Poll::Ready(std::mem::replace(&mut this.outcome, Ok(())).err().map(Err));
            };
            match handler.as_mut().poll(cx) {
                Poll::Ready(outcome) => {
                    this.handler = None;
                    this.outcome = outcome;
                }
                // The sender may be in another task, so the queue has a waker of its own.
                Poll::Pending => match this.batch.poll_next(&this.queue, cx) {
                    Poll::Ready(Some(item)) => return Poll::Ready(Some(item)),
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    #[inline]
    fn next_made(self: Pin<&mut Self>) -> Option<Message> {
        let this = self.get_mut();
        this.batch.pop(&this.queue)
    }

    fn poll_ahead(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = self.get_mut();
        if let Some(handler) = &mut this.handler
            && let Poll::Ready(outcome) = handler.as_mut().poll(cx)
        {
            this.handler = None;
            this.outcome = outcome;
        }
    }

    fn queued_bytes(&self) -> usize {
        self.queue.bytes().saturating_sub(self.batch.used())
    }

    fn head(&self) -> Metadata {
        self.cx.take_reply_head()
    }

    fn is_head_complete(&self) -> bool {
        self.cx.is_reply_head_complete()
    }

    fn trailers(&self) -> Metadata {
        self.cx.take_reply_trailers()
    }
}

impl Drop for HandlerItems {
    fn drop(&mut self) {
        self.queue.close(Status::canceled("the caller disconnected"));
    }
}

/// # Errors
/// `ResourceExhausted` for a reply larger than its caller accepts.
#[inline]
#[doc(hidden)]
pub fn check_reply(message: &Bytes, max: usize) -> Result<()> {
    if message.len() <= max {
        return Ok(());
    }
    let bytes = message.len();
    let text =
        format!("a reply of {bytes} bytes is over the limit of {max} bytes (reply_bytes_max of the call)");
    Err(Status::resource_exhausted(text))
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

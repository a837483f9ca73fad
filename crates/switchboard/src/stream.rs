//! Streams of messages: the handles of handlers and callers, and the bounded queue between them.
//!
//! A `Queue` has one producer and one consumer, each with its waker. It is full when it holds the bytes of its
//! capacity; the producer then waits, so a slow reader slows its writer down. On the server the handler's future is the
//! source of the replies: `HandlerItems` polls it, so a stream needs no task of its own.

mod source;

use crate::{
    Codec, Cx, Metadata, Result, Status,
    call::{Change, RawReceiver},
    compression::{Message, Packing},
    runtime,
};
use bytes::Bytes;
use source::Source;
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

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
    pub(crate) fn new(
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

    /// Sends every message of `input`, until it ends.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send) and of the input.
    pub async fn pipe(&self, mut input: Receiver<T>) -> Result<()> {
        while let Some(message) = input.next().await? {
            self.send(message).await?;
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
    decode: fn(Codec, Bytes) -> Result<T>,
    bytes_max: usize,
    batch: Batch,
    /// Changes that layers make to the messages.
    change: Option<Change>,
    /// Observes the progress of the stream, and may retry it.
    follow: Option<Box<dyn Follow>>,
    /// Messages that this process produces, instead of those of the queue.
    source: Option<Source<T>>,
    /// The stream has failed.
    is_over: bool,
}

/// Observes a stream of replies for the balancer that selected its endpoint. If it is dropped before the end, the
/// reader has dropped the stream.
pub(crate) trait Follow: Send + Sync {
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
    pub(crate) fn new(
        queue: Arc<Queue>,
        codec: Codec,
        decode: fn(Codec, Bytes) -> Result<T>,
        bytes_max: usize,
    ) -> Self {
        Receiver {
            queue,
            codec,
            decode,
            bytes_max,
            batch: Batch::default(),
            change: None,
            follow: None,
            source: None,
            is_over: false,
        }
    }

    /// Creates the typed stream of a request; for generated code.
    pub fn of_request(raw: RawReceiver, codec: Codec, decode: fn(Codec, Bytes) -> Result<T>) -> Self {
        let change = raw.0.lock().change.take();
        let mut receiver = Receiver::new(raw.0, codec, decode, usize::MAX);
        receiver.change = change;
        receiver
    }

    pub(crate) fn followed_by(mut self, follow: Option<Box<dyn Follow>>) -> Self {
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
                    self.batch = Batch::default();
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
        let message = (self.queue.packing.unpack(message))
            .and_then(|message| check_reply(&message, self.bytes_max).map(|()| message))
            .and_then(|message| match &mut self.change {
                None => Ok(message),
                Some(change) => change(message),
            })
            .inspect_err(|status| {
                self.batch.items.clear();
                self.queue.close(status.clone());
            })?;
        (self.decode)(self.codec, message)
    }

    /// Returns metadata that the server sent before its first message; waits until the metadata, a message or the end
    /// has arrived. Empty on a server.
    pub async fn metadata(&mut self) -> Metadata {
        poll_fn(|cx| self.queue.poll_head(!self.batch.items.is_empty(), cx)).await
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

/// The messages of a reply, produced while they are sent.
pub(crate) trait Items: Send {
    /// Returns the next message, `None` at the end, or the status of a failure.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>>;
    /// Returns the next message if it is produced already, without polling the producer.
    fn next_made(self: Pin<&mut Self>) -> Option<Message> {
        None
    }
    /// Lets the producer of the messages continue while none can be sent: it reads requests, and waits when it has
    /// produced as many messages as it may buffer.
    fn poll_ahead(self: Pin<&mut Self>, _cx: &mut Context<'_>) {}
    /// Bytes of messages that were produced and not taken yet.
    fn held(&self) -> usize;
    /// Metadata for the head that was not taken yet. It is sent with the first message. It is sent earlier if there is
    /// some and the next message is not ready, because a caller may wait for it before it sends more. Metadata that is
    /// added later is sent with the end.
    fn head(&self) -> Metadata;
    /// Returns whether the head is complete before the first message, so that it is sent even if it is empty.
    fn is_head_complete(&self) -> bool {
        false
    }
    /// Metadata for the end; read after the last `poll_next`.
    fn trailers(&self) -> Metadata;
}

impl dyn Items {
    /// Returns the metadata of the head if the head must be sent now, before the first message.
    pub(crate) fn early_head(&self) -> Option<Metadata> {
        let head = self.head();
        (!head.is_empty() || self.is_head_complete()).then_some(head)
    }

    /// Returns the trailers and the metadata that was added for the head after the head was sent.
    pub(crate) fn late_head_and_trailers(&self) -> Metadata {
        let mut trailers = self.head();
        trailers.extend(self.trailers());
        trailers
    }
}

/// A stream that processes the messages of another stream.
pub(crate) trait Passing: Send {
    /// Returns the other stream.
    fn items(&self) -> &dyn Items;
    /// Returns the other stream, to be polled.
    fn items_mut(self: Pin<&mut Self>) -> Pin<&mut (dyn Items + 'static)>;
    /// Polls for the next message; see [`Items::poll_next`].
    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>>;
}

impl<P: Passing> Items for P {
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        self.poll_passed(cx)
    }

    fn poll_ahead(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        self.items_mut().poll_ahead(cx);
    }

    fn held(&self) -> usize {
        self.items().held()
    }

    fn head(&self) -> Metadata {
        self.items().head()
    }

    fn is_head_complete(&self) -> bool {
        self.items().is_head_complete()
    }

    fn trailers(&self) -> Metadata {
        self.items().trailers()
    }
}

/// The replies of a handler that writes to a [`Sender`].
pub(crate) struct HandlerItems {
    queue: Arc<Queue>,
    batch: Batch,
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
        batch: Batch::default(),
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

    fn held(&self) -> usize {
        self.queue.bytes().saturating_sub(self.batch.used)
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

/// Messages that a consumer has taken out of a queue with one lock and not used yet.
///
/// They count for the producer and for flow-control credit until they are used, so that a queue never holds more than
/// its capacity.
#[derive(Default)]
pub(crate) struct Batch {
    items: VecDeque<Message>,
    /// Bytes that were used and not yet released to the queue.
    used: usize,
    /// Largest item that is returned; see [`State::item_bytes_max`].
    item_bytes_max: Option<usize>,
}

/// Used bytes that are released to a queue at once; all are released when a batch ends.
const RELEASE_BYTES: usize = 16 << 10;

impl Batch {
    /// Returns the next of the items that were taken already.
    #[inline]
    fn pop(&mut self, queue: &Queue) -> Option<Message> {
        let item = self.items.pop_front()?;
        self.used += weight(&item.bytes);
        if self.used >= RELEASE_BYTES {
            queue.lock().release(mem::take(&mut self.used));
        }
        Some(item)
    }

    /// Returns the next item without waiting.
    #[inline]
    pub(crate) fn next(&mut self, queue: &Queue) -> Option<Message> {
        if self.items.is_empty() {
            self.fill(&mut queue.lock());
        }
        self.pop(queue)
    }

    /// Returns the next item, `None` at the end, or the status of the end; items that arrived before the end come
    /// first.
    #[inline]
    pub(crate) fn poll_next(&mut self, queue: &Queue, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        if self.items.is_empty() {
            let mut state = queue.lock();
            self.fill(&mut state);
            if self.items.is_empty() {
                return state.poll_end(cx);
            }
        }
        let item = self.pop(queue).expect("filled above");
        Poll::Ready(Some(match self.item_bytes_max {
            Some(max) if item.bytes.len() > max => Err(too_large("a request", item.bytes.len(), max)),
            _ => Ok(item),
        }))
    }

    /// Takes all items of the queue, once the items of the batch are used.
    fn fill(&mut self, state: &mut State) {
        state.release(mem::take(&mut self.used));
        self.item_bytes_max = state.item_bytes_max;
        mem::swap(&mut self.items, &mut state.items);
    }
}

/// A bounded queue of encoded messages between one producer and one consumer.
pub(crate) struct Queue {
    state: Mutex<State>,
    room: usize,
    /// Decompresses compressed messages.
    packing: Packing,
}

#[derive(Default)]
struct State {
    items: VecDeque<Message>,
    bytes: usize,
    /// Bytes taken out since the credit was last read.
    taken: u32,
    /// Largest item that is returned, if the wire does not check sizes.
    item_bytes_max: Option<usize>,
    head: Option<Metadata>,
    trailers: Metadata,
    end: Option<Result<()>>,
    closed: Option<Status>,
    /// Changes that layers make to the messages for the reader.
    change: Option<Change>,
    producer: Option<Waker>,
    consumer: Option<Waker>,
}

impl Queue {
    /// Creates a queue that is full at `room` bytes; one message of any size fits when it is empty.
    pub(crate) fn new(room: usize) -> Queue {
        Queue { state: Mutex::default(), room, packing: Packing::OFF }
    }

    /// Also accepts compressed messages, for a reader that decompresses them.
    #[must_use]
    pub(crate) fn packing(mut self, packing: Packing) -> Queue {
        self.packing = packing;
        self
    }

    /// Creates a queue that holds its only message and is ended.
    pub(crate) fn of_one(message: impl Into<Message>, packing: Packing) -> Queue {
        let queue = Queue::new(0).packing(packing);
        queue.push_now(message);
        queue.finish(Ok(Metadata::new()));
        queue
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `item` when there is room.
    pub(crate) fn poll_push(&self, cx: &mut Context<'_>, item: &mut Option<Message>) -> Poll<Result<()>> {
        let mut state = self.lock();
        if let Some(status) = &state.closed {
            return Poll::Ready(Err(status.clone()));
        }
        if let Some(Err(status)) = &state.end {
            return Poll::Ready(Err(status.clone()));
        }
        if state.bytes >= self.room && state.bytes > 0 {
            keep(&mut state.producer, cx);
            return Poll::Pending;
        }
        if let Some(item) = item.take() {
            state.push(item);
        }
        Poll::Ready(Ok(()))
    }

    /// Appends `item` even if the queue is full: flow control let the peer send it. Returns the number of bytes that
    /// waited before it, which is less than the window if the peer respects its credit.
    pub(crate) fn push_now(&self, item: impl Into<Message>) -> usize {
        self.push_open(item).unwrap_or_default()
    }

    /// Appends `item` as [`push_now`](Self::push_now) does; `None` if the queue is closed or has ended, and the item is
    /// dropped.
    pub(crate) fn push_open(&self, item: impl Into<Message>) -> Option<usize> {
        let mut state = self.lock();
        if state.closed.is_some() || state.end.is_some() {
            return None;
        }
        let ahead = state.bytes;
        state.push(item.into());
        Some(ahead)
    }

    /// Returns no item over this size, for wires that do not check sizes before.
    pub(crate) fn limit_items(&self, bytes_max: usize) {
        self.lock().item_bytes_max = Some(bytes_max);
    }

    /// Passes the messages for the reader through `change`, after earlier changes.
    pub(crate) fn change(&self, mut change: Change) {
        let mut state = self.lock();
        state.change = Some(match state.change.take() {
            None => change,
            Some(mut first) => Box::new(move |message| change(first(message)?)),
        });
    }

    /// Returns the next item, `None` at the end, or the status of the end; items that arrived before the end come
    /// first.
    pub(crate) fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let mut state = self.lock();
        if let Some(item) = state.pop() {
            let checked = match state.item_bytes_max {
                Some(max) if item.bytes.len() > max => Err(too_large("a request", item.bytes.len(), max)),
                _ => Ok(item),
            };
            return Poll::Ready(Some(checked));
        }
        state.poll_end(cx)
    }

    /// Returns the next message as a [`Receiver`] would read it, and takes no further one; `None` at the end. Cancel
    /// safe.
    pub(crate) async fn next(&self) -> Result<Option<Bytes>> {
        let Some(item) = poll_fn(|cx| self.poll_pop(cx)).await.transpose()? else { return Ok(None) };
        let message = self.packing.unpack(item)?;
        let Some(mut change) = self.lock().change.take() else { return Ok(Some(message)) };
        let changed = change(message);
        self.lock().change = Some(change);
        changed.map(Some)
    }

    /// Returns the metadata before the first message; `passed` means that messages were taken already.
    fn poll_head(&self, passed: bool, cx: &mut Context<'_>) -> Poll<Metadata> {
        let mut state = self.lock();
        match state.head.take() {
            Some(head) => Poll::Ready(head),
            None if passed || state.end.is_some() || !state.items.is_empty() => Poll::Ready(Metadata::new()),
            None => {
                keep(&mut state.consumer, cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn set_head(&self, head: Metadata) {
        let mut state = self.lock();
        state.head = Some(head);
        wake(&mut state.consumer);
    }

    fn trailers(&self) -> Metadata {
        self.lock().trailers.clone()
    }

    /// Ends the queue for the producer, with trailers or a status; only the first end counts.
    pub(crate) fn finish(&self, end: Result<Metadata>) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(match end {
            Ok(trailers) => {
                state.trailers = trailers;
                Ok(())
            }
            Err(status) => {
                state.trailers = status.metadata().clone();
                Err(status)
            }
        });
        wake(&mut state.consumer);
        wake(&mut state.producer);
    }

    /// Closes the queue for the consumer: wakes the producer and drops the waiting messages.
    pub(crate) fn close(&self, status: Status) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.closed = Some(status);
            state.items.clear();
            state.bytes = 0;
            wake(&mut state.producer);
        }
    }

    /// Returns whether the consumer has closed the queue.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Returns the bytes that the consumer took since the last call, once they are `least` or more.
    pub(crate) fn take_credit(&self, least: u32) -> Option<u32> {
        let mut state = self.lock();
        (state.taken >= least.max(1) && state.end.is_none()).then(|| std::mem::take(&mut state.taken))
    }

    /// Returns the bytes of the waiting messages.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Wakes this waker when the consumer takes something or closes the queue.
    pub(crate) fn watch_consumer(&self, waker: &Waker) {
        self.lock().producer = Some(waker.clone());
    }
}

impl State {
    fn push(&mut self, item: Message) {
        self.bytes += weight(&item.bytes);
        self.items.push_back(item);
        wake(&mut self.consumer);
    }

    fn pop(&mut self) -> Option<Message> {
        let item = self.items.pop_front()?;
        self.release(weight(&item.bytes));
        Some(item)
    }

    /// Releases bytes that the consumer has used, as room for the producer.
    fn release(&mut self, used: usize) {
        if used > 0 {
            // Nothing is counted after a close.
            self.bytes = self.bytes.saturating_sub(used);
            self.taken = self.taken.saturating_add(used as u32);
            wake(&mut self.producer);
        }
    }

    /// Returns the state after the last item: the end, its status, or a wait.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        match &self.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(status)) => {
                let status = status.clone();
                self.end = Some(Ok(()));
                Poll::Ready(Some(Err(status)))
            }
            None => {
                keep(&mut self.consumer, cx);
                Poll::Pending
            }
        }
    }
}

/// # Errors
/// `ResourceExhausted` for a reply larger than its caller accepts.
#[inline]
pub(crate) fn check_reply(message: &Bytes, max: usize) -> Result<()> {
    if message.len() <= max {
        return Ok(());
    }
    let bytes = message.len();
    let text =
        format!("a reply of {bytes} bytes is over the limit of {max} bytes (reply_bytes_max of the call)");
    Err(Status::resource_exhausted(text))
}

/// Returns the status for a message over the limit of its receiver.
#[cold]
pub(crate) fn too_large(what: &str, bytes: usize, max: usize) -> Status {
    Status::resource_exhausted(format!(
        "{what} of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
    ))
}

/// Bytes that an item counts for, here and as credit: an empty item counts too.
pub(crate) fn weight(item: &Bytes) -> usize {
    item.len().max(1)
}

fn keep(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

fn wake(slot: &mut Option<Waker>) {
    if let Some(waker) = slot.take() {
        waker.wake();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_messages_take_room_and_give_credit() {
        let queue = Queue::new(4);
        for ahead in 0..4 {
            assert_eq!(queue.push_now(Bytes::new()), ahead);
        }
        let mut item = Some(Bytes::new().into());
        let pushed = queue.poll_push(&mut Context::from_waker(Waker::noop()), &mut item);
        assert!(pushed.is_pending());
        let mut batch = Batch::default();
        for _ in 0..4 {
            assert_eq!(queue.take_credit(1), None);
            assert!(batch.next(&queue).is_some());
        }
        assert!(batch.next(&queue).is_none());
        assert_eq!(queue.take_credit(4), Some(4));
    }
}

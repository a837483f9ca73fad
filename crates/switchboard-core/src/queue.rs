//! The bounded queue of the messages of a stream.
//!
//! A [`Queue`] has one producer and one consumer, each with its waker. It is full when it holds the bytes of its
//! capacity; the producer then waits, so a slow reader slows its writer down.

mod items;

use crate::{
    Result,
    compression::{Message, Packing},
};
use bytes::Bytes;
pub use items::{Items, Passing, guarded_next};
use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use switchboard_wire::{Metadata, Status};

/// Changes the messages of a stream, for a layer.
pub(crate) type Change = Box<dyn FnMut(Bytes) -> Result<Bytes> + Send + Sync>;

/// A stream of request messages before a [`Receiver`](crate::Receiver) decodes them.
pub struct RawReceiver(#[doc(hidden)] pub Arc<Queue>);

/// Messages that a consumer has taken out of a queue with one lock and not used yet.
///
/// They count for the producer and for flow-control credit until they are used, so that a queue never holds more than
/// its capacity.
#[derive(Default)]
pub struct MessageBatch {
    items: VecDeque<Message>,
    /// Bytes that were used and not yet released to the queue.
    used: usize,
    /// Largest item that is returned; see [`State::item_bytes_max`].
    item_bytes_max: Option<usize>,
}

/// Used bytes that are released to a queue at once; all are released when a batch ends.
const RELEASE_BYTES: usize = 16 << 10;

impl MessageBatch {
    /// Returns the next of the items that were taken already.
    #[inline]
    pub(crate) fn pop(&mut self, queue: &Queue) -> Option<Message> {
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
    pub fn poll_next(&mut self, queue: &Queue, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
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

    /// Returns whether every item that was taken out of the queue is used.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Drops the items that were taken out of the queue.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }

    /// Returns the bytes that were used and not yet released to the queue.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Takes all items of the queue, once the items of the batch are used.
    fn fill(&mut self, state: &mut State) {
        state.release(mem::take(&mut self.used));
        self.item_bytes_max = state.item_bytes_max;
        mem::swap(&mut self.items, &mut state.items);
    }
}

/// A bounded queue of encoded messages between one producer and one consumer.
pub struct Queue {
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
    pub fn new(room: usize) -> Queue {
        Queue { state: Mutex::default(), room, packing: Packing::OFF }
    }

    /// Also accepts compressed messages, for a reader that decompresses them.
    #[must_use]
    pub fn packing(mut self, packing: Packing) -> Queue {
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
    pub fn poll_push(&self, cx: &mut Context<'_>, item: &mut Option<Message>) -> Poll<Result<()>> {
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

    /// Appends `item` after [`poll_push`](Self::poll_push) has found room for it.
    pub fn push_ready(&self, item: Message) -> Result<()> {
        let mut state = self.lock();
        if let Some(status) = &state.closed {
            return Err(status.clone());
        }
        match &state.end {
            Some(Err(status)) => return Err(status.clone()),
            Some(Ok(_)) => return Err(Status::failed_precondition("the stream of messages has ended")),
            None => state.push(item),
        }
        Ok(())
    }

    /// Appends `item` even if the queue is full: flow control let the peer send it. Returns the number of bytes that
    /// waited before it, which is less than the window if the peer respects its credit.
    pub fn push_now(&self, item: impl Into<Message>) -> usize {
        self.push_open(item).unwrap_or_default()
    }

    /// Appends `item` as [`push_now`](Self::push_now) does; `None` if the queue is closed or has ended, and the item is
    /// dropped.
    pub fn push_open(&self, item: impl Into<Message>) -> Option<usize> {
        let mut state = self.lock();
        if state.closed.is_some() || state.end.is_some() {
            return None;
        }
        let ahead = state.bytes;
        state.push(item.into());
        Some(ahead)
    }

    /// Returns no item over this size, for wires that do not check sizes before.
    pub fn limit_items(&self, bytes_max: usize) {
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

    /// Takes the changes that layers make to the messages, for a reader that applies them itself.
    pub(crate) fn take_change(&self) -> Option<Change> {
        self.lock().change.take()
    }

    /// Decompresses a message of the queue, if it is compressed.
    ///
    /// # Errors
    /// The message is too large or malformed.
    pub(crate) fn unpack(&self, message: Message) -> Result<Bytes> {
        self.packing.unpack(message)
    }

    /// Returns the next item, `None` at the end, or the status of the end; items that arrived before the end come
    /// first.
    pub fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
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
    pub async fn next(&self) -> Result<Option<Bytes>> {
        let Some(item) = poll_fn(|cx| self.poll_pop(cx)).await.transpose()? else { return Ok(None) };
        let message = self.packing.unpack(item)?;
        let Some(mut change) = self.lock().change.take() else { return Ok(Some(message)) };
        let changed = change(message);
        self.lock().change = Some(change);
        changed.map(Some)
    }

    /// Returns the metadata before the first message; `passed` means that messages were taken already.
    pub(crate) fn poll_head(&self, passed: bool, cx: &mut Context<'_>) -> Poll<Metadata> {
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

    pub fn set_head(&self, head: Metadata) {
        let mut state = self.lock();
        state.head = Some(head);
        wake(&mut state.consumer);
    }

    pub(crate) fn trailers(&self) -> Metadata {
        self.lock().trailers.clone()
    }

    /// Ends the queue for the producer, with trailers or a status; only the first end counts.
    pub fn finish(&self, end: Result<Metadata>) {
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
    pub fn close(&self, status: Status) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.closed = Some(status);
            state.items.clear();
            state.bytes = 0;
            wake(&mut state.producer);
        }
    }

    /// Resolves when the producer can append nothing more: the consumer has closed the queue, or it has ended with a
    /// status. `cx` is woken as well when the consumer takes something.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Status> {
        let mut state = self.lock();
        if let Some(status) = &state.closed {
            return Poll::Ready(status.clone());
        }
        if let Some(Err(status)) = &state.end {
            return Poll::Ready(status.clone());
        }
        keep(&mut state.producer, cx);
        Poll::Pending
    }

    /// Returns whether the consumer has closed the queue.
    pub fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Returns the bytes that the consumer took since the last call, once they are `least` or more.
    pub fn take_credit(&self, least: u32) -> Option<u32> {
        let mut state = self.lock();
        (state.taken >= least.max(1) && state.end.is_none()).then(|| std::mem::take(&mut state.taken))
    }

    /// Returns the bytes of the waiting messages.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Wakes this waker when the consumer takes something or closes the queue.
    pub fn watch_consumer(&self, waker: &Waker) {
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

/// Returns the status for a message over the limit of its receiver.
#[cold]
pub fn too_large(what: &str, bytes: usize, max: usize) -> Status {
    Status::resource_exhausted(format!(
        "{what} of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
    ))
}

/// Bytes that an item counts for, here and as credit: an empty item counts too.
pub fn weight(item: &Bytes) -> usize {
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
        let mut batch = MessageBatch::default();
        for _ in 0..4 {
            assert_eq!(queue.take_credit(1), None);
            assert!(batch.next(&queue).is_some());
        }
        assert!(batch.next(&queue).is_none());
        assert_eq!(queue.take_credit(4), Some(4));
    }
}

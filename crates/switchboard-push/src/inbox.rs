//! A device inside the process: its entries as a stream.

use crate::{
    control::{self, Control},
    counters::{DropReason, add},
    disconnect::{Disconnect, DisconnectReason},
    hub::{Connect, Device, Hub},
    identity::Identity,
    start::Start,
};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};
use switchboard::Result;
use switchboard_message::{Delivery, Gap, Message, Position, Subscription, Topic};
use tokio::{
    sync::watch,
    time::{Sleep, sleep},
};

/// Item of an [`Inbox`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Item {
    /// An entry of a room, of the user, of the key, or for all devices.
    Entry(Message<Bytes>),
    /// Entries that the device does not receive.
    Gap(Gap),
    /// No entry of the topic is missing since the position or time of its [`Start`].
    Recovered(Topic),
    /// The server had the device join a room.
    Joined(String),
    /// The server had the device leave a room.
    Left(String),
    /// The device is disconnected. No further item follows.
    Disconnected(Disconnect),
}

/// A connected device whose entries are read by the process itself: for streams of RPC and server-sent events, and for
/// tests. It is disconnected when this value is dropped.
pub struct Inbox {
    device: Option<Device>,
    sources: Vec<Source>,
    /// The source that is polled first: a busy topic does not delay the others.
    first: usize,
    close: Arc<CloseSignal>,
    expiry: Option<Pin<Box<Sleep>>>,
    /// Resolves when a server of the hub drains.
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Rooms that the server had the device join, whose subscription has not begun.
    joining: Vec<(String, Topic)>,
}

struct Source {
    topic: Topic,
    subscription: Subscription<Bytes>,
    /// Position up to which the device has what it can get.
    position: Option<Position>,
    /// Orders to the device arrive on the topics of its key and user: those from this time on, in milliseconds.
    orders_from: Option<u64>,
}

/// The order to close, from any thread.
#[derive(Default)]
struct CloseSignal(Mutex<(Option<Disconnect>, Option<Waker>)>);

impl CloseSignal {
    fn set(&self, order: Disconnect) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.get_or_insert(order);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Option<Disconnect> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.is_none() {
            state.1 = Some(cx.waker().clone());
        }
        state.0.take()
    }
}

impl Hub {
    /// Connects a device of this process, without a verification: `await` its entries with [`Inbox::next`].
    ///
    /// # Errors
    /// Returns the errors of [`connect`](Hub::connect), of the rooms of the identity, and of the bus.
    pub async fn attach(&self, identity: impl Into<Identity>) -> Result<Inbox> {
        self.attach_with(identity, Connect::new("local")).await
    }

    /// Connects a device of this process with properties.
    ///
    /// # Errors
    /// Returns the errors of [`attach`](Hub::attach).
    pub async fn attach_with(&self, identity: impl Into<Identity>, connect: Connect) -> Result<Inbox> {
        let close = Arc::<CloseSignal>::default();
        let signal = close.clone();
        let closer = move |order| signal.set(order);
        let user_start = connect.user_start;
        let device = self.connect(identity.into(), connect, closer)?;
        let mut inbox = Inbox {
            device: None,
            sources: Vec::new(),
            first: 0,
            close,
            expiry: None,
            closing: None,
            joining: Vec::new(),
        };
        for topic in device.own_topics() {
            let start = if crate::names::is_user(topic.name()) { user_start } else { Start::Next };
            inbox.subscribe(self, topic.clone(), start).await?;
        }
        device.announce()?;
        inbox.expiry = device.expires_in().map(|time| Box::pin(sleep(time)));
        let rooms: Vec<String> = device.identity().rooms_to_join().map(str::to_owned).collect();
        inbox.device = Some(device);
        for room in rooms {
            inbox.join_by_server(&room, Start::Next).await?;
        }
        Ok(inbox)
    }
}

impl Inbox {
    /// Joins a room, from the next entry on.
    ///
    /// # Errors
    /// Returns the errors of [`Device::join`] and of the bus.
    pub async fn join(&mut self, room: &str) -> Result<()> {
        self.join_from(room, Start::Next).await
    }

    /// Joins a room, from a start on. A room that the device is in already stays as it is.
    ///
    /// # Errors
    /// Returns the errors of [`join`](Self::join).
    pub async fn join_from(&mut self, room: &str, start: Start) -> Result<()> {
        let Some(device) = &mut self.device else { return Err(ended()) };
        let joined = device.join(room)?;
        if joined.is_known {
            return Ok(());
        }
        self.subscribe_room(room, joined.topic, start).await
    }

    /// Joins a room because the server wants it.
    async fn join_by_server(&mut self, room: &str, start: Start) -> Result<()> {
        let Some(device) = &mut self.device else { return Err(ended()) };
        let joined = device.join_by_server(room)?;
        if joined.is_known {
            return Ok(());
        }
        self.subscribe_room(room, joined.topic, start).await
    }

    async fn subscribe_room(&mut self, room: &str, topic: Topic, start: Start) -> Result<()> {
        let Some(hub) = self.device.as_ref().map(|device| device.hub().clone()) else { return Err(ended()) };
        let subscribed = self.subscribe(&hub, topic, start).await;
        if subscribed.is_err()
            && let Some(device) = &mut self.device
        {
            device.leave_by_server(room);
        }
        subscribed
    }

    async fn subscribe(&mut self, hub: &Hub, topic: Topic, start: Start) -> Result<()> {
        // An order that is published while the subscription begins is for this connection.
        let from = if start == Start::Next { 0 } else { control::now_ms() };
        let subscription = start.subscribe(hub.bus(), &topic).await?;
        let orders_from = crate::names::is_personal(topic.name()).then_some(from);
        let position = subscription.begins_after();
        self.sources.push(Source { topic, subscription, position, orders_from });
        Ok(())
    }

    /// Leaves a room.
    ///
    /// # Errors
    /// Returns the errors of [`Device::leave`].
    pub fn leave(&mut self, room: &str) -> Result<()> {
        let Some(device) = &mut self.device else { return Err(ended()) };
        if let Some(topic) = device.leave(room)? {
            self.sources.retain(|source| source.topic != topic);
        }
        Ok(())
    }

    /// Returns the device; `None` once it is disconnected.
    pub fn device(&mut self) -> Option<&mut Device> {
        self.device.as_mut()
    }

    /// Disconnects the device when a server of the hub drains, from the time on at which `closing` was created.
    pub(crate) fn end_with_server(&mut self, mut closing: watch::Receiver<u64>) {
        self.closing = Some(Box::pin(async move {
            // The sender may end first: then the hub is gone, too.
            let _ = closing.changed().await;
        }));
    }

    /// Returns the topics, each with the position up to which the device has what it can get; `None` if the engine of
    /// the bus has no positions. After [`Item::Disconnected`] there are none.
    pub fn positions(&self) -> impl Iterator<Item = (&Topic, Option<Position>)> {
        self.sources.iter().map(|source| (&source.topic, source.position))
    }

    /// Returns the next item; `None` after [`Item::Disconnected`]. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of the bus, for a topic that can no longer be read.
    pub async fn next(&mut self) -> Result<Option<Item>> {
        loop {
            // Removed after the wait, so that a cancelled call loses nothing.
            if let Some((room, topic)) = self.joining.last().cloned() {
                let subscribed = self.subscribe_room(&room, topic, Start::Next).await;
                self.joining.pop();
                subscribed?;
                return Ok(Some(Item::Joined(room)));
            }
            match poll_fn(|cx| self.poll_item(cx)).await {
                Some(Ok(Event::Item(item))) => return Ok(Some(item)),
                Some(Ok(Event::Join)) => {}
                Some(Err(status)) => return Err(status),
                None => return Ok(None),
            }
        }
    }

    /// Disconnects the device with a reason.
    pub fn disconnect(mut self, reason: DisconnectReason) {
        if let Some(device) = self.device.take() {
            device.disconnect(reason);
        }
    }

    fn ended(&mut self, order: Disconnect) -> Poll<Option<Result<Event>>> {
        self.sources.clear();
        if let Some(device) = self.device.take() {
            device.disconnect(order.reason);
        }
        Poll::Ready(Some(Ok(Event::Item(Item::Disconnected(order)))))
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        if self.device.is_none() {
            return Poll::Ready(None);
        }
        if let Some(order) = self.close.poll(cx) {
            return self.ended(order);
        }
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            return self.ended(Disconnect::new(DisconnectReason::Stopped, "the server stops"));
        }
        if let Some(expiry) = &mut self.expiry
            && expiry.as_mut().poll(cx).is_ready()
        {
            let left = self.device.as_ref().and_then(Device::expires_in);
            match left {
                Some(left) if left.is_zero() => {
                    return self
                        .ended(Disconnect::new(DisconnectReason::Expired, "the credentials have expired"));
                }
                // Newer credentials.
                left => self.expiry = left.map(|left| Box::pin(sleep(left))),
            }
            cx.waker().wake_by_ref();
        }
        let count = self.sources.len();
        for index in (self.first..count).chain(0..self.first.min(count)) {
            let Poll::Ready(item) = Pin::new(&mut self.sources[index].subscription).poll_next(cx) else {
                continue;
            };
            self.first = (index + 1) % count;
            return match item {
                Some(Ok(delivery)) => match self.delivered(index, delivery) {
                    Some(event) => Poll::Ready(Some(Ok(event))),
                    None => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                },
                Some(Err(status)) => Poll::Ready(Some(Err(status))),
                // The topic closes readers that lag.
                None => self
                    .ended(Disconnect::new(DisconnectReason::Lagged, "a topic has closed its slow readers")),
            };
        }
        Poll::Pending
    }

    /// Handles an item of a topic.
    fn delivered(&mut self, index: usize, delivery: Delivery<Bytes>) -> Option<Event> {
        let source = &mut self.sources[index];
        match &delivery {
            Delivery::Entry(message) => source.position = Some(message.position()),
            Delivery::Gap(gap) => source.position = Some(crate::feeds::after(gap)),
            _ => {}
        }
        let device = self.device.as_mut()?;
        let counters = device.hub().state.counters.clone();
        match delivery {
            Delivery::Entry(message) => {
                if let Some(from) = source.orders_from
                    && let Some(order) = Control::of(message.entry())
                {
                    if control::is_before(message.headers(), from) {
                        return None;
                    }
                    let order = device.order(order?)?;
                    return self.execute(order);
                }
                if !device.accepts().admits(crate::operation_of(message.entry())) {
                    counters.dropped(DropReason::Filtered, 1);
                    return None;
                }
                add(&counters.delivered, 1);
                Some(Event::Item(Item::Entry(message)))
            }
            Delivery::Gap(gap) => {
                counters.dropped(gap.reason.into(), gap.missing.unwrap_or(1));
                Some(Event::Item(Item::Gap(gap)))
            }
            Delivery::Recovered => Some(Event::Item(Item::Recovered(source.topic.clone()))),
            _ => None,
        }
    }

    fn execute(&mut self, order: Control) -> Option<Event> {
        if let Some(order) = order.disconnect() {
            self.close.set(order);
            return None;
        }
        let device = self.device.as_mut()?;
        match order {
            Control::Join { room } => {
                let joined = device.join_by_server(&room);
                let joined =
                    joined.inspect_err(|status| tracing::debug!("push: join room \"{room}\": {status}"));
                let joined = joined.ok().filter(|joined| !joined.is_known)?;
                self.joining.push((room, joined.topic));
                Some(Event::Join)
            }
            Control::Leave { room } => {
                let topic = device.leave_by_server(&room)?;
                self.sources.retain(|source| source.topic != topic);
                self.first = 0;
                Some(Event::Item(Item::Left(room)))
            }
            _ => None,
        }
    }
}

enum Event {
    Item(Item),
    /// A room is to be subscribed to.
    Join,
}

fn ended() -> switchboard::Status {
    switchboard::Status::failed_precondition("the device is disconnected; attach it again")
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("device", &self.device).finish_non_exhaustive()
    }
}

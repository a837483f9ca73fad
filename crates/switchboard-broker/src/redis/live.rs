//! The connection for subscriptions.

use super::{
    RESPONSE_TIMEOUT,
    commands::status,
    script::{self, Seen},
};
use crate::{attempts::Attempts, record};
use bytes::Bytes;
use futures_core::Stream;
use redis::{
    Client, Msg, RedisResult,
    aio::{PubSubSink, PubSubStream},
};
use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_message::{
    Position,
    broker::{LiveEvent, Mailbox, StoredEntry},
};
use switchboard_wire::Status;
use tokio::{task::JoinHandle, time::timeout};

/// Interval of the pings on a connection: a peer that has vanished is noticed within this and the response timeout.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Followed topics, and the connection that has their subscriptions.
pub(super) struct Live {
    name: String,
    client: Client,
    state: Mutex<State>,
    opening: Attempts,
}

struct State {
    /// By channel, with the number of the connection.
    followers: HashMap<Box<[u8]>, (u64, Mailbox)>,
    /// Newest entry of each followed channel; kept while a connection is replaced.
    seen: HashMap<Box<[u8]>, Seen>,
    connection: Option<Connection>,
    /// Connections so far.
    opened: u64,
}

struct Connection {
    number: u64,
    sink: PubSubSink,
    reader: JoinHandle<()>,
}

type Subscribing = Pin<Box<dyn Future<Output = RedisResult<()>> + Send>>;

impl Live {
    pub(super) fn new(name: String, client: Client, topics_max: usize) -> Live {
        let followers = HashMap::with_capacity(topics_max.min(16));
        let state = Mutex::new(State { followers, seen: HashMap::new(), connection: None, opened: 0 });
        Live { name, client, state, opening: Attempts::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to deliver the messages of a channel. A connection that does not respond is dropped.
    pub(super) async fn subscribe(self: &Arc<Self>, channel: &str, to: Mailbox) -> Result<()> {
        self.open().await?;
        let subscribing = self.send(channel, to);
        let closed = || Status::unavailable(format!("{} has closed the connection", self.name));
        let Some((number, subscribing)) = subscribing else { return Err(closed()) };
        let Ok(subscribed) = timeout(RESPONSE_TIMEOUT, subscribing).await else {
            self.abort(number);
            return Err(Status::unavailable(format!("{} does not respond", self.name)));
        };
        if let Err(error) = subscribed {
            let mut state = self.state();
            if state.followers.get(channel.as_bytes()).is_some_and(|(known, _)| *known == number) {
                state.followers.remove(channel.as_bytes());
            }
            return Err(status(&self.name, &error));
        }
        // The connection may have been lost in between: its end has then removed the follower.
        let is_followed =
            self.state().followers.get(channel.as_bytes()).is_some_and(|(known, _)| *known == number);
        if is_followed { Ok(()) } else { Err(closed()) }
    }

    /// Registers a follower and sends its subscription, in one step: an end of the subscription that follows is sent
    /// later.
    fn send(&self, channel: &str, to: Mailbox) -> Option<(u64, Subscribing)> {
        let mut state = self.state();
        let connection = state.connection.as_ref()?;
        let (number, mut sink, name) = (connection.number, connection.sink.clone(), channel.to_owned());
        let mut subscribing: Subscribing = Box::pin(async move { sink.subscribe(name).await });
        state.followers.insert(channel.as_bytes().into(), (number, to));
        state.seen.entry(channel.as_bytes().into()).or_default();
        // The first poll sends it. The second one waits, with the waker of the caller.
        match subscribing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(result) => Some((number, Box::pin(std::future::ready(result)))),
            std::task::Poll::Pending => Some((number, subscribing)),
        }
    }

    /// Ends the delivery of a channel.
    pub(super) fn unsubscribe(&self, channel: &str) {
        let mut state = self.state();
        state.seen.remove(channel.as_bytes());
        if state.followers.remove(channel.as_bytes()).is_none() {
            return;
        }
        let Some(connection) = &state.connection else { return };
        let (mut sink, name) = (connection.sink.clone(), channel.to_owned());
        let mut ending = Box::pin(async move { sink.unsubscribe(name).await });
        // The first poll sends it, and the response has no reader.
        let _ = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    /// Opens a connection, unless there is one.
    async fn open(self: &Arc<Self>) -> Result<()> {
        let known = || self.state().connection.is_some().then_some(());
        self.opening.open(known, self.connect()).await
    }

    async fn connect(self: &Arc<Self>) -> Result<()> {
        let slow = |_| Status::unavailable(format!("{} does not respond", self.name));
        let opened = timeout(RESPONSE_TIMEOUT, self.client.get_async_pubsub()).await.map_err(slow)?;
        let (sink, stream) = opened.map_err(|error| status(&self.name, &error))?.split();
        let mut state = self.state();
        state.opened += 1;
        let number = state.opened;
        let live = Arc::downgrade(self);
        let pings = sink.clone();
        let reader = tokio::spawn(async move {
            // The messages before the end of the connection.
            let channels = live.clone();
            let why = deliver(stream, pings, move |message| {
                channels.upgrade().inspect(|live| live.deliver(&message)).is_some()
            });
            let why = why.await;
            if let Some(live) = live.upgrade() {
                live.end(number, &why);
            }
        });
        state.connection = Some(Connection { number, sink, reader });
        Ok(())
    }

    /// Returns the newest entry of a channel that this process has seen.
    pub(super) fn seen(&self, channel: &str) -> Option<Seen> {
        self.state().seen.get(channel.as_bytes()).copied()
    }

    /// Notes an entry of a channel, if it is followed.
    pub(super) fn notice(&self, channel: &[u8], seen: Seen) {
        if let Some(known) = self.state().seen.get_mut(channel) {
            let is_newer =
                known.position.epoch != seen.position.epoch || known.position.offset < seen.position.offset;
            if is_newer {
                *known = seen;
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        let channel = message.get_channel_name().as_bytes();
        let Some((_, mailbox)) = self.state().followers.get(channel).cloned() else { return };
        // A message of another program on the channel is no entry; an entry that is missing shows by the next one.
        if let Some((entry, seen)) = entry(message.get_payload_bytes()) {
            self.notice(channel, seen);
            mailbox.deliver(LiveEvent::Entry(entry));
        }
    }

    /// Drops this connection, unless another one has replaced it; its followers are notified.
    fn abort(&self, number: u64) {
        let connection = self.state().connection.take_if(|connection| connection.number == number);
        if let Some(connection) = connection {
            connection.reader.abort();
            self.end(connection.number, "does not respond");
        }
    }

    /// Notifies the followers of a connection that has ended.
    fn end(&self, number: u64, why: &str) {
        let mut state = self.state();
        if state.connection.as_ref().is_some_and(|connection| connection.number == number) {
            state.connection = None;
        }
        let (ended, others) =
            std::mem::take(&mut state.followers).into_iter().partition(|(_, (known, _))| *known <= number);
        state.followers = others;
        drop(state);
        let ended: HashMap<_, (u64, Mailbox)> = ended;
        for (_, mailbox) in ended.into_values() {
            let status = Status::unavailable(format!("{} {why}", self.name));
            mailbox.deliver(LiveEvent::Interrupted(status));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let connection = self.state().connection.take();
        connection.iter().for_each(|connection| connection.reader.abort());
    }
}

/// Delivers messages until the connection ends; returns why.
async fn deliver(mut stream: PubSubStream, mut pings: PubSubSink, mut to: impl FnMut(Msg) -> bool) -> String {
    loop {
        let next = timeout(PING_INTERVAL, poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)));
        match next.await {
            Ok(Some(message)) => {
                if !to(message) {
                    return "is not used any more".to_owned();
                }
            }
            Ok(None) => return "has closed the connection".to_owned(),
            Err(_) => {
                let mut ping = Box::pin(pings.ping_message::<redis::Value>("swb"));
                match timeout(RESPONSE_TIMEOUT, &mut ping).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error.to_string(),
                    Err(_) => return "does not respond".to_owned(),
                }
            }
        }
    }
}

/// Reads a message: epoch, offset, time in milliseconds, record, with a space after the first three.
fn entry(message: &[u8]) -> Option<(StoredEntry, Seen)> {
    let mut words = message.splitn(4, |byte| *byte == b' ');
    let (epoch, offset) = (words.next().filter(|epoch| epoch.len() == 16)?, words.next()?);
    let time_ms = script::number(words.next()?)?;
    let position: Position = script::position(&[epoch.to_vec(), offset.to_vec()])?;
    let record = Bytes::copy_from_slice(words.next()?);
    let previous = position.offset.saturating_sub(1);
    let entry = StoredEntry::new(position, previous, record::decode(record, record::now()));
    Some((entry, Seen { position, time_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_others_are_no_entries() {
        let (read, seen) = entry(b"00000000000000ff 12 1700 \x01\x07\0x y").unwrap();
        assert_eq!((seen.position, seen.time_ms), (read.position, 1700));
        assert_eq!((read.position, read.previous), (Position { epoch: 255, offset: 12 }, 11));
        assert_eq!(&read.publication.unwrap().bytes[..], b"x y");
        let (damaged, _) = entry(b"00000000000000ff 12 1700 \x09").unwrap();
        assert!(damaged.publication.is_none());
        for message in
            [&b""[..], b"hello", b"00000000000000ff", b"00000000000000ff 12", b"zz000000000000ff 1 x"]
        {
            assert!(entry(message).is_none(), "{message:?}");
        }
    }
}

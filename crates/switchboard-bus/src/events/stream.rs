//! The subscriptions of a stream, merged.

use super::{
    format::{Format, HEARTBEAT},
    positions::{Positions, tag_of},
};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use switchboard::{Result, Status};
use switchboard_message::{Delivery, Gap, GapReason, Position, Subscription};
use tokio::time::{Sleep, sleep};

/// Time without an event after which a comment is sent: proxies often close a connection after 60 seconds of silence.
const HEARTBEAT_TIME: Duration = Duration::from_secs(25);
/// Bytes of the events that are sent at once.
const PIECE_BYTES: usize = 16 << 10;

type Item = Option<Result<Delivery<Bytes>>>;

/// A subscription of a stream.
pub(super) struct Source {
    name: String,
    /// Digest of the name; `None` for a pattern, which has no position.
    tag: Option<u32>,
    subscription: Subscription<Bytes>,
    /// Position of the last event; epoch 0 if it is not known.
    position: Position,
    /// An item that was taken before the stream began.
    first: Item,
    /// The position is that of the client, and the subscription has not said whether entries are missing.
    is_resuming: bool,
}

impl Source {
    pub(super) fn new(name: String, is_topic: bool, subscription: Subscription<Bytes>) -> Source {
        let tag = is_topic.then(|| tag_of(&name));
        Source { name, tag, subscription, position: Position::default(), first: None, is_resuming: false }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The subscription begins after the position of the client.
    pub(super) fn resume(&mut self, position: Position) {
        (self.position, self.is_resuming) = (position, true);
    }

    /// The subscription begins after this position, with an item that was taken from it.
    pub(super) fn begin_at(&mut self, position: Option<Position>, first: Item) {
        (self.position, self.first) = (position.unwrap_or_default(), first);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Item> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.subscription).poll_next(cx),
        }
    }
}

/// The events of a stream, in pieces. Polled when its connection has room.
pub(super) struct EventStream {
    sources: Vec<Source>,
    /// The source that is polled first: a busy topic does not delay the others.
    first: usize,
    format: Format,
    /// Pieces from the start.
    begin: VecDeque<String>,
    /// Sources that have not said whether entries are missing; `None` once the client knows.
    resuming: Option<usize>,
    /// Resolves when the service closes.
    closed: Pin<Box<dyn Future<Output = Status> + Send>>,
    heartbeat: Pin<Box<Sleep>>,
    /// The error of a subscription, after the events before it.
    failed: Option<Status>,
    has_ended: bool,
}

impl EventStream {
    /// Creates a stream, which begins with a gap for each topic of `unreadable`.
    pub(super) fn new(
        sources: Vec<Source>,
        format: Format,
        unreadable: &[String],
        closed: impl Future<Output = Status> + Send + 'static,
    ) -> EventStream {
        let resuming = sources.iter().filter(|source| source.is_resuming).count();
        let mut stream = EventStream {
            sources,
            first: 0,
            format,
            begin: VecDeque::new(),
            resuming: (resuming > 0 && unreadable.is_empty()).then_some(resuming),
            closed: Box::pin(closed),
            heartbeat: Box::pin(sleep(HEARTBEAT_TIME)),
            failed: None,
            has_ended: false,
        };
        let id = stream.id();
        let mut piece = String::new();
        format.begin(&id, &mut piece);
        stream.begin.push_back(piece);
        for topic in unreadable {
            let mut piece = String::new();
            format.unreadable(topic, &id, &mut piece);
            stream.begin.push_back(piece);
        }
        stream
    }

    /// Returns the id of the positions of all topics.
    fn id(&self) -> String {
        let topics = self.sources.iter().filter_map(|source| Some((source.tag?, source.position)));
        Positions::encode(topics)
    }

    /// Polls the sources for an item, beginning with another one each time.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Item)> {
        let sources = self.sources.len();
        for index in (self.first..sources).chain(0..self.first) {
            if let Poll::Ready(item) = self.sources[index].poll(cx) {
                self.first = index.wrapping_add(1) % sources;
                return Poll::Ready((index, item));
            }
        }
        Poll::Pending
    }

    /// Appends the events of an item.
    fn put(&mut self, index: usize, delivery: &Delivery<Bytes>, piece: &mut String) {
        let source = &mut self.sources[index];
        let was_resuming = std::mem::take(&mut source.is_resuming);
        match delivery {
            Delivery::Entry(message) => {
                source.position = message.position();
                let id = self.id();
                self.format.entry(message, &id, piece);
            }
            Delivery::Gap(gap) => {
                source.position = after(gap);
                self.resuming = None;
                let id = self.id();
                self.format.gap(gap, &id, piece);
            }
            Delivery::Recovered if was_resuming => {
                let Some(resuming) = &mut self.resuming else { return };
                *resuming = resuming.saturating_sub(1);
                if *resuming == 0 {
                    self.resuming = None;
                    let id = self.id();
                    self.format.resumed(&id, piece);
                }
            }
            _ => {}
        }
    }

    /// Appends events until there are none, or the piece is full.
    fn fill(&mut self, piece: &mut String, cx: &mut Context<'_>) {
        let bytes_max = if self.format == Format::Events { PIECE_BYTES } else { 1 };
        if let Some(first) = self.begin.pop_front() {
            piece.push_str(&first);
        }
        while piece.len() < bytes_max && self.failed.is_none() {
            match self.poll_item(cx) {
                Poll::Pending => return,
                Poll::Ready((index, Some(Ok(delivery)))) => self.put(index, &delivery, piece),
                Poll::Ready((_, Some(Err(status)))) => self.failed = Some(status),
                // A subscription ends with an error, or with the stream.
                Poll::Ready((_, None)) => {
                    self.failed = Some(Status::unavailable("a subscription of the stream has ended"));
                }
            }
        }
    }
}

/// Returns the position of a subscription after a gap.
fn after(gap: &Gap) -> Position {
    let next = if gap.reason == GapReason::Lost { gap.range.start } else { gap.range.end };
    Position { epoch: gap.epoch, offset: next.saturating_sub(1) }
}

impl Stream for EventStream {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = this.closed.as_mut().poll(cx) {
            this.has_ended = true;
            return Poll::Ready(Some(Err(status)));
        }
        let mut piece = String::new();
        this.fill(&mut piece, cx);
        if piece.is_empty() {
            if let Some(status) = this.failed.take() {
                this.has_ended = true;
                return Poll::Ready(Some(Err(status)));
            }
            if this.format == Format::Messages || this.heartbeat.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            piece.push_str(HEARTBEAT);
        }
        this.heartbeat.as_mut().set(sleep(HEARTBEAT_TIME));
        Poll::Ready(Some(Ok(piece.into())))
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

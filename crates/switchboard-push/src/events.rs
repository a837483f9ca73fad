//! `GET /events`: a device that reads server-sent events, or the messages of a WebSocket.
//!
//! The id of an event names the positions of the rooms and of the user: a device that comes back with it gets each
//! missing entry once, or a gap.

use crate::{
    accepts::Accepts,
    disconnect::Disconnect,
    hub::{Connect, Hub},
    identity::Identity,
    inbox::{Inbox, Item},
    names, service,
    start::Start,
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
use switchboard::{
    Result, Status,
    plugin::{RouteHead, RouteRequest, RouteResponse},
};
use switchboard_bus::parts::{Format, HEARTBEAT, Positions, accepts_events, tag_of};
use switchboard_message::Topic;
use tokio::time::{Sleep, sleep};

/// Rooms of one stream: with the topic of the user, the positions fit into an id.
const ROOMS_MAX: usize = 31;
/// Media type of server-sent events.
const EVENTS: &str = "text/event-stream";
/// Time without an event after which a comment is sent.
const HEARTBEAT_TIME: Duration = Duration::from_secs(25);
/// Bytes of the events that are sent at once.
const PIECE_BYTES: usize = 16 << 10;

/// Responds to a request.
///
/// # Errors
/// `Unauthenticated` for a device that the hub refuses, `PermissionDenied` for a room that does not admit it,
/// `InvalidArgument` for parameters that break a rule, and the errors of the hub.
pub(crate) async fn respond(hub: &Hub, request: &RouteRequest) -> Result<RouteResponse> {
    let closing = hub.state.closing.subscribe();
    let head = &request.head;
    if head.verb != "GET" {
        let text = format!("{} {}: this path has GET\n", head.verb, head.path);
        return Ok(RouteResponse::text(405, text).header("allow", "GET"));
    }
    let format = if head.is_websocket { Format::Messages } else { Format::Events };
    if format == Format::Events && !accepts_events(head) {
        let text = format!("this path has {EVENTS}, which the header accept excludes\n");
        return Ok(RouteResponse::text(406, text));
    }
    let wanted = Wanted::of(head)?;
    let protocol = if head.is_websocket { "websocket" } else { "sse" };
    let mut claimed = Identity::new(head.parameters("user").next().unwrap_or_default());
    let key = head.parameters("key").next().unwrap_or_default();
    claimed.key = Some(key.to_owned()).filter(|key| !key.is_empty());
    let identity = service::identify(hub, &request.cx, protocol, ("", claimed)).await?;
    let mut connect = Connect::new(protocol).key(key).accepts(wanted.accepts.clone());
    connect.address = Some(request.cx.peer().address.clone());
    let mut unreadable = Vec::new();
    let has_user_history = hub.state.has_user_history;
    if has_user_history && !identity.user.is_empty() {
        connect.user_start = wanted.start(&names::user(&identity.user)?, &mut unreadable, None);
    }
    let mut inbox = hub.attach_with(identity, connect).await?;
    inbox.end_with_server(closing);
    for room in &wanted.rooms {
        let start = wanted.start(&names::room(room)?, &mut unreadable, wanted.last);
        inbox.join_from(room, start).await?;
    }
    let response = RouteResponse::new(200).pieces(EventStream::new(
        (inbox, has_user_history),
        format,
        &wanted,
        &unreadable,
    ));
    Ok(match format {
        // Caches and proxies must not buffer events.
        Format::Events => response
            .header("content-type", EVENTS)
            .header("cache-control", "no-store")
            .header("x-accel-buffering", "no"),
        Format::Messages => response,
    })
}

/// Parameters of a request.
struct Wanted {
    rooms: Vec<String>,
    accepts: Accepts,
    /// Kept entries of rooms that the id does not name.
    last: Option<usize>,
    /// Positions of the id; the error is an id that cannot be read. `None` without an id.
    resumed: Option<Result<Positions, ()>>,
}

impl Wanted {
    fn of(head: &RouteHead) -> Result<Wanted> {
        let mut rooms: Vec<String> = Vec::new();
        for room in head.parameters("room") {
            names::room(room)?;
            if !rooms.iter().any(|known| known == room) {
                rooms.push(room.to_owned());
            }
        }
        if rooms.len() > ROOMS_MAX {
            let text = format!(
                "the query has {} rooms; the limit is {ROOMS_MAX}; open several streams",
                rooms.len()
            );
            return Err(Status::invalid_argument(text));
        }
        let number = |name: &str, text: &str| {
            Status::invalid_argument(format!("{name}=\"{}\" is not a number", text.escape_debug()))
        };
        let last = head.parameters("last").next();
        let last = last.map(|last| last.parse::<u32>().map_err(|_| number("last", last))).transpose()?;
        let accepts =
            head.parameters("accepts").map(|text| text.parse().map_err(|_| number("accepts", text)));
        let accepts: Vec<i32> = accepts.collect::<Result<_>>()?;
        let header = head.headers("last-event-id").next().map(|id| std::str::from_utf8(id).unwrap_or("?"));
        let id = header.or_else(|| head.parameters("id").next()).filter(|id| !id.is_empty());
        Ok(Wanted {
            rooms,
            accepts: if accepts.is_empty() { Accepts::all() } else { Accepts::only(accepts) },
            last: last.map(|last| last as usize),
            resumed: id.map(|id| Positions::decode(id).ok_or(())),
        })
    }

    /// Returns where the device begins in a topic, and notes one whose position cannot be read.
    fn start(&self, topic: &Topic, unreadable: &mut Vec<Topic>, last: Option<usize>) -> Start {
        match &self.resumed {
            Some(Ok(positions)) => match positions.of(tag_of(topic.name())) {
                Some(position) => return Start::After(position),
                // A topic that the device did not have.
                None if positions.is_complete() => {}
                None => unreadable.push(topic.clone()),
            },
            Some(Err(())) => unreadable.push(topic.clone()),
            None => {}
        }
        last.map_or(Start::Next, Start::Last)
    }

    /// Returns whether the device expects the outcome of a topic.
    fn resumes(&self, topic: &Topic) -> bool {
        let Some(Ok(positions)) = &self.resumed else { return false };
        positions.of(tag_of(topic.name())).is_some()
    }
}

type NextItem = Pin<Box<dyn Future<Output = (Inbox, Result<Option<Item>>)> + Send>>;

/// The events of a device, in pieces. Polled when its connection has room.
struct EventStream {
    format: Format,
    /// The next item; it owns the device.
    next: Option<NextItem>,
    id: String,
    /// The id names the position of the user as well.
    has_user_history: bool,
    /// Pieces from the start.
    begin: VecDeque<String>,
    /// Topics that have not said whether entries are missing; `None` once the device knows.
    resuming: Option<usize>,
    heartbeat: Pin<Box<Sleep>>,
    has_ended: bool,
}

impl EventStream {
    fn new(
        (inbox, has_user_history): (Inbox, bool),
        format: Format,
        wanted: &Wanted,
        unreadable: &[Topic],
    ) -> EventStream {
        let id = id_of(&inbox, has_user_history);
        let piece = |write: &dyn Fn(&mut String)| {
            let mut piece = String::new();
            write(&mut piece);
            piece
        };
        let mut begin = VecDeque::from([piece(&|into| format.begin(&id, into))]);
        begin
            .extend(unreadable.iter().map(|topic| piece(&|into| format.unreadable(topic.name(), &id, into))));
        let resuming = inbox.positions().filter(|(topic, _)| wanted.resumes(topic)).count();
        EventStream {
            format,
            next: Some(next(inbox)),
            id,
            has_user_history,
            begin,
            resuming: (resuming > 0 && unreadable.is_empty()).then_some(resuming),
            heartbeat: Box::pin(sleep(HEARTBEAT_TIME)),
            has_ended: false,
        }
    }

    /// Appends events until there are none, or the piece is full.
    fn fill(&mut self, piece: &mut String, cx: &mut Context<'_>) -> Result<()> {
        let bytes_max = if self.format == Format::Events { PIECE_BYTES } else { 1 };
        if let Some(first) = self.begin.pop_front() {
            piece.push_str(&first);
        }
        while piece.len() < bytes_max && !self.has_ended {
            let Some(pending) = &mut self.next else { break };
            let Poll::Ready((inbox, item)) = pending.as_mut().poll(cx) else { break };
            self.id = id_of(&inbox, self.has_user_history);
            self.next = None;
            match item? {
                Some(Item::Disconnected(order)) => self.end(&order, piece),
                Some(item) => {
                    self.put(&item, piece);
                    self.next = Some(next(inbox));
                }
                None => self.has_ended = true,
            }
        }
        Ok(())
    }

    fn end(&mut self, order: &Disconnect, piece: &mut String) {
        self.has_ended = true;
        self.next = None;
        let members = format!("\"reason\":\"{}\",\"text\":{}", order.reason, text(&order.text));
        self.format.event("disconnected", &self.id, &members, piece);
    }

    /// Appends the events of an item.
    fn put(&mut self, item: &Item, piece: &mut String) {
        match item {
            Item::Entry(message) => self.format.entry(message, &self.id, piece),
            Item::Gap(gap) => {
                self.resuming = None;
                self.format.gap(gap, &self.id, piece);
            }
            Item::Recovered(_) => {
                let Some(resuming) = &mut self.resuming else { return };
                *resuming = resuming.saturating_sub(1);
                if *resuming == 0 {
                    self.resuming = None;
                    self.format.resumed(&self.id, piece);
                }
            }
            Item::Joined(room) => {
                self.format.event("joined", &self.id, &format!("\"room\":{}", text(room)), piece);
            }
            Item::Left(room) => {
                self.format.event("left", &self.id, &format!("\"room\":{}", text(room)), piece);
            }
            Item::Disconnected(_) => {}
        }
    }
}

fn next(mut inbox: Inbox) -> NextItem {
    Box::pin(async move {
        let item = inbox.next().await;
        (inbox, item)
    })
}

/// Returns the id of the positions of rooms and of the user.
fn id_of(inbox: &Inbox, has_user_history: bool) -> String {
    let topics = inbox.positions().filter_map(|(topic, position)| {
        let name = topic.name();
        (names::room_of(name).is_some() || has_user_history && names::is_user(name))
            .then_some((tag_of(name), position?))
    });
    Positions::encode(topics)
}

/// Returns text as a JSON string.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Stream for EventStream {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        let mut piece = String::new();
        if let Err(status) = this.fill(&mut piece, cx) {
            this.has_ended = true;
            return Poll::Ready(Some(Err(status)));
        }
        if piece.is_empty() {
            if this.has_ended {
                return Poll::Ready(None);
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
        f.debug_struct("EventStream").field("format", &self.format).finish_non_exhaustive()
    }
}

//! `GET /events`: topics as server-sent events, and as the messages of a WebSocket.
//!
//! A stream has several topics and one id, which names the positions of all of them: a client that reconnects with it
//! gets each missing entry once, or a gap. The next entry is taken from a log when the connection has room.

mod format;
mod positions;
mod stream;

pub use format::{Format, HEARTBEAT};
pub use positions::{Positions, tag_of};

use crate::BusServer;
use std::task::{Context, Poll, Waker};
use stream::{EventStream, Source};
use switchboard::{
    Result, Status,
    plugin::{RouteHead, RouteRequest, RouteResponse},
};
use switchboard_message::{Bus, Delivery, Pattern, Position, Topic};

/// Topics of one stream.
const TOPICS_MAX: usize = 32;
/// Media type of server-sent events.
const EVENTS: &str = "text/event-stream";

/// Responds to a request.
///
/// # Errors
/// `InvalidArgument` for parameters that break a rule, `PermissionDenied` for topics that are not allowed, and the
/// errors of the bus.
pub(crate) async fn respond(server: &BusServer, request: &RouteRequest) -> Result<RouteResponse> {
    let head = &request.head;
    if head.verb != "GET" {
        let text = format!("{} {}: this path has GET\n", head.verb, head.path);
        return Ok(RouteResponse::text(405, text).header("allow", "GET"));
    }
    let format = if head.is_websocket { Format::Messages } else { Format::Events };
    if format == Format::Events && !accepts_events(head) {
        return Ok(RouteResponse::text(
            406,
            format!("this path has {EVENTS}, which the header accept excludes\n"),
        ));
    }
    let topics = topics(head, server.allows_event_patterns())?;
    for selected in &topics {
        server.rules_of_topics().may_subscribe(&selected.name, request.cx.caller())?;
    }
    let start = Start::of(head)?;
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for topic in topics {
        let (source, is_readable) = start.begin(server.bus(), topic).await?;
        if !is_readable {
            unreadable.push(source.name().to_owned());
        }
        sources.push(source);
    }
    let stream = EventStream::new(sources, format, &unreadable, server.until_closed());
    let response = RouteResponse::new(200).pieces(stream);
    Ok(match format {
        Format::Messages => response,
        // Caches and proxies must not buffer events.
        Format::Events => response
            .header("content-type", EVENTS)
            .header("cache-control", "no-store")
            .header("x-accel-buffering", "no"),
    })
}

/// Returns whether the caller accepts server-sent events; a request without the header accepts everything.
pub fn accepts_events(head: &RouteHead) -> bool {
    let values = head.headers("accept").filter_map(|value| std::str::from_utf8(value).ok());
    let ranges: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    // The most specific range decides, as RFC 9110 defines it.
    let accepts = |range: &str| {
        ranges.iter().find_map(|part| {
            let mut parts = part.split(';').map(str::trim);
            let is_it = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(range));
            let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            is_it.then(|| {
                quality.is_none_or(|quality| quality.parse().is_ok_and(|quality: f32| quality > 0.0))
            })
        })
    };
    ranges.is_empty() || [EVENTS, "text/*", "*/*"].into_iter().find_map(accepts).unwrap_or(false)
}

/// A topic of a request by its name, or a pattern.
struct Selected {
    name: String,
    /// `None` for a pattern.
    topic: Option<Topic>,
}

/// Returns the topics of a request, each once.
fn topics(head: &RouteHead, allows_patterns: bool) -> Result<Vec<Selected>> {
    let mut topics: Vec<Selected> = Vec::new();
    for (number, name) in head.parameters("topic").enumerate() {
        if number == TOPICS_MAX {
            let text = format!("the query has over {TOPICS_MAX} topics; open several streams");
            return Err(Status::invalid_argument(text));
        }
        if name.starts_with('$') {
            let text = format!("topic \"{name}\" begins with $, which is reserved for topics of the server");
            return Err(Status::permission_denied(text));
        }
        let topic = match (Topic::new(name), Pattern::new(name)) {
            (Ok(topic), _) => Some(topic),
            (Err(status), Err(_)) => return Err(status),
            (Err(_), Ok(_)) if allows_patterns => None,
            (Err(_), Ok(_)) => {
                let text =
                    format!("\"{name}\" is a pattern; event streams of this server have topics by name");
                return Err(Status::permission_denied(text));
            }
        };
        if topics.iter().all(|known| known.name != name) {
            topics.push(Selected { name: name.to_owned(), topic });
        }
    }
    if topics.is_empty() {
        return Err(Status::invalid_argument("the query has no topic; add ?topic=NAME, at most 32 times"));
    }
    Ok(topics)
}

/// Start of a stream.
struct Start {
    /// Kept entries of topics that the id does not name.
    last: Option<usize>,
    /// Positions of the id; the error is an id that cannot be read. `None` without an id.
    resumed: Option<Result<Positions, ()>>,
}

impl Start {
    fn of(head: &RouteHead) -> Result<Start> {
        let last = head.parameters("last").next().map(|last| {
            let text = || format!("last=\"{}\" is not a number of entries", last.escape_debug());
            last.parse::<u32>().map(|last| last as usize).map_err(|_| Status::invalid_argument(text()))
        });
        // An id that is not text is not one of this server.
        let header = head.headers("last-event-id").next().map(|id| std::str::from_utf8(id).unwrap_or("?"));
        let id = header.or_else(|| head.parameters("id").next()).filter(|id| !id.is_empty());
        Ok(Start { last: last.transpose()?, resumed: id.map(|id| Positions::decode(id).ok_or(())) })
    }

    /// Subscribes to a topic; returns false with a subscription that begins at the head although the client has an id.
    async fn begin(&self, bus: &Bus, Selected { name, topic }: Selected) -> Result<(Source, bool)> {
        let is_named = topic.is_some();
        let subscribe = match topic {
            Some(topic) => bus.subscribe_encoded(topic),
            None => bus.subscribe_encoded(&name),
        };
        let position = match &self.resumed {
            Some(Ok(positions)) if is_named => match positions.of(tag_of(&name)) {
                // A topic that the client did not have.
                None if positions.is_complete() => None,
                position => Some(position),
            },
            // A pattern has no position.
            Some(_) => Some(None),
            None => None,
        };
        let (subscribe, is_resumed) = match position {
            Some(Some(position)) => (subscribe.after(position), Some(position)),
            Some(None) => (subscribe, None),
            None => match self.last {
                Some(last) => (subscribe.last(last), None),
                None => (subscribe, None),
            },
        };
        let mut source = Source::new(name, is_named, subscribe.await?);
        match is_resumed {
            Some(position) => source.resume(position),
            None if is_named => set_position(bus, &mut source),
            None => {}
        }
        Ok((source, position != Some(None)))
    }
}

/// Finds the position before the first entry of a subscription that has begun.
fn set_position(bus: &Bus, source: &mut Source) {
    // Read before the subscription is polled: an entry that is published in between is an item of it.
    let head = bus.topic_stats(source.name()).map(|stats| stats.head);
    let first = match source.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(first) => first,
        Poll::Pending => None,
    };
    let before = |position: Position| Position { offset: position.offset.saturating_sub(1), ..position };
    let position = match &first {
        Some(Ok(Delivery::Entry(entry))) => Some(before(entry.position())),
        _ => head,
    };
    source.begin_at(position, first);
}

//! The requests of the demo, and their expected replies on every wire.

use crate::services::{
    all_posts, benchmark_message,
    proto::{
        bench::BenchmarkMessage,
        demo::{GreetReply, GreetRequest, Note, Number, QueryReply, QueryRequest, Tick, Total, WatchRequest},
    },
};
use switchboard::{Codec, codec::proto};

/// A method of the demo services.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Method {
    Greet,
    Watch,
    Sum,
    Chat,
    Query,
    Message,
    /// A subscription, which receives publications.
    Topic,
    /// A member of a room of a push gateway.
    Room,
}

/// Unary and stream methods, in the order of the table.
pub(super) const ALL: [Method; 6] =
    [Method::Greet, Method::Watch, Method::Sum, Method::Chat, Method::Query, Method::Message];
/// One of each kind.
pub(super) const KINDS: [Method; 4] = [Method::Greet, Method::Watch, Method::Sum, Method::Chat];
/// Methods for wires without streams.
pub(super) const UNARY: [Method; 3] = [Method::Greet, Method::Query, Method::Message];
/// Methods for HTTP/1.1, which cannot send in both directions at once.
pub(super) const HALF_DUPLEX: [Method; 5] =
    [Method::Greet, Method::Watch, Method::Sum, Method::Query, Method::Message];
/// Methods without side effects, which HTTP may cache.
pub(super) const CACHEABLE: [Method; 2] = [Method::Greet, Method::Query];

impl Method {
    /// Service and method, without the package.
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Greet => "Greeter.Greet",
            Method::Watch => "Greeter.Watch",
            Method::Sum => "Greeter.Sum",
            Method::Chat => "Greeter.Chat",
            Method::Query => "Posts.Query",
            Method::Message => "Bench.Message",
            Method::Topic => "subscribe",
            Method::Room => "join",
        }
    }

    /// The expected reply, in the form that the functions of this module return.
    pub(super) fn expected(self) -> String {
        match self {
            Method::Greet => "hello Ada".to_owned(),
            Method::Watch => "0, 1, 2".to_owned(),
            Method::Sum => "42, the sum of 3".to_owned(),
            Method::Chat => "ONE, TWO".to_owned(),
            Method::Query => query(&QueryReply { posts: all_posts().collect(), ..Default::default() }),
            Method::Message => "OK 100, 581 bytes".to_owned(),
            Method::Topic => "12.5".to_owned(),
            Method::Room => "goal".to_owned(),
        }
    }
}

pub(super) fn greet_request() -> GreetRequest {
    GreetRequest { name: "Ada".to_owned(), ..Default::default() }
}

pub(super) fn watch_request() -> WatchRequest {
    WatchRequest { count: 3, ..Default::default() }
}

pub(super) fn numbers() -> [Number; 3] {
    [1, 2, 39].map(|value| Number { value, ..Default::default() })
}

pub(super) fn notes() -> [Note; 2] {
    ["one", "two"].map(|text| Note { text: text.to_owned(), ..Default::default() })
}

pub(super) fn query_request() -> QueryRequest {
    QueryRequest::default()
}

pub(super) fn message_request() -> BenchmarkMessage {
    benchmark_message()
}

pub(super) fn greet(reply: GreetReply) -> String {
    reply.text
}

pub(super) fn watch(ticks: &[Tick]) -> String {
    ticks.iter().map(|tick| tick.n.to_string()).collect::<Vec<_>>().join(", ")
}

pub(super) fn sum(total: &Total) -> String {
    format!("{}, the sum of {}", total.sum, total.count)
}

pub(super) fn chat(notes: &[Note]) -> String {
    notes.iter().map(|note| note.text.as_str()).collect::<Vec<_>>().join(", ")
}

/// The beginning of the first title is enough if the rest is correct.
pub(super) fn query(reply: &QueryReply) -> String {
    let first = reply.posts.first().map_or("none", |post| &post.title);
    let words: Vec<_> = first.split(' ').take(3).collect();
    let text = format!("{} posts: {} …", reply.posts.len(), words.join(" "));
    if reply.posts.iter().cloned().eq(all_posts()) {
        text
    } else {
        format!("{text} (not those of the server)")
    }
}

/// Checks the reply to the request of 581 bytes: two fields are set, the others unchanged.
pub(super) fn message(reply: &BenchmarkMessage) -> String {
    let mut expected = message_request();
    let bytes = proto::encode(&expected, Codec::Proto).map_or(0, |bytes| bytes.len());
    "OK".clone_into(&mut expected.field1);
    expected.field2 = 100;
    let others = if *reply == expected { "" } else { ", other fields are wrong" };
    format!("{} {}, {bytes} bytes{others}", reply.field1, reply.field2)
}

/// Lists the posts for people.
pub(super) fn list() -> String {
    let mut text = format!("The {} posts that Posts.Query returns:\n", all_posts().count());
    for (at, post) in all_posts().enumerate() {
        let line = format!("  {}. {} by {} ({})\n", at + 1, post.title, post.author, post.tags.join(", "));
        text.push_str(&line);
    }
    text
}

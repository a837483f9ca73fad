//! Lists of topics, in pages.

use super::{
    Bus, Selector, Side,
    remote::{RemoteFuture, RemoteTopics},
};
use crate::log::{ListedTopic, Source};
use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Topics of a page, by default and at most.
const PAGE_TOPICS: [usize; 2] = [100, 1_000];

/// A list of topics to be read; see [`Bus::topics`].
#[must_use = "a list is not read before it is awaited"]
pub struct ListTopics<'a> {
    bus: &'a Bus,
    selector: Selector,
    token: Option<String>,
    limit: Option<usize>,
}

/// A page of a list of topics.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TopicsPage {
    /// The topics, in no particular order; fewer than the limit also before the last page.
    pub topics: Vec<ListedTopic>,
    /// For [`ListTopics::page`]; `None` after the last page.
    pub next: Option<String>,
}

impl TopicsPage {
    /// Creates a page of what another process has listed.
    pub fn new(topics: Vec<ListedTopic>, next: Option<String>) -> TopicsPage {
        TopicsPage { topics, next }
    }
}

impl<'a> ListTopics<'a> {
    pub(super) fn new(bus: &'a Bus, selector: Selector) -> ListTopics<'a> {
        ListTopics { bus, selector, token: None, limit: None }
    }

    /// Reads the page with the [`next`](TopicsPage::next) of the page before it.
    pub fn page(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Limits the topics of the page; default 100, at most 1,000.
    pub fn limit(mut self, topics: usize) -> Self {
        self.limit = Some(topics.max(1));
        self
    }

    fn read(self) -> Result<State> {
        let source = self.selector.source?;
        match &self.bus.side {
            Side::Local(local) => {
                let [default, max] = PAGE_TOPICS;
                let limit = self.limit.map_or(default, |limit| limit.min(max));
                let place = self.token.as_deref().map(parse).transpose()?.unwrap_or_default();
                let (topics, next) = local.log.list(&source, place, limit, local.now());
                let next = next.map(|(shard, index)| format!("{shard}.{index}"));
                Ok(State::Read(TopicsPage { topics, next }))
            }
            Side::Remote(remote) => {
                let request =
                    RemoteTopics { topics: (&source).into(), token: self.token, topics_max: self.limit };
                Ok(State::Reading(remote.bus.topics(request)))
            }
        }
    }
}

/// Parses the place in the logs where a page begins.
pub(super) fn parse(token: &str) -> Result<(u32, u32)> {
    let place =
        token.split_once('.').and_then(|(shard, index)| Some((shard.parse().ok()?, index.parse().ok()?)));
    place.ok_or_else(|| {
        let shown: String = token.chars().take(32).collect();
        let text =
            format!("page token \"{shown}\" is not one of this bus; send that of the page before unchanged");
        Status::invalid_argument(text)
    })
}

impl IntoFuture for ListTopics<'_> {
    type Output = Result<TopicsPage>;
    type IntoFuture = ListingTopics;

    fn into_future(self) -> ListingTopics {
        ListingTopics(self.read().unwrap_or_else(State::Failed))
    }
}

/// Future of a page of topics.
#[must_use = "a list is not read before it is awaited"]
pub struct ListingTopics(State);

enum State {
    Failed(Status),
    Read(TopicsPage),
    Reading(RemoteFuture<TopicsPage>),
}

impl Future for ListingTopics {
    type Output = Result<TopicsPage>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Failed(status) => Poll::Ready(Err(status.clone())),
            State::Read(page) => Poll::Ready(Ok(std::mem::take(page))),
            State::Reading(page) => page.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for ListTopics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListTopics").field("topics", &self.selector.source).finish_non_exhaustive()
    }
}

impl fmt::Debug for ListingTopics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListingTopics").finish_non_exhaustive()
    }
}

impl From<&Source> for super::remote::RemoteSelector {
    fn from(source: &Source) -> Self {
        match source {
            Source::Topic(topic) => Self::Topic(topic.name().to_owned()),
            Source::Pattern(pattern) => match pattern.prefix_bytes() {
                Some(prefix) => Self::Prefix(prefix.clone()),
                None => Self::Pattern(pattern.to_string()),
            },
        }
    }
}

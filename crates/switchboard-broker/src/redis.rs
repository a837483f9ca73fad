//! Redis 7: a stream of the entries of each topic, and a channel for its subscribers.
//!
//! With the prefix `swb`, the topic `quotes/acme` has the hash `swb:{quotes/acme}:m` with its epoch and its newest
//! offset, the stream `swb:{quotes/acme}:e` with its entries, keys `swb:{quotes/acme}:i:ID` with the positions of
//! publication ids, and the channel `swb:{quotes/acme}`. The braces put them into one slot. A script appends: it takes
//! the next offset, adds the entry to the stream under that number, and publishes it.
//!
//! One connection has the commands, another one the subscriptions. A process that follows a topic subscribes first and
//! reads the newest position then, so that it knows what it has missed.

mod commands;
mod live;
mod options;
mod script;

pub use options::Options;

use crate::record;
use commands::Commands;
use live::Live;
use redis::{Client, IntoConnectionInfo};
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_message::{
    Position, Publication, Topic,
    broker::{Accepted, Broker, BrokerFuture, Capabilities, Mailbox, Page, ReadFrom},
};
use switchboard_wire::Status;

/// An engine in Redis.
pub struct Redis {
    name: String,
    options: Options,
    commands: Commands,
    live: Arc<Live>,
}

/// Redis responds within microseconds; a server that takes longer than this counts as down.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

impl Redis {
    /// Creates the engine at `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address, and for a prefix with a brace.
    pub fn connect(url: &str, options: Options) -> Result<Redis> {
        let invalid = |error| Status::invalid_argument(format!("the address of the engine Redis: {error}"));
        options.check()?;
        let info = url.into_connection_info().map_err(invalid)?;
        let name = format!("redis {}", info.addr());
        let client = Client::open(info).map_err(invalid)?;
        let live = Arc::new(Live::new(name.clone(), client.clone(), options.topics_max));
        Ok(Redis { commands: Commands::new(name.clone(), client), name, options, live })
    }

    fn channel(&self, topic: &Topic) -> String {
        format!("{}:{{{}}}", self.options.prefix, topic.name())
    }

    async fn append_all(&self, topic: &Topic, publications: Vec<Publication>) -> Result<Position> {
        let (channel, now, options) = (self.channel(topic), record::now(), &self.options);
        let mut call = script::Call::new(&script::APPEND, &channel);
        call.text(&script::random_epoch())
            .text(&options.keep.as_millis().max(1).to_string())
            .text(&options.history.to_string())
            .text(&options.dedup_window.as_millis().to_string());
        for publication in &publications {
            call.bytes(&publication.id).bytes(&record::encode(publication, now));
        }
        script::position(&self.commands.run(call).await?).ok_or_else(|| self.unreadable())
    }

    async fn follow(&self, topic: &Topic, known: Option<Position>, to: Mailbox) -> Result<Position> {
        let channel = self.channel(topic);
        // Before the subscription, which delivers entries of the log that is there now.
        let seen = self.live.seen(&channel);
        self.live.subscribe(&channel, to).await?;
        let mut known = known.unwrap_or_default();
        let seen = seen.filter(|seen| {
            seen.position.epoch == known.epoch && seen.position.offset >= known.offset && known.offset > 0
        });
        known = seen.map_or(known, |seen| seen.position);
        let mut call = script::Call::new(&script::HEAD, &channel);
        call.text(&script::random_epoch())
            .text(&self.options.keep.as_millis().max(1).to_string())
            .text(&script::epoch(known.epoch))
            .text(&known.offset.to_string())
            .text(&seen.map(|seen| seen.time_ms.to_string()).unwrap_or_default());
        script::position(&self.commands.run(call).await?).ok_or_else(|| self.unreadable())
    }

    async fn read_page(&self, topic: &Topic, from: ReadFrom, entries_max: usize) -> Result<Page> {
        let channel = self.channel(topic);
        let mut call = script::Call::new(&script::READ, &channel);
        call.text(&script::random_epoch())
            .text(&self.options.keep.as_millis().max(1).to_string())
            .text(&entries_max.max(1).to_string());
        match from {
            ReadFrom::Last(0) => {
                let head = script::Call::head_of(&call);
                let position = script::position(&self.commands.run(head).await?);
                return position
                    .map(|head| Page::new(head, None, Vec::new()))
                    .ok_or_else(|| self.unreadable());
            }
            ReadFrom::Last(entries) => call.text("last").text(&entries.to_string()),
            ReadFrom::Since(age) => call.text("since").text(&age.as_millis().to_string()),
            ReadFrom::After(position) => {
                call.text("after").text(&position.offset.to_string()).text(&script::epoch(position.epoch))
            }
            _ => return Err(Status::unimplemented(format!("{} does not have this start", self.name))),
        };
        let words = self.commands.run(call).await?;
        let (page, seen) = script::page(topic, from, words).ok_or_else(|| self.unreadable())?;
        if let Some(seen) = seen {
            self.live.notice(channel.as_bytes(), seen);
        }
        Ok(page)
    }

    fn unreadable(&self) -> Status {
        Status::unavailable(format!("{} sent an invalid response", self.name))
    }
}

impl Broker for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(Accepted::Engine);
        capabilities.appends_batches = true;
        capabilities.has_dense_offsets = true;
        capabilities.has_history = true;
        capabilities.has_history_per_topic = true;
        capabilities.drops_duplicates = !self.options.dedup_window.is_zero();
        capabilities.survives_restart = true;
        capabilities.topics_max = self.options.topics_max;
        capabilities
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(self.append_all(topic, publications))
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        Box::pin(self.follow(topic, known, to))
    }

    fn unsubscribe(&self, topic: &Topic) {
        self.live.unsubscribe(&self.channel(topic));
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(self.read_page(topic, from, entries_max))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

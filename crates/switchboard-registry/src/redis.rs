//! Redis: a key for each instance, which ends with its time, a set of their names for each service, and a message
//! when something changes.
//!
//! With the prefix `switchboard`, the instance `ID` of `SERVICE` is the key `/switchboard/SERVICE/ID` (both escaped)
//! with a TTL; `/switchboard/SERVICE/` is the set of the ids, which may name some that have ended, and a channel of
//! that name says that something has changed. Readers take what the keys say: a lease that ends is noticed when its
//! time is over, since Redis tells nobody of it unless set up so.

mod keys;

use crate::layout::Style;
use futures_core::Stream;
use keys::Keys;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script, aio::MultiplexedConnection};
use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, time::Duration};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

/// A registry in Redis.
pub struct Redis {
    discovery: Discovery,
}

impl Redis {
    /// The registry at `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, below a prefix, `switchboard` if it is empty.
    /// Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong address.
    pub fn connect(url: &str, prefix: &str, options: Options) -> Result<Redis> {
        Redis::connect_as(Style::Own, url, prefix, options)
    }

    /// The same, with the keys and values of somebody else. What programs of rpcx change is seen at once where the
    /// server has `notify-keyspace-events`, as their clients set it, and within 2 s elsewhere.
    ///
    /// # Errors
    /// As [`connect`](Redis::connect).
    pub fn connect_as(style: Style, url: &str, prefix: &str, options: Options) -> Result<Redis> {
        let wrong = |error| Status::invalid_argument(format!("the address of the Redis registry: {error}"));
        let info = url.into_connection_info().map_err(wrong)?;
        let name = format!("redis {}", info.addr());
        let client = Client::open(info).map_err(wrong)?;
        let shared = Shared { name, client, connection: Mutex::default() };
        let store = Store { keys: Keys::new(style, prefix), shared: Arc::new(shared) };
        Ok(Redis { discovery: Discovery::new(store, options) })
    }
}

impl Registry for Redis {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

struct Store {
    keys: Keys,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    client: Client,
    /// For all that is not a subscription; made anew after an error.
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// Redis answers within microseconds; one that takes longer than this is down.
const ANSWER: Duration = Duration::from_secs(3);

/// Changes that come together are read together.
const GATHER: Duration = Duration::from_millis(20);

/// Without a message the list is read again when the first lease would end, but within these bounds.
const READ_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(10);

impl Shared {
    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &str,
        folder: &str,
        arguments: &[&[u8]],
    ) -> Result<T> {
        let mut connection = self.connection().await?;
        let script = Script::new(script);
        let mut call = script.key(folder);
        for argument in arguments {
            call.arg(*argument);
        }
        let answer = call.invoke_async(&mut connection).await;
        if answer.as_ref().is_err_and(|error| error.is_unrecoverable_error() || error.is_io_error()) {
            *self.connection.lock().await = None;
        }
        answer.map_err(|error| self.failed(&error))
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let new = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let new = new.map_err(|error| self.failed(&error))?;
        *connection = Some(new.clone());
        Ok(new)
    }

    fn failed(&self, error: &redis::RedisError) -> Status {
        Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe)
    }
}

impl Store {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let shared = &self.shared;
        let folder = self.keys.folder(service);
        let slow = |_| Status::unavailable(format!("{} does not answer", shared.name));
        // Before the first list, so that no change is missed.
        let subscribing = async {
            let mut pubsub = shared.client.get_async_pubsub().await?;
            pubsub.subscribe(&folder).await?;
            if let Some(pattern) = self.keys.events(service) {
                pubsub.psubscribe(pattern).await?;
            }
            Ok(pubsub)
        };
        let subscribed = timeout(ANSWER, subscribing).await.map_err(slow)?;
        let mut messages = subscribed.map_err(|error| shared.failed(&error))?.into_on_message();
        let (max, pattern) = (feed.instances_max().to_string(), self.keys.pattern(service));
        loop {
            let arguments = [max.as_bytes(), pattern.as_bytes()];
            let list: Vec<Vec<u8>> = shared.run(self.keys.list(), &folder, &arguments).await?;
            let (first, pairs) = list.split_first().map_or((&[][..], &[][..]), |(first, rest)| (first, rest));
            let first: i64 = str::from_utf8(first).ok().and_then(|first| first.parse().ok()).unwrap_or(-1);
            if pairs.is_empty() && first > 0 {
                let text = format!("{first} instances of {service} are more than instances_max {max}");
                return Err(Status::resource_exhausted(text));
            }
            feed.publish(pairs.chunks_exact(2).filter_map(|pair| {
                let name = String::from_utf8_lossy(&pair[0]);
                self.keys.decode(service, &name, &pair[1], feed.instance_bytes_max())
            }));
            let pause = u64::try_from(first).map_or(*READ_EVERY.end(), Duration::from_millis);
            tokio::select! {
                message = next(&mut messages) => {
                    message.ok_or_else(|| Status::unavailable(format!("{} has closed", shared.name)))?;
                    sleep(GATHER).await;
                }
                () = sleep(pause.clamp(*READ_EVERY.start(), self.keys.read_every())) => {}
            }
            // One reading is for all of them.
            while let Ok(Some(_)) = timeout(Duration::ZERO, next(&mut messages)).await {}
        }
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

impl Backend for Store {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let kept = Kept {
                shared: self.shared.clone(),
                hold: self.keys.hold(),
                folder: self.keys.folder(&instance.service),
                name: self.keys.name(instance)?,
                value: self.keys.encode(instance)?,
                ttl: ttl.as_millis().max(1).to_string(),
            };
            kept.run::<i64>(kept.hold).await?;
            Ok(Box::new(kept) as Box<dyn Held>)
        })
    }
}

struct Kept {
    shared: Arc<Shared>,
    hold: &'static str,
    folder: String,
    name: String,
    value: Vec<u8>,
    ttl: String,
}

impl Kept {
    async fn run<T: redis::FromRedisValue>(&self, script: &str) -> Result<T> {
        let arguments = [self.name.as_bytes(), self.value.as_slice(), self.ttl.as_bytes()];
        self.shared.run(script, &self.folder, &arguments).await
    }
}

impl Held for Kept {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            match self.run::<i64>(keys::RENEW).await? {
                1 => Ok(()),
                _ => Err(Status::not_found(format!("{} has forgotten {}", self.shared.name, self.name))),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.run::<i64>(keys::RELEASE).await.map(drop) })
    }
}

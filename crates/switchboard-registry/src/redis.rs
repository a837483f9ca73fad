//! Redis: a key with a TTL for each instance, a set of the instance names for each service, and a message when
//! something changes.
//!
//! With the prefix `switchboard`, the instance `ID` of `SERVICE` is the key `/switchboard/SERVICE/ID` (both escaped)
//! with a TTL. The key `switchboard:owner:` followed by that name identifies the registration that wrote it, so that
//! the end of an older one does not end it. `/switchboard/SERVICE/` is the set of the ids, which may contain expired
//! ones, and a channel of that name announces changes. Readers use the content of the keys: an expired lease is noticed
//! when its time is over, since Redis sends no notification of it unless configured to.

mod keys;

use crate::{layout::Style, owner};
use futures_core::Stream;
use keys::Keys;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script, aio::MultiplexedConnection};
use std::{convert::Infallible, future::poll_fn, pin::Pin, sync::Arc, time::Duration};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
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
    /// Creates a client of the registry at `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, below a prefix,
    /// `switchboard` if it is empty. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address.
    pub fn connect(url: &str, prefix: &str, options: Options) -> Result<Redis> {
        Redis::connect_as(Style::Own, url, prefix, options)
    }

    /// Creates a client as [`connect`](Redis::connect) does, with the keys and values of the given layout. Changes by
    /// rpcx programs are seen at once if the server has `notify-keyspace-events`, as their clients set it, and within 2
    /// s otherwise.
    ///
    /// # Errors
    /// The errors of [`connect`](Redis::connect).
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
    /// For all commands except the subscription; opened again after an error.
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// Redis responds within microseconds; a server that takes longer than this counts as down.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Changes within this time are read together.
const GATHER: Duration = Duration::from_millis(20);

/// Without a message the list is read again when the first lease expires, but within these bounds.
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
        let response = call.invoke_async(&mut connection).await;
        if response.as_ref().is_err_and(|error| error.is_unrecoverable_error() || error.is_io_error()) {
            *self.connection.lock().await = None;
        }
        response.map_err(|error| self.failed(&error))
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
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
        let slow = |_| Status::unavailable(format!("{} does not respond", shared.name));
        // Before the first list, so that no change is missed.
        let subscribing = async {
            let mut pubsub = shared.client.get_async_pubsub().await?;
            pubsub.subscribe(&folder).await?;
            if let Some(pattern) = self.keys.events(service) {
                pubsub.psubscribe(pattern).await?;
            }
            Ok(pubsub)
        };
        let subscribed = timeout(RESPONSE_TIMEOUT, subscribing).await.map_err(slow)?;
        let mut messages = subscribed.map_err(|error| shared.failed(&error))?.into_on_message();
        let (max, pattern) = (feed.instances_max().to_string(), self.keys.pattern(service));
        loop {
            let arguments = [max.as_bytes(), pattern.as_bytes()];
            let list: Vec<Vec<u8>> = shared.run(self.keys.list(), &folder, &arguments).await?;
            let unreadable = || Status::unavailable(format!("{} sent an invalid list", shared.name));
            let (first, pairs) = list.split_first().ok_or_else(unreadable)?;
            let first = str::from_utf8(first).ok().and_then(|first| first.parse::<i64>().ok());
            let first = first.ok_or_else(unreadable)?;
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
            // One read covers all of them.
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let registration = RedisRegistration {
                shared: self.shared.clone(),
                register: self.keys.register(),
                folder: self.keys.folder(&instance.service),
                name: self.keys.name(instance)?,
                value: self.keys.encode(instance)?,
                ttl: ttl.as_millis().max(1).to_string(),
                owner: owner::unique(),
            };
            registration.run::<i64>(registration.register).await?;
            Ok(Box::new(registration) as Box<dyn Registration>)
        })
    }
}

struct RedisRegistration {
    shared: Arc<Shared>,
    register: &'static str,
    folder: String,
    name: String,
    value: Vec<u8>,
    ttl: String,
    owner: String,
}

impl RedisRegistration {
    async fn run<T: redis::FromRedisValue>(&self, script: &str) -> Result<T> {
        let arguments =
            [self.name.as_bytes(), self.value.as_slice(), self.ttl.as_bytes(), self.owner.as_bytes()];
        self.shared.run(script, &self.folder, &arguments).await
    }
}

impl Registration for RedisRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            match self.run::<i64>(keys::RENEW).await? {
                1 => Ok(()),
                _ => Err(Status::not_found(format!(
                    "{} does not have {} any more",
                    self.shared.name, self.name
                ))),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.run::<i64>(keys::RELEASE).await.map(drop) })
    }

    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(self.run::<i64>(keys::SUPERSEDED).await? == 1) })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("redis", &["layout", "prefix"])],
    make: |parsed| {
        let url = format!("redis://{}/{}", parsed.hosts()?, parsed.path);
        let (prefix, style) = (parsed.take("prefix").unwrap_or_default(), parsed.style()?);
        Ok(std::sync::Arc::new(crate::Redis::connect_as(style, &url, prefix, parsed.options()?)?))
    },
};

//! Redis: a key for each instance, which ends with its time, a set of their names for each service, and a message
//! when something changes.
//!
//! With the prefix `switchboard`, the instance `ID` of `SERVICE` is the key `/switchboard/SERVICE/ID` (both escaped)
//! with a TTL; `/switchboard/SERVICE/` is the set of the ids, which may name some that have ended, and a channel of
//! that name says that something has changed. Readers take what the keys say: a lease that ends is noticed when its
//! time is over, since Redis tells nobody of it unless set up so.

use crate::layout::{Layout, OwnLayout};
use futures_core::Stream;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script, aio::MultiplexedConnection};
use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Lease, Options, Registry, Watch},
};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

/// A registry in Redis.
pub struct Redis {
    discovery: Discovery<Store>,
}

impl Redis {
    /// The registry at `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]`, below a prefix, `switchboard` if it is empty.
    /// Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong address.
    pub fn connect(url: &str, prefix: &str, options: Options) -> Result<Redis> {
        let wrong = |error| Status::invalid_argument(format!("the address of the Redis registry: {error}"));
        let info = url.into_connection_info().map_err(wrong)?;
        let name = format!("redis {}", info.addr());
        let client = Client::open(info).map_err(wrong)?;
        let shared = Shared { name, client, connection: Mutex::default() };
        let store = Store { layout: OwnLayout::new(prefix), shared: Arc::new(shared) };
        Ok(Redis { discovery: Discovery::new(store, options) })
    }
}

impl Registry for Redis {
    fn name(&self) -> &str {
        self.discovery.name()
    }

    fn watch(&self, service: &str) -> Watch {
        self.discovery.watch(service)
    }

    fn register(&self, instance: Instance) -> BoxFuture<'_, Result<Lease>> {
        self.discovery.register(instance)
    }
}

struct Store {
    layout: OwnLayout,
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

/// Those who are there, with the time until the first of them ends; forgets names whose keys have ended. Answers with
/// the number alone when there are more than are wanted.
const LIST: &str = r"
local count = redis.call('SCARD', KEYS[1])
if count > tonumber(ARGV[1]) then return {tostring(count)} end
local first, found = -1, {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local value = redis.call('GET', KEYS[1] .. name)
    if value then
        local left = redis.call('PTTL', KEYS[1] .. name)
        if left >= 0 and (first < 0 or left < first) then first = left end
        found[#found + 1] = name
        found[#found + 1] = value
    else
        redis.call('SREM', KEYS[1], name)
    end
end
table.insert(found, 1, tostring(first))
return found
";

/// KEYS: the folder, ARGV: name, value, milliseconds. Says so to readers unless it was the same before.
const HOLD: &str = r"
local key = KEYS[1] .. ARGV[1]
local before = redis.call('GET', key)
redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
if before ~= ARGV[2] then redis.call('PUBLISH', KEYS[1], '') end
return 1
";

/// KEYS: the folder, ARGV: name, value, milliseconds. Answers whether it still was there, and the same.
const RENEW: &str = r"
local key = KEYS[1] .. ARGV[1]
if redis.call('GET', key) ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', key, ARGV[3])
";

/// KEYS: the folder, ARGV: name.
const RELEASE: &str = r"
redis.call('DEL', KEYS[1] .. ARGV[1])
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[1], '')
return 1
";

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
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<()> {
        let shared = &self.shared;
        let folder = self.layout.folder(service);
        let slow = |_| Status::unavailable(format!("{} does not answer", shared.name));
        // Before the first list, so that no change is missed.
        let subscribing = async {
            let mut pubsub = shared.client.get_async_pubsub().await?;
            pubsub.subscribe(&folder).await?;
            Ok(pubsub)
        };
        let subscribed = timeout(ANSWER, subscribing).await.map_err(slow)?;
        let mut messages = subscribed.map_err(|error| shared.failed(&error))?.into_on_message();
        let max = feed.instances_max().to_string();
        loop {
            let list: Vec<Vec<u8>> = shared.run(LIST, &folder, &[max.as_bytes()]).await?;
            let (first, pairs) = list.split_first().map_or((&[][..], &[][..]), |(first, rest)| (first, rest));
            let first: i64 = str::from_utf8(first).ok().and_then(|first| first.parse().ok()).unwrap_or(-1);
            if pairs.is_empty() && first > 0 {
                let text = format!("{first} instances of {service} are more than instances_max {max}");
                return Err(Status::resource_exhausted(text));
            }
            feed.publish(pairs.chunks_exact(2).map(|pair| {
                let name = String::from_utf8_lossy(&pair[0]);
                self.layout.decode(service, &name, &pair[1], feed.instance_bytes_max())
            }));
            let pause = u64::try_from(first).map_or(*READ_EVERY.end(), Duration::from_millis);
            tokio::select! {
                message = next(&mut messages) => {
                    message.ok_or_else(|| Status::unavailable(format!("{} has closed", shared.name)))?;
                    sleep(GATHER).await;
                }
                () = sleep(pause.clamp(*READ_EVERY.start(), *READ_EVERY.end())) => {}
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

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Status> {
        Box::pin(async move {
            let ended = self.follow_on(service, feed).await;
            ended.err().unwrap_or_else(|| Status::internal("following has no end but an error"))
        })
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let kept = Kept {
                shared: self.shared.clone(),
                folder: self.layout.folder(&instance.service),
                name: self.layout.name(instance),
                value: self.layout.encode(instance)?,
                ttl: ttl.as_millis().max(1).to_string(),
            };
            kept.run::<i64>(HOLD).await?;
            Ok(Box::new(kept) as Box<dyn Held>)
        })
    }
}

struct Kept {
    shared: Arc<Shared>,
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
            match self.run::<i64>(RENEW).await? {
                1 => Ok(()),
                _ => Err(Status::not_found(format!("{} has forgotten {}", self.shared.name, self.name))),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.run::<i64>(RELEASE).await.map(drop) })
    }
}

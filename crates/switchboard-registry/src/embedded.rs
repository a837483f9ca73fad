//! The embedded registry: any Switchboard server can be it, so that a first cluster needs nothing else.
//!
//! It is one process that keeps leases in memory. When it ends, callers go on with their last good snapshots, and
//! when it is back, instances register again with their next renewal: a third of the TTL later it knows all of them.
//! It has no access rules of its own: whoever may call the server may register, so give it a listener that only the
//! fleet reaches, or a layer that asks who it is.
//!
//! ```
//! use switchboard::{Server, discover::{Instance, Options, Registry}};
//! use switchboard_registry::{Embedded, EmbeddedServer};
//!
//! # #[switchboard::main]
//! # async fn main() -> switchboard::Result<()> {
//! let server = Server::new().add(EmbeddedServer::new()).listen("tcp://127.0.0.1:0").start().await?;
//! let registry = Embedded::connect(&server.url(), Options::new())?;
//! let lease = registry.register(Instance::new("demo.Greeter", "tcp://10.0.0.7:8080")).await?;
//! let mut watch = registry.watch("demo.Greeter");
//! assert_eq!(watch.changed().await.instances.len(), 1);
//! lease.end().await?;
//! # Ok(())
//! # }
//! ```

mod store;

use serde::{Deserialize, Serialize};
use std::{convert::Infallible, time::Duration};
use store::Store;
use switchboard::{
    Call, Channel, Reply, Result, Sender, Service, ServiceInfo, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::time::{Instant, sleep, sleep_until};

/// The calls of the registry. Instances travel as [`Instance::encode`] writes them, so that programs of different
/// versions understand each other.
#[switchboard::service(name = "switchboard.registry.v1.Instances")]
trait Instances {
    /// Keeps an instance for `ttl_ms` in place of one with the same service and id; returns the number of the lease.
    #[switchboard(idempotent)]
    async fn hold(&self, instance: String, ttl_ms: u64) -> Result<u64>;

    /// Keeps it for the same time again, from now on; `NotFound` when it is not known.
    #[switchboard(idempotent)]
    async fn renew(&self, lease: u64) -> Result<()>;

    /// Ends a lease; one that is not known has ended.
    #[switchboard(idempotent)]
    async fn release(&self, lease: u64) -> Result<()>;

    /// The list of a service in parts, as soon as it is of another version than `known`; nothing when it still is of
    /// that one after 5 seconds. No version is 0.
    #[switchboard(read_only)]
    async fn follow(&self, service: String, known: u64, out: Sender<Part>) -> Result<()>;
}

/// Some instances of a list; the last part is the last message.
#[derive(Debug, Deserialize, Serialize)]
struct Part {
    version: u64,
    instances: Vec<String>,
}

/// How long `follow` waits for a change. No longer, so that a server can drain and a dead one is noticed.
const WAIT: Duration = Duration::from_secs(5);

/// A change is told this much later, together with those that come meanwhile: a fleet that starts makes thousands.
const GATHER: Duration = Duration::from_millis(20);

/// A list is asked for again after this long at the earliest, and after twice as long each time while nothing is new: a
/// server that answers at once where ours waits would be asked without end.
const PAUSE: Duration = GATHER;

/// Parts of this many bytes fit into any message.
const PART_BYTES: usize = 256 << 10;

/// The registry itself, as a service for [`Server::add`](switchboard::Server::add).
///
/// Clones share what they hold. It keeps at most 100 000 instances of 8 KiB, 10 000 of one service, unless set
/// otherwise, and refuses more with `ResourceExhausted`. A TTL is between 1 second and 1 hour.
#[derive(Clone)]
pub struct EmbeddedServer {
    inner: InstancesServer<Store>,
}

impl Default for EmbeddedServer {
    fn default() -> Self {
        EmbeddedServer::new()
    }
}

impl EmbeddedServer {
    /// A registry that knows nobody yet, with the usual limits.
    pub fn new() -> EmbeddedServer {
        EmbeddedServer::with_limits(100_000, 10_000, 8 << 10)
    }

    /// A registry with limits of its own: instances in all, of one service, and bytes of one encoded instance.
    pub fn with_limits(
        instances_max: usize,
        service_instances_max: usize,
        instance_bytes_max: usize,
    ) -> EmbeddedServer {
        let store = Store::new(instances_max, service_instances_max, instance_bytes_max);
        EmbeddedServer { inner: InstancesServer::new(store) }
    }
}

impl Service for EmbeddedServer {
    fn info(&self) -> &'static ServiceInfo {
        self.inner.info()
    }

    fn call(&self, call: Call) -> impl Future<Output = Result<Reply>> + Send {
        self.inner.call(call)
    }
}

impl Instances for Store {
    async fn hold(&self, instance: String, ttl_ms: u64) -> Result<u64> {
        self.insert(instance, Duration::from_millis(ttl_ms), Instant::now())
    }

    async fn renew(&self, lease: u64) -> Result<()> {
        self.extend(lease, Instant::now())
    }

    async fn release(&self, lease: u64) -> Result<()> {
        self.remove(lease, Instant::now());
        Ok(())
    }

    async fn follow(&self, service: String, known: u64, out: Sender<Part>) -> Result<()> {
        let end = Instant::now() + WAIT;
        let mut changed = self.subscribe(&service)?;
        loop {
            changed.mark_unchanged();
            let (version, expiry) = self.version(&service, Instant::now());
            if version != known {
                break;
            }
            tokio::select! {
                _ = changed.changed() => sleep(GATHER).await,
                () = sleep_until(expiry.unwrap_or(end).min(end)) => {
                    if Instant::now() >= end {
                        return Ok(());
                    }
                }
            }
        }
        let (version, list) = self.list(&service, Instant::now());
        let mut list = list.into_iter().peekable();
        loop {
            let (mut instances, mut bytes) = (Vec::new(), 0);
            while let Some(instance) =
                list.next_if(|instance| bytes == 0 || bytes + instance.len() < PART_BYTES)
            {
                bytes += instance.len();
                instances.push(instance);
            }
            out.send(Part { version, instances }).await?;
            if list.peek().is_none() {
                return Ok(());
            }
        }
    }
}

/// A client of the embedded registry.
pub struct Embedded {
    discovery: Discovery,
}

impl Embedded {
    /// The registry at an address as [`Channel::connect`] takes it. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong address.
    pub fn connect(url: &str, options: Options) -> Result<Embedded> {
        let channel = Channel::builder(url).connections(1).backoff_max(Duration::from_secs(1)).lazy()?;
        let client = Client { name: format!("embedded {url}"), calls: InstancesClient::new(channel) };
        Ok(Embedded { discovery: Discovery::new(client, options) })
    }
}

impl Registry for Embedded {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

struct Client {
    name: String,
    calls: InstancesClient,
}

impl Client {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let (mut known, mut pause) = (0, PAUSE);
        loop {
            let asked = Instant::now();
            let parts = self.calls.follow(service.to_owned(), known).timeout(WAIT * 3);
            let mut parts = parts.await?;
            let (mut instances, mut version) = (Vec::new(), None);
            while let Some(part) = parts.next().await? {
                version = Some(part.version);
                instances.extend(part.instances);
                // The feed refuses a list that is too long; the rest of it need not be held.
                instances.truncate(feed.instances_max().saturating_add(1));
            }
            // Without a part it is as it was.
            match version.filter(|version| *version != known) {
                None => pause = (pause * 2).min(WAIT),
                Some(version) => {
                    (known, pause) = (version, PAUSE);
                    let decode = |json: &String| Instance::decode(json.as_bytes(), feed.instance_bytes_max());
                    feed.publish(instances.iter().map(decode));
                }
            }
            sleep_until(asked + pause).await;
        }
    }
}

impl Backend for Client {
    fn name(&self) -> &str {
        &self.name
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let json = instance.encode(usize::MAX)?;
            let json = String::from_utf8(json).map_err(|error| Status::internal(error.to_string()))?;
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let lease = *self.calls.hold(json, ttl_ms).await?;
            Ok(Box::new(Kept { calls: self.calls.clone(), lease }) as Box<dyn Held>)
        })
    }
}

struct Kept {
    calls: InstancesClient,
    lease: u64,
}

impl Held for Kept {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.calls.renew(self.lease).await.map(drop) })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.calls.release(self.lease).await.map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    use switchboard::Server;

    /// Tells one list and then, at once, that there is nothing new: by silence, or by the same list again.
    #[derive(Clone, Default)]
    struct Hasty {
        repeats: bool,
        asked: Arc<AtomicU32>,
    }

    impl Instances for Hasty {
        async fn hold(&self, _: String, _: u64) -> Result<u64> {
            Err(Status::unimplemented("it is never asked"))
        }

        async fn renew(&self, _: u64) -> Result<()> {
            Err(Status::unimplemented("it is never asked"))
        }

        async fn release(&self, _: u64) -> Result<()> {
            Err(Status::unimplemented("it is never asked"))
        }

        async fn follow(&self, service: String, known: u64, out: Sender<Part>) -> Result<()> {
            // Where somebody asks without end, time would not pass.
            if self.asked.fetch_add(1, Ordering::Relaxed) >= 1000 {
                std::future::pending::<()>().await;
            }
            if known == 0 || self.repeats {
                let one = Instance::new(service, "tcp://10.0.0.7:8080").encode(1000)?;
                let one = String::from_utf8(one).expect("it is JSON");
                out.send(Part { version: 7, instances: vec![one] }).await?;
            }
            Ok(())
        }
    }

    /// In simulated time, which passes only while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn server_that_answers_at_once_is_not_asked_without_end() {
        for repeats in [false, true] {
            let hasty = Hasty { repeats, ..Hasty::default() };
            let address = format!("memory://hasty-registry-{repeats}");
            let server = Server::new().add(InstancesServer::new(hasty.clone())).listen(&address);
            let server = server.start().await.expect("the address is free");
            let registry = Embedded::connect(&address, Options::new()).expect("a good address");
            let mut watch = registry.watch("demo.Greeter");
            assert_eq!(watch.changed().await.instances.len(), 1);
            sleep(Duration::from_secs(60)).await;
            let asked = hasty.asked.load(Ordering::Relaxed);
            assert!((10..=30).contains(&asked), "{asked} times in a minute");
            server.kill();
        }
    }
}

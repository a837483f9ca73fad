//! The embedded registry: a service that any Switchboard server can provide, so that a first cluster needs no other
//! registry.
//!
//! It is one process that keeps leases in memory. When it stops, callers continue with their last good snapshots. After
//! a restart, instances register again with their next renewal: after a third of the TTL it has all of them. It has no
//! access rules of its own: every client that can call the server can register. Use a listener that only the fleet can
//! reach, or a layer that authenticates clients.
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
    Call, Channel, Code, Reply, Result, Sender, Service, ServiceInfo, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
};
use tokio::time::{Instant, sleep, sleep_until};

/// The methods of the registry. Instances are sent in the form of [`Instance::encode`], so that programs of different
/// versions understand each other.
#[switchboard::service(name = "switchboard.registry.v1.Instances")]
trait Instances {
    /// Stores an instance for `ttl_ms`, replacing one with the same service and id; returns the number of the lease.
    #[switchboard(idempotent)]
    async fn hold(&self, instance: String, ttl_ms: u64) -> Result<u64>;

    /// Renews a lease for its TTL from now on; `NotFound` when the lease is unknown.
    #[switchboard(idempotent)]
    async fn renew(&self, lease: u64) -> Result<()>;

    /// Ends a lease; an unknown lease has ended already.
    #[switchboard(idempotent)]
    async fn release(&self, lease: u64) -> Result<()>;

    /// Sends the list of a service in parts, as soon as its version differs from `known`; sends nothing if the version
    /// is the same after 5 seconds. No list has the version 0.
    #[switchboard(read_only)]
    async fn follow(&self, service: String, known: u64, out: Sender<Part>) -> Result<()>;

    /// Returns the number of the lease that an instance has now; `NotFound` when it has none.
    #[switchboard(read_only)]
    async fn holder(&self, service: String, id: String) -> Result<u64>;
}

/// Some instances of a list; the last message is the last part.
#[derive(Debug, Deserialize, Serialize)]
struct Part {
    version: u64,
    instances: Vec<String>,
}

/// Longest wait of `follow` for a change. It is short, so that a server can drain and a client notices a server that is
/// down.
const WAIT: Duration = Duration::from_secs(5);

/// Delay before a change is sent, so that it includes later changes: a fleet that starts makes thousands of them.
const GATHER: Duration = Duration::from_millis(20);

/// Shortest interval between queries for a list. It doubles each time while the list does not change: this limits the
/// query rate if a server responds at once where ours waits.
const PAUSE: Duration = GATHER;

/// Bytes of a part; any message limit allows that many.
const PART_BYTES: usize = 256 << 10;

/// The embedded registry as a service for [`Server::add`](switchboard::Server::add).
///
/// Clones share their state. By default it stores at most 100 000 instances of 8 KiB, 10 000 of one service, and
/// refuses more with `ResourceExhausted`. A TTL is between 1 second and 1 hour.
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
    /// Creates an empty registry with the default limits.
    pub fn new() -> EmbeddedServer {
        EmbeddedServer::with_limits(100_000, 10_000, 8 << 10)
    }

    /// Creates a registry with these limits: instances in all, instances of one service, and bytes of one encoded
    /// instance.
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

    async fn holder(&self, service: String, id: String) -> Result<u64> {
        self.lease(&service, &id, Instant::now())
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
        drop(changed);
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
    /// Creates a client of the registry at an address as [`Channel::connect`] takes it. Nothing is sent before it is
    /// used.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address.
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
            let queried = Instant::now();
            let parts = self.calls.follow(service.to_owned(), known).timeout(WAIT * 3);
            let mut parts = parts.await?;
            let (mut instances, mut version) = (Vec::new(), None);
            while let Some(part) = parts.next().await? {
                version = Some(part.version);
                instances.extend(part.instances);
                // The feed refuses a list that is too long; the rest of it need not be stored.
                instances.truncate(feed.instances_max().saturating_add(1));
            }
            // Without a part the list has not changed.
            match version.filter(|version| *version != known) {
                None => pause = (pause * 2).min(WAIT),
                Some(version) => {
                    (known, pause) = (version, PAUSE);
                    let decode = |json: &String| Instance::decode(json.as_bytes(), feed.instance_bytes_max());
                    feed.publish(instances.iter().map(decode));
                }
            }
            sleep_until(queried + pause).await;
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let json = instance.encode(usize::MAX)?;
            let json = String::from_utf8(json).map_err(|error| Status::internal(error.to_string()))?;
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let lease = *self.calls.hold(json, ttl_ms).await?;
            let (service, id) = (instance.service.clone(), instance.id.clone());
            Ok(Box::new(EmbeddedRegistration { calls: self.calls.clone(), service, id, lease })
                as Box<dyn Registration>)
        })
    }
}

struct EmbeddedRegistration {
    calls: InstancesClient,
    service: String,
    id: String,
    lease: u64,
}

impl Registration for EmbeddedRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.calls.renew(self.lease).await.map(drop) })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.calls.release(self.lease).await.map(drop) })
    }

    /// Ending a lease does not end other leases; this is for renewing and replacing.
    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            match self.calls.holder(self.service.clone(), self.id.clone()).await {
                Ok(lease) => Ok(*lease != self.lease),
                // Older servers do not have the method.
                Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => Ok(false),
                Err(status) => Err(status),
            }
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("switchboard", &[])],
    make: |parsed| {
        let url = format!("tcp://{}", parsed.hosts()?);
        Ok(std::sync::Arc::new(crate::Embedded::connect(&url, parsed.options()?)?))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    use switchboard::Server;

    /// Sends one list and then, at once, that nothing has changed: by sending nothing, or the same list again.
    #[derive(Clone, Default)]
    struct Hasty {
        repeats: bool,
        queries: Arc<AtomicU32>,
    }

    impl Instances for Hasty {
        async fn hold(&self, _: String, _: u64) -> Result<u64> {
            Err(Status::unimplemented("not called in this test"))
        }

        async fn renew(&self, _: u64) -> Result<()> {
            Err(Status::unimplemented("not called in this test"))
        }

        async fn holder(&self, _: String, _: String) -> Result<u64> {
            Err(Status::unimplemented("not called in this test"))
        }

        async fn release(&self, _: u64) -> Result<()> {
            Err(Status::unimplemented("not called in this test"))
        }

        async fn follow(&self, service: String, known: u64, out: Sender<Part>) -> Result<()> {
            // With queries in an endless loop, simulated time would not pass.
            if self.queries.fetch_add(1, Ordering::Relaxed) >= 1000 {
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

    /// Runs in simulated time, which passes only while all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn query_rate_is_limited_for_a_server_that_responds_at_once() {
        for repeats in [false, true] {
            let hasty = Hasty { repeats, ..Hasty::default() };
            let address = format!("memory://hasty-registry-{repeats}");
            let server = Server::new().add(InstancesServer::new(hasty.clone())).listen(&address);
            let server = server.start().await.expect("the address is free");
            let registry = Embedded::connect(&address, Options::new()).expect("a good address");
            let mut watch = registry.watch("demo.Greeter");
            assert_eq!(watch.changed().await.instances.len(), 1);
            sleep(Duration::from_secs(60)).await;
            let queries = hasty.queries.load(Ordering::Relaxed);
            assert!((10..=30).contains(&queries), "{queries} queries in a minute");
            server.kill();
        }
    }
}

//! Mirroring: copies of a share of the calls go to another server, whose responses are dropped.

use super::{Channel, ClientMethod};
use bytes::Bytes;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{
    Call, Layer, Next, Reply, Result,
    layer::{BoxFuture, Sample},
};
use switchboard_wire::{Codec, Metadata, Status};
use tokio::sync::Semaphore;

/// Sends copies of a share of the calls to another channel, for example to test a new version with real traffic. The
/// layer is cheap to clone; clones share their counters.
///
/// Calls with one request and one reply are mirrored, streams are not. The copy is sent when the call begins, with the
/// metadata of the call, credentials included, and `switchboard-mirrored: 1`; its response or error is dropped. Copies
/// in flight are limited in number, and each in bytes: calls over a limit are left out and counted, so that a slow
/// mirror does not slow the calls.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use switchboard::{Channel, Server, client::Mirror};
///
/// let next_version = Channel::builder("tcp://10.0.0.9:8080").lazy()?;
/// let mirror = Mirror::new(next_version).methods(["demo.Search/*"]).share(0.05);
/// let server = Server::new().layer(mirror.clone());
/// println!("{} sent, {} left out", mirror.sent(), mirror.left_out());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mirror {
    channel: Channel,
    sample: Sample,
    bytes_max: usize,
    timeout: Duration,
    counts: Arc<Counts>,
}

struct Counts {
    /// One permit for each copy in flight.
    permits: Arc<Semaphore>,
    sent: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

/// A copy of a call.
struct Copied {
    method: &'static ClientMethod,
    codec: Codec,
    message: Bytes,
    metadata: Metadata,
}

/// Default limit of copies in flight.
const IN_FLIGHT_MAX: usize = 256;
/// Default limit of the bytes of a copied message.
const BYTES_MAX: usize = 64 << 10;
/// Metadata that marks the call as a copy for the other server: its response is dropped.
const MARK: &str = "switchboard-mirrored";

impl Mirror {
    /// Creates a layer that mirrors every call of every method to this channel.
    pub fn new(channel: Channel) -> Mirror {
        Mirror {
            channel,
            sample: Sample::default(),
            bytes_max: BYTES_MAX,
            timeout: Duration::from_secs(5),
            counts: Counts::new(IN_FLIGHT_MAX),
        }
    }

    /// Restricts mirroring to these methods; a star matches any text, as in `demo.Search/*`.
    #[must_use]
    pub fn methods(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Mirror {
        self.sample.methods.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Sets the share of these calls that is mirrored, from 0 to 1, evenly spread: 0.25 is every fourth.
    #[must_use]
    pub fn share(mut self, share: f64) -> Mirror {
        self.sample.set_share(share);
        self
    }

    /// Sets the maximum number of copies in flight; the default is 256.
    #[must_use]
    pub fn in_flight_max(mut self, copies: usize) -> Mirror {
        self.counts = Counts::new(copies);
        self
    }

    /// Sets the maximum size of a copied message in bytes; the default is 64 KiB. Larger messages are not copied.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Mirror {
        self.bytes_max = bytes;
        self
    }

    /// Sets the timeout of a copy; the default is 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Mirror {
        self.timeout = timeout;
        self
    }

    /// Number of copies sent, with or without a response.
    pub fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// Number of copies that were sent and failed.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Number of calls left out: too many copies in flight, or the message too large.
    pub fn left_out(&self) -> u64 {
        self.counts.left_out.load(Ordering::Relaxed)
    }

    /// Sends a copy of the call if it belongs to the share.
    fn mirror(&self, call: &Call) {
        let Some(message) = call.message() else { return };
        let method = call.cx().method();
        let Some(path) = self.sample.takes(call) else { return };
        let left_out = || {
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
        };
        if method.kind != switchboard_wire::Kind::Unary || message.len() > self.bytes_max {
            return left_out();
        }
        let Ok(permit) = self.counts.permits.clone().try_acquire_owned() else { return left_out() };
        // Callers choose the names of methods that no service declares: these are not interned, to bound memory.
        let method = match call.cx().undeclared_name() {
            Some(_) => Ok(ClientMethod::undeclared(method.kind)),
            None => ClientMethod::intern(&path, method.kind, method.idempotency),
        };
        let Ok(method) = method else { return left_out() };
        let mut metadata = call.cx().metadata().clone();
        metadata.remove(MARK);
        // When the metadata is full, the copy goes without the mark.
        let _ = metadata.insert(MARK, "1");
        let copy = Copied { method, codec: call.codec(), message: message.clone(), metadata };
        let mirror = self.clone();
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        switchboard_core::runtime::spawn(async move {
            if let Err(status) = mirror.send(copy).await {
                mirror.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("a mirrored call failed: {status}");
            }
            drop(permit);
        });
    }

    async fn send(&self, copy: Copied) -> Result<()> {
        let Copied { method, codec, message, metadata } = copy;
        // The wire of the other channel may not support the codec.
        if self.channel.codec(codec) != codec {
            let text =
                format!("codec {} of {} is not supported by the mirror channel", codec.name(), method.path);
            return Err(Status::unimplemented(text));
        }
        let call = self.channel.unary(method, codec, Ok(message), |_, _| Ok(())).timeout(self.timeout);
        let call = call.undeclared_name(metadata.undeclared_name().cloned());
        let call = metadata.iter().fold(call, |call, (name, value)| call.meta(name, value.clone()));
        call.await.map(drop)
    }
}

impl Counts {
    fn new(in_flight_max: usize) -> Arc<Counts> {
        Arc::new(Counts {
            permits: Arc::new(Semaphore::new(in_flight_max.min(Semaphore::MAX_PERMITS))),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        })
    }
}

impl Layer for Mirror {
    fn name(&self) -> &str {
        "mirror"
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        self.mirror(&call);
        next.call(call)
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("channel", &self.channel)
            .field("sample", &self.sample)
            .finish_non_exhaustive()
    }
}

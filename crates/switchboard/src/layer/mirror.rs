//! Mirroring: a share of the calls goes to another server as well, whose answers nobody reads.

use super::{BoxFuture, Layer, Next, Sample};
use crate::{Call, Channel, ClientMethod, Codec, Metadata, Reply, Result, Status};
use bytes::Bytes;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// Sends a share of the calls on to another channel, to try a new version with real traffic, say. The layer is cheap to
/// clone; clones share their counts.
///
/// Calls with one request and one reply are mirrored, streams are not. A copy goes on its way when the call begins,
/// with the metadata of the call, credentials included, and `switchboard-mirrored: 1`; its answer is dropped, and so
/// is its failure. Copies that are under way have a limit in number and bytes each: what is over it is left out and
/// counted, so that a slow mirror costs nothing but its copies.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use switchboard::{Channel, Server, layer::Mirror};
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
    /// Copies that may yet be under way at once.
    places: Arc<Semaphore>,
    sent: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

/// A copy.
struct Copied {
    method: &'static ClientMethod,
    codec: Codec,
    message: Bytes,
    metadata: Metadata,
}

/// Copies under way unless set.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes of a message that is copied unless set.
const BYTES_MAX: usize = 64 << 10;
/// Says to the other server that nobody waits for its answer.
const MARK: &str = "switchboard-mirrored";

impl Mirror {
    /// Every call of every method, to this channel.
    pub fn new(channel: Channel) -> Mirror {
        Mirror {
            channel,
            sample: Sample::default(),
            bytes_max: BYTES_MAX,
            timeout: Duration::from_secs(5),
            counts: Counts::new(IN_FLIGHT_MAX),
        }
    }

    /// Only these methods; a star stands for anything, as in `demo.Search/*`.
    #[must_use]
    pub fn methods(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Mirror {
        self.sample.methods.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// The share of these calls, from 0 to 1, evenly spread: 0.25 is every fourth.
    #[must_use]
    pub fn share(mut self, share: f64) -> Mirror {
        self.sample.set_share(share);
        self
    }

    /// Copies that may be under way at once; 256 unless set.
    #[must_use]
    pub fn in_flight_max(mut self, copies: usize) -> Mirror {
        self.counts = Counts::new(copies);
        self
    }

    /// Larger messages are not copied; 64 KiB unless set.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Mirror {
        self.bytes_max = bytes;
        self
    }

    /// How long a copy may take; 5 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Mirror {
        self.timeout = timeout;
        self
    }

    /// Copies that were sent, answered or not.
    pub fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// Copies that were sent and failed.
    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    /// Copies that would have been one too many under way, or too large.
    pub fn left_out(&self) -> u64 {
        self.counts.left_out.load(Ordering::Relaxed)
    }

    /// Sends a copy of a call if it is one of the share.
    fn mirror(&self, call: &Call) {
        let Some(message) = call.message() else { return };
        let method = call.cx().method();
        let Some(path) = self.sample.takes(call) else { return };
        let left_out = || {
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
        };
        if method.kind != crate::Kind::Unary || message.len() > self.bytes_max {
            return left_out();
        }
        let Ok(place) = self.counts.places.clone().try_acquire_owned() else { return left_out() };
        let Ok(method) = ClientMethod::intern(&path, method.kind, method.idempotency) else {
            return left_out();
        };
        let mut metadata = call.cx().metadata().clone();
        metadata.remove(MARK);
        // What does not fit any more says less.
        let _ = metadata.insert(MARK, "1");
        let copy = Copied { method, codec: call.codec(), message: message.clone(), metadata };
        let mirror = self.clone();
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
        crate::runtime::spawn(async move {
            if let Err(status) = mirror.send(copy).await {
                mirror.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("a mirrored call failed: {status}");
            }
            drop(place);
        });
    }

    async fn send(&self, copy: Copied) -> Result<()> {
        let Copied { method, codec, message, metadata } = copy;
        // The other side may speak a wire that has not got the codec.
        if self.channel.codec(codec) != codec {
            let text = format!("the mirror does not take the codec of {}", method.path);
            return Err(Status::unimplemented(text));
        }
        let call = self.channel.unary(method, codec, Ok(message), |_, _| Ok(())).timeout(self.timeout);
        let call = metadata.iter().fold(call, |call, (name, value)| call.meta(name, value.clone()));
        call.await.map(drop)
    }
}

impl Counts {
    fn new(in_flight_max: usize) -> Arc<Counts> {
        Arc::new(Counts {
            places: Arc::new(Semaphore::new(in_flight_max.min(Semaphore::MAX_PERMITS))),
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

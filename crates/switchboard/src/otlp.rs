//! Export of traces and metrics to an OpenTelemetry collector: OTLP over HTTP, in its JSON encoding.
//!
//! [`Otlp`] provides layers: on a server it records a span for each handled call, and on a channel a span for
//! each outgoing call, with [W3C context](https://www.w3.org/TR/trace-context/) propagated between them.
//! Metrics are the counters of a server, sent at intervals. Data that a collector does not accept in time is
//! dropped and counted: calls never wait for the collector.

mod export;
mod json;
mod spans;

pub use spans::Calls;

use export::{Exporter, Order};
use spans::Span;
use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, ServerStats};
use switchboard_net::web::Site;
use switchboard_wire::Status;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

/// Settings of the exporter.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Resource attribute `service.name` of all exported data.
    pub service: String,
    /// Further resource attributes, such as `deployment.environment.name` with `prod`.
    pub attributes: Vec<(String, String)>,
    /// Headers of each request, with names in lower case; for example the API key of a collector.
    pub headers: Vec<(&'static str, String)>,
    /// Fraction of the traces that start here which are recorded, from 0 to 1; for traces of callers their
    /// decision applies. Default 1.
    pub share: f64,
    /// Maximum number of queued spans; default 4096. Further spans are dropped.
    pub queue_max: usize,
    /// Interval between exports; default 5 s.
    pub every: Duration,
    /// Time limit for a request to the collector; default 10 s.
    pub timeout: Duration,
}

impl Settings {
    /// Creates default settings for the service with this name.
    pub fn new(service: impl Into<String>) -> Settings {
        Settings {
            service: service.into(),
            attributes: Vec::new(),
            headers: Vec::new(),
            share: 1.0,
            queue_max: 4096,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Connection to a collector. Cheap to clone; all clones share the queue. The exporter ends with the last
/// clone.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use switchboard::{Channel, Server, otlp::{Otlp, Settings}};
///
/// let otlp = Otlp::start("http://127.0.0.1:4318", None, Settings::new("shop"))?;
/// let stock = Channel::connect("tcp://10.0.0.9:8080").await?.layer(otlp.outgoing());
/// let running = Server::new().layer(otlp.incoming()).listen("tcp://0.0.0.0:8080").start().await?;
/// # let stats = || running.stats();
/// # drop(stats);
/// // Before the end of the program:
/// otlp.flush().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Otlp {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    share: f64,
    orders: mpsc::Sender<Order>,
    counts: Arc<Counts>,
    task: AbortHandle,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Otlp {
    /// Starts an exporter to the collector at this URL, to which `/v1/traces` and `/v1/metrics` are appended.
    /// `ca` contains the trusted roots for `https`; without it the roots of the machine are used. Requires a
    /// tokio runtime, on which the exporter task runs.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL and for roots that cannot be used, `FailedPrecondition` without a
    /// runtime.
    pub fn start(url: &str, ca: Option<&Path>, settings: Settings) -> Result<Otlp> {
        let url = url.trim_end_matches('/');
        let name = format!("otlp {}", url.split_once("://").map_or(url, |(_, rest)| rest));
        let site = Site::new(name.clone(), url, ca)?;
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| Status::failed_precondition("otlp: start it inside a tokio runtime"))?;
        let (orders, received) = mpsc::channel(settings.queue_max.max(1));
        let counts = Arc::<Counts>::default();
        let share = settings.share.clamp(0.0, 1.0);
        let exporter = Exporter::new(site, settings, counts.clone());
        let task = runtime.spawn(exporter.run(received)).abort_handle();
        Ok(Otlp { shared: Arc::new(Shared { name, share, orders, counts, task }) })
    }

    /// Returns a layer for a server: a span of kind `SERVER` for each call.
    pub fn incoming(&self) -> Calls {
        Calls::new(self.clone(), true)
    }

    /// Returns a layer for a channel: a span of kind `CLIENT` for each call.
    pub fn outgoing(&self) -> Calls {
        Calls::new(self.clone(), false)
    }

    /// Also exports the counters of a server, at the interval of spans. The function is called each time, and
    /// dropped with the exporter.
    ///
    /// # Errors
    /// `Unavailable` if the exporter has ended or its queue is full.
    pub fn metrics(&self, stats: impl Fn() -> ServerStats + Send + Sync + 'static) -> Result<()> {
        self.shared.orders.try_send(Order::Metrics(Box::new(stats))).map_err(|_| self.busy())
    }

    /// Exports all queued data now, and returns when the attempt is complete, successful or not.
    ///
    /// # Errors
    /// `Unavailable` if the exporter has ended.
    pub async fn flush(&self) -> Result<()> {
        let (done, is_done) = oneshot::channel();
        self.shared.orders.send(Order::Flush(done)).await.map_err(|_| self.busy())?;
        is_done.await.map_err(|_| self.busy())
    }

    /// Returns the number of spans that the collector has accepted.
    pub fn sent(&self) -> u64 {
        self.shared.counts.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of dropped spans: the queue was full, or the collector did not accept them.
    pub fn dropped(&self) -> u64 {
        self.shared.counts.dropped.load(Ordering::Relaxed)
    }

    fn take(&self, span: Span) {
        if self.shared.orders.try_send(Order::Span(Box::new(span))).is_err() {
            self.shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn busy(&self) -> Status {
        Status::unavailable(format!("{}: the exporter has ended or its queue is full", self.shared.name))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").field("to", &self.shared.name).finish_non_exhaustive()
    }
}

//! Export of traces and metrics to a collector of OpenTelemetry: OTLP over HTTP, in its JSON form.
//!
//! [`Otlp`] is a layer: around the handlers of a server it records a span for each call, and around a channel one for
//! each call that goes out, with [W3C context](https://www.w3.org/TR/trace-context/) in between. Metrics are the
//! counters of a server, sent from time to time. What a collector does not take in time is left out and counted: calls
//! never wait for it.

mod export;
mod json;
mod spans;

pub use spans::Calls;

use crate::{Result, ServerStats, Status, web::Site};
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
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

/// What is sent, and where to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `service.name` of all that is sent.
    pub service: String,
    /// More of its attributes, `deployment.environment.name` and `prod`, say.
    pub attributes: Vec<(String, String)>,
    /// Headers of each request, names in lower case: the key of a collector that asks for one.
    pub headers: Vec<(&'static str, String)>,
    /// The share of the traces that begin here which are recorded, from 0 to 1; what callers have decided holds for
    /// theirs. All unless set.
    pub share: f64,
    /// Spans that wait to be sent; 4096 unless set. Further ones are left out.
    pub queue_max: usize,
    /// How often what waits is sent; 5 s unless set.
    pub every: Duration,
    /// How long the collector may take; 10 s unless set.
    pub timeout: Duration,
}

impl Settings {
    /// The usual ones for the service of this name.
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

/// The way to a collector. Cheap to clone; all clones share the queue. It ends with the last of them.
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
/// // And before the end of the program:
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
    /// Begins to export to the collector at this URL, to which `/v1/traces` and `/v1/metrics` are added. `ca` are the
    /// roots to trust with `https`, those of the machine without. It needs a tokio runtime, whose task sends.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong URL and roots that cannot be used, `FailedPrecondition` without a runtime.
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

    /// A layer for a server: a span of the kind `SERVER` for each call.
    pub fn incoming(&self) -> Calls {
        Calls::new(self.clone(), true)
    }

    /// A layer for a channel: a span of the kind `CLIENT` for each call.
    pub fn outgoing(&self) -> Calls {
        Calls::new(self.clone(), false)
    }

    /// Sends the counters of a server too, as often as spans. The function is called each time, and dropped with this.
    ///
    /// # Errors
    /// `Unavailable` when the exporter has ended or its queue is full.
    pub fn metrics(&self, stats: impl Fn() -> ServerStats + Send + Sync + 'static) -> Result<()> {
        self.shared.orders.try_send(Order::Metrics(Box::new(stats))).map_err(|_| self.busy())
    }

    /// Sends what waits now, and returns when that is done, well or not.
    ///
    /// # Errors
    /// `Unavailable` when the exporter has ended.
    pub async fn flush(&self) -> Result<()> {
        let (done, is_done) = oneshot::channel();
        self.shared.orders.send(Order::Flush(done)).await.map_err(|_| self.busy())?;
        is_done.await.map_err(|_| self.busy())
    }

    /// Spans that the collector has taken.
    pub fn sent(&self) -> u64 {
        self.shared.counts.sent.load(Ordering::Relaxed)
    }

    /// Spans that were left out: the queue was full, or the collector did not take them.
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

//! `--tap`: every call as a line of JSON, when it has ended.
//!
//! ```text
//! call ─► layer: what was seen becomes a [Record] ─► bounded queue ─► thread: JSON, redaction, lines
//! ```
//!
//! Calls never wait for the tap. What does not fit into the queue is left out and counted, and the next line says how
//! many there were.

mod filter;
mod record;
mod redact;
mod writer;

use super::{current::Current, known::Known};
use clap::Args;
use filter::Filter;
use record::{Open, Record};
use redact::Redact;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};
use switchboard::{Call, Layer, Next, Reply, Result, layer::BoxFuture};
use writer::{Event, Writer};

/// Records that may wait to be written.
const QUEUE_MAX: usize = 1024;
/// Bytes of all messages that wait.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// What the last lines get to be written when the proxy ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The flags of the tap.
#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Print every call as a line of JSON to FILE, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", help_heading = "Tap")]
    tap: Option<PathBuf>,
    /// Print these calls alone: GLOB of the method, as in demo.v1.*, or status=CODE, as in status=not_found or
    /// status=error for all failures. Several of a kind add up
    #[arg(long, value_name = "FILTER", value_parser = filter::parse, requires = "tap", help_heading = "Tap")]
    tap_filter: Vec<filter::Term>,
    /// Print "[redacted]" for metadata and fields of this name, beside those that carry credentials as a rule:
    /// authorization, cookie, token, password and their like. May be given several times
    #[arg(long, value_name = "NAME", requires = "tap", help_heading = "Tap")]
    tap_redact: Vec<String>,
}

/// The layer that sees the calls; cheap to clone.
#[derive(Clone)]
pub(super) struct Tap {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Current<Rules>,
    queue: SyncSender<Event>,
    /// Bytes of the messages that wait.
    held: Arc<AtomicUsize>,
    /// Records that did not fit since somebody was told.
    dropped: Arc<AtomicU64>,
    is_on_stdout: bool,
    /// Ends with the thread that writes.
    done: Mutex<Receiver<()>>,
}

/// What is shown of which calls: one for a call, from its beginning to its line.
#[derive(Debug)]
pub(super) struct Rules {
    filter: Filter,
    redact: Redact,
}

impl TapArgs {
    pub(super) fn rules(&self) -> Rules {
        Rules { filter: Filter::new(&self.tap_filter), redact: Redact::new(&self.tap_redact) }
    }

    /// Opens the file and starts to write, if there is a tap.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn start(&self, known: &Known) -> std::result::Result<Option<Tap>, String> {
        let Some(path) = &self.tap else { return Ok(None) };
        let is_on_stdout = path.as_os_str() == "-";
        let failed = |error: std::io::Error| format!("--tap {}: {error}", path.display());
        let into: Box<dyn std::io::Write + Send> = match is_on_stdout {
            true => Box::new(std::io::stdout()),
            false => {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                Box::new(file.map_err(failed)?)
            }
        };
        let (queue, events) = sync_channel(QUEUE_MAX);
        let (held, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let writer =
            Writer { into, methods: known.methods.clone(), held: held.clone(), dropped: dropped.clone() };
        let (running, done) = sync_channel(0);
        let written = move || {
            let _running: SyncSender<()> = running;
            if let Err(error) = writer.run(&events) {
                tracing::warn!("the tap is over, calls go on without it: {error}");
            }
        };
        std::thread::Builder::new().name("tap".to_owned()).spawn(written).map_err(failed)?;
        let (rules, done) = (Current::new(self.rules()), Mutex::new(done));
        Ok(Some(Tap { shared: Arc::new(Shared { rules, queue, held, dropped, is_on_stdout, done }) }))
    }
}

impl Tap {
    /// Whether standard output is for its lines.
    pub(super) fn is_on_stdout(&self) -> bool {
        self.shared.is_on_stdout
    }

    /// Shows the next calls by these.
    pub(super) fn follow(&self, rules: Rules) {
        drop(self.shared.rules.replace(rules));
    }

    /// Waits for a moment until what is in the queue is written.
    pub(super) fn end(&self) {
        // A queue that is full has somebody behind it who does not read: nothing more is to be had there.
        if self.shared.queue.try_send(Event::End).is_ok() {
            let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
            // Nothing is ever sent: the thread has ended, or did not in time.
            let _ = done.recv_timeout(LAST_LINES);
        }
    }

    /// Hands a record to the thread that writes, unless the filter or the queue is against it.
    fn hand_over(&self, record: Record) {
        if !record.rules.filter.takes_status(record.code()) {
            return;
        }
        let bytes = record.bytes();
        if self.shared.held.fetch_add(bytes, Ordering::Relaxed) <= QUEUE_BYTES_MAX
            && self.shared.queue.try_send(Event::Record(Box::new(record))).is_ok()
        {
            return;
        }
        self.shared.held.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Layer for Tap {
    fn name(&self) -> &str {
        "tap"
    }

    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        let (name, rules) = (call.full_name(), self.shared.rules.get());
        if !rules.filter.takes_method(&name) {
            return next.call(call);
        }
        Box::pin(async move {
            let open = Open::new(self.clone(), rules, name, &mut call)?;
            match next.call(call).await {
                Ok(reply) => open.answered(reply),
                Err(status) => {
                    open.end(Err(&status));
                    Err(status)
                }
            }
        })
    }
}

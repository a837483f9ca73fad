//! `--tap`: prints every call as a line of JSON when it has ended.
//!
//! ```text
//! call ─► layer: creates a [Record] ─► bounded queue ─► thread: JSON, redaction, lines
//! ```
//!
//! Calls never wait for the tap. Records that do not fit into the queue are dropped and counted, and the next line
//! contains their number.

mod filter;
mod record;
mod redact;
mod writer;

use super::{current::Current, schema::ProxySchema};
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
/// Bytes that the tap holds of running calls and of waiting records, all together.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Time limit for writing the last lines when the proxy ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The flags of the tap.
#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Print every call as a line of JSON to FILE, or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", help_heading = "Tap")]
    tap: Option<PathBuf>,
    /// Print only these calls: GLOB of the method, as in demo.v1.*, or status=CODE, as in status=not_found or
    /// status=error for all failures. Several of one kind are alternatives
    #[arg(long, value_name = "FILTER", value_parser = filter::parse, requires = "tap", help_heading = "Tap")]
    tap_filter: Vec<filter::Term>,
    /// Print "[redacted]" for metadata and fields of this name, in which a star matches any text, besides *token*,
    /// *secret*, *password*, authorization, cookie and similar names. May be given several times
    #[arg(long, value_name = "NAME", requires = "tap", help_heading = "Tap")]
    tap_redact: Vec<String>,
    /// Print messages that cannot be decoded as base64. Their fields cannot be redacted; without this flag only their
    /// size is printed
    #[arg(long, requires = "tap", help_heading = "Tap")]
    tap_undecoded: bool,
}

/// The layer that observes the calls; cheap to clone.
#[derive(Clone)]
pub(super) struct Tap {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Current<Rules>,
    queue: SyncSender<Event>,
    /// Bytes of running calls and waiting records.
    held: Arc<AtomicUsize>,
    /// Records that were dropped since the last line that reported them.
    dropped: Arc<AtomicU64>,
    is_on_stdout: bool,
    /// Closed when the writer thread ends.
    done: Mutex<Receiver<()>>,
}

/// The filter and redaction of the tap; a call uses the same rules from its beginning to its line.
#[derive(Debug)]
pub(super) struct Rules {
    filter: Filter,
    redact: Redact,
    /// Messages that cannot be decoded are printed as bytes.
    shows_undecoded: bool,
}

impl TapArgs {
    pub(super) fn rules(&self) -> Rules {
        Rules {
            filter: Filter::new(&self.tap_filter),
            redact: Redact::new(&self.tap_redact),
            shows_undecoded: self.tap_undecoded,
        }
    }

    /// Opens the file and starts the writer, if there is a tap.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn start(&self, known: &ProxySchema) -> std::result::Result<Option<Tap>, String> {
        let Some(path) = &self.tap else { return Ok(None) };
        let is_on_stdout = path.as_os_str() == "-";
        let failed = |error: std::io::Error| format!("--tap {}: {error}", path.display());
        let into: Box<dyn std::io::Write + Send> = match is_on_stdout {
            true => Box::new(std::io::stdout()),
            false => {
                let mut options = std::fs::OpenOptions::new();
                options.create(true).append(true);
                // The file contains the data of callers.
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                Box::new(options.open(path).map_err(failed)?)
            }
        };
        let (queue, events) = sync_channel(QUEUE_MAX);
        let (held, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let writer = Writer { into, methods: known.methods.clone(), dropped: dropped.clone() };
        let (running, done) = sync_channel(0);
        let written = move || {
            let _running: SyncSender<()> = running;
            if let Err(error) = writer.run(&events) {
                tracing::warn!("the tap ended, calls continue without it: {error}");
            }
        };
        std::thread::Builder::new().name("tap".to_owned()).spawn(written).map_err(failed)?;
        let (rules, done) = (Current::new(self.rules()), Mutex::new(done));
        Ok(Some(Tap { shared: Arc::new(Shared { rules, queue, held, dropped, is_on_stdout, done }) }))
    }
}

impl Tap {
    /// Returns whether its lines are written to standard output.
    pub(super) fn is_on_stdout(&self) -> bool {
        self.shared.is_on_stdout
    }

    /// Uses these rules for the next calls.
    pub(super) fn follow(&self, rules: Rules) {
        drop(self.shared.rules.replace(rules));
    }

    /// Waits up to `LAST_LINES` until the queue is written.
    pub(super) fn end(&self) {
        // A full queue means that the output is not read: waiting would not help.
        if self.shared.queue.try_send(Event::End).is_ok() {
            let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
            // Nothing is ever sent: the thread has ended, or did not end in time.
            let _ = done.recv_timeout(LAST_LINES);
        }
    }

    /// Passes a record to the writer thread, unless the filter rejects it or the queue is full.
    fn hand_over(&self, record: Record) {
        if !record.rules.filter.takes_status(record.code()) {
            return;
        }
        if self.shared.queue.try_send(Event::Record(Box::new(record))).is_err() {
            self.leave_out();
        }
    }

    fn held(&self) -> &Arc<AtomicUsize> {
        &self.shared.held
    }

    /// Counts a call that is not printed.
    fn leave_out(&self) {
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
            let Some(open) = Open::new(self.clone(), rules, name, &mut call)? else {
                self.leave_out();
                return next.call(call).await;
            };
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

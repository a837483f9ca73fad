//! Dumping: a share of the calls is written to a file, from which `switchboard replay` sends them again.

use super::{BoxFuture, Layer, Next, Sample};
use crate::{Call, Codec, Error, Kind, Reply, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Instant,
};

/// Writes requests to a file, to be sent to another server, or again to this one, by `switchboard replay`. The layer is
/// cheap to clone; clones write to the same file.
///
/// Calls with one request and one reply are written, one [`Dumped`] a line; streams are not. The file holds what callers
/// sent, so only its owner may read it; of their metadata it holds nothing but what [`metadata`](Self::metadata) names.
/// A thread of its own writes it: calls do not wait, and those that would be too many or too large are left out and
/// counted.
///
/// ```no_run
/// # fn main() -> Result<(), switchboard::Error> {
/// use switchboard::{Server, layer::Dump};
///
/// let dump = Dump::to_file("calls.jsonl")?.methods(["demo.Search/*"]).share(0.01).metadata(["tenant"]);
/// let server = Server::new().layer(dump.clone());
/// println!("{} written, {} left out", dump.written(), dump.left_out());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dump {
    sample: Sample,
    metadata: Vec<String>,
    bytes_max: usize,
    file_bytes_max: u64,
    began: Instant,
    queue: SyncSender<Line>,
    counts: Arc<Counts>,
}

/// A call in a file of [`Dump`], one line of JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Dumped {
    /// Microseconds from the beginning of the file until the call came.
    pub at_us: u64,
    /// The full name, `package.Service/Method`.
    pub method: String,
    /// The name of the [`Codec`] of the message.
    pub codec: String,
    /// Names and values that are text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// In base64.
    message: String,
}

/// A line, and up to how many bytes the file may grow with it.
struct Line {
    dumped: Dumped,
    file_bytes_max: u64,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    left_out: AtomicU64,
}

/// Calls that wait to be written.
const QUEUE_MAX: usize = 1024;

impl Dump {
    /// Every call of every method, into this file; what it held before is lost.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Dump, Error> {
        let path = path.as_ref();
        let failed = |error: io::Error| Error::config(format!("dump to {}: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(failed)?;
        let (queue, lines) = sync_channel(QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let counting = counts.clone();
        let writer = thread::Builder::new().name("switchboard-dump".to_owned());
        writer.spawn(move || write_all(&lines, file, &counting)).map_err(failed)?;
        Ok(Dump {
            sample: Sample::default(),
            metadata: Vec::new(),
            bytes_max: 64 << 10,
            file_bytes_max: 1 << 30,
            began: crate::clock::now(),
            queue,
            counts,
        })
    }

    /// Only these methods; a star stands for anything, as in `demo.Search/*`.
    #[must_use]
    pub fn methods(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Dump {
        self.sample.methods.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// The share of these calls, from 0 to 1, evenly spread: 0.25 is every fourth.
    #[must_use]
    pub fn share(mut self, share: f64) -> Dump {
        self.sample.set_share(share);
        self
    }

    /// Metadata that is written as well, if it is text; none unless named. Credentials are better given to the replay.
    #[must_use]
    pub fn metadata(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Dump {
        self.metadata.extend(names.into_iter().map(|name| name.into().to_ascii_lowercase()));
        self
    }

    /// Larger messages are left out; 64 KiB unless set.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Dump {
        self.bytes_max = bytes;
        self
    }

    /// The file does not grow beyond this; 1 GiB unless set.
    #[must_use]
    pub fn file_bytes_max(mut self, bytes: u64) -> Dump {
        self.file_bytes_max = bytes;
        self
    }

    /// Calls in the file.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Calls that were too large, or came too fast, or found the file full or broken.
    pub fn left_out(&self) -> u64 {
        self.counts.left_out.load(Ordering::Relaxed)
    }

    fn dump(&self, call: &Call) {
        let Some(message) = call.message() else { return };
        if call.cx().method().kind != Kind::Unary {
            return;
        }
        let Some(method) = self.sample.takes(call) else { return };
        if message.len() > self.bytes_max {
            return self.counts.leave_out();
        }
        let text = |name: &String| Some((name.clone(), call.cx().metadata().text(name)?.to_owned()));
        let dumped = Dumped {
            at_us: crate::clock::since(self.began).as_micros() as u64,
            method,
            codec: call.codec().name().to_owned(),
            metadata: self.metadata.iter().filter_map(text).collect(),
            message: BASE64_STANDARD.encode(message),
        };
        if self.queue.try_send(Line { dumped, file_bytes_max: self.file_bytes_max }).is_err() {
            self.counts.leave_out();
        }
    }
}

impl Counts {
    fn leave_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes lines until nobody makes any more. What has come is in the file whenever nothing waits.
fn write_all(lines: &Receiver<Line>, file: File, counts: &Counts) {
    let (mut file, mut bytes) = (BufWriter::new(file), 0);
    while let Ok(first) = lines.recv() {
        let mut waiting = 0;
        for line in std::iter::once(first).chain(lines.try_iter()) {
            let Ok(mut json) = serde_json::to_vec(&line.dumped) else { continue };
            json.push(b'\n');
            if bytes + json.len() as u64 > line.file_bytes_max {
                counts.leave_out();
                continue;
            }
            bytes += json.len() as u64;
            if let Err(error) = file.write_all(&json) {
                return tracing::warn!(%error, "no more calls are dumped");
            }
            waiting += 1;
        }
        if let Err(error) = file.flush() {
            return tracing::warn!(%error, "no more calls are dumped");
        }
        counts.written.fetch_add(waiting, Ordering::Relaxed);
    }
}

impl Dumped {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &str) -> Result<Dumped, Error> {
        serde_json::from_str(line).map_err(|error| Error::config(format!("no call of a dump: {error}")))
    }

    /// The message, as its codec has it.
    ///
    /// # Errors
    /// One that is no base64.
    pub fn message(&self) -> Result<Vec<u8>, Error> {
        let wrong = |error| Error::config(format!("the message of a call of {}: {error}", self.method));
        BASE64_STANDARD.decode(&self.message).map_err(wrong)
    }

    /// How the message is encoded.
    ///
    /// # Errors
    /// A codec that is not known here.
    pub fn codec(&self) -> Result<Codec, Error> {
        let known = Codec::ALL.into_iter().find(|codec| codec.name() == self.codec);
        known.ok_or_else(|| Error::config(format!("{} has the unknown codec {:?}", self.method, self.codec)))
    }
}

impl Layer for Dump {
    fn name(&self) -> &str {
        "dump"
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        self.dump(&call);
        next.call(call)
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dump").field("sample", &self.sample).finish_non_exhaustive()
    }
}

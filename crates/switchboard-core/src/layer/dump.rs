//! Dumping: a share of the calls is written to a file, from which `switchboard replay` sends them again.

use super::{BoxFuture, Layer, Next, Sample};
use crate::{Call, Error, Reply, Result};
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
use switchboard_wire::{Codec, Kind};

/// Writes requests to a file, which `switchboard replay` sends to this or another server. The layer is cheap to clone;
/// clones write to the same file.
///
/// Calls with one request and one reply are written, one [`Dumped`] per line; streams are not. The file holds requests
/// of callers, so only its owner may read it; of their metadata it holds only the names given to
/// [`metadata`](Self::metadata). A separate thread writes the file: calls do not wait, and calls over the limits are
/// left out and counted.
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

/// One call in a file of [`Dump`], a line of JSON.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Dumped {
    /// Microseconds from the beginning of the file to the begin of the call.
    pub at_us: u64,
    /// Full name of the method, `package.Service/Method`.
    pub method: String,
    /// Name of the [`Codec`] of the message.
    pub codec: String,
    /// Names and values of metadata that is text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// The message in base64.
    message: String,
}

/// A line, and the size limit of the file that applies to it.
struct Line {
    dumped: Dumped,
    file_bytes_max: u64,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    left_out: AtomicU64,
}

/// Maximum number of calls that wait to be written.
const QUEUE_MAX: usize = 1024;

impl Dump {
    /// Creates a layer that writes every call of every method to this file; the previous content is lost.
    ///
    /// # Errors
    /// When the file cannot be created or written.
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

    /// Restricts the dump to these methods; a star matches any text, as in `demo.Search/*`.
    #[must_use]
    pub fn methods(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Dump {
        self.sample.methods.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Sets the share of these calls that is written, from 0 to 1, evenly spread: 0.25 is every fourth.
    #[must_use]
    pub fn share(mut self, share: f64) -> Dump {
        self.sample.set_share(share);
        self
    }

    /// Names metadata that is written as well, if it is text; the default is none. Pass credentials to the replay
    /// instead.
    #[must_use]
    pub fn metadata(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Dump {
        self.metadata.extend(names.into_iter().map(|name| name.into().to_ascii_lowercase()));
        self
    }

    /// Sets the maximum size of a written message in bytes; the default is 64 KiB. Larger messages are left out.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Dump {
        self.bytes_max = bytes;
        self
    }

    /// Sets the maximum size of the file in bytes; the default is 1 GiB.
    #[must_use]
    pub fn file_bytes_max(mut self, bytes: u64) -> Dump {
        self.file_bytes_max = bytes;
        self
    }

    /// Number of calls in the file.
    pub fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    /// Number of calls left out: the message too large, the queue full, or the file full or not writable.
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

/// Writes lines until all senders are dropped. The file is flushed whenever the queue is empty.
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
                return tracing::warn!(%error, "cannot write the dump: no more calls are dumped");
            }
            waiting += 1;
        }
        if let Err(error) = file.flush() {
            return tracing::warn!(%error, "cannot write the dump: no more calls are dumped");
        }
        counts.written.fetch_add(waiting, Ordering::Relaxed);
    }
}

impl Dumped {
    /// Parses a line of the file.
    ///
    /// # Errors
    /// When the line is not valid JSON of this type.
    pub fn read(line: &str) -> Result<Dumped, Error> {
        serde_json::from_str(line).map_err(|error| Error::config(format!("not a line of a dump: {error}")))
    }

    /// Decodes the message, which is encoded with [`codec`](Self::codec).
    ///
    /// # Errors
    /// When the text is not valid base64.
    pub fn message(&self) -> Result<Vec<u8>, Error> {
        let invalid = |error| Error::config(format!("the message of a call of {}: {error}", self.method));
        BASE64_STANDARD.decode(&self.message).map_err(invalid)
    }

    /// The codec of the message.
    ///
    /// # Errors
    /// When the codec is unknown.
    pub fn codec(&self) -> Result<Codec, Error> {
        let codec = Codec::ALL.iter().copied().find(|codec| codec.name() == self.codec);
        codec.ok_or_else(|| Error::config(format!("{} has the unknown codec {:?}", self.method, self.codec)))
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

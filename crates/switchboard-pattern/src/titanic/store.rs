//! The requests and replies on disk: an append-only log in one file, with an index in memory.
//!
//! A record is appended for each request, reply and deletion. The log is read once, at the start. Deleted records are
//! removed by compaction: when the log is much larger than the live records, these are written to a new file, which
//! replaces the old one.

mod record;

use super::RequestId;
use bytes::Bytes;
use record::{Kind, Record};
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// First bytes of the log.
const MAGIC: &[u8; 8] = b"SWTITAN1";

/// Records that wait for a disk that cannot be written, before further ones are refused.
const BUFFER_BYTES_MAX: usize = 64 << 20;

/// File that replaces the log.
const NEW_LOG: &str = "titanic.new";

/// Smallest log that is compacted.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// The store of one folder, which it locks for this process.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    log: File,
    _lock: File,
    /// End of the log, the records in `buffer` included.
    end: u64,
    /// Records that are not written yet.
    buffer: Vec<u8>,
    entries: HashMap<RequestId, Entry>,
    /// Bytes of the records that the index names.
    live_bytes: u64,
    /// Size of the log above which it is compacted.
    compact_after: u64,
    /// Bytes at the end of the log that were no records when it was opened.
    pub(super) damaged_bytes: u64,
    /// The folder, after a new log replaced the old one. Until it is synced, a crash of the system may bring the old
    /// one back, and no record is confirmed.
    unsynced: Option<File>,
    /// Syncs a folder; tests let it fail.
    sync_folder: fn(&File) -> io::Result<()>,
    limits: StoreLimits,
}

/// Limits of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreLimits {
    pub(super) requests_max: usize,
    pub(super) bytes_max: u64,
}

#[derive(Debug)]
struct Entry {
    /// Record of the reply if there is one, otherwise of the request.
    record: Span,
    is_done: bool,
    /// Time of the request, in seconds since 1970.
    time: u64,
}

/// Bytes of a record in the log.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    len: u64,
}

/// Result of [`Store::fetch`].
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Fetched {
    Pending,
    Reply(Vec<Bytes>),
    Unknown,
}

impl Store {
    /// Opens the store of a folder, which is created if it does not exist.
    ///
    /// Bytes after the last valid record are moved to the file `titanic.damaged-OFFSET`: a crash leaves a part of a
    /// record that was never confirmed.
    ///
    /// # Errors
    /// Returns `FailedPrecondition` if another process has opened the folder or if its log has another format, and
    /// `Internal` for an error of the file system.
    pub(super) fn open(folder: &Path, limits: StoreLimits) -> Result<Store> {
        let failed = |error: io::Error| failure("opened", folder, &error);
        fs::create_dir_all(folder).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        let lock = options.clone().truncate(false).open(folder.join("titanic.lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!("folder {} is in use by another process", folder.display());
                return Err(Status::failed_precondition(text));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut log = options.truncate(false).open(folder.join("titanic.log")).map_err(failed)?;
        let mut store = Store {
            folder: folder.to_owned(),
            log: log.try_clone().map_err(failed)?,
            _lock: lock,
            end: MAGIC.len() as u64,
            buffer: Vec::new(),
            entries: HashMap::new(),
            live_bytes: 0,
            compact_after: COMPACT_BYTES_MIN,
            damaged_bytes: 0,
            unsynced: None,
            sync_folder: File::sync_all,
            limits,
        };
        let len = log.metadata().map_err(failed)?.len();
        if len == 0 {
            log.write_all(MAGIC).and_then(|()| log.sync_all()).map_err(failed)?;
            sync_folder(folder).map_err(failed)?;
            return Ok(store);
        }
        let mut magic = [0; 8];
        if log.read_exact(&mut magic).is_err() || magic != *MAGIC {
            let text = format!("file {} is not a log of Titanic", folder.join("titanic.log").display());
            return Err(Status::failed_precondition(text));
        }
        store.load(len).map_err(failed)?;
        Ok(store)
    }

    /// Reads the records of the log.
    fn load(&mut self, len: u64) -> io::Result<()> {
        let mut reader = io::BufReader::with_capacity(1 << 20, self.log.try_clone()?);
        reader.seek(SeekFrom::Start(self.end))?;
        let mut bytes = Vec::new();
        while Record::read_from(&mut reader, len.saturating_sub(self.end), &mut bytes)? {
            let Some(record) = Record::decode(&bytes) else { break };
            let span = Span { start: self.end, len: bytes.len() as u64 };
            self.end = self.end.saturating_add(span.len);
            self.apply(&record, span);
        }
        self.damaged_bytes = len.saturating_sub(self.end);
        if self.damaged_bytes > 0 {
            tracing::warn!(
                target: "switchboard::pattern", folder = %self.folder.display(), offset = self.end,
                bytes = self.damaged_bytes, "titanic: the end of the log is not a record; moved to a file"
            );
            let mut rest = File::create(self.folder.join(format!("titanic.damaged-{}", self.end)))?;
            reader.seek(SeekFrom::Start(self.end))?;
            io::copy(&mut reader, &mut rest)?;
            rest.sync_all()?;
            self.log.set_len(self.end)?;
            self.log.sync_all()?;
        }
        Ok(())
    }

    /// Changes the index for a record of the log.
    fn apply(&mut self, record: &Record<'_>, span: Span) {
        match record.kind {
            Kind::Request => {
                self.live_bytes = self.live_bytes.saturating_add(span.len);
                let entry = Entry { record: span, is_done: false, time: record.time };
                self.entries.insert(record.id, entry);
            }
            Kind::Reply => {
                // A log that was compacted has no request before it.
                let entry = Entry { record: span, is_done: true, time: record.time };
                let request = self.entries.insert(record.id, entry).map_or(0, |entry| entry.record.len);
                self.live_bytes = self.live_bytes.saturating_add(span.len).saturating_sub(request);
            }
            Kind::Close => {
                if let Some(entry) = self.entries.remove(&record.id) {
                    self.live_bytes = self.live_bytes.saturating_sub(entry.record.len);
                }
            }
        }
    }

    /// Adds a request. It is on disk after [`flush`](Self::flush).
    ///
    /// # Errors
    /// Returns `ResourceExhausted` at a limit.
    pub(super) fn put_request(
        &mut self,
        id: RequestId,
        time: u64,
        service: &Bytes,
        body: &[Bytes],
    ) -> Result<()> {
        if self.entries.len() >= self.limits.requests_max {
            let text = format!("the store has {} requests (requests_max)", self.limits.requests_max);
            return Err(Status::resource_exhausted(text));
        }
        let frames: Vec<&[u8]> = std::iter::once(service).chain(body).map(|frame| &**frame).collect();
        let bytes = Record { kind: Kind::Request, id, time, frames }.encode();
        self.check_room(bytes.len())?;
        self.append(Kind::Request, id, time, &bytes);
        Ok(())
    }

    /// Adds the reply to a request, in the place of the request. Returns false if the request is not known. It is on
    /// disk after [`flush`](Self::flush).
    ///
    /// # Errors
    /// Returns `ResourceExhausted` at a limit.
    pub(super) fn put_reply(&mut self, id: RequestId, body: &[Bytes]) -> Result<bool> {
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.is_done) else { return Ok(false) };
        let time = entry.time;
        let frames = body.iter().map(|frame| &**frame).collect();
        let bytes = Record { kind: Kind::Reply, id, time, frames }.encode();
        self.check_room(bytes.len())?;
        self.append(Kind::Reply, id, time, &bytes);
        Ok(true)
    }

    /// Deletes a request and its reply. Returns false if it is not known.
    pub(super) fn close(&mut self, id: RequestId) -> bool {
        let is_known = self.entries.contains_key(&id);
        if is_known {
            let bytes = Record { kind: Kind::Close, id, time: 0, frames: Vec::new() }.encode();
            self.append(Kind::Close, id, 0, &bytes);
        }
        is_known
    }

    fn check_room(&self, len: usize) -> Result<()> {
        if self.buffer.len() > BUFFER_BYTES_MAX {
            return Err(Status::internal(format!("folder {} cannot be written", self.folder.display())));
        }
        let limit = self.limits.bytes_max;
        if self.live_bytes.saturating_add(len as u64) > limit {
            let text = format!("the store has {} of {limit} bytes (store_bytes_max)", self.live_bytes);
            return Err(Status::resource_exhausted(text));
        }
        Ok(())
    }

    fn append(&mut self, kind: Kind, id: RequestId, time: u64, bytes: &[u8]) {
        let span = Span { start: self.end, len: bytes.len() as u64 };
        self.buffer.extend_from_slice(bytes);
        self.end = self.end.saturating_add(span.len);
        self.apply(&Record { kind, id, time, frames: Vec::new() }, span);
    }

    /// Writes the records; they survive the end of the process, and with `is_synced` that of the system as well.
    /// Compacts the log if it has become large; it stays as it is if that fails.
    ///
    /// # Errors
    /// Returns `Internal` for an error of the file system, for example a full disk. The records stay in memory and are
    /// written with the next ones; those that could not be synced may be lost with the system.
    pub(super) fn flush(&mut self, is_synced: bool) -> Result<()> {
        let folder = self.folder.clone();
        let failed = |error: io::Error| failure("written", &folder, &error);
        if !self.buffer.is_empty() {
            let start = self.end.saturating_sub(self.buffer.len() as u64);
            self.log.write_all_at(&self.buffer, start).map_err(&failed)?;
            // One large request does not pin its memory.
            self.buffer = Vec::new();
            if is_synced {
                self.log.sync_data().map_err(&failed)?;
            }
        }
        if self.end > self.compact_after && self.end / 2 > self.live_bytes {
            self.compact_after = COMPACT_BYTES_MIN;
            if let Err(error) = self.compact() {
                // The records are safe in the log, which grows until a later attempt succeeds.
                self.compact_after = self.end.saturating_add(self.end / 4).saturating_add(COMPACT_BYTES_MIN);
                let folder = self.folder.display();
                tracing::warn!(target: "switchboard::pattern", %folder, %error, "titanic: compaction has failed");
                let _ = fs::remove_file(self.folder.join(NEW_LOG));
            }
        }
        if let Some(folder) = &self.unsynced {
            (self.sync_folder)(folder).map_err(&failed)?;
            self.unsynced = None;
        }
        Ok(())
    }

    /// Writes the live records to a new file, which replaces the log.
    fn compact(&mut self) -> io::Result<()> {
        let path = self.folder.join(NEW_LOG);
        // Before the rename: nothing may fail between it and the use of the new file.
        let folder = File::open(&self.folder)?;
        let mut new = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let mut writer = io::BufWriter::with_capacity(1 << 20, &mut new);
        writer.write_all(MAGIC)?;
        let mut end = MAGIC.len() as u64;
        let mut spans = Vec::with_capacity(self.entries.len());
        let mut entries: Vec<_> = self.entries.iter().collect();
        // In the order of the log, which is read once from its start to its end.
        entries.sort_unstable_by_key(|(_, entry)| entry.record.start);
        for (id, entry) in entries {
            let bytes = self.read(entry.record)?;
            writer.write_all(&bytes)?;
            spans.push((*id, Span { start: end, len: entry.record.len }));
            end = end.saturating_add(entry.record.len);
        }
        writer.flush()?;
        drop(writer);
        new.sync_all()?;
        fs::rename(&path, self.folder.join("titanic.log"))?;
        (self.log, self.end) = (new, end);
        for (id, span) in spans {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.record = span;
            }
        }
        self.unsynced = Some(folder);
        Ok(())
    }

    /// Returns the state of a request.
    ///
    /// # Errors
    /// Returns `DataLoss` if the record is damaged, and `Internal` for an error of the file system.
    pub(super) fn fetch(&self, id: RequestId) -> Result<Fetched> {
        match self.entries.get(&id) {
            None => Ok(Fetched::Unknown),
            Some(entry) if !entry.is_done => Ok(Fetched::Pending),
            Some(entry) => Ok(Fetched::Reply(self.frames(entry.record)?)),
        }
    }

    /// Returns the service and the body of a request without a reply; `None` if it has one or is not known.
    ///
    /// # Errors
    /// Returns the errors of [`fetch`](Self::fetch).
    pub(super) fn request(&self, id: RequestId) -> Result<Option<(Bytes, Vec<Bytes>)>> {
        let Some(entry) = self.entries.get(&id).filter(|entry| !entry.is_done) else { return Ok(None) };
        let mut frames = self.frames(entry.record)?;
        if frames.is_empty() {
            return Ok(None);
        }
        let service = frames.remove(0);
        Ok(Some((service, frames)))
    }

    fn frames(&self, span: Span) -> Result<Vec<Bytes>> {
        let bytes = self.read(span).map_err(|error| failure("read", &self.folder, &error))?;
        let record = Record::decode(&bytes).ok_or_else(|| {
            Status::data_loss(format!("record at {} of {} is damaged", span.start, self.folder.display()))
        })?;
        Ok(record.frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect())
    }

    /// Reads a record that is written, or that is still in the buffer.
    fn read(&self, span: Span) -> io::Result<Vec<u8>> {
        let written = self.end.saturating_sub(self.buffer.len() as u64);
        let mut bytes = vec![0; usize::try_from(span.len).map_err(|_| io::ErrorKind::InvalidData)?];
        if let Some(offset) = span.start.checked_sub(written) {
            let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData)?;
            let source = self.buffer.get(start..).and_then(|rest| rest.get(..bytes.len()));
            bytes.copy_from_slice(source.ok_or(io::ErrorKind::UnexpectedEof)?);
        } else {
            self.log.read_exact_at(&mut bytes, span.start)?;
        }
        Ok(bytes)
    }

    /// Returns the requests without a reply, the oldest first.
    pub(super) fn pending(&self) -> Vec<RequestId> {
        let mut pending: Vec<_> = self.entries.iter().filter(|(_, entry)| !entry.is_done).collect();
        pending.sort_unstable_by_key(|(_, entry)| entry.record.start);
        pending.into_iter().map(|(id, _)| *id).collect()
    }

    /// Returns the requests from before a time.
    pub(super) fn before(&self, time: u64) -> Vec<RequestId> {
        self.entries.iter().filter(|(_, entry)| entry.time < time).map(|(id, _)| *id).collect()
    }

    /// Returns the number of requests, the bytes of their records, and the bytes of the log.
    pub(super) fn sizes(&self) -> (usize, u64, u64) {
        (self.entries.len(), self.live_bytes, self.end)
    }
}

fn failure(verb: &str, folder: &Path, error: &io::Error) -> Status {
    Status::internal(format!("folder {} cannot be {verb}: {error}", folder.display()))
}

/// Makes the names of new files durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;

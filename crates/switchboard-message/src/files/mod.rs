//! Files of durable topics: one log of all topics in a folder, in segments.
//!
//! ```text
//! publisher ─► Submissions ─► Writer: offsets, records, one write ─► File:   log of the topic, position
//!                                                              └──► Synced: SyncQueue, one fdatasync ─► log, position
//! start     ─► recover: segments ─► Replay ─► logs
//! ```
//!
//! Reading is from memory alone: the logs have the entries of the histories. The files have them for the next start. A
//! publication to a topic in memory does not pass here.
//!
//! One log for all topics, rather than one per shard: the shard of a topic is another one after a restart, and one file
//! needs one `fdatasync` for the publishers of all topics.

mod crc;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod options;
mod record;
mod recover;
mod replay;
mod saved;
mod segment;
mod segments;
mod sync;
mod writer;

#[cfg(test)]
mod tests;

pub use crc::crc32c;
#[cfg(any(test, feature = "fuzzing"))]
pub use fuzzing::log_segment;
pub use options::FileOptions;

use crate::{
    clock::Clock,
    log::{Log, Submissions},
};
use folder::{CreateFile, Folder, create_file, failed};
use segments::Segments;
use std::{
    sync::Arc,
    thread::{self, JoinHandle, ThreadId},
};
use switchboard_core::Result;
use sync::SyncQueue;
use writer::Writer;

/// Threads of a folder. They end, after all publications are written, when this is dropped.
#[derive(Debug)]
pub(crate) struct Files {
    submissions: Arc<Submissions>,
    writer: Option<JoinHandle<()>>,
    sync_thread: ThreadId,
}

impl Files {
    /// Reads a folder into the logs, and begins to write. The logs pass durable publications to `submissions`.
    ///
    /// # Errors
    /// `InvalidArgument` for limits that contradict each other, `FailedPrecondition` if another bus uses the folder,
    /// `Unavailable` if it cannot be read and written, `DataLoss` if the positions of durable cursors are damaged.
    pub(crate) fn open(
        options: FileOptions,
        log: &Arc<Log>,
        submissions: &Arc<Submissions>,
        clock: Clock,
    ) -> Result<Files> {
        Files::open_with(options, log, submissions, clock, create_file)
    }

    fn open_with(
        options: FileOptions,
        log: &Arc<Log>,
        submissions: &Arc<Submissions>,
        clock: Clock,
        create: CreateFile,
    ) -> Result<Files> {
        options.check()?;
        let path = options.folder.clone();
        let folder = Arc::new(Folder::lock(&path)?);
        let mut recovered = recover::recover(&folder, log, clock.now())?;
        let syncs = Arc::new(SyncQueue::new(folder.clone(), submissions.clone()));
        let mut segments = Segments::new(folder, options, create, &mut recovered, syncs.clone())?;
        let mut records = Vec::new();
        recovered.renewed.iter().for_each(|saved| record::write_topic(&mut records, saved));
        if !records.is_empty() {
            segments.append(&records, log, clock.now())?;
            let sync = segments.current.file.sync();
            sync.map_err(|error| failed("write", &path, &error))?;
        }
        recovered.repair(&segments.folder, log)?;
        segments.folder.begin()?;
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
            spawned.map_err(|error| failed("start a thread for", &path, &error))
        };
        let sync_thread = {
            let (syncs, log, submissions, clock) =
                (syncs.clone(), log.clone(), submissions.clone(), clock.clone());
            let run = move || sync::run(&syncs, &log, &submissions, || clock.now());
            spawn("topics-sync", Box::new(run))?
        };
        let sync_thread_id = sync_thread.thread().id();
        let writer = Writer {
            log: log.clone(),
            clock,
            submissions: submissions.clone(),
            syncs: syncs.clone(),
            sync_thread: Some(sync_thread),
            segments,
            time: recovered.time,
            records: Vec::new(),
            next_save: switchboard_core::clock::now(),
        };
        let writer = spawn("topics-write", Box::new(move || writer.run())).inspect_err(|_| syncs.close())?;
        Ok(Files { submissions: submissions.clone(), writer: Some(writer), sync_thread: sync_thread_id })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.submissions.close();
        let Some(writer) = self.writer.take() else { return };
        // The last owner of the bus may be an entry that one of the threads has dropped: they end without a wait then.
        let this = thread::current().id();
        if this != writer.thread().id() && this != self.sync_thread {
            drop(writer.join());
        }
    }
}

//! Disks that fail, and the order of `fdatasync` and acceptance.

use super::*;
use crate::{
    files::folder::SegmentFile,
    limits::Limits,
    log::{Appended, Pattern, Refused, Storage, TopicOptions},
};
use smallvec::smallvec;
use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};
use switchboard_wire::Code;
use tokio::sync::oneshot;

/// Behaviour of all files of one test, by the name of its folder.
#[derive(Debug, Default)]
struct Disk {
    /// The next write has this many bytes, and fails.
    writes_fail: Mutex<Option<(usize, io::ErrorKind)>>,
    truncates_fail: AtomicBool,
    syncs_fail: AtomicBool,
    syncs_panic: AtomicBool,
    /// The next sync by the thread that writes fails, and those after it succeed: the system reports an error once.
    sync_of_writer_fails: AtomicBool,
    /// Bytes of all writes.
    bytes: AtomicU64,
    /// Syncs that have begun.
    begun: AtomicU64,
    /// Held while a test does not want a sync to end.
    sync_gate: Mutex<()>,
    syncs: AtomicU64,
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn SegmentFile>,
    disk: &'static Disk,
}

impl SegmentFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.disk.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match self.disk.writes_fail.lock().unwrap().take() {
            Some((length, kind)) => {
                self.file.append(&bytes[..length.min(bytes.len())])?;
                Err(kind.into())
            }
            None => self.file.append(bytes),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.begun.fetch_add(1, Ordering::Relaxed);
        drop(self.disk.sync_gate.lock().unwrap());
        assert!(!self.disk.syncs_panic.load(Ordering::Relaxed), "a sync that panics");
        self.disk.syncs.fetch_add(1, Ordering::Relaxed);
        match self.disk.syncs_fail.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Other.into()),
            false if self.is_failing_sync_of_writer() => Err(io::ErrorKind::Other.into()),
            false => self.file.sync(),
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        match self.disk.truncates_fail.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Other.into()),
            false => self.file.truncate(length),
        }
    }
}

impl FaultyFile {
    fn is_failing_sync_of_writer(&self) -> bool {
        let is_writer = std::thread::current().name() == Some("topics-write");
        is_writer && self.disk.sync_of_writer_fails.swap(false, Ordering::Relaxed)
    }
}

struct Fixture {
    log: Arc<Log>,
    // Ends before the folder is removed.
    _files: Files,
    disk: &'static Disk,
    folder: TestFolder,
}

macro_rules! fixture {
    ($folder:expr) => {{
        static DISK: std::sync::LazyLock<Disk> = std::sync::LazyLock::new(Disk::default);
        let create: CreateFile = |path| Ok(Arc::new(FaultyFile { file: create_file(path)?, disk: &DISK }));
        Fixture::new($folder, &DISK, create)
    }};
    ($folder:expr, $history:expr, $segments:expr) => {{
        static DISK: std::sync::LazyLock<Disk> = std::sync::LazyLock::new(Disk::default);
        let create: CreateFile = |path| Ok(Arc::new(FaultyFile { file: create_file(path)?, disk: &DISK }));
        Fixture::small($folder, &DISK, create, $history, $segments)
    }};
}

/// Bytes of the segments of a small folder.
const SEGMENT: u64 = 4 << 10;

impl Fixture {
    fn new(folder: TestFolder, disk: &'static Disk, create: CreateFile) -> Fixture {
        let files = FileOptions::new(folder.path());
        Fixture::with(folder, disk, create, 100, files, Clock::Runtime)
    }

    /// Opens a folder with a limit of this number of segments.
    fn small(
        folder: TestFolder,
        disk: &'static Disk,
        create: CreateFile,
        history: usize,
        segments: u64,
    ) -> Fixture {
        let mut files = FileOptions::new(folder.path());
        (files.segment_bytes, files.file_bytes_max) = (SEGMENT, segments * SEGMENT);
        Fixture::with(folder, disk, create, history, files, Clock::Runtime)
    }

    fn with(
        folder: TestFolder,
        disk: &'static Disk,
        create: CreateFile,
        history: usize,
        files: FileOptions,
        clock: Clock,
    ) -> Fixture {
        let options = TopicOptions::new().history(history, Duration::MAX);
        let rules = [("file/>", Storage::File), ("synced/>", Storage::Synced)];
        let rules =
            rules.map(|(pattern, storage)| (Pattern::new(pattern).unwrap(), options.storage(storage)));
        let submissions = Arc::new(Submissions::new(1 << 20));
        let log = Log::new(Limits::default(), rules.into(), switchboard_core::clock::random);
        let log = Arc::new(log.with_files(submissions.clone()));
        let clock = clock.with_files();
        let files = Files::open_with(files, &log, &submissions, clock, create).unwrap();
        Fixture { log, _files: files, disk, folder }
    }

    fn submit(&self, name: &str) -> oneshot::Receiver<Result<Appended, Refused>> {
        self.log.submit(name.into(), smallvec![entry("abc")], true).unwrap().unwrap()
    }

    async fn publish(&self, name: &str) -> Result<u64> {
        match self.submit(name).await.unwrap() {
            Ok(appended) => Ok(appended.position.offset),
            Err(Refused::Failed(status)) => Err(status),
            Err(Refused::Wait(..)) => panic!("no reader"),
        }
    }

    fn entries(&self, name: &str) -> usize {
        self.log.topic_stats(name.into()).map_or(0, |stats| stats.entries)
    }

    /// Ends the bus, and opens the folder with sound files.
    fn reopen(self) -> Fixture {
        let Fixture { log, _files, folder, disk } = self;
        drop((_files, log));
        Fixture::new(folder, disk, create_file)
    }
}

#[tokio::test]
async fn a_synced_entry_is_accepted_and_seen_after_the_sync() {
    let fixture = fixture!(TestFolder::new("synced"));
    let gate = fixture.disk.sync_gate.lock().unwrap();
    let before = fixture.disk.syncs.load(Ordering::Relaxed);
    let mut accepted: Vec<_> = (0..50).map(|_| fixture.submit("synced/a")).collect();
    // Topics without a sync continue meanwhile.
    let other = futures_wait(fixture.submit("file/b"));
    assert_eq!(other.unwrap().position.offset, 1);
    assert!(accepted.iter_mut().all(|accepted| accepted.try_recv().is_err()));
    assert_eq!(fixture.entries("synced/a"), 0);
    drop(gate);
    for (at, accepted) in accepted.into_iter().enumerate() {
        assert_eq!(futures_wait(accepted).unwrap().position.offset, at as u64 + 1);
    }
    assert_eq!(fixture.entries("synced/a"), 50);
    let syncs = fixture.disk.syncs.load(Ordering::Relaxed) - before;
    assert!((1..=10).contains(&syncs), "{syncs} syncs for 50 publications");
}

/// Waits for an outcome on this thread, which may hold a lock.
fn futures_wait(outcome: oneshot::Receiver<Result<Appended, Refused>>) -> Result<Appended, Refused> {
    std::thread::spawn(move || outcome.blocking_recv().unwrap()).join().unwrap()
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let fixture = fixture!(TestFolder::new("no-space"));
    assert_eq!(fixture.publish("file/a").await.unwrap(), 1);
    for written in [0, 5, 40, 1_000] {
        *fixture.disk.writes_fail.lock().unwrap() = Some((written, io::ErrorKind::StorageFull));
        let refused = fixture.publish("file/a").await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
    *fixture.disk.writes_fail.lock().unwrap() = Some((3, io::ErrorKind::Other));
    assert_eq!(fixture.publish("synced/a").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((fixture.entries("file/a"), fixture.entries("synced/a")), (1, 0));
    assert_eq!(fixture.publish("file/a").await.unwrap(), 2);
    let fixture = fixture.reopen();
    assert_eq!(fixture.entries("file/a"), 2);
    assert_eq!(fixture.publish("file/a").await.unwrap(), 3);
}

#[tokio::test]
async fn a_file_that_cannot_be_repaired_is_not_written_again() {
    let fixture = fixture!(TestFolder::new("repair"));
    assert_eq!(fixture.publish("file/a").await.unwrap(), 1);
    *fixture.disk.writes_fail.lock().unwrap() = Some((30, io::ErrorKind::Other));
    fixture.disk.truncates_fail.store(true, Ordering::Relaxed);
    assert!(fixture.publish("file/a").await.is_err());
    let refused = fixture.log.submit("file/a".into(), smallvec![entry("abc")], true).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("cannot repair"), "{refused}");
    // The part of a record is removed at the next start.
    let fixture = fixture.reopen();
    assert_eq!(fixture.entries("file/a"), 1);
    assert_eq!(fixture.publish("file/a").await.unwrap(), 2);
}

#[tokio::test]
async fn a_failed_sync_refuses_everything_until_a_restart() {
    let fixture = fixture!(TestFolder::new("sync-fails"));
    assert_eq!(fixture.publish("synced/a").await.unwrap(), 1);
    fixture.disk.syncs_fail.store(true, Ordering::Relaxed);
    let refused = fixture.publish("synced/a").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("restart the process"), "{refused}");
    assert!(fixture.log.submit("file/b".into(), smallvec![entry("abc")], true).is_err());
    assert_eq!(fixture.entries("synced/a"), 1);
    let stats = fixture.log.stats();
    assert_eq!(stats.entries, 1);
    // The refused entry may be there or not: it was not reported as accepted.
    let fixture = fixture.reopen();
    assert!((1..=2).contains(&fixture.entries("synced/a")));
}

#[tokio::test]
async fn a_start_after_a_failed_sync_is_one_after_a_crash() {
    let fixture = fixture!(TestFolder::new("sync-fails-epoch"));
    assert_eq!(fixture.publish("file/a").await.unwrap(), 1);
    let epoch = |fixture: &Fixture| fixture.log.topic_stats("file/a".into()).unwrap().head.epoch;
    let before = epoch(&fixture);
    fixture.disk.syncs_fail.store(true, Ordering::Relaxed);
    assert!(fixture.publish("synced/a").await.is_err());
    // Noted before the error is reported: the process may be killed now.
    let mark = || fs::read_to_string(fixture.folder.path().join("mark")).unwrap();
    assert_eq!(mark(), "failed\n");
    let fixture = fixture.reopen();
    assert_ne!(epoch(&fixture), before);
    let kept = epoch(&fixture);
    assert_eq!(epoch(&fixture.reopen()), kept);
}

#[tokio::test]
async fn a_failed_sync_of_the_end_is_noted() {
    let fixture = fixture!(TestFolder::new("end-fails"));
    assert_eq!(fixture.publish("file/a").await.unwrap(), 1);
    let before = fixture.log.topic_stats("file/a".into()).unwrap().head.epoch;
    fixture.disk.syncs_fail.store(true, Ordering::Relaxed);
    let fixture = fixture.reopen();
    assert_ne!(fixture.log.topic_stats("file/a".into()).unwrap().head.epoch, before);
}

#[tokio::test]
async fn a_failed_sync_of_a_copy_refuses_everything() {
    let fixture = fixture!(TestFolder::new("copy-fails"), 100, 6);
    assert_eq!(fixture.publish("file/quiet").await.unwrap(), 1);
    fixture.disk.sync_of_writer_fails.store(true, Ordering::Relaxed);
    let mut published = 0;
    let refused = loop {
        match fixture.publish("file/busy").await {
            Ok(_) => published += 1,
            Err(status) => break status,
        }
        assert!(published < 10_000, "no segment was copied");
    };
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("fdatasync"), "{refused}");
    // A sync would succeed now, without what the disk has lost.
    let refused = fixture.log.submit("synced/a".into(), smallvec![entry("abc")], true).unwrap_err();
    assert!(refused.message().contains("restart the process"), "{refused}");
    assert_eq!(fs::read_to_string(fixture.folder.path().join("mark")).unwrap(), "failed\n");
}

#[tokio::test]
async fn a_panic_during_a_sync_fails_all_publications() {
    let fixture = fixture!(TestFolder::new("panic"));
    let gate = fixture.disk.sync_gate.lock().unwrap();
    let first = fixture.submit("synced/a");
    while fixture.disk.begun.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let second = fixture.submit("synced/a");
    // Written after the second one, which waits in the queue now.
    futures_wait(fixture.submit("file/b")).unwrap();
    fixture.disk.syncs_panic.store(true, Ordering::Relaxed);
    drop(gate);
    for outcome in [first, second] {
        let outcome = tokio::time::timeout(Duration::from_secs(60), outcome).await;
        assert!(matches!(outcome.expect("an outcome"), Err(_) | Ok(Err(_))));
    }
    let refused = fixture.log.submit("file/b".into(), smallvec![entry("abc")], true).unwrap_err();
    assert!(refused.message().contains("has panicked"), "{refused}");
}

fn with_id(id: &'static str) -> Entry {
    let parts = EntryParts {
        codec: Codec::Json,
        bytes: Bytes::from_static(b"1"),
        headers: Metadata::new(),
        key: Bytes::new(),
        id: Bytes::from_static(id.as_bytes()),
        expires_at: u64::MAX,
    };
    parts.into()
}

#[tokio::test]
async fn a_publication_id_that_was_used_again_is_known_after_a_restart() {
    static DISK: std::sync::LazyLock<Disk> = std::sync::LazyLock::new(Disk::default);
    const SECOND: u64 = 1_000_000_000;
    let now = Arc::new(AtomicU64::new(1_000 * SECOND));
    let open = |folder: TestFolder| {
        let files = FileOptions::new(folder.path());
        Fixture::with(folder, &DISK, create_file, 100, files, Clock::Manual(now.clone()))
    };
    let publish = |fixture: &Fixture| {
        let outcome = fixture.log.submit("file/a".into(), smallvec![with_id("x")], true);
        futures_wait(outcome.unwrap().unwrap()).unwrap().position.offset
    };
    let fixture = open(TestFolder::new("id-again"));
    assert_eq!(publish(&fixture), 1);
    now.fetch_add(121 * SECOND, Ordering::Relaxed);
    assert_eq!(publish(&fixture), 2);
    now.fetch_add(10 * SECOND, Ordering::Relaxed);
    let Fixture { log, _files, folder, .. } = fixture;
    drop((_files, log));
    assert_eq!(publish(&open(folder)), 2);
}

#[tokio::test]
async fn copied_publication_ids_of_a_batch_are_known_after_a_restart() {
    let fixture = fixture!(TestFolder::new("copied-ids"), 100, 6);
    let batch = |fixture: &Fixture| {
        let entries = ["a", "b", "c"].into_iter().map(with_id);
        futures_wait(fixture.log.submit("file/ids".into(), entries.collect(), true).unwrap().unwrap())
    };
    // The ids have times of a batch, in memory and in a copy.
    assert_eq!(batch(&fixture).unwrap().position.offset, 3);
    let first = fixture.folder.path().join("00000000000000000001.log");
    let mut published = 0;
    while first.exists() {
        fixture.publish("file/busy").await.unwrap();
        published += 1;
        assert!(published < 10_000, "no segment was copied");
    }
    let fixture = fixture.reopen();
    assert_eq!(batch(&fixture).unwrap().position.offset, 3);
    assert_eq!(fixture.entries("file/ids"), 3);
}

#[tokio::test]
async fn a_full_folder_is_not_copied_as_a_whole() {
    const SEGMENTS: u64 = 24;
    let fixture = fixture!(TestFolder::new("full"), 1_000_000, SEGMENTS);
    let written = || fixture.disk.bytes.load(Ordering::Relaxed);
    let mut before = 0;
    while fixture.publish("file/a").await.is_ok() {
        before = written();
    }
    let copied = written() - before;
    assert!(copied < SEGMENTS / 2 * SEGMENT, "{copied} bytes were copied for one publication");
    let before = written();
    assert!(fixture.publish("file/a").await.is_err());
    assert_eq!(written(), before);
}

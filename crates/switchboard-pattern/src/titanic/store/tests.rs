//! The log on disk: restarts, torn and damaged ends, limits, compaction.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that is deleted at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let number = NEXT.fetch_add(1, Relaxed);
        Folder(std::env::temp_dir().join(format!("switchboard-titanic-{}-{number}", std::process::id())))
    }

    fn open(&self) -> Store {
        Store::open(&self.0, StoreLimits { requests_max: 1000, bytes_max: 8 << 20 }).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.0.join("titanic.log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn id(number: u8) -> RequestId {
    RequestId::from_bytes([number; 16])
}

fn put(store: &mut Store, number: u8, body: &str) {
    let body = [Bytes::copy_from_slice(body.as_bytes())];
    store.put_request(id(number), u64::from(number), &Bytes::from_static(b"service"), &body).unwrap();
}

#[test]
fn requests_and_replies_survive_a_restart() {
    let folder = Folder::new();
    let mut store = folder.open();
    for number in 1..=3 {
        put(&mut store, number, "body");
    }
    assert!(store.request(id(1)).unwrap().is_some(), "a record is read before it is written");
    store.flush(true).unwrap();
    assert!(store.put_reply(id(2), &[Bytes::from_static(b"a"), Bytes::new()]).unwrap());
    assert!(!store.put_reply(id(2), &[]).unwrap());
    assert!(!store.put_reply(id(9), &[]).unwrap());
    assert!(store.close(id(3)) && !store.close(id(3)));
    store.flush(false).unwrap();
    drop(store);
    let store = folder.open();
    assert_eq!(store.pending(), [id(1)]);
    let (service, body) = store.request(id(1)).unwrap().unwrap();
    assert_eq!((&*service, &*body), (&b"service"[..], &[Bytes::from_static(b"body")][..]));
    assert_eq!(store.fetch(id(1)).unwrap(), Fetched::Pending);
    assert_eq!(store.fetch(id(2)).unwrap(), Fetched::Reply(vec![Bytes::from_static(b"a"), Bytes::new()]));
    assert_eq!(store.fetch(id(3)).unwrap(), Fetched::Unknown);
    assert_eq!(store.before(2), [id(1)]);
}

#[test]
fn a_log_that_ends_anywhere_keeps_its_whole_records() {
    let folder = Folder::new();
    let mut store = folder.open();
    let mut ends = vec![store.end];
    for number in 1..=3 {
        put(&mut store, number, "body");
        ends.push(store.end);
    }
    store.flush(false).unwrap();
    drop(store);
    let whole = fs::read(folder.log()).unwrap();
    for len in MAGIC.len()..=whole.len() {
        fs::write(folder.log(), &whole[..len]).unwrap();
        let mut store = folder.open();
        let records = ends.iter().filter(|end| **end <= len as u64).count() - 1;
        assert_eq!(store.pending().len(), records, "{len} bytes");
        assert_eq!(store.damaged_bytes, len as u64 - ends[records], "{len} bytes");
        put(&mut store, 9, "after");
        store.flush(false).unwrap();
        drop(store);
        assert_eq!(folder.open().pending().len(), records + 1, "{len} bytes");
    }
}

#[test]
fn damaged_bytes_are_moved_to_a_file() {
    let folder = Folder::new();
    let mut store = folder.open();
    put(&mut store, 1, "body");
    let end = store.end;
    put(&mut store, 2, "body");
    store.flush(false).unwrap();
    drop(store);
    let mut bytes = fs::read(folder.log()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(folder.log(), &bytes).unwrap();
    let store = folder.open();
    assert_eq!(store.pending(), [id(1)]);
    let damaged = fs::read(folder.0.join(format!("titanic.damaged-{end}"))).unwrap();
    assert_eq!(damaged, bytes[end as usize..]);
}

#[test]
fn any_bytes_are_opened() {
    let folder = Folder::new();
    drop(folder.open());
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = MAGIC.to_vec();
        bytes.extend((0..random.usize(..200)).map(|_| if random.bool() { 0 } else { random.u8(..) }));
        fs::write(folder.log(), &bytes).unwrap();
        assert!(folder.open().pending().is_empty());
    }
    fs::write(folder.log(), b"other").unwrap();
    let failure = Store::open(&folder.0, StoreLimits { requests_max: 1, bytes_max: 1 }).unwrap_err();
    assert!(failure.message().contains("not a log"), "{failure}");
}

#[test]
fn a_folder_has_one_process() {
    let folder = Folder::new();
    let _store = folder.open();
    let failure = Store::open(&folder.0, StoreLimits { requests_max: 1, bytes_max: 1 }).unwrap_err();
    assert!(failure.message().contains("in use"), "{failure}");
}

#[test]
fn limits_are_named() {
    let folder = Folder::new();
    let mut store = Store::open(&folder.0, StoreLimits { requests_max: 2, bytes_max: 300 }).unwrap();
    put(&mut store, 1, "body");
    let large = [Bytes::from(vec![0; 300])];
    let failure = store.put_request(id(2), 0, &Bytes::from_static(b"s"), &large).unwrap_err();
    assert!(failure.message().contains("store_bytes_max"), "{failure}");
    assert!(store.put_reply(id(1), &large).unwrap_err().message().contains("store_bytes_max"));
    put(&mut store, 2, "body");
    let failure = store.put_request(id(3), 0, &Bytes::from_static(b"s"), &[Bytes::new()]).unwrap_err();
    assert!(failure.message().contains("requests_max"), "{failure}");
}

#[test]
fn compaction_keeps_the_live_records_and_bounds_the_log() {
    let folder = Folder::new();
    let mut store = folder.open();
    let body = "b".repeat(10_000);
    for round in 0..300u32 {
        let number = (round % 200) as u8 + 10;
        put(&mut store, number, &body);
        if round % 50 == 0 {
            put(&mut store, (round / 50) as u8, &body);
            store.put_reply(id((round / 50) as u8), &[Bytes::from_static(b"reply")]).unwrap();
        }
        store.close(id(number));
        store.flush(false).unwrap();
        let (_, live, log) = store.sizes();
        assert!(log <= COMPACT_BYTES_MIN + 2 * live + 30_000, "log {log}, live {live}");
    }
    assert!(!folder.0.join("titanic.new").exists());
    let before = store.sizes();
    drop(store);
    let store = folder.open();
    assert_eq!(store.sizes(), before);
    for number in 0..6 {
        assert_eq!(store.fetch(id(number)).unwrap(), Fetched::Reply(vec![Bytes::from_static(b"reply")]));
    }
    assert_eq!(store.damaged_bytes, 0);
}

#[test]
fn records_after_a_compaction_whose_folder_cannot_be_synced_are_in_the_new_log() {
    let folder = Folder::new();
    let mut store = folder.open();
    store.sync_folder = |_| Err(io::ErrorKind::StorageFull.into());
    let body = "b".repeat(100_000);
    let mut failure = None;
    for number in 1..20 {
        put(&mut store, number, &body);
        store.close(id(number));
        failure = failure.or(store.flush(true).err());
    }
    let failure = failure.expect("a folder that is not synced is an error");
    assert!(failure.message().contains("cannot be written"), "{failure}");
    put(&mut store, 30, "body");
    assert!(store.flush(true).is_err(), "no record is confirmed until the folder is synced");
    store.sync_folder = File::sync_all;
    put(&mut store, 31, "body");
    store.flush(true).unwrap();
    assert!(store.request(id(31)).unwrap().is_some());
    drop(store);
    assert_eq!(folder.open().pending(), [id(30), id(31)]);
}

#[tokio::test]
async fn requests_whose_confirmation_failed_are_not_executed_later() {
    use crate::titanic::{
        operations::{Operation, StoreHandle, run_store},
        service::Shared,
    };
    static FAILURES: AtomicU32 = AtomicU32::new(1);
    let folder = Folder::new();
    let mut store = folder.open();
    store.unsynced = Some(File::open(&folder.0).unwrap());
    store.sync_folder = |_| match FAILURES.swap(0, Relaxed) {
        0 => Ok(()),
        _ => Err(io::ErrorKind::StorageFull.into()),
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let thread = std::thread::spawn(move || run_store(store, receiver, true, &Shared::default()));
    let handle = StoreHandle::new(sender);
    let put = |number| Operation::Store {
        id: id(number),
        service: Bytes::from_static(b"service"),
        body: vec![Bytes::from_static(b"body")],
    };
    assert!(handle.run(put(1)).await.is_err());
    handle.run(put(2)).await.unwrap();
    drop(handle);
    thread.join().unwrap();
    assert_eq!(folder.open().pending(), [id(2)]);
}

#[test]
fn a_log_that_cannot_be_compacted_stays_in_use() {
    let folder = Folder::new();
    let mut store = folder.open();
    // A folder in the place of the new file.
    fs::create_dir_all(folder.0.join(NEW_LOG).join("full")).unwrap();
    let body = "b".repeat(100_000);
    for number in 0..40 {
        put(&mut store, number, &body);
        store.flush(false).unwrap();
        if number > 0 {
            store.close(id(number));
        }
        store.flush(false).unwrap();
    }
    let (_, live, log) = store.sizes();
    assert!(log > COMPACT_BYTES_MIN + 2 * live, "log {log}, live {live}");
    fs::remove_dir_all(folder.0.join(NEW_LOG)).unwrap();
    for number in 50..120 {
        put(&mut store, number, &body);
        store.close(id(number));
        store.flush(false).unwrap();
    }
    let (_, live, log) = store.sizes();
    assert!(log <= COMPACT_BYTES_MIN + 2 * live + 200_000, "log {log}, live {live}");
    drop(store);
    assert_eq!(folder.open().pending(), [id(0)]);
}

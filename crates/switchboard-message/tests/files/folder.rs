//! Temporary folders, and a bus of numbers on one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_message::{Bus, Delivery, FileOptions, HistoryPage, Storage, Subscription, TopicOptions};

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(PathBuf);

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl Folder {
    pub(crate) fn new(test: &str) -> Folder {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("switchboard-files-{}-{number}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the names of the segments, in order.
    pub(crate) fn segments(&self) -> Vec<String> {
        let names =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".log")).collect();
        names.sort();
        names
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments().iter().map(|name| fs::metadata(self.0.join(name)).unwrap().len()).sum()
    }

    /// Opens a bus whose topics "file/…" and "synced/…" are durable.
    pub(crate) fn open(&self) -> Result<Bus> {
        self.open_with(1_000, |_| {})
    }

    pub(crate) fn open_with(&self, history: usize, change: impl FnOnce(&mut FileOptions)) -> Result<Bus> {
        let mut files = FileOptions::new(&self.0);
        change(&mut files);
        let options = TopicOptions::new().history(history, Duration::MAX);
        let builder = Bus::builder()
            .topics("file/>", options.storage(Storage::File))?
            .topics("synced/>", options.storage(Storage::Synced))?
            .topics("keyed/>", options.conflate().storage(Storage::File))?
            .topics("memory/>", options)?;
        builder.open(files)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Returns the kept numbers of a topic, with their offsets.
pub(crate) async fn kept(bus: &Bus, topic: &str) -> Vec<(u64, u64)> {
    let page: HistoryPage<u64> = bus.history(topic).limit(1_000).await.unwrap();
    let entry = |delivery: Delivery<u64>| match delivery {
        Delivery::Entry(entry) => (entry.position().offset, *entry),
        other => panic!("{other:?}"),
    };
    page.deliveries.into_iter().map(entry).collect()
}

pub(crate) async fn next<T: std::fmt::Debug>(subscription: &mut Subscription<T>) -> Delivery<T> {
    let next = tokio::time::timeout(Duration::from_secs(60), subscription.next());
    next.await.unwrap().unwrap().unwrap()
}

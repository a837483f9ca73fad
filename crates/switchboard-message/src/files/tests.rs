mod damage;
mod faults;

use super::*;
use crate::log::{Entry, EntryParts, Position, Topic};
use bytes::Bytes;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use switchboard_wire::{Codec, Metadata};

/// A folder that is removed at the end of its test.
struct TestFolder(PathBuf);

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl TestFolder {
    fn new(test: &str) -> TestFolder {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("switchboard-log-{}-{number}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        TestFolder(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

fn entry(text: &str) -> Entry {
    let mut headers = Metadata::new();
    headers.insert("source", text.to_owned()).unwrap();
    let parts = EntryParts {
        codec: Codec::Json,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        headers,
        key: Bytes::copy_from_slice(text.as_bytes()),
        id: Bytes::new(),
        expires_at: u64::MAX,
    };
    parts.into()
}

/// Returns a segment with one topic of ten entries, of which the last three are a batch; with the end of each record.
fn ten_entries(number: u64) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = segment::head(number).to_vec();
    let mut ends = Vec::new();
    for offset in 1..=10 {
        let position = Position { epoch: 7, offset };
        let continues = (8..10).contains(&offset);
        let time = 1_000 + offset;
        assert!(record::write_entry(&mut bytes, &topic("file/a"), position, time, &entry("abc"), continues));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

//! The property of the readers that holds for any bytes, for the tests and the fuzz target.

use super::{
    record::{self, EntryRecord, Record},
    replay::{Replay, SegmentIndex},
    saved, segment,
};
use crate::{
    limits::Limits,
    log::{Storage, TopicOptions},
};
use std::time::Duration;

/// Reads any bytes as a segment and as a file of cursors.
///
/// # Panics
/// If an entry is not written as it was read.
#[doc(hidden)]
pub fn log_segment(bytes: &[u8]) {
    let number = bytes.get(8..16).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
    let mut index = SegmentIndex::default();
    let mut replay = Replay::default();
    let limits = Limits::default();
    let options = |_: &str| TopicOptions::new().history(4, Duration::MAX).storage(Storage::File);
    let (whole, _) = segment::read(bytes, number, |record| {
        if let Record::Entry(entry) = &record {
            let mut written = Vec::new();
            let EntryRecord { topic, position, time, entry, continues } = entry;
            record::write_entry(&mut written, topic, *position, *time, entry, *continues);
            assert!(
                bytes.windows(written.len()).any(|known| known == written),
                "an entry is written as it was read"
            );
        }
        replay.add(record, &mut index, options, &limits);
    });
    assert!(whole <= bytes.len());
    assert!(replay.topics.values().all(|topic| topic.entries.len() <= 4));
    drop(saved::read(bytes));
}

//! The files of topics and of durable cursors, which are replaced as a whole.

use super::{
    folder::Folder,
    record::{self, Record, Step},
};
use crate::log::{SavedCursor, SavedTopic};
use switchboard_core::Result;
use switchboard_wire::Status;

const TOPICS: &str = "topics";
const CURSORS: &str = "cursors";

/// Writes the positions of topics.
pub(super) fn write_topics(folder: &Folder, topics: &[SavedTopic]) -> Result<()> {
    let mut bytes = Vec::new();
    topics.iter().for_each(|topic| record::write_topic(&mut bytes, topic));
    record::write_end(&mut bytes, topics.len() as u64);
    folder.replace(TOPICS, &bytes)
}

/// Writes the durable cursors.
pub(super) fn write_cursors(folder: &Folder, cursors: &[SavedCursor]) -> Result<()> {
    let mut bytes = Vec::new();
    cursors.iter().for_each(|cursor| record::write_cursor(&mut bytes, cursor));
    record::write_end(&mut bytes, cursors.len() as u64);
    folder.replace(CURSORS, &bytes)
}

/// Reads the positions of topics; `None` if the file is damaged.
pub(super) fn read_topics(folder: &Folder) -> Result<Option<Vec<SavedTopic>>> {
    let Some(records) = read(&folder.read(TOPICS)?.unwrap_or_default()) else { return Ok(None) };
    let topic = |record| match record {
        Record::Topic(topic) => Some(topic),
        _ => None,
    };
    Ok(records.into_iter().map(topic).collect())
}

/// Reads the durable cursors.
///
/// # Errors
/// `DataLoss` if the file is damaged: without it, each client would miss entries that it does not know of.
pub(super) fn read_cursors(folder: &Folder) -> Result<Vec<SavedCursor>> {
    let records = read(&folder.read(CURSORS)?.unwrap_or_default());
    let cursor = |record| match record {
        Record::Cursor(cursor) => Some(cursor),
        _ => None,
    };
    let cursors = records.and_then(|records| records.into_iter().map(cursor).collect());
    cursors.ok_or_else(|| {
        Status::data_loss(
            "the file \"cursors\" of the durable topics is damaged; restore it from a copy, or delete it to begin all \
             durable cursors anew",
        )
    })
}

/// Returns the records of a file; `None` if it is damaged. An empty file, or none, has no records.
pub(super) fn read(mut bytes: &[u8]) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    if bytes.is_empty() {
        return Some(records);
    }
    loop {
        let Step::Record(record, length) = record::read(bytes) else { return None };
        bytes = bytes.get(length..)?;
        match *record {
            Record::End(count) => {
                return (count == records.len() as u64 && bytes.is_empty()).then_some(records);
            }
            record => records.push(record),
        }
    }
}

//! Start of a bus on a folder: its segments are read, repaired, and put into the logs.
//!
//! Topics keep their epochs if no accepted entry can be missing. Otherwise they continue in a new epoch, with the
//! entries that are left, so that no offset of an epoch has two entries:
//!
//! | found | topics in a new epoch |
//! | --- | --- |
//! | an orderly end, and its last segment as it was | none |
//! | an end of the process: the machine has not been started since; a last batch that was cut off is removed | none |
//! | any other end | those with [`Storage::File`] |
//! | a damaged record, a missing or shortened segment, a damaged file of topics | all |
//! | a saved position behind the newest entry | the one |

use super::{
    folder::{Folder, LastEnd, failed},
    replay::{Replay, ReplayedTopic, SegmentIndex},
    saved,
    segment::{self, End, HEAD_BYTES},
};
use crate::{
    clock::after,
    log::{Log, Position, SavedTopic, Storage, Topic},
};
use std::{
    collections::{HashSet, VecDeque},
    fs::{self, OpenOptions},
};
use switchboard_core::{Result, clock};
use switchboard_wire::Status;

/// A segment that is not written any more.
#[derive(Debug)]
pub(super) struct ClosedSegment {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) index: SegmentIndex,
}

/// State of the files after the start.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) closed: VecDeque<ClosedSegment>,
    /// Number of the newest segment.
    pub(super) last: u64,
    /// Topics that continue in a new epoch.
    pub(super) renewed: Vec<SavedTopic>,
    /// Time of the newest entry.
    pub(super) time: u64,
    /// Entries may be missing: [`repair`](Recovered::repair) follows when the new epochs are on the disk.
    is_damaged: bool,
    /// Damaged and missing segments, with the bytes up to the last whole batch.
    repairs: Vec<(u64, usize)>,
}

/// Missing segments that are replaced by empty ones.
const MISSING_MAX: u64 = 1_024;

impl Recovered {
    /// Removes the damage from the folder, so that the next start does not find it again.
    ///
    /// # Errors
    /// `Unavailable` for a file that cannot be written.
    pub(super) fn repair(&self, folder: &Folder, log: &Log) -> Result<()> {
        for (number, whole) in &self.repairs {
            let path = folder.segment(*number);
            let write = || {
                if *whole <= HEAD_BYTES {
                    return fs::write(&path, segment::head(*number));
                }
                let file = OpenOptions::new().write(true).open(&path)?;
                file.set_len(*whole as u64)?;
                file.sync_all()
            };
            write().map_err(|error| failed("repair", &path, &error))?;
        }
        if self.is_damaged {
            saved::write_topics(folder, &log.durable_topics())?;
        }
        Ok(())
    }
}

/// Reads the folder into the logs.
///
/// # Errors
/// `Unavailable` for a file that cannot be read or repaired, `DataLoss` for a damaged file of cursors,
/// `ResourceExhausted` if more topics than `topics_max` have an entry, a publication id or a cursor. Without those, a
/// running bus would have removed them at that limit.
pub(super) fn recover(folder: &Folder, log: &Log, now: u64) -> Result<Recovered> {
    let numbers = folder.segments()?;
    let end = folder.last_end(!numbers.is_empty())?;
    let (mut replay, mut recovered) = (Replay::default(), Recovered::default());
    let mut is_damaged = read_segments(folder, log, &numbers, end, &mut replay, &mut recovered)?;
    let mut lost = HashSet::new();
    match saved::read_topics(folder)? {
        Some(topics) => {
            for saved in topics {
                if replay.add_saved(&saved, log.options(saved.topic.name())) {
                    lost.insert(saved.topic);
                }
            }
        }
        None => {
            tracing::warn!(target: "switchboard::files", "the file of topics is damaged: topics begin new epochs");
            is_damaged = true;
        }
    }
    let must_renew = |topic: &Topic, storage: Storage| {
        is_damaged || lost.contains(topic) || (end == LastEnd::Crashed && storage == Storage::File)
    };
    for (topic, replayed) in &mut replay.topics {
        if must_renew(topic, replayed.options().at()) {
            let next = Position { epoch: clock::random(), offset: replayed.next };
            replayed.renew(next);
            recovered.renewed.push(SavedTopic { topic: topic.clone(), next });
        }
    }
    recovered.is_damaged = is_damaged;
    report(end, is_damaged, &replay, recovered.renewed.len());
    for closed in &mut recovered.closed {
        closed.index.topics.retain(|topic, known| {
            let replayed = replay.topics.get(topic).filter(|topic| topic.has_epoch(known.epoch));
            known.epoch = replayed.map_or(0, ReplayedTopic::epoch);
            replayed.is_some()
        });
    }
    let before_newest = numbers.last().map_or(0, |newest| newest.saturating_sub(1));
    recovered.last = recovered.closed.back().map_or(0, |closed| closed.number).max(before_newest);
    recovered.time = replay.time;
    let cursors = saved::read_cursors(folder)?;
    if replay.topics.len() > log.limits().topics_max {
        let followed: HashSet<&Topic> =
            cursors.iter().flat_map(|saved| &saved.parked.cursors).map(|cursor| &cursor.topic).collect();
        replay.topics.retain(|topic, replayed| {
            followed.contains(topic) || replayed.is_used(log.limits().dedup_window, now)
        });
    }
    restore(log, replay, now)?;
    cursors.into_iter().for_each(|cursor| log.restore_cursor(cursor));
    Ok(recovered)
}

fn report(end: LastEnd, is_damaged: bool, replay: &Replay, renewed: usize) {
    let entries: usize = replay.topics.values().map(|topic| topic.entries.len()).sum();
    let (topics, ignored) = (replay.topics.len(), replay.ignored);
    tracing::info!(
        target: "switchboard::files",
        topics, entries, ignored, renewed, is_damaged, last_end = ?end,
        "the durable topics were read"
    );
}

/// Reads and repairs all segments; returns whether accepted entries may be missing in any topic.
fn read_segments(
    folder: &Folder,
    log: &Log,
    numbers: &[u64],
    end: LastEnd,
    replay: &mut Replay,
    recovered: &mut Recovered,
) -> Result<bool> {
    let mut is_damaged = false;
    let mut clean = match end {
        // A last segment without a record may have been removed by a start that did not finish.
        LastEnd::Clean { number, bytes } if bytes != HEAD_BYTES as u64 || numbers.contains(&number) => {
            Some((number, bytes))
        }
        _ => None,
    };
    let mut expected = numbers.first().copied().unwrap_or_default();
    for (at, number) in numbers.iter().copied().enumerate() {
        if number > expected {
            tracing::error!(target: "switchboard::files", expected, number, "segments are missing");
            is_damaged = true;
            add_missing(expected..number, recovered)?;
        }
        expected = number.saturating_add(1);
        let path = folder.segment(number);
        let bytes = fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        let mut index = SegmentIndex::default();
        let options = |name: &str| log.options(name);
        let add = |record| replay.add(record, &mut index, options, log.limits());
        let (whole, result) = segment::read(&bytes, number, add);
        let is_last = at + 1 == numbers.len();
        if clean == Some((number, bytes.len() as u64)) {
            clean = None;
        }
        match result {
            End::Complete => {}
            End::Torn if is_last => {
                let cut = bytes.len() - whole;
                tracing::warn!(target: "switchboard::files", number, cut, "a batch that was not whole is removed");
            }
            End::Damaged | End::Torn => {
                let dropped = bytes.len() - whole;
                tracing::error!(target: "switchboard::files", number, dropped, "a segment is damaged");
                is_damaged = true;
                recovered.repairs.push((number, whole));
            }
        }
        if whole <= HEAD_BYTES && is_last && result != End::Damaged {
            // Without a record: its number is used again.
            fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
            continue;
        }
        if result == End::Torn && is_last {
            let file = OpenOptions::new().write(true).open(&path);
            let cut = file.and_then(|file| file.set_len(whole as u64).and_then(|()| file.sync_all()));
            cut.map_err(|error| failed("repair", &path, &error))?;
        }
        recovered.closed.push_back(ClosedSegment { number, bytes: whole.max(HEAD_BYTES) as u64, index });
    }
    // The mark of an orderly end names a segment that has changed.
    Ok(is_damaged || clean.is_some())
}

/// Adds empty segments for those that are missing.
fn add_missing(numbers: std::ops::Range<u64>, recovered: &mut Recovered) -> Result<()> {
    if numbers.end - numbers.start > MISSING_MAX {
        let text = format!(
            "segments {} to {} of the durable topics are missing; remove files that are not of the folder, or restore \
             the segments from a copy",
            numbers.start,
            numbers.end - 1
        );
        return Err(Status::data_loss(text));
    }
    for number in numbers {
        recovered.repairs.push((number, 0));
        let (bytes, index) = (HEAD_BYTES as u64, SegmentIndex::default());
        recovered.closed.push_back(ClosedSegment { number, bytes, index });
    }
    Ok(())
}

/// Puts topics and entries into the logs, in the order of their times.
fn restore(log: &Log, replay: Replay, now: u64) -> Result<()> {
    let mut entries = Vec::new();
    for (topic, replayed) in &replay.topics {
        log.restore_topic(topic, replayed.epoch(), now)?;
        // Offsets before times: the clock of the machine may have been set back.
        let mut newest = 0;
        for (offset, time, _) in replayed.entries.values() {
            newest = newest.max(*time);
            entries.push((newest, *offset, topic));
        }
    }
    entries.sort_by_key(|(time, offset, _)| (*time, *offset));
    for (time, offset, topic) in entries {
        let Some(replayed) = replay.topics.get(topic) else { continue };
        let Some((_, _, entry)) = replayed.entries.get(&offset) else { continue };
        let floor_time = if replayed.floor_time > 0 { replayed.floor_time } else { time };
        log.restore_entry(topic, (offset, time, entry.clone()), floor_time);
    }
    for (topic, replayed) in replay.topics {
        // An id that was used again after its window has the later offset alone.
        let window = log.limits().dedup_window;
        let known = replayed.ids.into_iter().filter(|(_, (time, _))| after(*time, window) > now);
        let ids = known.map(|(offset, (time, id))| (offset, time, id));
        log.finish_topic(&topic, replayed.next, ids.collect(), now);
    }
    Ok(())
}

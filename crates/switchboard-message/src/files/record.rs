//! Records of the files: a header with the length and two checksums, and the fields. Pure functions on bytes.
//!
//! ```text
//! header   length u32 | CRC-32C of the fields u32 | CRC-32C of the eight bytes before u32
//! entry    1 | flags u8 | codec u8 | epoch u64 | offset u64 | time u64 | expires_at u64
//!          | lengths of topic, key, id, headers u32 | topic | key | id | headers | message
//! topic    2 | epoch u64 | next offset u64 | name
//! cursor   3 | parked_at u64 | source u8 | pattern, name: length u32 and bytes
//!          | count u32 of positions: topic | epoch u64 | next u64 | count u32 of (offset u64, attempts u32)
//!          | count u32 of gaps: topic | epoch u64 | start u64 | end u64 | missing u64 | reason u8
//! end      4 | count of the records before it u64
//! ```
//!
//! Integers are little endian. The checksum of the header distinguishes a record that was cut off from one with a
//! damaged length.

use super::crc::crc32c;
use crate::log::{
    Entry, EntryParts, Gap, GapReason, GroupKey, Parked, ParkedCursor, Pattern, Position, SavedCursor,
    SavedTopic, Source, Topic,
};
use bytes::Bytes;
use std::collections::VecDeque;
use switchboard_wire::{Codec, Metadata};

/// Bytes of the header of a record.
pub(super) const HEADER_BYTES: usize = 12;

const ENTRY: u8 = 1;
const TOPIC: u8 = 2;
const CURSOR: u8 = 3;
const END: u8 = 4;

/// Flag of an entry: the next record belongs to the same batch.
const CONTINUES: u8 = 1;

/// A record.
#[derive(Debug)]
pub(super) enum Record {
    Cursor(SavedCursor),
    /// The end of a complete file of topics or cursors, with the number of its records.
    End(u64),
    Entry(EntryRecord),
    /// The topic continues in this epoch, with this offset; its entries before stay in it.
    Topic(SavedTopic),
}

/// An entry of a topic.
#[derive(Debug)]
pub(super) struct EntryRecord {
    pub(super) topic: Topic,
    pub(super) position: Position,
    pub(super) time: u64,
    /// The next record belongs to the same batch.
    pub(super) continues: bool,
    pub(super) entry: Entry,
}

/// Result of a step in a sequence of records.
#[derive(Debug)]
pub(super) enum Step {
    /// A record, and its bytes.
    Record(Box<Record>, usize),
    /// The bytes end before the record does.
    Torn,
    /// A checksum is wrong, or the fields do not have the form of a record.
    Damaged,
    End,
}

/// Reads the record at the start of the bytes.
pub(super) fn read(bytes: &[u8]) -> Step {
    if bytes.is_empty() {
        return Step::End;
    }
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Step::Torn };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if crc32c(&header[..8]) != word(8) {
        // A file system may have extended the file and not written it.
        return if bytes.iter().all(|byte| *byte == 0) { Step::Torn } else { Step::Damaged };
    }
    let length = word(0) as usize;
    let Some(fields) = rest.get(..length) else { return Step::Torn };
    if crc32c(fields) != word(4) {
        return Step::Damaged;
    }
    match parse(fields) {
        Some(record) => Step::Record(Box::new(record), HEADER_BYTES + length),
        None => Step::Damaged,
    }
}

/// Appends a record with the fields that `write` appends; false, and no bytes, if they are longer than 4 GiB.
fn framed(into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = into.len();
    into.extend_from_slice(&[0; HEADER_BYTES]);
    write(into);
    let fields = &into[start + HEADER_BYTES..];
    let Ok(length) = u32::try_from(fields.len()) else {
        into.truncate(start);
        return false;
    };
    let checksum = crc32c(fields);
    into[start..start + 4].copy_from_slice(&length.to_le_bytes());
    into[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c(&into[start..start + 8]);
    into[start + 8..start + 12].copy_from_slice(&checksum.to_le_bytes());
    true
}

/// Appends the record of an entry; false, and no bytes, if it is longer than 4 GiB.
pub(super) fn write_entry(
    into: &mut Vec<u8>,
    topic: &Topic,
    position: Position,
    time: u64,
    entry: &Entry,
    continues: bool,
) -> bool {
    framed(into, |into| {
        let (key, id) = (entry.key().map_or(&[][..], |key| key), entry.id().map_or(&[][..], |id| id));
        into.extend_from_slice(&[ENTRY, if continues { CONTINUES } else { 0 }, entry.codec() as u8]);
        for word in [position.epoch, position.offset, time, entry.expires_at()] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        let headers = entry.headers();
        for length in [topic.name().len(), key.len(), id.len(), headers.encoded_len()] {
            into.extend_from_slice(&(length as u32).to_le_bytes());
        }
        [topic.name().as_bytes(), key, id].iter().for_each(|bytes| into.extend_from_slice(bytes));
        if !headers.is_empty() {
            let mut block = bytes::BytesMut::new();
            headers.encode(&mut block);
            into.extend_from_slice(&block);
        }
        into.extend_from_slice(entry.bytes());
    })
}

/// Appends the record of a topic.
pub(super) fn write_topic(into: &mut Vec<u8>, saved: &SavedTopic) {
    framed(into, |into| {
        into.push(TOPIC);
        into.extend_from_slice(&saved.next.epoch.to_le_bytes());
        into.extend_from_slice(&saved.next.offset.to_le_bytes());
        into.extend_from_slice(saved.topic.name().as_bytes());
    });
}

/// Appends the record of a durable cursor.
pub(super) fn write_cursor(into: &mut Vec<u8>, saved: &SavedCursor) {
    framed(into, |into| {
        let SavedCursor { key, parked } = saved;
        into.push(CURSOR);
        into.extend_from_slice(&parked.parked_at.to_le_bytes());
        let (kind, source) = match &key.source {
            Source::Topic(topic) => (0, Bytes::copy_from_slice(topic.name().as_bytes())),
            Source::Pattern(pattern) => match pattern.prefix_bytes() {
                Some(prefix) => (1, prefix.clone()),
                None => (2, pattern.to_string().into()),
            },
        };
        into.push(kind);
        write_bytes(into, &source);
        write_bytes(into, key.name.as_bytes());
        into.extend_from_slice(&(parked.cursors.len() as u32).to_le_bytes());
        for cursor in &parked.cursors {
            write_bytes(into, cursor.topic.name().as_bytes());
            into.extend_from_slice(&cursor.next.epoch.to_le_bytes());
            into.extend_from_slice(&cursor.next.offset.to_le_bytes());
            into.extend_from_slice(&(cursor.unacknowledged.len() as u32).to_le_bytes());
            for (offset, attempts) in &cursor.unacknowledged {
                into.extend_from_slice(&offset.to_le_bytes());
                into.extend_from_slice(&attempts.to_le_bytes());
            }
        }
        into.extend_from_slice(&(parked.gaps.len() as u32).to_le_bytes());
        for gap in &parked.gaps {
            write_bytes(into, gap.topic.name().as_bytes());
            for word in [gap.epoch, gap.range.start, gap.range.end, gap.missing.unwrap_or(u64::MAX)] {
                into.extend_from_slice(&word.to_le_bytes());
            }
            let reason = REASONS.iter().position(|reason| *reason == gap.reason);
            into.push(reason.unwrap_or_default() as u8);
        }
    });
}

/// Appends the last record of a file of topics or cursors.
pub(super) fn write_end(into: &mut Vec<u8>, records: u64) {
    framed(into, |into| {
        into.push(END);
        into.extend_from_slice(&records.to_le_bytes());
    });
}

fn write_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Reasons of gaps, by their numbers in the files.
const REASONS: [GapReason; 4] = [GapReason::Epoch, GapReason::Expired, GapReason::Lagged, GapReason::Lost];

/// Fields that are left to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Option<u64> {
        let (low, high) = (self.u32()?, self.u32()?);
        Some(u64::from(low) | u64::from(high) << 32)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn topic(&mut self) -> Option<Topic> {
        self.bytes().and_then(|name| Topic::from_bytes(name).ok())
    }
}

fn parse(fields: &[u8]) -> Option<Record> {
    let mut fields = Fields(fields);
    match fields.byte()? {
        ENTRY => parse_entry(fields).map(Record::Entry),
        TOPIC => {
            let next = Position { epoch: fields.u64()?, offset: fields.u64()? };
            Some(Record::Topic(SavedTopic { topic: Topic::from_bytes(fields.0).ok()?, next }))
        }
        CURSOR => parse_cursor(fields).map(Record::Cursor),
        END => fields.u64().map(Record::End),
        _ => None,
    }
}

fn parse_entry(mut fields: Fields<'_>) -> Option<EntryRecord> {
    let flags = fields.byte()?;
    let codec = Codec::from_number(fields.byte()?)?;
    let position = Position { epoch: fields.u64()?, offset: fields.u64()? };
    let (time, expires_at) = (fields.u64()?, fields.u64()?);
    let mut lengths = [0; 4];
    for length in &mut lengths {
        *length = fields.u32()? as usize;
    }
    let [topic, key, id, headers] = lengths;
    let topic = Topic::from_bytes(fields.take(topic)?).ok()?;
    // Copies: a field does not keep the whole file in memory.
    let key = Bytes::copy_from_slice(fields.take(key)?);
    let id = Bytes::copy_from_slice(fields.take(id)?);
    let headers = Metadata::decode(fields.take(headers)?, usize::MAX).ok()?;
    let bytes = Bytes::copy_from_slice(fields.0);
    // Offset 0 is before the first entry, and the one after the last one does not exist.
    let is_valid = position.offset > 0 && position.offset < u64::MAX && flags <= CONTINUES;
    let entry = EntryParts { codec, bytes, headers, key, id, expires_at }.into();
    is_valid.then_some(EntryRecord { topic, position, time, continues: flags == CONTINUES, entry })
}

fn parse_cursor(mut fields: Fields<'_>) -> Option<SavedCursor> {
    let parked_at = fields.u64()?;
    let kind = fields.byte()?;
    let source = fields.bytes()?;
    let source = match kind {
        0 => Source::Topic(Topic::from_bytes(source).ok()?),
        1 => Source::Pattern(Pattern::prefix(Bytes::copy_from_slice(source))),
        2 => Source::Pattern(Pattern::new(std::str::from_utf8(source).ok()?).ok()?),
        _ => return None,
    };
    let name = std::str::from_utf8(fields.bytes()?).ok()?.into();
    let mut cursors = Vec::new();
    for _ in 0..fields.u32()? {
        let topic = fields.topic()?;
        let next = Position { epoch: fields.u64()?, offset: fields.u64()? };
        let mut unacknowledged = Vec::new();
        for _ in 0..fields.u32()? {
            unacknowledged.push((fields.u64()?, fields.u32()?));
        }
        cursors.push(ParkedCursor { topic, next, unacknowledged });
    }
    let mut gaps = VecDeque::new();
    for _ in 0..fields.u32()? {
        let (topic, epoch) = (fields.topic()?, fields.u64()?);
        let (range, missing) = (fields.u64()?..fields.u64()?, fields.u64()?);
        let reason = *REASONS.get(usize::from(fields.byte()?))?;
        let missing = (missing != u64::MAX).then_some(missing);
        gaps.push_back(Gap { topic, epoch, range, missing, reason });
    }
    let key = GroupKey { name, source, is_durable: true };
    fields.0.is_empty().then_some(SavedCursor { key, parked: Parked { parked_at, cursors, gaps } })
}

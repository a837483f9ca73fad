//! Batches of records, version 2: those of `Produce` and `Fetch`.
//!
//! ```text
//! base offset 8, length 4, leader epoch 4, magic 1 (2), CRC-32C 4 of the rest:
//! attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer 8, its epoch 2, first sequence 4,
//! count 4, records: length, attributes 1, timestamp delta, offset delta, key, value, headers; numbers as varints
//! ```

use super::codec::{Decoder, Encoder};
use bytes::{Bytes, BytesMut};
use switchboard_message::crc32c;

/// A record to be appended.
#[derive(Clone, Debug)]
pub(super) struct NewRecord {
    /// Name of the topic; `None` for a record that has no meaning for readers.
    pub(super) key: Option<Bytes>,
    pub(super) value: Bytes,
}

/// The producer of a batch: the server drops a batch that it has, and refuses one of an older epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) sequence: i32,
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) offset: i64,
    /// Milliseconds since 1970.
    pub(super) timestamp: i64,
    pub(super) key: Option<Bytes>,
    pub(super) value: Bytes,
}

/// Records of a response to `Fetch`.
#[derive(Debug, Default)]
pub(super) struct Batches {
    pub(super) records: Vec<Record>,
    /// Offset after the last batch; `None` without a whole batch.
    pub(super) next: Option<i64>,
    /// Batches that are compressed: this client does not read their records.
    pub(super) compressed: usize,
}

const MAGIC: i8 = 2;
/// Bytes before the checksummed part.
const CRC_AT: usize = 17;
/// Bytes before the first record.
const HEADER_BYTES: usize = 61;
const COMPRESSION: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 0b1000;
const CONTROL: i16 = 0b10_0000;

/// Encodes records with a time in milliseconds since 1970.
pub(super) fn encode(records: &[NewRecord], producer: Producer, now_ms: i64) -> BytesMut {
    let last = i32::try_from(records.len()).unwrap_or(i32::MAX).saturating_sub(1);
    let mut batch = Encoder::default();
    batch.i64(0).i32(0).i32(-1).i8(MAGIC).i32(0);
    batch.i16(0).i32(last).i64(now_ms).i64(now_ms);
    batch.i64(producer.id).i16(producer.epoch).i32(producer.sequence).i32(last + 1);
    let mut record = Encoder::default();
    for (delta, NewRecord { key, value }) in (0_i64..).zip(records) {
        record.0.clear();
        record.i8(0).varint(0).varint(delta);
        for field in [key.as_ref(), Some(value)] {
            record.varint(field.map_or(-1, |field| field.len() as i64));
            record.0.extend_from_slice(field.map_or(&[], |field| field));
        }
        record.varint(0);
        batch.varint(record.0.len() as i64);
        batch.0.extend_from_slice(&record.0);
    }
    let mut batch = batch.0;
    let length = i32::try_from(batch.len() - 12).unwrap_or(i32::MAX);
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c(&batch[CRC_AT + 4..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Decodes batches; the last one may end early. Records before `from` are skipped. `None` for a damaged batch.
pub(super) fn decode(bytes: Bytes, from: i64) -> Option<Batches> {
    let mut input = Decoder(bytes);
    let mut batches = Batches::default();
    while input.0.len() >= HEADER_BYTES {
        let base = input.i64()?;
        let length = usize::try_from(input.i32()?).ok()?;
        let Some(batch) = input.take(length) else { break };
        let mut batch = Decoder(batch);
        batch.i32()?;
        if batch.i8()? != MAGIC || batch.i32()? as u32 != crc32c(&batch.0) {
            return None;
        }
        let attributes = batch.i16()?;
        let next = base.checked_add(i64::from(batch.i32()?))?.checked_add(1)?;
        let (base_time, max_time) = (batch.i64()?, batch.i64()?);
        let (_producer, _epoch, _sequence) = (batch.i64()?, batch.i16()?, batch.i32()?);
        let count = batch.i32()?;
        batches.next = Some(next);
        if attributes & CONTROL != 0 {
            continue;
        }
        if attributes & COMPRESSION != 0 {
            batches.compressed += 1;
            continue;
        }
        for _ in 0..count {
            let length = usize::try_from(batch.varint()?).ok()?;
            let mut record = Decoder(batch.take(length)?);
            record.i8()?;
            let time = base_time.saturating_add(record.varint()?);
            let timestamp = if attributes & LOG_APPEND_TIME == 0 { time } else { max_time };
            let offset = base.checked_add(record.varint()?)?;
            let key = field(&mut record)?;
            let value = field(&mut record)?.unwrap_or_default();
            if offset >= from {
                batches.records.push(Record { offset, timestamp, key, value });
            }
        }
    }
    Some(batches)
}

/// Reads a key or a value.
fn field(record: &mut Decoder) -> Option<Option<Bytes>> {
    match usize::try_from(record.varint()?) {
        Ok(length) => record.take(length).map(Some),
        Err(_) => Some(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: Producer = Producer { id: 7, epoch: 1, sequence: 40 };

    fn batch() -> Bytes {
        let record = |key: Option<&'static str>, value: &'static str| NewRecord {
            key: key.map(|key| Bytes::from_static(key.as_bytes())),
            value: Bytes::from_static(value.as_bytes()),
        };
        let records = [record(Some("a"), "one"), record(None, ""), record(Some("b"), "two")];
        encode(&records, PRODUCER, 1_000).freeze()
    }

    #[test]
    fn records_survive() {
        let two = [batch(), batch()].concat();
        let read = decode(Bytes::from(two), 1).unwrap();
        assert_eq!((read.records.len(), read.next, read.compressed), (4, Some(3), 0));
        let record = &read.records[1];
        assert_eq!((record.offset, record.timestamp), (2, 1_000));
        assert_eq!((record.key.as_deref(), &record.value[..]), (Some(&b"b"[..]), &b"two"[..]));
        assert_eq!(read.records[0].key, None);
    }

    #[test]
    fn a_batch_that_ends_early_is_left_out() {
        let whole = batch();
        for end in 0..whole.len() {
            let read = decode(whole.slice(..end), 0).unwrap();
            assert_eq!((read.records.len(), read.next), (0, None), "{end}");
        }
    }

    #[test]
    fn damaged_batches_are_refused() {
        let whole = batch();
        for at in 16..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 0x10;
            assert!(decode(damaged.into(), 0).is_none(), "{at}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut damaged = whole.to_vec();
            let (at, with) = (random.usize(..damaged.len()), random.u8(..));
            damaged[at] = with;
            // Behind a correct checksum as well.
            let crc = crc32c(&damaged[CRC_AT + 4..]);
            damaged[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
            let _ = decode(damaged.into(), 0);
        }
    }
}

//! Segments: the files with the entries of all durable topics, in the order in which they were written.
//!
//! ```text
//! segment  "SWBLOG01" | number u64 | records
//! ```

use super::record::{self, Record, Step};

/// First bytes of a segment: name and version of the format.
const MAGIC: [u8; 8] = *b"SWBLOG01";
/// Bytes before the first record.
pub(super) const HEAD_BYTES: usize = 16;

/// Returns the bytes before the first record of a segment.
pub(super) fn head(number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..].copy_from_slice(&number.to_le_bytes());
    head
}

/// End of the records that a segment has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The segment ends with a whole batch.
    Complete,
    /// A record is damaged.
    Damaged,
    /// The last record, or the last batch, was cut off.
    Torn,
}

/// Reads the records of a segment in whole batches; returns the bytes of the segment up to the last whole batch.
pub(super) fn read(bytes: &[u8], number: u64, mut each: impl FnMut(Record)) -> (usize, End) {
    let expected = head(number);
    if bytes.len() < HEAD_BYTES {
        let is_cut = expected.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
        return (0, if is_cut { End::Torn } else { End::Damaged });
    }
    if !bytes.starts_with(&expected) {
        return (0, if bytes.iter().all(|byte| *byte == 0) { End::Torn } else { End::Damaged });
    }
    let (mut at, mut whole) = (HEAD_BYTES, HEAD_BYTES);
    let mut batch = Vec::new();
    let end = loop {
        match record::read(&bytes[at..]) {
            Step::Record(record, length) => {
                at += length;
                let continues = matches!(&*record, Record::Entry(entry) if entry.continues);
                batch.push(*record);
                if !continues {
                    batch.drain(..).for_each(&mut each);
                    whole = at;
                }
            }
            Step::Damaged => break End::Damaged,
            Step::Torn => break End::Torn,
            Step::End if batch.is_empty() => break End::Complete,
            Step::End => break End::Torn,
        }
    };
    (whole, end)
}

//! The id of a stream: the positions of its topics.
//!
//! An id is URL-safe base64 of a version, the upper 48 bits of all epochs, each once, and a record for each topic: a
//! digest of its name, the index of the upper bits, the lower 16 bits of the epoch, and the offset. The epochs of a bus
//! begin with few different bits, so that 32 topics fit.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use switchboard_message::Position;

/// Characters of an id.
pub(super) const ID_BYTES_MAX: usize = 512;
/// Bytes that have so many characters.
const RAW_BYTES_MAX: usize = ID_BYTES_MAX / 4 * 3;
/// First byte of an id that names all topics of its stream, and of one that does not.
const COMPLETE: u8 = 1;
const INCOMPLETE: u8 = 2;
/// Bytes of the upper bits of an epoch.
const UPPER_BYTES: usize = 6;

/// Positions of topics, by the digests of their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Positions {
    topics: Vec<(u16, Position)>,
    /// The stream has topics without a position here.
    is_incomplete: bool,
}

/// Returns the digest of the name of a topic. It is the same in every process.
pub(super) fn tag_of(name: &str) -> u16 {
    // FNV-1a, folded.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

impl Positions {
    /// Returns the position of the topic with this digest.
    pub(super) fn of(&self, tag: u16) -> Option<Position> {
        self.topics.iter().find(|(known, _)| *known == tag).map(|(_, position)| *position)
    }

    /// Returns whether all topics of the stream have a position.
    pub(super) fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Creates the id of these positions. Those that do not fit, and those with a digest of an earlier one, are left
    /// out, and the id is marked as incomplete.
    pub(super) fn encode(positions: impl Iterator<Item = (u16, Position)>) -> String {
        let (mut uppers, mut tags) = (Vec::<u64>::new(), Vec::<u16>::new());
        let (mut records, mut version) = (Vec::new(), COMPLETE);
        for (tag, Position { epoch, offset }) in positions {
            let known = uppers.iter().position(|upper| *upper == epoch >> 16);
            let mut record = tag.to_be_bytes().to_vec();
            record.push(known.unwrap_or(uppers.len()) as u8);
            record.extend((epoch as u16).to_be_bytes());
            put_varint(&mut record, offset);
            let added = if known.is_none() { UPPER_BYTES } else { 0 };
            let bytes = 2 + uppers.len() * UPPER_BYTES + records.len() + record.len() + added;
            if bytes > RAW_BYTES_MAX || tags.contains(&tag) {
                version = INCOMPLETE;
                continue;
            }
            if known.is_none() {
                uppers.push(epoch >> 16);
            }
            tags.push(tag);
            records.extend(record);
        }
        let mut raw = vec![version, uppers.len() as u8];
        uppers.iter().for_each(|upper| raw.extend(&upper.to_be_bytes()[2..]));
        raw.extend(records);
        BASE64.encode(raw)
    }

    /// Reads an id; `None` for text that is not one.
    pub(super) fn decode(id: &str) -> Option<Positions> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let raw = BASE64.decode(id).ok()?;
        let (&[version, count], rest) = raw.split_first_chunk()?;
        let is_incomplete = match version {
            COMPLETE => false,
            INCOMPLETE => true,
            _ => return None,
        };
        let (uppers, mut rest) = rest.split_at_checked(usize::from(count) * UPPER_BYTES)?;
        let mut topics = Vec::new();
        while !rest.is_empty() {
            let (&[tag, tag_low, upper, epoch, epoch_low], after) = rest.split_first_chunk()?;
            let upper = uppers.get(usize::from(upper) * UPPER_BYTES..)?.first_chunk::<UPPER_BYTES>()?;
            let upper = upper.iter().fold(0, |upper, byte| upper << 8 | u64::from(*byte));
            let offset;
            (offset, rest) = take_varint(after)?;
            let epoch = upper << 16 | u64::from(u16::from_be_bytes([epoch, epoch_low]));
            topics.push((u16::from_be_bytes([tag, tag_low]), Position { epoch, offset }));
        }
        Some(Positions { topics, is_incomplete })
    }
}

fn put_varint(into: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a number of at most 64 bits; returns it with the bytes after it.
fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * index);
        if shifted >> (7 * index) != bits {
            return None;
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(epoch: u64, offset: u64) -> Position {
        Position { epoch, offset }
    }

    /// Positions of topics in 16 logs, as a bus assigns them.
    fn many(topics: u64, offset: u64) -> Vec<(u16, Position)> {
        (0..topics)
            .map(|topic| {
                let epoch =
                    (0x1234_5678_9abc_0000 + (topic % 16) * 0x0101_0101_0001_0000).wrapping_add(topic);
                (tag_of(&format!("live/{topic}")), position(epoch, offset + topic))
            })
            .collect()
    }

    #[test]
    fn ids_keep_every_position() {
        for topics in [
            vec![],
            vec![(7, position(0, 0))],
            vec![(0, position(u64::MAX, u64::MAX)), (u16::MAX, position(1, 127))],
            many(32, 100_000),
        ] {
            let id = Positions::encode(topics.iter().copied());
            assert!(id.len() <= ID_BYTES_MAX, "{} characters", id.len());
            let decoded = Positions::decode(&id).unwrap();
            assert_eq!(decoded, Positions { topics, is_incomplete: false });
        }
    }

    #[test]
    fn positions_that_do_not_fit_are_marked() {
        let topics: Vec<_> =
            (0..32).map(|topic| (topic, position(u64::from(topic) << 32, u64::MAX))).collect();
        let id = Positions::encode(topics.iter().copied());
        assert!(id.len() <= ID_BYTES_MAX, "{} characters", id.len());
        let decoded = Positions::decode(&id).unwrap();
        assert!(!decoded.is_complete() && decoded.of(0) == Some(topics[0].1) && decoded.of(31).is_none());
        let twice = [(5, position(1, 1)), (5, position(2, 2))];
        let decoded = Positions::decode(&Positions::encode(twice.into_iter())).unwrap();
        assert_eq!((decoded.of(5), decoded.is_complete()), (Some(position(1, 1)), false));
    }

    #[test]
    fn other_text_is_no_id() {
        let good = Positions::encode(many(3, 5).into_iter());
        for end in 0..good.len() {
            // A part may be a shorter id with fewer topics, and never panics.
            if let Some(decoded) = Positions::decode(&good[..end]) {
                assert!(decoded.topics.len() < 3);
            }
        }
        let encoded = |raw: &[u8]| BASE64.encode(raw);
        for bad in [
            String::new(),
            "?".to_owned(),
            "A".repeat(513),
            encoded(&[3, 0]),
            encoded(&[1]),
            encoded(&[1, 1, 0, 0]),
            encoded(&[1, 0, 0, 0, 0, 0, 0, 0]),
            encoded(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            encoded(&[&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 10]].concat()),
        ] {
            assert_eq!(Positions::decode(&bad), None, "{bad}");
        }
    }

    #[test]
    fn any_bytes_are_an_id_or_not() {
        let mut raw: Vec<u8> = (0..64).collect();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let (mut ids, rounds) = (0, 200_000);
        for _ in 0..rounds {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random >> 8) as usize % raw.len();
            raw[at] = random as u8;
            raw[..2].copy_from_slice(&[1 + (random >> 16 & 1) as u8, (random >> 24 & 1) as u8]);
            let length = (random >> 32) as usize % raw.len();
            let Some(decoded) = Positions::decode(&BASE64.encode(&raw[..length])) else { continue };
            ids += 1;
            let again = Positions::decode(&Positions::encode(decoded.topics.iter().copied())).unwrap();
            for (tag, _) in &decoded.topics {
                assert_eq!(again.of(*tag), decoded.of(*tag));
            }
        }
        assert!((1..rounds).contains(&ids), "{ids}");
    }

    #[test]
    fn digests_of_names_do_not_change() {
        assert_eq!((tag_of(""), tag_of("live/7"), tag_of("live/8")), (61_457, 4_958, 4_611));
    }
}

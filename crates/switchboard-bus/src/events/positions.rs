//! The id of a stream: the positions of its topics.
//!
//! An id is URL-safe base64 of a version, the upper 48 bits of all epochs, each once, and a record for each topic: a
//! digest of its name, the index of the upper bits, the lower 16 bits of the epoch, and the offset. The epochs of a bus
//! begin with few different bits, so that 32 topics fit. Digests have 32 bits, or 24 or 16 where all topics would not
//! fit otherwise: a client that resumes with other topics is then less likely to get the position of another topic.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use switchboard_message::Position;

/// Characters of an id.
pub(super) const ID_BYTES_MAX: usize = 512;
/// Bytes that have so many characters.
const RAW_BYTES_MAX: usize = ID_BYTES_MAX / 4 * 3;
/// First byte of an id that names all topics of its stream, and of one that does not, plus the bytes of a digest.
/// Earlier versions were 1 and 2.
const COMPLETE: u8 = 0x10;
const INCOMPLETE: u8 = 0x20;
/// Bytes of digests, those that are tried first first.
const TAG_BYTES: [usize; 3] = [4, 3, 2];
/// Bytes of the upper bits of an epoch.
const UPPER_BYTES: usize = 6;

/// Positions of topics, by the digests of their names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Positions {
    /// Digests have the bytes of this id.
    topics: Vec<(u32, Position)>,
    tag_bytes: usize,
    /// The stream has topics without a position here.
    is_incomplete: bool,
}

/// Returns the digest of the name of a topic. It is the same in every process.
pub fn tag_of(name: &str) -> u32 {
    // FNV-1a, whose upper bits hardly depend on the last characters; the rest mixes all bits into them.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 32) as u32
}

/// Shortens a digest to so many bytes.
fn shortened(tag: u32, bytes: usize) -> u32 {
    tag >> (32 - 8 * bytes)
}

impl Positions {
    /// Returns the position of the topic with this digest.
    pub fn of(&self, tag: u32) -> Option<Position> {
        let tag = shortened(tag, self.tag_bytes);
        self.topics.iter().find(|(known, _)| *known == tag).map(|(_, position)| *position)
    }

    /// Returns whether all topics of the stream have a position.
    pub fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Creates the id of these positions. Those that do not fit, and those with a digest of an earlier one, are left
    /// out, and the id is marked as incomplete.
    pub fn encode(positions: impl Iterator<Item = (u32, Position)>) -> String {
        let positions: Vec<_> = positions.collect();
        let mut raw = Vec::new();
        for tag_bytes in TAG_BYTES {
            raw = Positions::encode_with(tag_bytes, &positions);
            if raw.first().is_some_and(|version| version & COMPLETE != 0) {
                break;
            }
        }
        BASE64.encode(raw)
    }

    /// Creates an id with digests of so many bytes.
    fn encode_with(tag_bytes: usize, positions: &[(u32, Position)]) -> Vec<u8> {
        let (mut uppers, mut tags) = (Vec::<u64>::new(), Vec::<u32>::new());
        let (mut records, mut version) = (Vec::new(), COMPLETE);
        for &(tag, Position { epoch, offset }) in positions {
            let known = uppers.iter().position(|upper| *upper == epoch >> 16);
            let mut record = tag.to_be_bytes()[..tag_bytes].to_vec();
            let tag = shortened(tag, tag_bytes);
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
        let mut raw = vec![version | tag_bytes as u8, uppers.len() as u8];
        uppers.iter().for_each(|upper| raw.extend(&upper.to_be_bytes()[2..]));
        raw.extend(records);
        raw
    }

    /// Reads an id; `None` for text that is not one.
    pub fn decode(id: &str) -> Option<Positions> {
        if id.len() > ID_BYTES_MAX {
            return None;
        }
        let raw = BASE64.decode(id).ok()?;
        let (&[version, count], rest) = raw.split_first_chunk()?;
        let tag_bytes = usize::from(version & 0x0f);
        let is_incomplete = match version & 0xf0 {
            _ if !TAG_BYTES.contains(&tag_bytes) => return None,
            COMPLETE => false,
            INCOMPLETE => true,
            _ => return None,
        };
        let (uppers, mut rest) = rest.split_at_checked(usize::from(count) * UPPER_BYTES)?;
        let mut topics = Vec::new();
        while !rest.is_empty() {
            let (tag, after) = rest.split_at_checked(tag_bytes)?;
            let tag = tag.iter().fold(0, |tag, byte| tag << 8 | u32::from(*byte));
            let (&[upper, epoch, epoch_low], after) = after.split_first_chunk()?;
            let upper = uppers.get(usize::from(upper) * UPPER_BYTES..)?.first_chunk::<UPPER_BYTES>()?;
            let upper = upper.iter().fold(0, |upper, byte| upper << 8 | u64::from(*byte));
            let offset;
            (offset, rest) = take_varint(after)?;
            let epoch = upper << 16 | u64::from(u16::from_be_bytes([epoch, epoch_low]));
            topics.push((tag, Position { epoch, offset }));
        }
        Some(Positions { topics, tag_bytes, is_incomplete })
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
    fn many(topics: u64, offset: u64) -> Vec<(u32, Position)> {
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
        for (topics, tag_bytes) in [
            (vec![], 4),
            (vec![(7, position(0, 0))], 4),
            (vec![(0, position(u64::MAX, u64::MAX)), (u32::MAX, position(1, 127))], 4),
            (many(24, 100_000), 4),
            (many(31, 100_000), 3),
            (many(32, 100_000), 2),
        ] {
            let id = Positions::encode(topics.iter().copied());
            assert!(id.len() <= ID_BYTES_MAX, "{} characters", id.len());
            let decoded = Positions::decode(&id).unwrap();
            assert_eq!((decoded.tag_bytes, decoded.is_complete()), (tag_bytes, true));
            for (tag, position) in topics {
                assert_eq!(decoded.of(tag), Some(position));
            }
        }
    }

    #[test]
    fn topics_with_one_short_digest_have_positions_of_their_own() {
        // Digests of 16 bits are equal for names among a few hundred; those of 32 bits are not.
        let tags: Vec<_> = (0..2_000).map(|topic| tag_of(&format!("quotes/{topic}"))).collect();
        let mut pairs = tags.iter().enumerate().flat_map(|(at, a)| tags[..at].iter().map(move |b| (*a, *b)));
        let (a, b) = pairs.find(|(a, b)| a >> 16 == b >> 16 && a != b).unwrap();
        let decoded =
            Positions::decode(&Positions::encode([(a, position(1, 1)), (b, position(2, 2))].into_iter()));
        let decoded = decoded.unwrap();
        assert_eq!((decoded.of(a), decoded.of(b)), (Some(position(1, 1)), Some(position(2, 2))));
        let one = Positions::decode(&Positions::encode(std::iter::once((a, position(1, 1))))).unwrap();
        assert_eq!(one.of(b), None, "the position of another topic");
    }

    #[test]
    fn positions_that_do_not_fit_are_marked() {
        let topics: Vec<_> =
            (0..32_u32).map(|topic| (topic << 16, position(u64::from(topic) << 32, u64::MAX))).collect();
        let id = Positions::encode(topics.iter().copied());
        assert!(id.len() <= ID_BYTES_MAX, "{} characters", id.len());
        let decoded = Positions::decode(&id).unwrap();
        assert!(
            !decoded.is_complete() && decoded.of(0) == Some(topics[0].1) && decoded.of(31 << 16).is_none()
        );
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
            encoded(&[0x34, 0]),
            encoded(&[0x11, 0]),
            encoded(&[1, 0]),
            encoded(&[0x12]),
            encoded(&[0x12, 1, 0, 0]),
            encoded(&[0x12, 0, 0, 0, 0, 0, 0, 0]),
            encoded(&[0x12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            encoded(&[&[0x12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 10]].concat()),
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
            let version = [COMPLETE, INCOMPLETE][(random >> 16 & 1) as usize] | (2 + random % 3) as u8;
            raw[..2].copy_from_slice(&[version, (random >> 24 & 1) as u8]);
            let length = (random >> 32) as usize % raw.len();
            let Some(decoded) = Positions::decode(&BASE64.encode(&raw[..length])) else { continue };
            ids += 1;
            let whole = |tag: u32| tag << (32 - 8 * decoded.tag_bytes);
            let topics = decoded.topics.iter().map(|(tag, position)| (whole(*tag), *position));
            let again = Positions::decode(&Positions::encode(topics)).unwrap();
            for (tag, _) in &decoded.topics {
                assert_eq!(again.of(whole(*tag)), decoded.of(whole(*tag)));
            }
        }
        assert!((1..rounds).contains(&ids), "{ids}");
    }

    #[test]
    fn digests_of_names_do_not_change() {
        assert_eq!(
            (tag_of(""), tag_of("live/7"), tag_of("live/8")),
            (3_971_628_530, 2_646_554_987, 1_555_312_009)
        );
    }
}

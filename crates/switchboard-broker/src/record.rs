//! Publications as records of an engine.
//!
//! ```text
//! 1  version  1 byte
//! 2  codec    1 byte
//! 3  flags    1 byte: 1 key, 2 id, 4 headers, 8 expiry
//! 4  key, id, headers: length in 4 bytes, content; expiry: milliseconds since 1970 in 8 bytes; those of the flags
//! 5  message  the rest
//! ```
//!
//! Numbers are big endian. Replies are not part of a record: requests over engines do not exist.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::time::{Duration, UNIX_EPOCH};
use switchboard_core::clock;
use switchboard_message::Publication;
use switchboard_wire::{Codec, Metadata};

const VERSION: u8 = 1;
const KEY: u8 = 1;
const ID: u8 = 2;
const HEADERS: u8 = 4;
const EXPIRY: u8 = 8;

/// Headers of one record: the number that calls may have as well.
const HEADERS_MAX: usize = 128;

/// Encodes a publication at a time since 1970.
pub(crate) fn encode(publication: &Publication, now: Duration) -> Bytes {
    let Publication { codec, bytes, headers, key, id, expires_in, .. } = publication;
    let mut record = BytesMut::with_capacity(publication.encoded_len() + 32);
    let mut flags = 0;
    for (flag, is_set) in [
        (KEY, !key.is_empty()),
        (ID, !id.is_empty()),
        (HEADERS, !headers.is_empty()),
        (EXPIRY, expires_in.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    record.put_slice(&[VERSION, *codec as u8, flags]);
    for field in [key, id] {
        if !field.is_empty() {
            put(&mut record, field);
        }
    }
    if !headers.is_empty() {
        let mut block = BytesMut::new();
        headers.encode(&mut block);
        put(&mut record, &block);
    }
    if let Some(period) = expires_in {
        let at = now.saturating_add(*period).as_millis();
        record.put_u64(at.try_into().unwrap_or(u64::MAX));
    }
    record.put_slice(bytes);
    record.freeze()
}

fn put(record: &mut BytesMut, field: &[u8]) {
    // The limits of a bus are far below 4 GiB.
    record.put_u32(field.len().try_into().unwrap_or(u32::MAX));
    record.put_slice(field);
}

/// Decodes a record; `None` for one of another version, or a damaged one.
pub(crate) fn decode(mut record: Bytes, now: Duration) -> Option<Publication> {
    let [version, codec, flags] = *record.first_chunk()?;
    if version != VERSION || flags & !(KEY | ID | HEADERS | EXPIRY) != 0 {
        return None;
    }
    record.advance(3);
    let mut publication = Publication::new(Codec::from_number(codec)?, Bytes::new());
    if flags & KEY != 0 {
        publication.key = take(&mut record)?;
    }
    if flags & ID != 0 {
        publication.id = take(&mut record)?;
    }
    if flags & HEADERS != 0 {
        publication.headers = Metadata::decode(&take(&mut record)?, HEADERS_MAX).ok()?;
    }
    if flags & EXPIRY != 0 {
        let at = Duration::from_millis(u64::from_be_bytes(*record.first_chunk()?));
        record.advance(8);
        publication.expires_in = Some(at.saturating_sub(now));
    }
    publication.bytes = record;
    Some(publication)
}

fn take(record: &mut Bytes) -> Option<Bytes> {
    let length = u32::from_be_bytes(*record.first_chunk()?) as usize;
    record.advance(4);
    (length <= record.len()).then(|| record.split_to(length))
}

/// Returns the time since 1970: expiries are compared between processes.
pub(crate) fn now() -> Duration {
    clock::time_of_day().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Publication {
        let mut publication = Publication::new(Codec::Json, "{}");
        publication.key = "acme".into();
        publication.id = "order 7".into();
        publication.headers.insert("trace", "1").unwrap();
        publication.expires_in = Some(Duration::from_secs(5));
        publication
    }

    #[test]
    fn fields_survive_and_expiries_shrink() {
        let record = encode(&full(), Duration::from_secs(100));
        let read = decode(record, Duration::from_secs(102)).unwrap();
        assert_eq!((read.codec, &read.bytes[..], &read.key[..]), (Codec::Json, &b"{}"[..], &b"acme"[..]));
        assert_eq!((&read.id[..], read.headers.text("trace")), (&b"order 7"[..], Some("1")));
        assert_eq!(read.expires_in, Some(Duration::from_secs(3)));
        let plain = encode(&Publication::new(Codec::Raw, "x"), Duration::ZERO);
        assert_eq!(&plain[..], [1, Codec::Raw as u8, 0, b'x']);
    }

    #[test]
    fn damaged_records_are_refused() {
        let record = encode(&full(), Duration::ZERO);
        for end in 0..record.len() - 2 {
            assert!(decode(record.slice(..end), Duration::ZERO).is_none(), "{end}");
        }
        for first in [[0, 7, 0], [2, 7, 0], [1, 200, 0], [1, 7, 16]] {
            assert!(decode(Bytes::copy_from_slice(&first), Duration::ZERO).is_none(), "{first:?}");
        }
        let huge = [1, 7, 1, 255, 255, 255, 255, 0];
        assert!(decode(Bytes::copy_from_slice(&huge), Duration::ZERO).is_none());
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = record.to_vec();
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
            let _ = decode(bytes.into(), Duration::ZERO);
        }
    }
}

//! Integers with a prefix of bits (RFC 7541, section 5.1).

use super::HpackError;
use bytes::BytesMut;

/// Largest integer that is read. Lengths and indices are far smaller; a longer encoding only costs time.
const MAX: usize = (1 << 28) - 1;

/// Appends a number whose first bits share a byte with `flags`, the bits above the prefix of `bits` bits.
pub(super) fn put(value: usize, flags: u8, bits: u32, into: &mut BytesMut) {
    let prefix = (1usize << bits) - 1;
    if value < prefix {
        into.extend_from_slice(&[flags | value as u8]);
        return;
    }
    into.extend_from_slice(&[flags | prefix as u8]);
    let mut rest = value - prefix;
    while rest >= 0x80 {
        into.extend_from_slice(&[rest as u8 & 0x7f | 0x80]);
        rest >>= 7;
    }
    into.extend_from_slice(&[rest as u8]);
}

/// Takes a number with a prefix of `bits` bits from the front of `block`.
pub(super) fn take(block: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let prefix = (1usize << bits) - 1;
    let value = usize::from(next(block)?) & prefix;
    if value < prefix { Ok(value) } else { take_rest(block, value) }
}

fn take_rest(block: &mut &[u8], mut value: usize) -> Result<usize, HpackError> {
    for shift in [0, 7, 14, 21] {
        let byte = next(block)?;
        value += usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return if value <= MAX { Ok(value) } else { Err(HpackError::Integer) };
        }
    }
    Err(HpackError::Integer)
}

fn next(block: &mut &[u8]) -> Result<u8, HpackError> {
    let (first, rest) = block.split_first().ok_or(HpackError::Truncated)?;
    *block = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (value, bits, bytes) in
            [(10, 5, &b"\x0a"[..]), (1337, 5, b"\x1f\x9a\x0a"), (42, 8, b"\x2a"), (31, 5, b"\x1f\x00")]
        {
            let mut written = BytesMut::new();
            put(value, 0, bits, &mut written);
            assert_eq!(written, bytes);
            let mut rest = bytes;
            assert_eq!(take(&mut rest, bits), Ok(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn every_prefix_and_size_goes_there_and_back() {
        for bits in 4..=8 {
            for value in (0..600).chain((0..28).map(|shift| 1 << shift)).chain([MAX - 1, MAX]) {
                let mut written = BytesMut::new();
                put(value, 0, bits, &mut written);
                assert_eq!(take(&mut &written[..], bits), Ok(value), "{bits} bits");
                for end in 0..written.len() {
                    assert_eq!(take(&mut &written[..end], bits), Err(HpackError::Truncated));
                }
            }
        }
    }

    #[test]
    fn integers_without_end_are_refused() {
        for bytes in [&b"\xff\xff\xff\xff\xff\x01"[..], &[0xff; 64], b"\xff\x80\x80\x80\x80\x80\x00"] {
            assert_eq!(take(&mut &bytes[..], 5), Err(HpackError::Integer));
        }
    }
}

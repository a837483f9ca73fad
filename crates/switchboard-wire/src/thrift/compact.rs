//! Numbers and types of the compact protocol.

use super::{Malformed, Type};
use bytes::BufMut;

/// Converts a type of the compact protocol to the binary one; both booleans are `BOOL`.
pub(super) fn binary_type(compact: u8) -> Result<Type, Malformed> {
    Ok(match compact {
        1 | 2 => Type::BOOL,
        3 => Type::I8,
        4 => Type::I16,
        5 => Type::I32,
        6 => Type::I64,
        7 => Type::DOUBLE,
        8 => Type::STRING,
        9 => Type::LIST,
        10 => Type::SET,
        11 => Type::MAP,
        12 => Type::STRUCT,
        13 => Type::UUID,
        other => return Err(Malformed::no_type(other)),
    })
}

/// Converts a type of the binary protocol to the compact one; elements of type `BOOL` are 2.
pub(super) fn compact_type(binary: Type) -> Result<u8, Malformed> {
    Ok(match binary {
        Type::BOOL => 2,
        Type::I8 => 3,
        Type::I16 => 4,
        Type::I32 => 5,
        Type::I64 => 6,
        Type::DOUBLE => 7,
        Type::STRING => 8,
        Type::LIST => 9,
        Type::SET => 10,
        Type::MAP => 11,
        Type::STRUCT => 12,
        Type::UUID => 13,
        Type(other) => return Err(Malformed::no_type(other)),
    })
}

/// Returns the smallest size of a value in the compact protocol.
pub(super) fn least(kind: Type) -> usize {
    match kind {
        Type::DOUBLE => 8,
        Type::UUID => 16,
        _ => 1,
    }
}

/// Reads a variable-length number and its length; `None` if more bytes are needed.
#[inline]
pub(super) fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut number = 0u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        let part = u64::from(byte & 0x7F);
        if at == 9 && part > 1 {
            break;
        }
        number |= part << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((number, at + 1)));
        }
    }
    if bytes.len() >= 10 {
        return Err(Malformed("a number of more than 64 bits".into()));
    }
    Ok(None)
}

/// Appends a variable-length number.
#[inline]
pub(super) fn put_varint(out: &mut impl BufMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Encodes a signed number so that numbers close to zero are small.
#[inline]
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

#[inline]
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_never_have_more_than_ten_bytes() {
        for number in [0, 1, -1, 63, -64, 64, 300, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, zigzag(number));
            for end in 0..bytes.len() {
                assert_eq!(varint(&bytes[..end]).unwrap(), None);
            }
            let (back, len) = varint(&bytes).unwrap().unwrap();
            assert_eq!((unzigzag(back), len), (number, bytes.len()));
        }
        assert!(varint(&[0xFF; 11]).is_err());
        assert!(varint(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).is_err());
    }
}

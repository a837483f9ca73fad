//! CRC32C (Castagnoli), masked as LevelDB does it.

use crate::Outgoing;

const TABLE: [u32; 256] = table();

/// Computes the four bytes of `checksum_value` over the concatenation of `parts`.
pub(super) fn value<'a>(parts: impl IntoIterator<Item = Outgoing<'a>>) -> [u8; 4] {
    let crc = !parts.into_iter().fold(u32::MAX, |crc, part| update(crc, &part));
    (crc.rotate_right(15).wrapping_add(0xA282_EAD8)).to_be_bytes()
}

fn update(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_rfc() {
        // RFC 3720, B.4, before the mask.
        for (bytes, expected) in
            [(&[0u8; 32][..], 0x8A91_36AAu32), (&[0xFF; 32], 0x62A8_AB43), (b"123456789", 0xE306_9283)]
        {
            assert_eq!(!update(u32::MAX, bytes), expected);
        }
        let sum = |parts: &[&'static str]| value(parts.iter().map(|part| Outgoing::Lent(part.as_bytes())));
        assert_eq!(sum(&["1234", "", "56789"]), sum(&["123456789"]));
        let masked = u32::from_be_bytes(sum(&["123456789"]));
        assert_eq!(masked.wrapping_sub(0xA282_EAD8).rotate_left(15), 0xE306_9283);
    }
}

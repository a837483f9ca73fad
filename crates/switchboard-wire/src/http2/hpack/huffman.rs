//! The Huffman code of header strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and codes of the next
//! length follow those. The lengths therefore define it, and all tables are computed from them when this is compiled.

use super::HpackError;
use bytes::BytesMut;

/// Length of each symbol's code in bits; the last symbol is the end of the string, whose code is never sent.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Longest code, in bits.
const LONGEST: usize = 30;

/// The symbol that ends a string; a sender pads with the first bits of its code, which are all ones.
const END: u16 = 256;

/// Tables that the lengths define.
struct Tables {
    /// Code of each symbol.
    codes: [u32; 257],
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
    /// First code of each length, and the place of its symbol in `symbols`.
    first: [(u32, u16); LONGEST + 1],
    /// Symbol and length of the code that the byte begins with; a length of 0 for longer codes.
    short: [(u8, u8); 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let mut tables =
        Tables { codes: [0; 257], symbols: [0; 257], first: [(0, 0); LONGEST + 1], short: [(0, 0); 256] };
    let (mut code, mut place, mut length) = (0u32, 0usize, 1usize);
    while length <= LONGEST {
        code <<= 1;
        tables.first[length] = (code, place as u16);
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                tables.codes[symbol] = code;
                tables.symbols[place] = symbol as u16;
                if length <= 8 {
                    let from = (code << (8 - length)) as usize;
                    let mut at = from;
                    while at < from + (1 << (8 - length)) {
                        tables.short[at] = (symbol as u8, length as u8);
                        at += 1;
                    }
                }
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    tables
}

/// Returns the number of bytes that a string has when it is encoded.
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends an encoded string.
pub fn encode(text: &[u8], into: &mut BytesMut) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in text {
        let symbol = usize::from(*byte);
        bits = bits << LENGTHS[symbol] | u64::from(TABLES.codes[symbol]);
        count += u32::from(LENGTHS[symbol]);
        while count >= 8 {
            count -= 8;
            into.extend_from_slice(&[(bits >> count) as u8]);
        }
    }
    if count > 0 {
        let padding = 8 - count;
        into.extend_from_slice(&[(bits << padding) as u8 | ((1 << padding) - 1) as u8]);
    }
}

/// Appends the string that `text` encodes: at most 8 bytes for each 5 of it.
///
/// # Errors
/// [`HpackError::Huffman`] for the code of the end, and for padding that is longer than 7 bits or not all ones.
pub fn decode(text: &[u8], into: &mut Vec<u8>) -> Result<(), HpackError> {
    // The next bits are the highest of `bits`.
    let (mut bits, mut count, mut rest) = (0u64, 0usize, text);
    loop {
        while count <= 56
            && let Some((byte, after)) = rest.split_first()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
            rest = after;
        }
        if count == 0 {
            return Ok(());
        }
        let (symbol, length) = next(bits);
        if length > count {
            return if is_padding(bits, count) { Ok(()) } else { Err(HpackError::Huffman) };
        }
        if symbol == END {
            return Err(HpackError::Huffman);
        }
        into.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Returns the symbol that the bits begin with and the length of its code.
#[inline]
fn next(bits: u64) -> (u16, usize) {
    let (symbol, length) = TABLES.short[(bits >> 56) as usize];
    if length > 0 {
        return (u16::from(symbol), usize::from(length));
    }
    for length in 9..LONGEST {
        let code = (bits >> (64 - length)) as u32;
        let (next_code, _) = TABLES.first[length + 1];
        // Codes of this length are below the first code of the next one, without its last bit.
        if code < next_code >> 1 {
            let (first, place) = TABLES.first[length];
            return (TABLES.symbols[usize::from(place) + (code - first) as usize], length);
        }
    }
    let (first, place) = TABLES.first[LONGEST];
    let code = (bits >> (64 - LONGEST)) as u32;
    (TABLES.symbols[usize::from(place) + (code - first) as usize], LONGEST)
}

/// Returns true if these last bits are what a sender pads with.
fn is_padding(bits: u64, count: usize) -> bool {
    count < 8 && bits >> (64 - count) == (1 << count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &[u8]) -> BytesMut {
        let mut into = BytesMut::new();
        encode(text, &mut into);
        assert_eq!(into.len(), encoded_len(text));
        into
    }

    fn decoded(text: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut into = Vec::new();
        decode(text, &mut into).map(|()| into)
    }

    #[test]
    fn codes_are_those_of_the_appendix() {
        for (symbol, code) in [
            (0, 0x1ff8),
            (usize::from(b' '), 0x14),
            (usize::from(b'0'), 0),
            (usize::from(b'a'), 3),
            (usize::from(b'~'), 0x1ffd),
            (249, 0x0fff_fffe),
            (255, 0x03ff_ffee),
            (256, 0x3fff_ffff),
        ] {
            assert_eq!(TABLES.codes[symbol], code, "symbol {symbol}");
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for (text, bytes) in [
            (&b"www.example.com"[..], &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            (b"no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            (b"custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
            (b"302", b"\x64\x02"),
            (b"", b""),
        ] {
            assert_eq!(encoded(text), bytes);
            assert_eq!(decoded(bytes).as_deref(), Ok(text));
        }
    }

    #[test]
    fn every_pair_of_symbols_goes_there_and_back() {
        for one in 0..=u8::MAX {
            assert_eq!(decoded(&encoded(&[one])).as_deref(), Ok(&[one][..]));
            for two in 0..=u8::MAX {
                let text = [one, two, one];
                assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
            }
        }
    }

    #[test]
    fn padding_is_short_and_has_ones_only() {
        // `0` has five bits of zeros, so three bits of padding follow.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Ok(&b"0"[..]));
        assert_eq!(decoded(&[0b0000_0110]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(HpackError::Huffman), "eleven bits");
        assert_eq!(decoded(&[0xff]), Err(HpackError::Huffman), "eight bits");
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(HpackError::Huffman), "the end itself");
        assert_eq!(decoded(&[0xff; 5]), Err(HpackError::Huffman));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        for seed in 0..20_000u32 {
            let bytes: Vec<u8> =
                (0..seed % 9).map(|at| (seed.wrapping_mul(2_654_435_761) >> (at * 3)) as u8).collect();
            if let Ok(text) = decoded(&bytes) {
                assert_eq!(encoded(&text), bytes[..], "the code of a text is unique");
            }
        }
    }
}

//! Z85 (RFC 32): bytes as printable text, five characters for four bytes. Keys of CURVE are written in it.

use std::fmt;

const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Values of the characters from `!` on; [`NONE`] for those outside of the alphabet.
const VALUES: [u8; 94] = values();
const NONE: u8 = u8::MAX;

/// Number of bytes in a group, and of the characters that they become.
const GROUP_BYTES: usize = 4;
const GROUP_CHARACTERS: usize = 5;

/// Error of a text or of a size. It names positions and no characters: the text may be a secret key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Z85Error {
    /// The number of bytes to encode is not a multiple of 4.
    Bytes {
        /// Number of bytes.
        len: usize,
    },
    /// A character is not in the alphabet.
    Character {
        /// Position of its first byte in the text, from zero.
        at: usize,
    },
    /// Five characters have a value over 2^32 - 1.
    Group {
        /// Position of the first of them in the text, from zero.
        at: usize,
    },
    /// The size of the text is not the expected one.
    Text {
        /// Size of the text in bytes.
        len: usize,
        /// Expected size in bytes; `None` means a multiple of 5.
        expected: Option<usize>,
    },
}

/// Encodes bytes.
///
/// # Errors
/// [`Z85Error::Bytes`] if their number is not a multiple of 4.
pub fn encode(bytes: &[u8]) -> Result<String, Z85Error> {
    let (groups, rest) = bytes.as_chunks::<GROUP_BYTES>();
    if !rest.is_empty() {
        return Err(Z85Error::Bytes { len: bytes.len() });
    }
    let mut text = String::with_capacity(groups.len() * GROUP_CHARACTERS);
    for group in groups {
        let value = u32::from_be_bytes(*group);
        for power in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(char::from(ALPHABET[(value / power % 85) as usize]));
        }
    }
    Ok(text)
}

/// Decodes a text.
///
/// # Errors
/// Fails on a size that is not a multiple of 5, on a character outside of the alphabet, and on a group over 2^32 - 1.
pub fn decode(text: &str) -> Result<Vec<u8>, Z85Error> {
    if !text.len().is_multiple_of(GROUP_CHARACTERS) {
        return Err(Z85Error::Text { len: text.len(), expected: None });
    }
    let mut bytes = vec![0; text.len() / GROUP_CHARACTERS * GROUP_BYTES];
    decode_groups(text, &mut bytes).map(|()| bytes)
}

/// Decodes a text that fills `into` exactly. After an error, `into` may have a part of it.
pub(super) fn decode_into(text: &str, into: &mut [u8]) -> Result<(), Z85Error> {
    let expected = into.len() / GROUP_BYTES * GROUP_CHARACTERS;
    if text.len() != expected {
        return Err(Z85Error::Text { len: text.len(), expected: Some(expected) });
    }
    decode_groups(text, into)
}

fn decode_groups(text: &str, into: &mut [u8]) -> Result<(), Z85Error> {
    let (groups, _) = text.as_bytes().as_chunks::<GROUP_CHARACTERS>();
    let (targets, _) = into.as_chunks_mut::<GROUP_BYTES>();
    for (at, (group, target)) in groups.iter().zip(targets).enumerate() {
        let mut value = 0u64;
        for (offset, character) in group.iter().enumerate() {
            let digit = character.checked_sub(b'!').and_then(|at| VALUES.get(usize::from(at)));
            let Some(digit) = digit.filter(|digit| **digit != NONE) else {
                return Err(Z85Error::Character { at: at * GROUP_CHARACTERS + offset });
            };
            value = value * 85 + u64::from(*digit);
        }
        let value = u32::try_from(value).map_err(|_| Z85Error::Group { at: at * GROUP_CHARACTERS })?;
        *target = value.to_be_bytes();
    }
    Ok(())
}

const fn values() -> [u8; 94] {
    let mut values = [NONE; 94];
    let mut at = 0;
    while at < ALPHABET.len() {
        values[(ALPHABET[at] - b'!') as usize] = at as u8;
        at += 1;
    }
    values
}

impl fmt::Display for Z85Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Z85Error::Bytes { len } => write!(f, "{len} bytes for Z85; it encodes a multiple of 4"),
            Z85Error::Character { at } => {
                write!(f, "the character at byte {at} is not in the alphabet of Z85")
            }
            Z85Error::Group { at } => {
                write!(
                    f,
                    "the five characters from byte {at} on have a value over 2^32 - 1, the limit of Z85"
                )
            }
            Z85Error::Text { len, expected: Some(expected) } => {
                write!(f, "{len} characters of Z85, expected {expected}")
            }
            Z85Error::Text { len, expected: None } => {
                write!(f, "{len} characters of Z85, expected a multiple of 5")
            }
        }
    }
}

impl std::error::Error for Z85Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 32.
    #[test]
    fn hello_world() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(encode(&bytes).as_deref(), Ok("HelloWorld"));
        assert_eq!(decode("HelloWorld").as_deref(), Ok(&bytes[..]));
        assert_eq!((encode(b"").as_deref(), decode("").as_deref()), (Ok(""), Ok(&b""[..])));
    }

    #[test]
    fn all_values_come_back() {
        let mut bytes = vec![0; 4];
        bytes.extend([0xFF; 4]);
        for number in 0..2000u32 {
            bytes.extend(number.wrapping_mul(2_654_435_761).to_be_bytes());
        }
        let text = encode(&bytes).unwrap();
        assert!(text.starts_with("00000%nSc0"), "{}", &text[..10]);
        assert_eq!(decode(&text), Ok(bytes));
    }

    #[test]
    fn other_texts_have_exact_errors() {
        let cases = [
            (
                "Hell",
                Z85Error::Text { len: 4, expected: None },
                "4 characters of Z85, expected a multiple of 5",
            ),
            (
                "HelloWor d",
                Z85Error::Character { at: 8 },
                "the character at byte 8 is not in the alphabet of Z85",
            ),
            ("Hello\"orld", Z85Error::Character { at: 5 }, "the character at byte 5"),
            ("Hell\u{e9}orl", Z85Error::Text { len: 9, expected: None }, "9 characters"),
            ("Hello\u{e9}orl", Z85Error::Character { at: 5 }, "the character at byte 5"),
            ("Hello%nSc1", Z85Error::Group { at: 5 }, "the five characters from byte 5 on"),
            ("#####", Z85Error::Group { at: 0 }, "the five characters from byte 0 on"),
            ("Hello\u{7f}orld", Z85Error::Character { at: 5 }, "the character at byte 5"),
        ];
        for (text, expected, message) in cases {
            let error = decode(text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(error.to_string().starts_with(message), "{error}");
        }
        assert_eq!(encode(b"abc"), Err(Z85Error::Bytes { len: 3 }));
        assert_eq!(encode(b"abc").unwrap_err().to_string(), "3 bytes for Z85; it encodes a multiple of 4");
        let error = decode_into("HelloWorld", &mut [0; 32]).unwrap_err();
        assert_eq!(error.to_string(), "10 characters of Z85, expected 40");
    }
}

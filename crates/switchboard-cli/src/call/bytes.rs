//! Messages as plain bytes: for codecs without schema or JSON here, such as FlatBuffers.

use super::{failure::Failure, metadata};
use bytes::Bytes;
use clap::ValueEnum;
use std::{
    fs,
    io::{self, IsTerminal, Read},
};

/// Format of bytes on the command line and in output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Digits {
    Base64,
    Hex,
}

impl Digits {
    /// Returns the request in `-d`; a file or standard input contains the bytes themselves.
    pub(super) fn request(self, data: Option<&str>) -> Result<Bytes, Failure> {
        let read = |name: &str, outcome: io::Result<Vec<u8>>| {
            outcome.map(Bytes::from).map_err(|error| Failure::Usage(format!("-d {name}: {error}")))
        };
        let piped = || {
            let mut all = Vec::new();
            io::stdin().read_to_end(&mut all).map(|_| all)
        };
        match data {
            Some("-") => read("-", piped()),
            Some(text) => match text.strip_prefix('@') {
                Some(path) => read(text, fs::read(path)),
                None => {
                    self.decode(text).map(Bytes::from).map_err(|why| Failure::Usage(format!("-d: {why}")))
                }
            },
            None if io::stdin().is_terminal() => Ok(Bytes::new()),
            None => read("-", piped()),
        }
    }

    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Digits::Base64 => metadata::base64(bytes),
            Digits::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Spaces between the bytes are ignored.
    fn decode(self, text: &str) -> Result<Vec<u8>, String> {
        let digits: String = text.split_ascii_whitespace().collect();
        match self {
            Digits::Base64 => {
                metadata::from_base64(&digits).map_err(|error| format!("the text is not base64: {error}"))
            }
            Digits::Hex => {
                let byte = |pair: &[u8]| match pair {
                    [high, low] => Some((hex(*high)? << 4) | hex(*low)?),
                    _ => None,
                };
                let bytes = digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>();
                bytes.ok_or_else(|| "expected two hexadecimal digits for each byte".to_owned())
            }
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_typed_as_they_are_printed() {
        for (digits, text, bytes) in [
            (Digits::Hex, "00ff 7A\n10", &[0, 255, 0x7a, 16][..]),
            (Digits::Hex, "", &[]),
            (Digits::Base64, "AP96 EA==", &[0, 255, 0x7a, 16]),
        ] {
            assert_eq!(digits.decode(text).unwrap(), bytes, "{text}");
            assert_eq!(digits.decode(&digits.encode(bytes)).unwrap(), bytes, "{text}");
        }
        assert_eq!(Digits::Hex.encode(&[0, 0xab]), "00ab");
        for (digits, text) in
            [(Digits::Hex, "0"), (Digits::Hex, "0x"), (Digits::Hex, "\u{e4}"), (Digits::Base64, "!")]
        {
            assert!(digits.decode(text).is_err(), "{text}");
        }
    }
}

//! Base64 (RFC 4648) for text protocols.

use base64::{
    Engine, alphabet,
    engine::{
        GeneralPurpose,
        general_purpose::{NO_PAD, STANDARD},
    },
};

/// Reads texts whose last bits are not zero, too, as some encoders leave them.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// Encodes in the standard alphabet with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a text with or without padding; `None` if it is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    LENIENT.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for text in ["Zg", "Zg=", "Zg===", "Zh=="] {
            assert_eq!(decode(text), Some(b"f".to_vec()), "{text}");
        }
        assert!(decode("Z").is_none() && decode("Zm9vY").is_none() && decode("Z g=").is_none());
        assert!(decode("Zg==Zg").is_none() && decode("Zm-_").is_none() && decode("Zm9v\n").is_none());
    }
}

//! Base64 (RFC 4648) for text protocols.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes in the standard alphabet with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let wide =
            group.iter().fold(0u32, |wide, byte| wide << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let six = (wide >> (18 - 6 * place) & 0x3F) as usize;
            text.push(if place <= group.len() { char::from(ALPHABET[six]) } else { '=' });
        }
    }
    text
}

/// Decodes a text with or without padding; `None` if it is not base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut wide = 0;
        for byte in group {
            wide = wide << 6 | ALPHABET.iter().position(|known| known == byte)? as u32;
        }
        let whole = group.len() - 1;
        if whole == 0 {
            return None;
        }
        wide <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&wide.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
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
        assert_eq!(decode("Zg"), Some(b"f".to_vec()));
        assert!(decode("Z").is_none() && decode("Zm9vY").is_none() && decode("Z g=").is_none());
    }
}

//! Base64 (RFC 4648) as far as text protocols need it: writing.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The standard alphabet with padding.
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
        }
    }
}

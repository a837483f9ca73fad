//! UTF-8 validation of text that arrives in pieces; it fails at the first byte that makes the text invalid.

/// Validation state of a text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Utf8 {
    /// Beginning of a character whose rest has not arrived.
    partial: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// Checks the next piece; returns false if the text cannot become valid UTF-8.
    #[must_use]
    pub(super) fn push(&mut self, mut piece: &[u8]) -> bool {
        while self.len > 0 {
            let Some((first, rest)) = piece.split_first() else { return true };
            piece = rest;
            self.partial[self.len] = *first;
            self.len += 1;
            match std::str::from_utf8(&self.partial[..self.len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match std::str::from_utf8(piece) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                let tail = &piece[error.valid_up_to()..];
                self.partial[..tail.len()].copy_from_slice(tail);
                self.len = tail.len();
                true
            }
        }
    }

    /// Returns true if the text may end here.
    pub(super) fn is_whole(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_validated_like_the_whole_for_any_split() {
        let texts: [&[u8]; 8] = [
            "κόσμε𐍈 a".as_bytes(),
            b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80 edited",
            b"\xf4\x90\x80\x80",
            b"\xc0\xaf",
            b"\xf8\x88",
            b"a\x80",
            b"\xe2\x82",
            b"\xf0\x9f\x92",
        ];
        for text in texts {
            for step in 1..=text.len() {
                let mut utf8 = Utf8::default();
                let good = text.chunks(step).all(|piece| utf8.push(piece)) && utf8.is_whole();
                assert_eq!(good, std::str::from_utf8(text).is_ok(), "{text:02x?} by {step}");
            }
        }
    }

    #[test]
    fn invalid_beginnings_are_rejected_before_their_end() {
        let mut utf8 = Utf8::default();
        assert!(utf8.push(b"\xf4"));
        assert!(!utf8.push(b"\x90"));
    }
}

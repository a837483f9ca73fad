//! Control characters of messages, which a terminal would obey.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
};

/// Returns true if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Replaces control characters, line ends among them, and bytes that are not UTF-8.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                character if is_safe(character) => text.push(character),
                character => text.extend(character.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            // A String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Escapes what JSON leaves as it is: the control characters from U+007F to U+009F, and directions of text.
pub(super) fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if is_safe(character) || character == '\n' {
            text.push(character);
        } else {
            // A String cannot fail.
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        }
    }
    text
}

/// Returns true for characters that a terminal shows. Marks of directions could make text look like another.
fn is_safe(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_control_characters() {
        assert_eq!(escaped("price 12.5 €".as_bytes()), "price 12.5 €");
        assert_eq!(escaped(b"\x1b[2Jgone\r\n\x07"), r"\u{1b}[2Jgone\r\n\u{7}");
        assert_eq!(escaped("\u{9b}31m\u{202e}".as_bytes()), r"\u{9b}31m\u{202e}");
        assert_eq!(escaped(b"a\xffb\x80"), r"a\xffb\x80");
        assert_eq!(escaped_json("{\"a\":\"\u{9b}\u{7f}\"}\n"), "{\"a\":\"\\u009b\\u007f\"}\n");
    }
}

//! Detection by the first bytes of a connection.

use super::server::is_command;
use crate::spec::{Verdict, starts};

/// Longest word that may be a command.
const WORD_BYTES_MAX: usize = 16;

/// Detects a client that begins with an array, as all libraries do.
pub fn sniff(prefix: &[u8]) -> Verdict {
    starts(prefix, b"*")
}

/// Detects a client that begins with an inline command: a word that is a command of the [`Server`](super::Server), and
/// a blank or the end of the line.
pub fn sniff_inline(prefix: &[u8]) -> Verdict {
    let letters = prefix.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    match prefix.get(letters) {
        _ if letters > WORD_BYTES_MAX => Verdict::No,
        None => Verdict::More,
        Some(b' ' | b'\t' | b'\r' | b'\n') if is_command(&prefix[..letters]) => Verdict::Yes,
        Some(_) => Verdict::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_and_inline_commands_are_detected() {
        for (prefix, array, inline) in [
            (&b""[..], Verdict::More, Verdict::More),
            (b"*", Verdict::Yes, Verdict::No),
            (b"*1\r\n$4\r\nPING", Verdict::Yes, Verdict::No),
            (b"$4\r\n", Verdict::No, Verdict::No),
            (b"PI", Verdict::No, Verdict::More),
            (b"ping\r\n", Verdict::No, Verdict::Yes),
            (b"SUBSCRIBE a", Verdict::No, Verdict::Yes),
            (b"POST / HTTP/1.1", Verdict::No, Verdict::No),
            (b"GET / HTTP/1.1", Verdict::No, Verdict::No),
            (b"CONNECT {", Verdict::No, Verdict::No),
            (b"abcdefghijklmnopq", Verdict::No, Verdict::No),
            (b"PING/", Verdict::No, Verdict::No),
        ] {
            assert_eq!((sniff(prefix), sniff_inline(prefix)), (array, inline), "{}", prefix.escape_ascii());
        }
    }
}

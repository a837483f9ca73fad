//! The result of comparing the first bytes of a connection with those of a wire.

/// Largest number of bytes that any entry needs, except for the HTTP request line.
pub const PEEK_MAX: usize = 64;

/// Result of an entry for a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: yes, no, or more bytes
pub enum Verdict {
    /// The entry needs more bytes.
    More,
    /// The prefix is not of this protocol.
    No,
    /// The prefix is of this protocol.
    Yes,
}

/// Compares the prefix with constant first bytes.
pub fn starts(prefix: &[u8], wanted: &[u8]) -> Verdict {
    let known = prefix.len().min(wanted.len());
    match prefix[..known] == wanted[..known] {
        true if known == wanted.len() => Verdict::Yes,
        true => Verdict::More,
        false => Verdict::No,
    }
}

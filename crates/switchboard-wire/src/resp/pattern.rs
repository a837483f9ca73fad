//! Glob patterns of channels: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a character that is meant literally.
//!
//! A pattern is an automaton whose states are bits: bit `n` is set if the bytes so far match its first `n` characters.
//! One byte of a channel costs one step for each 64 characters of the pattern, for any pattern and any channel.

use std::{collections::BTreeMap, fmt};

/// Glob pattern of `PSUBSCRIBE` and `PUBSUB CHANNELS`, with the rules of Redis.
///
/// A class that is not closed ends with the pattern, a `\` at the end is a character, and `[c-a]` is `[a-c]`.
#[derive(Clone)]
pub struct Pattern {
    text: Box<[u8]>,
    /// Class of each byte: bytes of one class match the same characters of the pattern.
    classes: Box<[u8; 256]>,
    /// Characters that each class matches, one set after the other.
    sets: Box<[u64]>,
    /// States after a `*`, which any byte leaves as they are.
    loops: Box<[u64]>,
    /// Number of characters, of which a `*` is none.
    characters: usize,
}

impl Pattern {
    /// Parses a pattern; any bytes are one. It takes 256 bytes of memory and, for each 64 characters, 8 bytes for each
    /// class of bytes that it distinguishes: 2 KiB if it distinguishes all.
    pub fn new(text: &[u8]) -> Pattern {
        let (characters, stars) = parse(text);
        let words = characters.len() / 64 + 1;
        let mut loops = vec![0; words];
        for at in stars {
            set(&mut loops, at);
        }
        // Characters that each byte matches.
        let mut matched = vec![0; 256 * words];
        for (at, character) in characters.iter().enumerate() {
            let mut set = |byte: u8| set(&mut matched[usize::from(byte) * words..], at);
            match character {
                Character::Byte(byte) => set(*byte),
                other => (0..=u8::MAX).filter(|byte| other.has(*byte)).for_each(set),
            }
        }
        let mut known: BTreeMap<&[u64], u8> = BTreeMap::new();
        let mut classes = Box::new([0; 256]);
        let mut sets = Vec::new();
        for (class, matched) in classes.iter_mut().zip(matched.chunks_exact(words)) {
            let next = known.len() as u8;
            *class = *known.entry(matched).or_insert_with(|| {
                sets.extend_from_slice(matched);
                next
            });
        }
        Pattern {
            text: text.into(),
            classes,
            sets: sets.into(),
            loops: loops.into(),
            characters: characters.len(),
        }
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns true if the whole of `channel` matches.
    pub fn matches(&self, channel: &[u8]) -> bool {
        let words = self.loops.len();
        if words == 1 {
            // Bits beyond the last character are never set: no set of characters has them.
            let step = |states: u64, byte: &u8| {
                let class = usize::from(self.classes[usize::from(*byte)]);
                (states & self.sets[class]) << 1 | states & self.loops[0]
            };
            return channel.iter().fold(1, step) >> self.characters & 1 == 1;
        }
        let mut states = vec![0_u64; words];
        states[0] = 1;
        for byte in channel {
            let class = usize::from(self.classes[usize::from(*byte)]);
            let mut carry = 0;
            let matched = self.sets[class * words..].iter();
            for ((states, matched), loops) in states.iter_mut().zip(matched).zip(&self.loops) {
                let advanced = *states & matched;
                *states = advanced << 1 | carry | *states & loops;
                carry = advanced >> 63;
            }
        }
        states[self.characters / 64] >> (self.characters % 64) & 1 == 1
    }
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

/// Writes the text only.
impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern(\"{}\")", self.text.escape_ascii())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// One character of a pattern, `*` excepted.
enum Character {
    Any,
    Byte(u8),
    Class { ranges: Vec<(u8, u8)>, negated: bool },
}

impl Character {
    fn has(&self, byte: u8) -> bool {
        match self {
            Character::Any => true,
            Character::Byte(known) => *known == byte,
            Character::Class { ranges, negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&byte)) != *negated
            }
        }
    }
}

/// Returns the characters, and the numbers of characters before each `*`.
fn parse(text: &[u8]) -> (Vec<Character>, Vec<usize>) {
    let (mut characters, mut stars) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'*', _) => stars.push(characters.len()),
            (b'?', _) => characters.push(Character::Any),
            (b'[', _) => {
                let (class, after) = class(after);
                characters.push(class);
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                characters.push(Character::Byte(*escaped));
                rest = after;
            }
            (byte, _) => characters.push(Character::Byte(*byte)),
        }
    }
    (characters, stars)
}

/// Parses a class after its `[`; returns the rest of the pattern too.
fn class(text: &[u8]) -> (Character, &[u8]) {
    let (negated, mut rest) = match text {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut ranges = Vec::new();
    loop {
        rest = match rest {
            [] => break,
            [b'\\', escaped, rest @ ..] => {
                ranges.push((*escaped, *escaped));
                rest
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [first, b'-', last, rest @ ..] => {
                ranges.push((*first.min(last), *first.max(last)));
                rest
            }
            [byte, rest @ ..] => {
                ranges.push((*byte, *byte));
                rest
            }
        };
    }
    (Character::Class { ranges, negated }, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("", &[""], &["a"]),
            ("news", &["news"], &["new", "newss", "", "NEWS"]),
            ("*", &["", "a", "a.b/c"], &[]),
            ("**", &["", "a"], &[]),
            ("news.*", &["news.", "news.art"], &["news", "xnews.art"]),
            ("*.art", &[".art", "news.art", "a.art.art"], &["art", "news.arts"]),
            ("a*b*c", &["abc", "aXbYc", "abcbc"], &["ac", "acb", "abcd"]),
            ("h?llo", &["hello", "hallo"], &["hllo", "heello"]),
            ("?", &["a"], &["", "ab"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo"]),
            ("h[^e]llo", &["hallo", "hbllo"], &["hello", "hllo"]),
            ("h[a-b]llo", &["hallo", "hbllo"], &["hcllo", "h-llo"]),
            ("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]),
            ("[a-]", &["a", "_", "]"], &["-", "b"]),
            ("[-a]", &["-", "a"], &["b"]),
            ("[^a-c]x", &["dx"], &["ax", "cx", "x"]),
            ("[\\]]", &["]"], &["\\"]),
            ("[\\a-c]", &["a", "-", "c"], &["b"]),
            ("[]a", &[], &["a", "]a", "xa"]),
            ("[^]", &["a"], &["", "ab"]),
            ("[ab", &["a", "b"], &["[ab", "c"]),
            ("[", &[], &["[", "a"]),
            ("a\\*b", &["a*b"], &["aXb", "a\\*b"]),
            ("\\?\\[", &["?["], &["a["]),
            ("a\\", &["a\\"], &["a"]),
            ("\\\\", &["\\"], &["\\\\"]),
            ("a]b", &["a]b"], &["ab"]),
        ];
        for (text, matching, others) in table {
            let pattern = Pattern::new(text.as_bytes());
            for channel in *matching {
                assert!(pattern.matches(channel.as_bytes()), "{text} matches {channel}");
            }
            for channel in *others {
                assert!(!pattern.matches(channel.as_bytes()), "{text} does not match {channel}");
            }
        }
    }

    #[test]
    fn long_patterns_have_the_same_rules_in_any_word() {
        for len in [62, 63, 64, 65, 127, 128, 129, 1000] {
            let text = [&b"*"[..], &vec![b'?'; len - 1], b"[x]*\\*"].concat();
            let pattern = Pattern::new(&text);
            let channel = |before: usize| [&vec![b'.'; before][..], b"x..*"].concat();
            assert!(pattern.matches(&channel(len - 1)) && pattern.matches(&channel(len)), "{len}");
            assert!(!pattern.matches(&channel(len - 2)), "{len}");
            assert!(!pattern.matches(&channel(len)[..len + 2]), "{len}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_steps_than_few() {
        // With backtracking this needs more steps than a test can wait for.
        let pattern = Pattern::new(&[&b"a*".repeat(60)[..], b"b"].concat());
        assert!(!pattern.matches(&vec![b'a'; 100_000]));
    }

    #[test]
    fn bytes_need_not_be_text() {
        let pattern = Pattern::new(b"\xFF[\x80-\xFE]\0*");
        assert!(pattern.matches(b"\xFF\x90\0\r\n"));
        assert!(!pattern.matches(b"\xFF\x7F\0"));
    }
}

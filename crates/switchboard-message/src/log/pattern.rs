//! Patterns of topic names, and an index that finds the patterns of a name.

mod relation;

use super::{
    Topic,
    names::{self, SEPARATOR},
};
use bytes::Bytes;
use std::{collections::HashMap, fmt};
use switchboard_core::Result;
use switchboard_wire::Status;

/// A set of topic names.
///
/// In token patterns, `*` and `+` match one level, `>` matches one or more levels at the end, and `#` matches any
/// number of levels at the end, also none. Wildcards do not match names that begin with `$`.
///
/// ```
/// # use switchboard_message::Pattern;
/// let pattern = Pattern::new("quotes/*/eu").unwrap();
/// assert!(pattern.matches("quotes/acme/eu") && !pattern.matches("quotes/acme"));
/// assert!(Pattern::prefix("quo").matches("quotes"));
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Pattern(Kind);

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Kind {
    Prefix(Bytes),
    Tokens(Box<[Token]>),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Token {
    Level(Box<str>),
    One,
    /// At least one level.
    Rest,
    /// Any number of levels.
    RestOrNone,
}

impl Pattern {
    /// Parses a token pattern. A name without wildcards matches itself.
    ///
    /// # Errors
    /// `InvalidArgument` if it breaks a rule of names, or has `>` or `#` before its last level.
    pub fn new(pattern: &str) -> Result<Pattern> {
        names::check(pattern)?;
        let tokens: Box<[Token]> = pattern.split(SEPARATOR).map(Token::parse).collect();
        let before_last = &tokens[..tokens.len() - 1];
        if before_last.iter().any(|token| matches!(token, Token::Rest | Token::RestOrNone)) {
            let text = format!("pattern \"{pattern}\" has > or # before its last level; use * for one level");
            return Err(Status::invalid_argument(text));
        }
        Ok(Pattern(Kind::Tokens(tokens)))
    }

    /// Creates the pattern of all names that begin with these bytes, as ZeroMQ's subscriptions do. Without bytes it
    /// matches all names, except those that begin with `$`.
    pub fn prefix(bytes: impl Into<Bytes>) -> Pattern {
        let bytes = bytes.into();
        // A copy, so that the prefix does not keep its message alive. A longer one matches no name.
        let length = bytes.len().min(names::NAME_BYTES_MAX + 1);
        Pattern(Kind::Prefix(Bytes::copy_from_slice(&bytes[..length])))
    }

    /// Returns whether the name is in the set.
    pub fn matches(&self, name: &str) -> bool {
        if name.starts_with('$') {
            return false;
        }
        let tokens = match &self.0 {
            Kind::Prefix(prefix) => return name.as_bytes().starts_with(prefix),
            Kind::Tokens(tokens) => tokens,
        };
        let mut levels = name.split(SEPARATOR);
        for token in tokens {
            let level = levels.next();
            match token {
                Token::RestOrNone => return true,
                Token::Rest => return level.is_some(),
                Token::One if level.is_some() => {}
                Token::Level(expected) if level == Some(expected) => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// Returns the bytes, if the pattern is a prefix.
    pub(crate) fn prefix_bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Prefix(prefix) => Some(prefix),
            Kind::Tokens(_) => None,
        }
    }

    /// Returns the topic, if the pattern is a name without wildcards.
    pub(crate) fn topic(&self) -> Option<Topic> {
        let Kind::Tokens(tokens) = &self.0 else { return None };
        let levels = tokens.iter().map(|token| match token {
            Token::Level(level) => Some(&**level),
            _ => None,
        });
        Some(Topic::internal(&levels.collect::<Option<Vec<_>>>()?.join("/")))
    }
}

impl fmt::Display for Pattern {
    /// Writes a token pattern as [`Pattern::new`] reads it, and a prefix with a star at its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Prefix(prefix) => write!(f, "{}*", prefix.escape_ascii()),
            Kind::Tokens(tokens) => tokens.iter().enumerate().try_for_each(|(index, token)| {
                let separator = if index == 0 { "" } else { "/" };
                write!(f, "{separator}{}", token.text())
            }),
        }
    }
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Level(level) => level,
            Token::One => "*",
            Token::Rest => ">",
            Token::RestOrNone => "#",
        }
    }

    fn parse(level: &str) -> Token {
        match level {
            "*" | "+" => Token::One,
            ">" => Token::Rest,
            "#" => Token::RestOrNone,
            level => Token::Level(level.into()),
        }
    }
}

/// Cursor sets by pattern. A lookup visits the nodes of one path per wildcard, not all patterns.
#[derive(Debug, Default)]
pub(super) struct PatternIndex {
    root: Node,
    prefixes: Vec<(Bytes, u32)>,
}

#[derive(Debug, Default)]
struct Node {
    levels: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    /// Patterns that end here, end with `>` here, and end with `#` here.
    here: Vec<u32>,
    rest: Vec<u32>,
    rest_or_none: Vec<u32>,
}

impl PatternIndex {
    pub(super) fn insert(&mut self, pattern: &Pattern, set: u32) {
        match &pattern.0 {
            Kind::Prefix(prefix) => self.prefixes.push((prefix.clone(), set)),
            Kind::Tokens(tokens) => {
                let mut node = &mut self.root;
                for token in tokens {
                    node = match token {
                        Token::Level(level) => node.levels.entry(level.clone()).or_default(),
                        Token::One => node.one.get_or_insert_default(),
                        Token::Rest => return node.rest.push(set),
                        Token::RestOrNone => return node.rest_or_none.push(set),
                    };
                }
                node.here.push(set);
            }
        }
    }

    /// Removes a set with its pattern, and the nodes that only this pattern needed.
    pub(super) fn remove(&mut self, pattern: &Pattern, set: u32) {
        match &pattern.0 {
            Kind::Prefix(_) => self.prefixes.retain(|(_, known)| *known != set),
            Kind::Tokens(tokens) => self.root.remove(tokens, set),
        }
    }

    /// Appends the sets whose patterns match the name.
    pub(super) fn find(&self, name: &str, found: &mut Vec<u32>) {
        if name.starts_with('$') {
            return;
        }
        let levels: smallvec::SmallVec<[&str; 16]> = name.split(SEPARATOR).collect();
        self.root.find(&levels, found);
        let prefixes = self.prefixes.iter().filter(|(prefix, _)| name.as_bytes().starts_with(prefix));
        found.extend(prefixes.map(|(_, set)| *set));
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.root.is_empty() && self.prefixes.is_empty()
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        let has_patterns = [&self.here, &self.rest, &self.rest_or_none].iter().any(|sets| !sets.is_empty());
        !has_patterns && self.levels.is_empty() && self.one.is_none()
    }

    fn remove(&mut self, tokens: &[Token], set: u32) {
        let Some((token, rest)) = tokens.split_first() else {
            return self.here.retain(|known| *known != set);
        };
        match token {
            Token::Level(level) => {
                let Some(node) = self.levels.get_mut(level) else { return };
                node.remove(rest, set);
                if node.is_empty() {
                    self.levels.remove(level);
                }
            }
            Token::One => {
                if let Some(node) = &mut self.one {
                    node.remove(rest, set);
                }
                self.one.take_if(|node| node.is_empty());
            }
            Token::Rest => self.rest.retain(|known| *known != set),
            Token::RestOrNone => self.rest_or_none.retain(|known| *known != set),
        }
    }

    fn find(&self, levels: &[&str], found: &mut Vec<u32>) {
        found.extend_from_slice(&self.rest_or_none);
        let Some((level, rest)) = levels.split_first() else { return found.extend_from_slice(&self.here) };
        found.extend_from_slice(&self.rest);
        if let Some(node) = self.levels.get(*level) {
            node.find(rest, found);
        }
        if let Some(node) = &self.one {
            node.find(rest, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_levels() {
        for (pattern, matching, others) in [
            ("a/b", &["a/b"][..], &["a", "a/b/c", "b/a"][..]),
            ("a/*", &["a/b", "a/"], &["a", "a/b/c", "b/b"]),
            ("a/+/c", &["a/b/c"], &["a/c", "a/b/d"]),
            ("a/>", &["a/b", "a/b/c"], &["a", "b/a"]),
            ("a/#", &["a", "a/b", "a/b/c"], &["b", "ab"]),
            ("*", &["a"], &["a/b", "$a"]),
            (">", &["a", "a/b"], &["$a", "$a/b"]),
            ("#", &["a", "a/b"], &["$a"]),
            ("+/x", &["a/x"], &["$a/x"]),
        ] {
            let parsed = Pattern::new(pattern).unwrap();
            let mut index = PatternIndex::default();
            index.insert(&parsed, 7);
            for (names, expected) in [(matching, true), (others, false)] {
                for name in names {
                    let mut found = Vec::new();
                    index.find(name, &mut found);
                    assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
                    assert_eq!(found == [7], expected, "{pattern} {name}");
                }
            }
            index.remove(&parsed, 7);
            assert!(index.is_empty(), "{pattern}");
        }
    }

    #[test]
    fn prefixes_match_bytes() {
        let mut index = PatternIndex::default();
        index.insert(&Pattern::prefix("quo"), 1);
        index.insert(&Pattern::prefix(""), 2);
        for (name, expected) in [("quotes/a", &[1, 2][..]), ("qu", &[2]), ("$quo", &[])] {
            let mut found = Vec::new();
            index.find(name, &mut found);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn refused_patterns_have_the_rule_in_the_error() {
        for (pattern, rule) in [("a/>/b", "before its last level"), ("", "is empty"), ("$x/*", "reserved")] {
            let status = Pattern::new(pattern).unwrap_err();
            assert!(status.message().contains(rule), "{status}");
        }
    }

    #[test]
    fn the_index_finds_the_sets_that_the_patterns_match() {
        let mut random = fastrand::Rng::with_seed(7);
        let words = ["a", "b", "c"];
        let wild = ["a", "b", "*", "+", "c"];
        for _ in 0..200 {
            let mut index = PatternIndex::default();
            let patterns: Vec<Pattern> = (0..20)
                .map(|_| {
                    let mut levels: Vec<&str> =
                        (0..random.usize(1..4)).map(|_| wild[random.usize(0..5)]).collect();
                    if random.bool() {
                        levels.push([">", "#"][random.usize(0..2)]);
                    }
                    Pattern::new(&levels.join("/")).unwrap()
                })
                .collect();
            patterns.iter().zip(0..).for_each(|(pattern, set)| index.insert(pattern, set));
            for _ in 0..20 {
                let levels: Vec<&str> = (0..random.usize(1..5)).map(|_| words[random.usize(0..3)]).collect();
                let name = levels.join("/");
                let mut found = Vec::new();
                index.find(&name, &mut found);
                found.sort_unstable();
                let expected: Vec<u32> =
                    (0..20).filter(|set| patterns[*set as usize].matches(&name)).collect();
                assert_eq!(found, expected, "{name}");
            }
            patterns.iter().zip(0..).for_each(|(pattern, set)| index.remove(pattern, set));
            assert!(index.is_empty());
        }
    }

    #[test]
    fn a_long_prefix_keeps_no_more_bytes_than_a_name() {
        let name = "x".repeat(names::NAME_BYTES_MAX);
        assert!(Pattern::prefix(name.clone()).matches(&name));
        let long = Pattern::prefix(vec![b'x'; 1 << 20]);
        assert!(!long.matches(&name));
        let Pattern(Kind::Prefix(kept)) = &long else { panic!("{long:?}") };
        assert_eq!(kept.len(), names::NAME_BYTES_MAX + 1);
    }
}

//! Relations of patterns: whether one contains another, and whether two have a name in common.
//!
//! Both answers are for all names, not for the topics that exist.

use super::{Kind, Pattern, SEPARATOR, Token};

impl Pattern {
    /// Returns whether every name that matches `other` matches this pattern as well.
    pub(crate) fn contains(&self, other: &Pattern) -> bool {
        match (&self.0, &other.0) {
            (Kind::Prefix(prefix), Kind::Prefix(other)) => other.starts_with(prefix),
            (Kind::Prefix(prefix), Kind::Tokens(other)) => {
                literal_prefix(other).as_bytes().starts_with(prefix)
            }
            (Kind::Tokens(tokens), Kind::Prefix(prefix)) => {
                let (mut other, _) = levels(prefix);
                other.extend([Token::One, Token::RestOrNone]);
                contain(&normal(tokens), &other)
            }
            (Kind::Tokens(tokens), Kind::Tokens(other)) => contain(&normal(tokens), &normal(other)),
        }
    }

    /// Returns whether a name may match both patterns.
    pub(crate) fn intersects(&self, other: &Pattern) -> bool {
        match (&self.0, &other.0) {
            (Kind::Prefix(one), Kind::Prefix(other)) => one.starts_with(other) || other.starts_with(one),
            (Kind::Prefix(prefix), Kind::Tokens(tokens)) | (Kind::Tokens(tokens), Kind::Prefix(prefix)) => {
                intersect_prefix(&normal(tokens), prefix)
            }
            (Kind::Tokens(tokens), Kind::Tokens(other)) => intersect(&normal(tokens), &normal(other)),
        }
    }
}

/// Returns the tokens with `*/#` for `>`. Every name has a level: `#` alone is `>`.
fn normal(tokens: &[Token]) -> Vec<Token> {
    match tokens.split_last() {
        Some((Token::Rest, levels)) => [levels, &[Token::One, Token::RestOrNone]].concat(),
        Some((Token::RestOrNone, [])) => vec![Token::One, Token::RestOrNone],
        _ => tokens.to_vec(),
    }
}

fn contain(tokens: &[Token], other: &[Token]) -> bool {
    match (tokens.split_first(), other.split_first()) {
        (None, None) | (Some((Token::RestOrNone, _)), _) => true,
        (Some((Token::One, rest)), Some((Token::One | Token::Level(_), other))) => contain(rest, other),
        (Some((Token::Level(level), rest)), Some((Token::Level(known), other))) => {
            level == known && contain(rest, other)
        }
        _ => false,
    }
}

fn intersect(tokens: &[Token], other: &[Token]) -> bool {
    match (tokens.split_first(), other.split_first()) {
        (None, None) | (Some((Token::RestOrNone, _)), _) | (_, Some((Token::RestOrNone, _))) => true,
        (Some((Token::Level(level), _)), Some((Token::Level(known), _))) if level != known => false,
        (Some((_, rest)), Some((_, other))) => intersect(rest, other),
        _ => false,
    }
}

/// Returns the whole levels that all names with the prefix begin with, and the beginning of the next level.
fn levels(prefix: &[u8]) -> (Vec<Token>, &[u8]) {
    let mut levels: Vec<&[u8]> = prefix.split(|byte| *byte == SEPARATOR as u8).collect();
    let last = levels.pop().unwrap_or_default();
    // A level that is not UTF-8 is in no name.
    let level = |level: &&[u8]| Token::Level(String::from_utf8_lossy(level).into());
    (levels.iter().map(level).collect(), last)
}

fn intersect_prefix(tokens: &[Token], prefix: &[u8]) -> bool {
    let (mut other, begun) = levels(prefix);
    if let Some(Token::Level(level)) = tokens.get(other.len())
        && !level.as_bytes().starts_with(begun)
        && !tokens[..other.len()].contains(&Token::RestOrNone)
    {
        return false;
    }
    other.extend([Token::One, Token::RestOrNone]);
    intersect(tokens, &other)
}

/// Returns the beginning that all names of a token pattern have.
fn literal_prefix(tokens: &[Token]) -> String {
    let mut prefix = String::new();
    for (index, token) in tokens.iter().enumerate() {
        // No level may follow: the name may end before the separator.
        if index > 0 && *token != Token::RestOrNone {
            prefix.push(SEPARATOR);
        }
        match token {
            Token::Level(level) => prefix.push_str(level),
            Token::One | Token::Rest | Token::RestOrNone => break,
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        match text.strip_suffix('~') {
            Some(prefix) => Pattern::prefix(prefix.to_owned()),
            None => Pattern::new(text).unwrap(),
        }
    }

    #[test]
    fn relations_are_those_of_the_names() {
        let parts = ["a", "ab", "*", "b"];
        let ends = ["", "/>", "/#", "~", "/~"];
        let mut patterns = vec![">".to_owned(), "#".to_owned(), "~".to_owned()];
        let mut names = Vec::new();
        for one in parts {
            for two in ["", "/a", "/ab", "/*"] {
                patterns.extend(ends.map(|end| format!("{one}{two}{end}")).into_iter().filter(|text| {
                    // A star is not a wildcard in a prefix.
                    !(text.ends_with('~') && text.contains('*'))
                }));
            }
        }
        for one in ["a", "ab", "abc", "b", "bc", "c"] {
            for two in ["", "/a", "/ab", "/abc", "/", "/c"] {
                names.extend(["", "/a", "/"].map(|three| format!("{one}{two}{three}")));
            }
        }
        for one in &patterns {
            for other in &patterns {
                let (left, right) = (pattern(one), pattern(other));
                let both = names.iter().any(|name| left.matches(name) && right.matches(name));
                let all = names.iter().all(|name| left.matches(name) || !right.matches(name));
                assert_eq!(left.intersects(&right), both, "{one} and {other}");
                assert_eq!(left.contains(&right), all, "{one} contains {other}");
            }
        }
    }
}

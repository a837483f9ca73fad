//! Rules of topic names and topic filters.

/// Prefix of shared subscriptions.
const SHARE: &[u8] = b"$share/";

/// Returns whether a topic name has no wildcard and is not empty.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'+') && !name.contains(&b'#')
}

/// Returns whether a filter follows the rules: it is not empty, `+` is a whole level, and `#` is the whole last level.
/// For a [shared] subscription, pass the filter behind the name of the group.
pub fn is_filter(filter: &[u8]) -> bool {
    let mut levels = filter.split(|byte| *byte == b'/').peekable();
    let mut is_valid = !filter.is_empty();
    while let Some(level) = levels.next() {
        is_valid &= match level {
            b"#" => levels.peek().is_none(),
            b"+" => true,
            level => is_name(level) || level.is_empty(),
        };
    }
    is_valid
}

/// Splits the filter of a shared subscription, `$share/GROUP/FILTER`: returns the group, `None` for other
/// subscriptions, and the filter.
///
/// # Errors
/// A shared subscription without a group, with a wildcard in it, or without a filter.
pub fn shared(filter: &[u8]) -> Result<(Option<&[u8]>, &[u8]), InvalidShare> {
    if filter == &SHARE[..SHARE.len() - 1] {
        return Err(InvalidShare);
    }
    let Some(rest) = filter.strip_prefix(SHARE) else { return Ok((None, filter)) };
    let at = rest.iter().position(|byte| *byte == b'/').ok_or(InvalidShare)?;
    let (group, filter) = (&rest[..at], &rest[at + 1..]);
    if !is_name(group) || filter.is_empty() {
        return Err(InvalidShare);
    }
    Ok((Some(group), filter))
}

/// A shared subscription whose filter has no group or no filter of topics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InvalidShare;

/// Returns whether a filter matches a topic name: `+` is one level, `#` any number of levels at the end, also none.
/// Names that begin with `$` do not match a filter that begins with a wildcard.
pub fn matches(filter: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'$') && matches!(filter.first(), Some(b'+' | b'#')) {
        return false;
    }
    let mut levels = name.split(|byte| *byte == b'/');
    for wanted in filter.split(|byte| *byte == b'/') {
        match (wanted, levels.next()) {
            (b"#", _) => return true,
            (b"+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_by_level() {
        for (filter, name, expected) in [
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("#", "a/b", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("+", "a", true),
            ("+", "", true),
            ("+", "/a", false),
            ("+/a", "/a", true),
            ("/+", "/a", true),
            ("/a", "a", false),
            ("a/+/c", "a//c", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("a", "a/", false),
        ] {
            assert_eq!(matches(filter.as_bytes(), name.as_bytes()), expected, "{filter} {name}");
        }
    }

    #[test]
    fn wildcards_are_whole_levels_and_hash_is_the_last() {
        for filter in ["a", "+", "#", "/", "a//b", "a/+/b", "a/#", "+/+/#", "$SYS/#", "a b"] {
            assert!(is_filter(filter.as_bytes()), "{filter}");
        }
        for filter in ["", "a+", "a/b+/c", "#/a", "a/#/b", "a#", "##", "++"] {
            assert!(!is_filter(filter.as_bytes()), "{filter}");
        }
        assert!(is_name(b"a/b") && !is_name(b"") && !is_name(b"a/+") && !is_name(b"a#"));
    }

    #[test]
    fn shared_subscriptions_have_a_group_and_a_filter() {
        assert_eq!(shared(b"$share/g/a/#"), Ok((Some(&b"g"[..]), &b"a/#"[..])));
        assert_eq!(shared(b"$shared/g/a"), Ok((None, &b"$shared/g/a"[..])));
        assert_eq!(shared(b"$share/g//a"), Ok((Some(&b"g"[..]), &b"/a"[..])));
        for filter in [
            &b"$share/"[..],
            b"$share",
            b"$share/g",
            b"$share/g/",
            b"$share//a",
            b"$share/+/a",
            b"$share/#/a",
        ] {
            assert_eq!(shared(filter), Err(InvalidShare), "{}", filter.escape_ascii());
        }
    }
}

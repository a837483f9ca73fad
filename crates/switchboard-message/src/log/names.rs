//! Names of topics: their rules, and their forms with other separators.

use foldhash::quality::RandomState;
use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    sync::{Arc, LazyLock},
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Bytes of one name.
pub const NAME_BYTES_MAX: usize = 256;
/// Levels of one name.
pub const LEVELS_MAX: usize = 16;
/// Separator of levels in the canonical form.
pub const SEPARATOR: char = '/';

/// Seeded per process: a peer that chooses names cannot choose their shard.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Name of a topic, checked and hashed. Cheap to clone; publications to a `Topic` skip both steps.
///
/// A name is UTF-8 with at most 256 bytes, in at most 16 levels separated by `/`, without NUL. A level is not a
/// wildcard (`*`, `+`, `>`, `#`). Names that begin with `$` are reserved.
///
/// ```
/// # use switchboard_message::Topic;
/// assert_eq!(Topic::new("quotes/acme").unwrap().name(), "quotes/acme");
/// assert!(Topic::new("$nodes").unwrap_err().message().contains("begins with $, which is reserved"));
/// ```
#[derive(Clone)]
pub struct Topic {
    name: Arc<str>,
    hash: u64,
}

impl Topic {
    /// Checks a name.
    ///
    /// # Errors
    /// `InvalidArgument` that names the rule.
    pub fn new(name: &str) -> Result<Topic> {
        check(name)?;
        if name.split(SEPARATOR).any(|level| matches!(level, "*" | "+" | ">" | "#")) {
            return Err(refused(name, "has a wildcard as a level; subscribe with it, or percent-encode it"));
        }
        Ok(Topic::internal(name))
    }

    /// Checks a name that a peer sent.
    ///
    /// # Errors
    /// `InvalidArgument` that names the rule; also for bytes that are not UTF-8.
    pub fn from_bytes(name: &[u8]) -> Result<Topic> {
        Topic::new(text(name)?)
    }

    /// Creates a topic with a name of ours, which may begin with `$`.
    pub(crate) fn internal(name: &str) -> Topic {
        Topic { name: name.into(), hash: hash(name) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Topic of a publication: a name as text, which is looked up, or a [`Topic`].
#[derive(Clone, Copy, Debug)]
pub struct NameRef<'a> {
    pub(crate) name: &'a str,
    pub(crate) hash: u64,
    /// The name was checked, or is ours.
    pub(crate) topic: Option<&'a Topic>,
    /// The topic is not created.
    pub(crate) must_exist: bool,
    /// Entries with a known publication id are appended as well.
    pub(crate) ignores_ids: bool,
}

impl<'a> From<&'a str> for NameRef<'a> {
    fn from(name: &'a str) -> Self {
        NameRef { name, hash: hash(name), topic: None, must_exist: false, ignores_ids: false }
    }
}

impl<'a> From<&'a String> for NameRef<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

impl<'a> From<&'a Topic> for NameRef<'a> {
    fn from(topic: &'a Topic) -> Self {
        NameRef {
            name: topic.name(),
            hash: topic.hash,
            topic: Some(topic),
            must_exist: false,
            ignores_ids: false,
        }
    }
}

fn hash(name: &str) -> u64 {
    HASHER.hash_one(name)
}

impl PartialEq for Topic {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.name == other.name
    }
}

impl Eq for Topic {}

impl Hash for Topic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.name, f)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Checks the rules that names and patterns share.
pub(super) fn check(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(refused(name, "is empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        let rule = format!("has {} bytes; the limit is {NAME_BYTES_MAX}", name.len());
        return Err(refused(short(name), &rule));
    }
    if name.contains('\0') {
        return Err(refused(&name.replace('\0', "\\0"), "contains NUL"));
    }
    if name.starts_with('$') {
        return Err(refused(name, "begins with $, which is reserved"));
    }
    let levels = name.split(SEPARATOR).count();
    if levels > LEVELS_MAX {
        return Err(refused(name, &format!("has {levels} levels; the limit is {LEVELS_MAX}")));
    }
    Ok(())
}

/// Returns the name as text.
pub(super) fn text(name: &[u8]) -> Result<&str> {
    std::str::from_utf8(name).map_err(|_| {
        let shown = name.iter().take(SHOWN_BYTES_MAX).copied().collect::<Vec<_>>();
        refused(&shown.escape_ascii().to_string(), "is not UTF-8")
    })
}

/// Bytes of a refused name that its error shows.
const SHOWN_BYTES_MAX: usize = 32;

fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(SHOWN_BYTES_MAX)]
}

fn refused(name: &str, rule: &str) -> Status {
    Status::invalid_argument(format!("topic name \"{name}\" {rule}"))
}

/// Converts a name with another separator to the canonical form; `/` and `%` inside a level are percent-encoded. A
/// separator that [`to_separated`] encoded becomes a part of its level again.
///
/// ```
/// # use switchboard_message::names;
/// assert_eq!(names::from_separated("a.b/c.50%", "."), "a/b%2Fc/50%25");
/// assert_eq!(names::to_separated("a/b%2Fc/50%25", "."), "a.b/c.50%");
/// assert_eq!(names::from_separated(&names::to_separated("v1.2/x", "."), "."), "v1.2/x");
/// ```
pub fn from_separated(name: &str, separator: &str) -> String {
    let escaped = |text: &str| text.replace('%', "%25").replace(SEPARATOR, "%2F");
    let (encoded, within) = (encoded(separator), escaped(separator));
    let levels = name
        .split(separator)
        .map(|level| level.split(&encoded).map(escaped).collect::<Vec<_>>().join(&within));
    levels.collect::<Vec<_>>().join("/")
}

/// Converts a canonical name to the form with another separator; that separator inside a level is percent-encoded.
pub fn to_separated(name: &str, separator: &str) -> String {
    let encoded = encoded(separator);
    let levels = name.split(SEPARATOR).map(|level| {
        let level = level.replace("%2F", "/").replace("%2f", "/").replace("%25", "%");
        level.replace(separator, &encoded)
    });
    levels.collect::<Vec<_>>().join(separator)
}

fn encoded(separator: &str) -> String {
    separator.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_the_rules_are_accepted() {
        let deep = ["l"; LEVELS_MAX].join("/");
        let long = "x".repeat(NAME_BYTES_MAX);
        for name in ["a", "a/b", "/", "a//b", "größe/1", "a*b", "a/x>y", "a$", &deep, &long] {
            assert_eq!(Topic::new(name).unwrap().name(), name);
            assert_eq!(Topic::from_bytes(name.as_bytes()).unwrap(), Topic::new(name).unwrap());
        }
    }

    #[test]
    fn refused_names_have_the_rule_in_the_error() {
        let deep = ["l"; LEVELS_MAX + 1].join("/");
        let long = "ä".repeat(NAME_BYTES_MAX);
        for (name, rule) in [
            (&b""[..], "is empty"),
            (long.as_bytes(), "has 512 bytes; the limit is 256"),
            (deep.as_bytes(), "has 17 levels; the limit is 16"),
            (b"a\0b", "contains NUL"),
            (b"$nodes", "begins with $, which is reserved"),
            (b"a/\xff", "is not UTF-8"),
            (b"a/*", "wildcard"),
            (b"+/b", "wildcard"),
            (b"a/>", "wildcard"),
            (b"#", "wildcard"),
        ] {
            let status = Topic::from_bytes(name).unwrap_err();
            assert_eq!(status.code(), switchboard_wire::Code::InvalidArgument);
            assert!(status.message().contains(rule), "{status}");
            assert!(status.message().len() < 160, "{status}");
        }
    }

    #[test]
    fn separators_are_converted_in_both_directions() {
        for (foreign, separator, canonical) in [
            ("a.b.c", ".", "a/b/c"),
            ("a.b/c", ".", "a/b%2Fc"),
            ("50%.x", ".", "50%25/x"),
            ("%2F", ".", "%252F"),
            ("live://7", "://", "live/7"),
            ("news:sport", ":", "news/sport"),
            ("a/b", "/", "a/b"),
            ("", ".", ""),
        ] {
            assert_eq!(from_separated(foreign, separator), canonical);
            assert_eq!(to_separated(canonical, separator), foreign, "{canonical}");
        }
        for (canonical, separator, foreign) in
            [("v1.2/x", ".", "v1%2E2.x"), ("a%2Fb/c", "/", "a%2Fb/c"), ("a://b/c", "://", "a%3A%2F%2Fb://c")]
        {
            let canonical = canonical.replace("://", ":%2F%2F");
            assert_eq!(to_separated(&canonical, separator), foreign);
            assert_eq!(from_separated(foreign, separator), canonical);
        }
    }
}

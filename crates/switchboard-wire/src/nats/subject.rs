//! Subjects: their rules, and their conversion to the names of topics.
//!
//! A topic's name has levels separated by `/`; `/` and `%` inside a level are `%2F` and `%25`. A subject has tokens
//! separated by dots. Every valid subject has one name, and every name without an empty level has one subject, in both
//! directions: a subscriber of NATS sees the subject that was published.
//!
//! A level may have bytes that a token cannot: dots, blanks and control characters. They are `%2E`, `%20` and so on in
//! the token. To keep `%2E` as an ordinary text possible, a token's `%25` before such an escape is the escape of `%`.
//! All other percent signs are ordinary: the subject `50%.x` is the topic `50%25/x`.
//!
//! | subject | topic |
//! | --- | --- |
//! | `a.b` | `a/b` |
//! | `a/b.c` | `a%2Fb/c` |
//! | `a%2Eb.c` | `a.b/c` |
//! | `a%252Eb` | `a%252Eb` |
//! | `50%.x` | `50%25/x` |
//!
//! In patterns a token `*` is one level and a last token `>` is all further levels, as in the patterns of topics.

use std::fmt;

/// Reason why a subject or a name cannot be converted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InvalidName {
    /// A token or level is empty.
    Empty,
    /// A percent sign of a topic's name is not part of `%2F` or `%25`.
    Escape,
    /// A token has a blank or a control character, or is not UTF-8.
    Text,
    /// A wildcard is in a name without wildcards, or `>` is not last.
    Wildcard,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidName::Empty => "nats: a token of the subject, or a level of the topic, is empty",
            InvalidName::Escape => "nats: a percent sign of the topic is not part of %2F or %25",
            InvalidName::Text => "nats: subject has a blank or a control character, or is not UTF-8",
            InvalidName::Wildcard => "nats: name has a wildcard, or `>` before its last token",
        })
    }
}

impl std::error::Error for InvalidName {}

/// Kind of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// One topic.
    Literal,
    /// Wildcards are allowed.
    Pattern,
}

/// Checks a subject that a message is published to: no wildcard.
///
/// # Errors
/// Returns the broken rule.
pub fn check_subject(subject: &[u8]) -> Result<(), InvalidName> {
    check(subject, Form::Literal).map(drop)
}

/// Checks a subject of a subscription, which may have wildcards.
///
/// # Errors
/// Returns the broken rule.
pub fn check_pattern(pattern: &[u8]) -> Result<(), InvalidName> {
    check(pattern, Form::Pattern).map(drop)
}

/// Returns the topic of a subject.
///
/// # Errors
/// Fails if [`check_subject`] does.
pub fn topic_of(subject: &[u8]) -> Result<String, InvalidName> {
    check(subject, Form::Literal).map(to_topic)
}

/// Returns the pattern of topics for a subject with wildcards.
///
/// # Errors
/// Fails if [`check_pattern`] does.
pub fn topics_of(pattern: &[u8]) -> Result<String, InvalidName> {
    check(pattern, Form::Pattern).map(to_topic)
}

/// Returns the subject of a topic.
///
/// # Errors
/// Fails on an empty level, on a level that is a wildcard, and on a name that is not in the form of topics.
pub fn subject_of(topic: &str) -> Result<String, InvalidName> {
    to_subject(topic, Form::Literal)
}

/// Returns the subject for a pattern of topics.
///
/// # Errors
/// Fails on an empty level, on `>` before the last level, and on a pattern that is not in the form of topics.
pub fn subjects_of(pattern: &str) -> Result<String, InvalidName> {
    to_subject(pattern, Form::Pattern)
}

fn check(subject: &[u8], form: Form) -> Result<&str, InvalidName> {
    let text = std::str::from_utf8(subject).map_err(|_| InvalidName::Text)?;
    if text.bytes().any(|byte| byte <= b' ' || byte == 0x7F) {
        return Err(InvalidName::Text);
    }
    check_parts(text, '.', form).map(|()| text)
}

/// Checks tokens or levels.
fn check_parts(text: &str, separator: char, form: Form) -> Result<(), InvalidName> {
    let mut parts = text.split(separator).peekable();
    while let Some(part) = parts.next() {
        match part {
            "" => return Err(InvalidName::Empty),
            "*" if form == Form::Literal => return Err(InvalidName::Wildcard),
            ">" if form == Form::Literal || parts.peek().is_some() => return Err(InvalidName::Wildcard),
            _ => {}
        }
    }
    Ok(())
}

fn to_topic(subject: &str) -> String {
    let mut topic = String::with_capacity(subject.len());
    for (index, token) in subject.split('.').enumerate() {
        if index > 0 {
            topic.push('/');
        }
        let mut rest = token;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            match first {
                '%' => match escape_after(rest) {
                    Some(Escape { percents: 0, byte }) => {
                        topic.push(char::from(byte));
                        rest = &rest[2..];
                    }
                    Some(escape) => {
                        // One `%25` is the percent sign, the rest is text.
                        topic.push_str("%25");
                        topic.push_str(&rest[2..escape.len()]);
                        rest = &rest[escape.len()..];
                    }
                    None => topic.push_str("%25"),
                },
                '/' => topic.push_str("%2F"),
                _ => topic.push(first),
            }
        }
    }
    topic
}

fn to_subject(topic: &str, form: Form) -> Result<String, InvalidName> {
    check_parts(topic, '/', form)?;
    let mut subject = String::with_capacity(topic.len());
    for (index, level) in topic.split('/').enumerate() {
        if index > 0 {
            subject.push('.');
        }
        let mut rest = level;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            match u8::try_from(first) {
                Ok(b'%') => {
                    let code = rest.get(..2);
                    rest = rest.get(2..).unwrap_or_default();
                    match code {
                        Some("2F") => subject.push('/'),
                        Some("25") if escape_after(rest).is_some() => subject.push_str("%25"),
                        Some("25") => subject.push('%'),
                        _ => return Err(InvalidName::Escape),
                    }
                }
                Ok(byte) if needs_escape(byte) => {
                    subject.push_str(&format!("%{byte:02X}"));
                }
                _ => subject.push(first),
            }
        }
    }
    Ok(subject)
}

/// An escape after its percent sign: `25` some times, then the two digits of a byte that tokens cannot have.
struct Escape {
    percents: usize,
    byte: u8,
}

impl Escape {
    fn len(&self) -> usize {
        2 * self.percents + 2
    }
}

fn escape_after(text: &str) -> Option<Escape> {
    let mut rest = text.as_bytes();
    let mut percents = 0;
    while let Some(after) = rest.strip_prefix(b"25") {
        (rest, percents) = (after, percents + 1);
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let byte = digit(*rest.first()?)? << 4 | digit(*rest.get(1)?)?;
    needs_escape(byte).then_some(Escape { percents, byte })
}

/// Returns true if a level may have the byte and a token may not.
fn needs_escape(byte: u8) -> bool {
    byte <= b' ' || byte == b'.' || byte == 0x7F
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_and_topics() {
        let cases = [
            ("a", "a"),
            ("a.b", "a/b"),
            ("a/b.c", "a%2Fb/c"),
            ("a%2Eb.c", "a.b/c"),
            ("a%2eb", "a%252eb"),
            ("a%20b.%09", "a b/\t"),
            ("a%252Eb", "a%252Eb"),
            ("%25252E", "%25252E"),
            ("50%.x", "50%25/x"),
            ("50%25", "50%2525"),
            ("%2F", "%252F"),
            ("%", "%25"),
            ("%%2E", "%25."),
            ("%25%2E", "%2525."),
            ("%2A.a*b.c>", "%252A/a*b/c>"),
            ("$SYS.x", "$SYS/x"),
            ("_INBOX.Xy-1.7", "_INBOX/Xy-1/7"),
            ("é.日本", "é/日本"),
        ];
        for (subject, topic) in cases {
            assert_eq!(topic_of(subject.as_bytes()).as_deref(), Ok(topic), "{subject}");
            assert_eq!(subject_of(topic).as_deref(), Ok(subject), "{topic}");
            assert_eq!(topics_of(subject.as_bytes()).as_deref(), Ok(topic), "{subject}");
            assert_eq!(subjects_of(topic).as_deref(), Ok(subject), "{topic}");
        }
    }

    #[test]
    fn patterns() {
        for (subjects, topics) in [("a.*", "a/*"), ("*.b.*", "*/b/*"), (">", ">"), ("a/b.>", "a%2Fb/>")] {
            assert_eq!(topics_of(subjects.as_bytes()).as_deref(), Ok(topics), "{subjects}");
            assert_eq!(subjects_of(topics).as_deref(), Ok(subjects), "{topics}");
            assert_eq!(topic_of(subjects.as_bytes()), Err(InvalidName::Wildcard), "{subjects}");
            assert_eq!(subject_of(topics), Err(InvalidName::Wildcard), "{topics}");
        }
    }

    #[test]
    fn invalid_names() {
        let subjects: &[(&[u8], InvalidName)] = &[
            (b"", InvalidName::Empty),
            (b".", InvalidName::Empty),
            (b"a.", InvalidName::Empty),
            (b".a", InvalidName::Empty),
            (b"a..b", InvalidName::Empty),
            (b"a b", InvalidName::Text),
            (b"a\tb", InvalidName::Text),
            (b"a\r\nb", InvalidName::Text),
            (b"a\0", InvalidName::Text),
            (b"\xff", InvalidName::Text),
            (b">.a", InvalidName::Wildcard),
            (b"a.>.b", InvalidName::Wildcard),
        ];
        for (subject, error) in subjects {
            assert_eq!(check_pattern(subject), Err(*error), "{}", subject.escape_ascii());
            assert_eq!(topics_of(subject), Err(*error), "{}", subject.escape_ascii());
            assert!(check_subject(subject).is_err() && topic_of(subject).is_err());
        }
        let topics = [
            ("", InvalidName::Empty),
            ("/a", InvalidName::Empty),
            ("a//b", InvalidName::Empty),
            ("a%", InvalidName::Escape),
            ("a%2", InvalidName::Escape),
            ("a%2f", InvalidName::Escape),
            ("a%é", InvalidName::Escape),
            ("a%2E", InvalidName::Escape),
            (">/a", InvalidName::Wildcard),
        ];
        for (topic, error) in topics {
            assert_eq!(subjects_of(topic), Err(error), "{topic}");
            assert!(subject_of(topic).is_err());
        }
    }
}

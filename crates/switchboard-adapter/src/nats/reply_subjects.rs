//! Subjects for replies to requests of this process.
//!
//! A request of the bus has a topic for its replies, `$reply/NUMBER/SECRET`, whose name cannot be guessed. Clients
//! publish to `_REPLY.NUMBER.SECRET` instead: subjects that begin with `$` are reserved.

const PREFIX: &str = "_REPLY.";
const TOPICS: &str = "$reply/";

/// Returns the subject for a topic of replies; `None` for topics that clients name themselves.
pub(super) fn subject(reply_to: &str) -> Option<String> {
    let (number, secret) = reply_to.strip_prefix(TOPICS)?.split_once('/')?;
    Some(format!("{PREFIX}{number}.{secret}"))
}

/// Returns the topic of replies for such a subject; `None` for others.
pub(super) fn reply_to(subject: &[u8]) -> Option<String> {
    let rest = std::str::from_utf8(subject.strip_prefix(PREFIX.as_bytes())?).ok()?;
    let (number, secret) = rest.split_once('.')?;
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_word(number) && is_word(secret)).then(|| format!("{TOPICS}{number}/{secret}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_name_topics_of_replies_alone() {
        let topic = "$reply/7/00ff00ff00ff00ff";
        let made = subject(topic).unwrap();
        assert_eq!(made, "_REPLY.7.00ff00ff00ff00ff");
        assert_eq!(reply_to(made.as_bytes()).as_deref(), Some(topic));
        for other in ["_REPLY.7", "_REPLY..0", "_REPLY.7.", "_REPLY.x.0", "_REPLY.7.0.0", "_INBOX.7.0", ""] {
            assert_eq!(reply_to(other.as_bytes()), None, "{other}");
        }
        assert_eq!(subject("a/b"), None);
    }
}

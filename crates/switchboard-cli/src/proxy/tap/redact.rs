//! What is not for the eyes of whoever reads the tap: names of metadata and of fields whose values are left out.

use serde_json::Value;
use std::collections::HashSet;

/// What stands in the place of a value.
pub(super) const REDACTED: &str = "[redacted]";

/// Names that carry credentials as a rule.
const USUAL: [&str; 14] = [
    "access_token",
    "api_key",
    "authorization",
    "client_secret",
    "cookie",
    "passwd",
    "password",
    "private_key",
    "proxy_authorization",
    "refresh_token",
    "secret",
    "set_cookie",
    "token",
    "x_api_key",
];

/// The names, in the form that all spellings of one have in common.
#[derive(Debug)]
pub(super) struct Redact {
    names: HashSet<String>,
    is_asked_for: bool,
}

impl Redact {
    pub(super) fn new(more: &[String]) -> Redact {
        let is_asked_for = !more.is_empty();
        let more = more.iter().map(String::as_str);
        Redact { names: USUAL.into_iter().chain(more).map(plain).collect(), is_asked_for }
    }

    /// Whether there are more names than the usual ones.
    pub(super) fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// Leaves values out of a message, at any depth.
    pub(super) fn message(&self, value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(|value| self.message(value)),
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    match self.has(name) {
                        true => *value = REDACTED.into(),
                        false => self.message(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether what has this name is not to be shown.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(&plain(name))
    }
}

/// `userName`, `user_name` and `User-Name` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_known_in_every_spelling_and_at_every_depth() {
        let redact = Redact::new(&["card_number".to_owned()]);
        assert!(redact.has("Authorization") && redact.has("card-number") && !redact.has("x-tenant"));
        let mut message =
            json!({"cardNumber": {"n": 1}, "items": [{"card_number": "4111", "n": 2}], "accessToken": "t"});
        redact.message(&mut message);
        let wanted = json!({"cardNumber": REDACTED, "items": [{"card_number": REDACTED, "n": 2}], "accessToken": REDACTED});
        assert_eq!(message, wanted);
    }
}

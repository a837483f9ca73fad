//! Redaction: names of metadata and of fields whose values the tap does not print.

use serde_json::Value;
use switchboard::guard::matches;

/// Replaces a redacted value.
pub(super) const REDACTED: &str = "[redacted]";

/// Names that usually contain credentials, without case, hyphens and underscores.
const USUAL: [&str; 12] = [
    "*apikey*",
    "*authorization*",
    "*cookie*",
    "*credential*",
    "*passphrase*",
    "*passwd*",
    "*password*",
    "*privatekey*",
    "*secret*",
    "*sessionid*",
    "*signature*",
    "*token*",
];

/// Patterns of names, in a normalised form.
#[derive(Debug)]
pub(super) struct Redact {
    patterns: Vec<String>,
}

impl Redact {
    pub(super) fn new(more: &[String]) -> Redact {
        let more = more.iter().map(String::as_str);
        Redact { patterns: USUAL.into_iter().chain(more).map(plain).collect() }
    }

    /// Removes redacted values from a message, at any depth.
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

    /// Returns whether values with this name are redacted.
    pub(super) fn has(&self, name: &str) -> bool {
        let name = plain(name);
        self.patterns.iter().any(|pattern| matches(pattern, &name))
    }
}

/// Normalises a name: `userName`, `user_name` and `User-Name` are equal.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_match_in_every_spelling_and_at_every_depth() {
        let redact = Redact::new(&["card_number".to_owned(), "x-internal-*".to_owned()]);
        for name in [
            "Authorization",
            "x-goog-authorization",
            "Set-Cookie",
            "accessToken",
            "x-vault-token",
            "clientSecretValue",
            "DB_PASSWORD",
            "X-API-Key",
            "card-number",
            "x-internal-user",
        ] {
            assert!(redact.has(name), "{name}");
        }
        for name in ["x-tenant", "name", "card", "key", "author"] {
            assert!(!redact.has(name), "{name}");
        }
        let mut message =
            json!({"cardNumber": {"n": 1}, "items": [{"card_number": "4111", "n": 2}], "accessToken": "t"});
        redact.message(&mut message);
        let items = json!([{"card_number": REDACTED, "n": 2}]);
        let wanted = json!({"cardNumber": REDACTED, "items": items, "accessToken": REDACTED});
        assert_eq!(message, wanted);
    }
}

//! Callers that may use the interfaces.

use switchboard::plugin::RouteHead;

/// Parameter of the query that may carry the token.
const PARAMETER: &str = "token";

/// Callers that may use the interfaces.
#[derive(Clone, Debug, Default)]
pub(crate) enum Access {
    /// No caller: the interface has not been configured.
    #[default]
    Closed,
    /// Every caller that the listener and the rules of the server admit.
    Open,
    /// Callers with one of these tokens.
    Tokens(Vec<Secret>),
}

/// A token, which `Debug` does not show.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Returns whether a caller has sent this token.
    pub(crate) fn is(&self, sent: &str) -> bool {
        is_equal(sent.as_bytes(), self.0.as_bytes())
    }
}

impl Access {
    /// Adds a token.
    pub(crate) fn with_token(self, token: String) -> Access {
        let mut tokens = match self {
            Access::Tokens(tokens) => tokens,
            Access::Closed | Access::Open => Vec::new(),
        };
        tokens.push(Secret(token));
        Access::Tokens(tokens)
    }

    /// Returns whether a request may use the interfaces.
    pub(crate) fn admits(&self, head: &RouteHead) -> bool {
        let tokens = match self {
            Access::Closed => return false,
            Access::Open => return true,
            Access::Tokens(tokens) => tokens,
        };
        let bearer = head.header("authorization").and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let sent = bearer.or_else(|| head.parameters(PARAMETER).next()).filter(|sent| !sent.is_empty());
        sent.is_some_and(|sent| tokens.iter().any(|token| token.is(sent)))
    }
}

/// Compares a token in a time that does not depend on the position of a difference.
fn is_equal(sent: &[u8], token: &[u8]) -> bool {
    let difference = sent.iter().zip(token).fold(0, |found, (sent, token)| found | (sent ^ token));
    sent.len() == token.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_token_is_in_a_header_or_in_the_query() {
        let access = Access::default().with_token("first".into()).with_token("second".into());
        let with = |header: Option<&'static str>, parameter: Option<&str>| {
            let mut head = RouteHead::new("POST", "/goim/push/all");
            head.headers.extend(header.map(|value| ("authorization".to_owned(), Bytes::from(value))));
            head.parameters.extend(parameter.map(|value| (PARAMETER.to_owned(), value.to_owned())));
            head
        };
        for (header, parameter, admits) in [
            (Some("Bearer first"), None, true),
            (Some("bearer second"), None, true),
            (None, Some("second"), true),
            (Some("Bearer firs"), None, false),
            (Some("Bearer first "), None, true),
            (Some("Bearer"), None, false),
            (Some("Basic first"), None, false),
            (Some("Bearer wrong"), Some("first"), false),
            (None, Some(""), false),
            (None, None, false),
        ] {
            assert_eq!(access.admits(&with(header, parameter)), admits, "{header:?} {parameter:?}");
        }
        let empty = Access::default().with_token(String::new());
        for (header, parameter) in
            [(None, None), (None, Some("")), (Some("Bearer "), None), (Some("Bearer  "), None)]
        {
            assert!(!empty.admits(&with(header, parameter)), "{header:?} {parameter:?}");
        }
        assert!(
            Access::Open.admits(&with(None, None)) && !Access::Closed.admits(&with(Some("Bearer x"), None))
        );
    }
}

//! HTTP paths of methods in the notation of `google.api.http`, and their path templates.
//!
//! A template is `/`, segments between slashes, and an optional `:verb` at the end. A segment is literal text, `*` for
//! any one segment, or `**` for any number of them, which must be the last. `{field.path=segments}` assigns the text
//! that its segments match to a field of the request; `{field}` is short for `{field=*}`. The grammar is that of
//! `google/api/http.proto`.
//! `google/api/http.proto`.

use crate::proto::{Fields, put_bytes, put_message};
use bytes::BytesMut;
use std::fmt;

/// HTTP path of a method; generated code stores them in statics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpRule {
    /// The HTTP method: `GET`.
    pub verb: &'static str,
    /// The template of the path: `/v1/{name=shelves/*}`.
    pub path: &'static str,
    /// The field of the request that the body fills; `*` for all fields that the path does not fill, empty for none.
    pub body: &'static str,
    /// The field of the reply that becomes the response body; empty for the whole reply.
    pub response_body: &'static str,
}

impl HttpRule {
    /// Number of the method option `google.api.http`.
    #[doc(hidden)]
    pub const OPTION: u32 = 72_295_728;

    /// Encodes the value of the option with these rules; `None` without a rule.
    #[doc(hidden)]
    pub fn encode(rules: &[HttpRule]) -> Option<Vec<u8>> {
        let (first, more) = rules.split_first()?;
        let mut bytes = BytesMut::new();
        first.write(&mut bytes);
        for rule in more {
            put_message(&mut bytes, option::ADDITIONAL_BINDINGS, |into| rule.write(into));
        }
        Some(bytes.to_vec())
    }

    fn write(&self, into: &mut BytesMut) {
        match option::VERBS.iter().position(|verb| *verb == self.verb) {
            Some(at) => put_bytes(into, option::FIRST_VERB + at as u32, self.path.as_bytes()),
            None => put_message(into, option::CUSTOM, |into| {
                put_bytes(into, 1, self.verb.as_bytes());
                put_bytes(into, 2, self.path.as_bytes());
            }),
        }
        for (field, text) in [(option::BODY, self.body), (option::RESPONSE_BODY, self.response_body)] {
            if !text.is_empty() {
                put_bytes(into, field, text.as_bytes());
            }
        }
    }

    /// Decodes the rules of such a value, whose texts are never freed; `None` for bytes that are not such a value.
    #[doc(hidden)]
    pub fn decode(bytes: &[u8]) -> Option<Vec<HttpRule>> {
        let mut rules = Vec::new();
        HttpRule::read(bytes, &mut rules, true)?;
        Some(rules)
    }

    fn read(bytes: &[u8], rules: &mut Vec<HttpRule>, takes_more: bool) -> Option<()> {
        let leaked = |bytes: &[u8]| -> Option<&'static str> {
            Some(Box::leak(std::str::from_utf8(bytes).ok()?.into()))
        };
        let (at, mut rule) = (rules.len(), HttpRule { verb: "", path: "", body: "", response_body: "" });
        rules.push(rule);
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next().ok()? {
            let bytes = value.bytes();
            match field {
                option::FIRST_VERB..=option::LAST_VERB => {
                    rule.verb = option::VERBS[(field - option::FIRST_VERB) as usize];
                    rule.path = leaked(bytes)?;
                }
                option::BODY => rule.body = leaked(bytes)?,
                option::CUSTOM => {
                    let mut custom = Fields(bytes);
                    while let Some((field, value)) = custom.next().ok()? {
                        match field {
                            1 => rule.verb = leaked(value.bytes())?,
                            2 => rule.path = leaked(value.bytes())?,
                            _ => {}
                        }
                    }
                }
                option::ADDITIONAL_BINDINGS if takes_more => HttpRule::read(bytes, rules, false)?,
                option::RESPONSE_BODY => rule.response_body = leaked(bytes)?,
                _ => {}
            }
        }
        rules[at] = rule;
        (!rule.verb.is_empty() && !rule.path.is_empty()).then_some(())
    }
}

/// Numbers of the fields of `google.api.HttpRule`.
mod option {
    pub(super) const FIRST_VERB: u32 = 2;
    pub(super) const LAST_VERB: u32 = 6;
    pub(super) const VERBS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "PATCH"];
    pub(super) const BODY: u32 = 7;
    pub(super) const CUSTOM: u32 = 8;
    pub(super) const ADDITIONAL_BINDINGS: u32 = 11;
    pub(super) const RESPONSE_BODY: u32 = 12;
}

/// Path template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    /// Patterns of the segments of a path.
    pub segments: Vec<Segment>,
    /// Text that must follow the last segment after a colon.
    pub verb: Option<String>,
    /// Fields of the request and the segments that fill them.
    pub variables: Vec<Variable>,
}

/// Pattern for one segment of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: the grammar of google.api.http
pub enum Segment {
    /// Anything: `*`.
    Any,
    /// This text.
    Literal(String),
    /// Any number of segments, none included: `**`.
    Rest,
}

/// A field that the path fills.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Variable {
    /// Names of fields with dots in between: `shelf.name`.
    pub field: String,
    /// Index of its first segment.
    pub first: usize,
    /// Number of segments of the template.
    pub count: usize,
    /// True if it matches exactly one segment of a path.
    pub is_single: bool,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns the reason and the position of the error.
    pub fn parse(text: &str) -> Result<Template, String> {
        Template::read(text).map_err(|what| format!("path {text}: {what}"))
    }

    fn read(text: &str) -> Result<Template, String> {
        let rest = text.strip_prefix('/').ok_or("it must begin with a slash")?;
        let tail = rest.rfind(['/', '}']).map_or(0, |at| at + 1);
        let (mut path, verb) = match rest[tail..].find(':') {
            None => (rest, None),
            Some(at) => (&rest[..tail + at], Some(&rest[tail + at + 1..])),
        };
        if verb.is_some_and(|verb| !is_literal(verb)) {
            return Err("what follows the colon must be a name".to_owned());
        }
        let mut template =
            Template { segments: Vec::new(), verb: verb.map(str::to_owned), variables: Vec::new() };
        if path.is_empty() && verb.is_none() {
            return Ok(template);
        }
        loop {
            let after;
            if let Some(inside) = path.strip_prefix('{') {
                let end = inside.find('}').ok_or("a brace is not closed")?;
                template.variable(&inside[..end])?;
                after = &inside[end + 1..];
                if !after.is_empty() && !after.starts_with('/') {
                    return Err(
                        "a variable must fill its segment: a slash belongs after the brace".to_owned()
                    );
                }
            } else {
                let end = path.find('/').unwrap_or(path.len());
                template.segment(&path[..end])?;
                after = &path[end..];
            }
            match after.strip_prefix('/') {
                None => return Ok(template),
                Some("") => return Err("a slash at the end".to_owned()),
                Some(after) => path = after,
            }
        }
    }

    fn variable(&mut self, text: &str) -> Result<(), String> {
        let (field, segments) = text.split_once('=').unwrap_or((text, "*"));
        if !field.split('.').all(is_identifier) {
            return Err(format!("`{field}` is not a field name"));
        }
        if self.variables.iter().any(|known| known.field == field) {
            return Err(format!("`{field}` is bound twice"));
        }
        let first = self.segments.len();
        for segment in segments.split('/') {
            self.segment(segment)?;
        }
        let count = self.segments.len() - first;
        let is_single = count == 1 && self.segments[first] != Segment::Rest;
        self.variables.push(Variable { field: field.to_owned(), first, count, is_single });
        Ok(())
    }

    fn segment(&mut self, text: &str) -> Result<(), String> {
        if self.segments.last() == Some(&Segment::Rest) {
            return Err("`**` must be the last segment".to_owned());
        }
        self.segments.push(match text {
            "*" => Segment::Any,
            "**" => Segment::Rest,
            "" => return Err("a segment is empty".to_owned()),
            _ if text.contains(['{', '}']) => {
                return Err("a variable must fill its segment, and has no variables inside".to_owned());
            }
            _ if text.contains('*') => return Err("a wildcard must fill its segment".to_owned()),
            _ if is_literal(text) => Segment::Literal(text.to_owned()),
            _ => return Err(format!("`{text}` cannot be in a path")),
        });
        Ok(())
    }
}

/// Writes the shape, which is equal for templates that match the same paths.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Any => f.write_str("/*")?,
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Rest => f.write_str("/**")?,
            }
        }
        if self.segments.is_empty() {
            f.write_str("/")?;
        }
        self.verb.as_ref().map_or(Ok(()), |verb| write!(f, ":{verb}"))
    }
}

/// Returns true if all characters are allowed in a segment by RFC 3986, except colon, star and percent sign, which have
/// a meaning in templates.
fn is_literal(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()+,;=@".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns shape and variables, as `field@first+count`, with a star if a variable matches any number of segments.
    fn read(text: &str) -> (String, String) {
        let template = Template::parse(text).unwrap();
        let variables = template.variables.iter().map(|variable| {
            let star = if variable.is_single { "" } else { "*" };
            format!("{}@{}+{}{star}", variable.field, variable.first, variable.count)
        });
        (template.to_string(), variables.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn templates_of_the_specification_are_read() {
        for (text, shape, variables) in [
            ("/v1/messages/{message_id}", "/v1/messages/*", "message_id@2+1"),
            ("/v1/{name=messages/*}", "/v1/messages/*", "name@1+2*"),
            (
                "/v1/messages/{message_id}/{sub.subfield}",
                "/v1/messages/*/*",
                "message_id@2+1 sub.subfield@3+1",
            ),
            (
                "/v1/users/{user_id}/messages/{message_id}",
                "/v1/users/*/messages/*",
                "user_id@2+1 message_id@4+1",
            ),
            ("/v1/{name=**}", "/v1/**", "name@1+1*"),
            ("/v1/{name=shelves/*/books/*}:move", "/v1/shelves/*/books/*:move", "name@1+4*"),
            ("/v1/{parent=shelves/**}", "/v1/shelves/**", "parent@1+2*"),
            ("/v1/*/x", "/v1/*/x", ""),
            ("/v1:watch", "/v1:watch", ""),
            ("/v1/{a=lit}", "/v1/lit", "a@1+1"),
            ("/", "/", ""),
        ] {
            assert_eq!(read(text), (shape.to_owned(), variables.to_owned()), "{text}");
        }
    }

    #[test]
    fn template_errors_have_a_reason() {
        for (text, what) in [
            ("", "begin with a slash"),
            ("v1/a", "begin with a slash"),
            ("/v1/", "a slash at the end"),
            ("/v1//a", "a segment is empty"),
            ("/v1/{a", "a brace is not closed"),
            ("/v1/{a}b", "a slash belongs after the brace"),
            ("/v1/b{a}", "a variable must fill its segment"),
            ("/v1/{a={b}}", "no variables inside"),
            ("/v1/{a.}", "`a.` is not a field name"),
            ("/v1/{}", "`` is not a field name"),
            ("/v1/{a}/{a}", "`a` is bound twice"),
            ("/v1/**/a", "`**` must be the last segment"),
            ("/v1/{a=**}/b", "`**` must be the last segment"),
            ("/v1/a*", "a wildcard must fill its segment"),
            ("/v1/a b", "`a b` cannot be in a path"),
            ("/v1/a?b", "`a?b` cannot be in a path"),
            ("/v1/a:", "the colon"),
            ("/v1/a:b:c", "follows the colon"),
            ("/:go", "a segment is empty"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}

//! HTTP paths of methods, as `google.api.http` writes them, and the templates of these paths.
//!
//! A template is `/`, segments between slashes, and perhaps a `:verb` at the end. A segment is literal text, `*` for
//! any one segment, or `**` for any number of them, which must be the last. `{field.path=segments}` gives what its
//! segments match to a field of the request; `{field}` is short for `{field=*}`. The grammar is that of
//! `google/api/http.proto`.

use std::fmt;

/// One HTTP path of a method; generated code has them in statics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpRule {
    /// The HTTP method: `GET`.
    pub verb: &'static str,
    /// The template of the path: `/v1/{name=shelves/*}`.
    pub path: &'static str,
    /// The field of the request that the body fills; `*` for all that the path leaves, empty for none.
    pub body: &'static str,
    /// The field of the reply that is answered with; empty for all of it.
    pub response_body: &'static str,
}

/// The template of a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    /// What the segments of a path must be.
    pub segments: Vec<Segment>,
    /// What must follow the last segment after a colon.
    pub verb: Option<String>,
    /// Which segments fill which fields.
    pub variables: Vec<Variable>,
}

/// What one segment of a path must be.
#[derive(Clone, Debug, Eq, PartialEq)]
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
    /// How many segments of the template it has.
    pub count: usize,
    /// Whether it matches exactly one segment of a path.
    pub is_single: bool,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it, and where.
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
            return Err(format!("`{field}` is no name of a field"));
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

/// The shape: equal for templates that match the same paths.
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

/// What RFC 3986 allows in a segment, but for the colon, the star and the percent sign, which mean something here.
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

    /// Shape and variables, as `field@first+count`, with a star for those of any number of segments.
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
    fn what_is_wrong_with_a_template_is_said() {
        for (text, what) in [
            ("", "begin with a slash"),
            ("v1/a", "begin with a slash"),
            ("/v1/", "a slash at the end"),
            ("/v1//a", "a segment is empty"),
            ("/v1/{a", "a brace is not closed"),
            ("/v1/{a}b", "a slash belongs after the brace"),
            ("/v1/b{a}", "a variable must fill its segment"),
            ("/v1/{a={b}}", "no variables inside"),
            ("/v1/{a.}", "`a.` is no name of a field"),
            ("/v1/{}", "`` is no name of a field"),
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

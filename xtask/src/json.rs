//! Reads JSON: manifests are JSON, and this crate has no dependencies.

use std::collections::BTreeMap;

/// A value; numbers are kept as text, since no field of a manifest is a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Array(Vec<Value>),
    Bool(bool),
    Null,
    Number(String),
    Object(BTreeMap<String, Value>),
    Text(String),
}

/// Deeper nesting than this is refused: the reader calls itself for each level.
const DEPTH_MAX: usize = 32;

impl Value {
    /// Reads `text`.
    ///
    /// # Errors
    /// Names the expected token and the line.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0);
        let value = value.and_then(|value| if reader.peek().is_none() { Ok(value) } else { Err("the end") });
        value.map_err(|expected| {
            let line = text[..reader.at].matches('\n').count() + 1;
            format!("line {line}: expected {expected}")
        })
    }

    pub(crate) fn get(&self, field: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.get(field),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of an array.
    pub(crate) fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// An array of texts.
    pub(crate) fn texts(&self) -> Option<Vec<&str>> {
        self.elements()?.iter().map(Self::text).collect()
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\n', '\r', '\t']).len();
        self.text[self.at..].chars().next()
    }

    /// Returns whether `wanted` comes next; it is then taken.
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek().is_some() && self.text[self.at..].starts_with(wanted);
        self.at += if found { wanted.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, &'static str> {
        if depth > DEPTH_MAX {
            return Err("less nesting");
        }
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"') => self.string().map(Value::Text),
            Some('-' | '0'..='9') => Ok(self.number()),
            _ if self.take("true") => Ok(Value::Bool(true)),
            _ if self.take("false") => Ok(Value::Bool(false)),
            _ if self.take("null") => Ok(Value::Null),
            _ => Err("a value"),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, &'static str> {
        let mut fields = BTreeMap::new();
        self.take("{");
        if self.take("}") {
            return Ok(Value::Object(fields));
        }
        loop {
            if self.peek() != Some('"') {
                return Err("the name of a field");
            }
            let name = self.string()?;
            if !self.take(":") {
                return Err("a colon");
            }
            fields.insert(name, self.value(depth + 1)?);
            if self.take("}") {
                return Ok(Value::Object(fields));
            }
            if !self.take(",") {
                return Err("a comma or the end of the object");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, &'static str> {
        let mut elements = Vec::new();
        self.take("[");
        if self.take("]") {
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.take("]") {
                return Ok(Value::Array(elements));
            }
            if !self.take(",") {
                return Err("a comma or the end of the array");
            }
        }
    }

    fn number(&mut self) -> Value {
        let rest = &self.text[self.at..];
        let is_part = |found: char| found.is_ascii_alphanumeric() || matches!(found, '-' | '+' | '.');
        let len = rest.find(|found| !is_part(found)).unwrap_or(rest.len());
        self.at += len;
        Value::Number(rest[..len].to_owned())
    }

    fn string(&mut self) -> Result<String, &'static str> {
        let mut text = String::new();
        let mut characters = self.text[self.at + 1..].char_indices();
        while let Some((offset, found)) = characters.next() {
            match found {
                '"' => {
                    self.at += offset + 2;
                    return Ok(text);
                }
                '\\' => match characters.next().ok_or("the end of the string")?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    'u' => {
                        let digits: String = characters.by_ref().take(4).map(|(_, digit)| digit).collect();
                        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                        // Halves of pairs are not texts that a manifest needs.
                        text.push(code.ok_or("a character")?);
                    }
                    plain => text.push(plain),
                },
                plain => text.push(plain),
            }
        }
        Err("the end of the string")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let value =
            Value::read(r#" { "a": ["x", "y\n\"\u00e9"], "b": { "c": [] }, "n": -1.5e3, "t": true } "#);
        let value = value.unwrap();
        assert_eq!(value.get("a").unwrap().texts().unwrap(), ["x", "y\n\"é"]);
        assert_eq!(value.get("b").unwrap().get("c").unwrap().elements(), Some(&[][..]));
        assert_eq!(value.get("n"), Some(&Value::Number("-1.5e3".into())));
        assert_eq!((value.get("t"), value.get("u")), (Some(&Value::Bool(true)), None));
        assert_eq!(Value::read("null"), Ok(Value::Null));
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (text, expected) in [
            ("", "line 1: expected a value"),
            ("{\n\"a\"\n1}", "line 3: expected a colon"),
            ("{\"a\": 1,\n}", "line 2: expected the name of a field"),
            ("[1 2]", "line 1: expected a comma or the end of the array"),
            ("[] x", "line 1: expected the end"),
            ("\"open", "line 1: expected the end of the string"),
        ] {
            assert_eq!(Value::read(text).unwrap_err(), expected, "{text}");
        }
        assert!(Value::read(&"[".repeat(100)).is_err());
    }
}

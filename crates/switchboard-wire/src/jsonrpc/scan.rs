//! Finds the end of a JSON text while its bytes arrive; each byte is examined once.
//!
//! The scanner reports a byte that no JSON text allows as soon as it arrives, so that a connection can continue at the
//! next line. Errors within numbers and characters are left to the parser of the complete text.

use super::DEPTH_MAX;

/// Result of a [`Scanner`] for the bytes so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scanned {
    /// The text is nested too deep.
    Deep,
    /// The text is complete with this length in bytes.
    End(usize),
    /// More bytes are needed.
    More,
    /// The text is not an array or object in JSON.
    Wrong,
}

/// State of a scanner between two calls with a growing text.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    at: usize,
    state: State,
    depth: usize,
    /// One bit for each open container: set for objects.
    objects: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// After a value.
    After,
    /// Before the text.
    Begin,
    Colon,
    Escape {
        key: bool,
    },
    /// After `{`.
    FirstKey,
    /// After `[`.
    FirstValue,
    Key,
    Literal(&'static [u8]),
    Number,
    String {
        key: bool,
    },
    Value,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner { at: 0, state: State::Begin, depth: 0, objects: 0 }
    }
}

impl Scanner {
    /// Continues where it stopped; `text` begins with the value and only grows between calls.
    pub(super) fn scan(&mut self, text: &[u8]) -> Scanned {
        while let Some(&byte) = text.get(self.at) {
            crate::work::add(1);
            let next = match self.step(byte) {
                Ok(next) => next,
                Err(scanned) => return scanned,
            };
            if let Some(next) = next {
                self.at += 1;
                self.state = next;
                if self.depth == 0 {
                    return Scanned::End(self.at);
                }
            }
        }
        Scanned::More
    }

    /// Number of bytes scanned so far.
    pub(super) fn scanned(&self) -> usize {
        self.at
    }

    /// Returns the state after `byte`; `None` if the byte must be examined again.
    fn step(&mut self, byte: u8) -> Result<Option<State>, Scanned> {
        let blank = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        Ok(Some(match self.state {
            State::String { key } => match byte {
                b'"' if key => State::Colon,
                b'"' => State::After,
                b'\\' => State::Escape { key },
                0..0x20 => return Err(Scanned::Wrong),
                _ => self.state,
            },
            // Hexadecimal digits are treated like other characters.
            State::Escape { key } if byte >= 0x20 => State::String { key },
            State::Number if matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => State::Number,
            State::Number => {
                self.state = State::After;
                return Ok(None);
            }
            State::Literal([wanted, rest @ ..]) if *wanted == byte => {
                if rest.is_empty() {
                    State::After
                } else {
                    State::Literal(rest)
                }
            }
            State::Escape { .. } | State::Literal(_) => return Err(Scanned::Wrong),
            state if blank && state != State::Begin => state,
            State::Begin if !matches!(byte, b'[' | b'{') => return Err(Scanned::Wrong),
            State::FirstValue if byte == b']' => self.close(false)?,
            State::Begin | State::FirstValue | State::Value => self.value(byte)?,
            State::FirstKey if byte == b'}' => self.close(true)?,
            State::FirstKey | State::Key if byte == b'"' => State::String { key: true },
            State::Colon if byte == b':' => State::Value,
            State::After => match byte {
                b',' if self.in_object() => State::Key,
                b',' => State::Value,
                b']' => self.close(false)?,
                b'}' => self.close(true)?,
                _ => return Err(Scanned::Wrong),
            },
            State::FirstKey | State::Key | State::Colon => return Err(Scanned::Wrong),
        }))
    }

    fn value(&mut self, byte: u8) -> Result<State, Scanned> {
        Ok(match byte {
            b'"' => State::String { key: false },
            b'-' | b'0'..=b'9' => State::Number,
            b'[' => self.open(false)?,
            b'f' => State::Literal(b"alse"),
            b'n' => State::Literal(b"ull"),
            b't' => State::Literal(b"rue"),
            b'{' => self.open(true)?,
            _ => return Err(Scanned::Wrong),
        })
    }

    fn open(&mut self, object: bool) -> Result<State, Scanned> {
        if self.depth == DEPTH_MAX {
            return Err(Scanned::Deep);
        }
        self.objects = self.objects & !(1 << self.depth) | u64::from(object) << self.depth;
        self.depth += 1;
        Ok(if object { State::FirstKey } else { State::FirstValue })
    }

    fn close(&mut self, object: bool) -> Result<State, Scanned> {
        if self.in_object() != object {
            return Err(Scanned::Wrong);
        }
        self.depth -= 1;
        Ok(State::After)
    }

    fn in_object(&self) -> bool {
        self.objects >> (self.depth - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &[u8]) -> Scanned {
        let whole = Scanner::default().scan(text);
        let mut scanner = Scanner::default();
        let stepwise =
            (0..=text.len()).map(|end| scanner.scan(&text[..end])).find(|scanned| *scanned != Scanned::More);
        assert_eq!(stepwise.unwrap_or(Scanned::More), whole);
        whole
    }

    #[test]
    fn texts_end_at_their_last_brace() {
        for text in [
            r#"{}"#,
            r#"[]"#,
            r#"[[],{},[{"a":[1,-2.5e+3,"x",true,false,null]}]]"#,
            "{ \"a\" : \"\\\"}]\\\\\" ,\n\t\"\\u00e9\":{ } }",
            r#"{"ä":"}"}"#,
        ] {
            let with_more = format!("{text}{text} x");
            assert_eq!(scan(with_more.as_bytes()), Scanned::End(text.len()), "{text}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok());
            for end in 0..text.len() {
                assert_eq!(scan(&text.as_bytes()[..end]), Scanned::More, "{text} to {end}");
            }
        }
    }

    #[test]
    fn invalid_json_is_detected_at_its_byte() {
        for text in [
            "x",
            "1",
            "\"a\"",
            "[}",
            "{]",
            "[1}",
            "{\"a\":1]",
            "[,",
            "[1,]",
            "{,",
            "{1",
            "{\"a\"}",
            "{\"a\",",
            "{\"a\":}",
            "[tru ",
            "[nul]",
            "[x",
            "[\"a\nb\"]",
            "[1 2",
            "{\"a\":1,}",
            "[\"\\\n",
        ] {
            assert_eq!(scan(text.as_bytes()), Scanned::Wrong, "{text}");
        }
        // The broken batch of the specification.
        let broken = br#"[{"jsonrpc": "2.0", "method": "sum", "id": "1"}, {"jsonrpc": "2.0", "method"]"#;
        assert_eq!(scan(broken), Scanned::Wrong);
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert_eq!(scan(&nested(DEPTH_MAX)), Scanned::End(2 * DEPTH_MAX));
        assert_eq!(scan(&nested(DEPTH_MAX + 1)), Scanned::Deep);
    }
}

//! Splits a `.thrift` or `.fbs` file into words, with the documentation comments before them.

use crate::Error;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Double(f64),
    Int(i64),
    /// A name, including dots.
    Name(String),
    Sign(char),
    Text(String),
}

/// A word, its position, and the `/** … */` or `/// …` comment before it.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) token: Token,
    pub(crate) line: usize,
    pub(crate) doc: Option<String>,
}

/// Splits a file into words.
///
/// # Errors
/// Returns an error with `file:line` for texts and comments without an end, invalid numbers, and unknown signs.
pub(crate) fn words(file: &str, text: &str) -> Result<Vec<Word>, Error> {
    let mut lexer = Lexer { file, rest: text, line: 1, doc: None };
    let mut words = Vec::new();
    while let Some(word) = lexer.next()? {
        words.push(word);
    }
    Ok(words)
}

struct Lexer<'a> {
    file: &'a str,
    rest: &'a str,
    line: usize,
    doc: Option<String>,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Option<Word>, Error> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let line = self.line;
        let digit = |text: &str| text.starts_with(|next: char| next.is_ascii_digit() || next == '.');
        let token = if first.is_ascii_alphabetic() || first == '_' {
            let is_part = |next: char| next.is_ascii_alphanumeric() || next == '_' || next == '.';
            let name = self.take_while(is_part);
            Token::Name(name.to_owned())
        } else if digit(self.rest) || matches!(first, '-' | '+') && digit(&self.rest[1..]) {
            self.number()?
        } else if first == '"' || first == '\'' {
            self.text(first)?
        } else if "{}()<>[],;:=*&".contains(first) {
            self.step(1);
            Token::Sign(first)
        } else {
            return Err(self.error(&format!("unexpected character {first:?}")));
        };
        Ok(Some(Word { token, line, doc: self.doc.take() }))
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.step(blanks);
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                if let Some(line) = self.rest[..end].strip_prefix("///") {
                    let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
                    self.doc = Some(self.doc.take().map_or_else(|| line.to_owned(), |doc| doc + "\n" + line));
                }
                self.step(end);
            } else if self.rest.starts_with("/*") {
                let Some(end) = self.rest.find("*/") else {
                    return Err(self.error("a comment without an end"));
                };
                let comment = &self.rest[2..end.max(2)];
                if let Some(doc) = comment.strip_prefix('*') {
                    self.doc = documentation(doc);
                }
                self.step(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    fn number(&mut self) -> Result<Token, Error> {
        let text = self.take_while(|next| next.is_ascii_alphanumeric() || "+-.".contains(next)).to_owned();
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.trim_start_matches('+')),
        };
        let int = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        if let Some(int) = int.ok().and_then(|int| i64::try_from(sign * int).ok()) {
            return Ok(Token::Int(int));
        }
        text.parse().map(Token::Double).map_err(|_| self.error(&format!("{text} is not a number")))
    }

    fn text(&mut self, quote: char) -> Result<Token, Error> {
        let mut text = String::new();
        let mut escaped = false;
        for (at, next) in self.rest.char_indices().skip(1) {
            match (escaped, next) {
                (true, 'n') => text.push('\n'),
                (true, 't') => text.push('\t'),
                (true, 'r') => text.push('\r'),
                (true, other) => text.push(other),
                (false, '\\') => {}
                (false, next) if next == quote => {
                    self.step(at + 1);
                    return Ok(Token::Text(text));
                }
                (false, other) => text.push(other),
            }
            escaped = !escaped && next == '\\';
        }
        Err(self.error("a text without an end"))
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|next| !is_part(next)).unwrap_or(self.rest.len());
        let taken = &self.rest[..end];
        self.step(end);
        taken
    }

    fn step(&mut self, bytes: usize) {
        let (over, rest) = self.rest.split_at(bytes);
        self.line += over.matches('\n').count();
        self.rest = rest;
    }

    fn error(&self, what: &str) -> Error {
        Error::new(format!("{}:{}: {what}", self.file, self.line))
    }
}

/// Returns the text of a comment, without the stars before its lines.
fn documentation(comment: &str) -> Option<String> {
    let lines = comment.lines().map(|line| {
        let line = line.trim();
        let line = line.strip_prefix('*').unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line).trim_end()
    });
    let text = lines.collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned();
    (!text.is_empty()).then_some(text)
}

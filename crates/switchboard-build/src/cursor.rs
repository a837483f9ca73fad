//! Token cursor of the parsers of `.thrift` and `.fbs` files.

use crate::{
    Error,
    lexer::{self, Token, Word},
};

/// The words of a file, and the current position.
pub(crate) struct Cursor<'a> {
    file: &'a str,
    words: Vec<Word>,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Splits the text of `file`.
    ///
    /// # Errors
    /// Returns the errors of [`lexer::words`].
    pub(crate) fn new(file: &'a str, text: &str) -> Result<Cursor<'a>, Error> {
        Ok(Cursor { file, words: lexer::words(file, text)?, at: 0 })
    }

    /// Takes the next word.
    pub(crate) fn next(&mut self) -> Option<Token> {
        let token = self.peek()?.clone();
        self.at += 1;
        Some(token)
    }

    /// Skips an optional comma or semicolon.
    pub(crate) fn separator(&mut self) {
        let _ = self.sign(',') || self.sign(';');
    }

    /// Returns the next word without taking it.
    pub(crate) fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|word| &word.token)
    }

    /// Returns the documentation comment before the next word.
    pub(crate) fn doc(&self) -> Option<String> {
        self.words.get(self.at)?.doc.clone()
    }

    /// Returns the line of the next word.
    pub(crate) fn line(&self) -> usize {
        self.words.get(self.at).or(self.words.last()).map_or(1, |word| word.line)
    }

    /// Takes the next word if it is this sign; returns true if it was.
    pub(crate) fn sign(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(&Token::Sign(wanted));
        self.at += usize::from(is_there);
        is_there
    }

    /// Takes the next word if it is this name; returns true if it was.
    pub(crate) fn keyword(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Name(name)) if name == wanted);
        self.at += usize::from(is_there);
        is_there
    }

    /// Takes this sign.
    ///
    /// # Errors
    /// Returns an error if the next word is another one.
    pub(crate) fn expect(&mut self, wanted: char) -> Result<(), Error> {
        if self.sign(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    /// Takes the next word, which must be a name; `what` describes it in the error message.
    ///
    /// # Errors
    /// Returns an error if it is not a name.
    pub(crate) fn name(&mut self, what: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Takes the next word, which must be a text.
    ///
    /// # Errors
    /// Returns an error if it is not a text.
    pub(crate) fn text(&mut self) -> Result<String, Error> {
        match self.peek() {
            Some(Token::Text(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.expected("a text in quotes")),
        }
    }

    fn expected(&self, what: &str) -> Error {
        let found = match self.peek() {
            None => "the end of the file".to_owned(),
            Some(Token::Double(number)) => format!("`{number}`"),
            Some(Token::Int(number)) => format!("`{number}`"),
            Some(Token::Name(name)) => format!("`{name}`"),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
            Some(Token::Text(text)) => format!("{text:?}"),
        };
        self.error_at(self.line(), &format!("{what} is missing before {found}"))
    }

    /// Creates an error at this line.
    pub(crate) fn error_at(&self, line: usize, what: &str) -> Error {
        Error::new(format!("{}:{line}: {what}", self.file))
    }
}

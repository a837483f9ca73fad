//! What the parsers of `.thrift` and `.fbs` files ask of the words of a file.

use crate::{
    Error,
    lexer::{self, Token, Word},
};

/// The words of a file, and how far they were read.
pub(crate) struct Cursor<'a> {
    file: &'a str,
    words: Vec<Word>,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Splits the text of `file`.
    ///
    /// # Errors
    /// Those of [`lexer::words`].
    pub(crate) fn new(file: &'a str, text: &str) -> Result<Cursor<'a>, Error> {
        Ok(Cursor { file, words: lexer::words(file, text)?, at: 0 })
    }

    /// Takes the next word.
    pub(crate) fn next(&mut self) -> Option<Token> {
        let token = self.peek()?.clone();
        self.at += 1;
        Some(token)
    }

    /// Steps over a comma or semicolon, which mean nothing.
    pub(crate) fn separator(&mut self) {
        let _ = self.sign(',') || self.sign(';');
    }

    /// The next word.
    pub(crate) fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|word| &word.token)
    }

    /// What is said before the next word.
    pub(crate) fn doc(&self) -> Option<String> {
        self.words.get(self.at)?.doc.clone()
    }

    /// Where the next word is.
    pub(crate) fn line(&self) -> usize {
        self.words.get(self.at).or(self.words.last()).map_or(1, |word| word.line)
    }

    /// Whether the next word is this sign, which is then stepped over.
    pub(crate) fn sign(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(&Token::Sign(wanted));
        self.at += usize::from(is_there);
        is_there
    }

    /// Whether the next word is this name, which is then stepped over.
    pub(crate) fn keyword(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Name(name)) if name == wanted);
        self.at += usize::from(is_there);
        is_there
    }

    /// Steps over this sign.
    ///
    /// # Errors
    /// Something else is there.
    pub(crate) fn expect(&mut self, wanted: char) -> Result<(), Error> {
        if self.sign(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    /// The next word, a name; `what` it is of, for messages.
    ///
    /// # Errors
    /// It is none.
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

    /// The next word, a text.
    ///
    /// # Errors
    /// It is none.
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

    /// A mistake in this line.
    pub(crate) fn error_at(&self, line: usize, what: &str) -> Error {
        Error::new(format!("{}:{line}: {what}", self.file))
    }
}

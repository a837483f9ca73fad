//! Words to definitions.

use super::{
    ast::{
        Base, Constant, Document, Enum, Field, Function, Requiredness, Service, Struct, StructKind, Type,
        Typedef, Value,
    },
    lexer::{self, Token, Word},
};
use crate::Error;

/// Annotations in parentheses, names and values.
type Annotations = Vec<(String, String)>;

/// Reads a file.
///
/// # Errors
/// What is no definition, named by `file:line`.
pub(super) fn parse(file: &str, text: &str) -> Result<Document, Error> {
    let mut parser = Parser { file, words: lexer::words(file, text)?, at: 0, document: Document::default() };
    while parser.at < parser.words.len() {
        parser.definition()?;
    }
    Ok(parser.document)
}

struct Parser<'a> {
    file: &'a str,
    words: Vec<Word>,
    at: usize,
    document: Document,
}

impl Parser<'_> {
    fn definition(&mut self) -> Result<(), Error> {
        let (doc, line) = (self.doc(), self.line());
        let word = self.name("a definition")?;
        match word.as_str() {
            "include" => {
                let path = self.text()?;
                self.document.includes.push((path, line));
            }
            "cpp_include" => drop(self.text()?),
            "namespace" => {
                let language = if self.sign('*') { "*".to_owned() } else { self.name("a language")? };
                let name = match self.peek() {
                    Some(Token::Text(_)) => self.text()?,
                    _ => self.name("a namespace")?,
                };
                self.annotations()?;
                self.document.namespaces.push((language, name));
            }
            "const" => {
                let (ty, name) = (self.ty()?, self.name("a name")?);
                self.expect('=')?;
                let value = self.value()?;
                self.document.constants.push(Constant { name, ty, value, doc, line });
            }
            "typedef" => {
                let (ty, name) = (self.ty()?, self.name("a name")?);
                self.annotations()?;
                self.document.typedefs.push(Typedef { name, ty, doc, line });
            }
            "enum" => self.enumeration(doc)?,
            "struct" => self.structure(StructKind::Struct, doc, line)?,
            "union" => self.structure(StructKind::Union, doc, line)?,
            "exception" => self.structure(StructKind::Exception, doc, line)?,
            "service" => self.service(doc, line)?,
            other => return Err(self.error_at(line, &format!("`{other}` begins no definition"))),
        }
        self.separator();
        Ok(())
    }

    fn enumeration(&mut self, doc: Option<String>) -> Result<(), Error> {
        let name = self.name("the name of an enum")?;
        self.expect('{')?;
        let (mut members, mut next) = (Vec::new(), 0i64);
        while !self.sign('}') {
            let (doc, line) = (self.doc(), self.line());
            let member = self.name("a member")?;
            if self.sign('=') {
                let Value::Int(number) = self.value()? else {
                    return Err(self.error_at(line, &format!("{member} has a value that is no number")));
                };
                next = number;
            }
            let number = i32::try_from(next);
            let number =
                number.map_err(|_| self.error_at(line, &format!("{next}, of {member}, is over 32 bits")))?;
            members.push((member, number, doc));
            next += 1;
            self.annotations()?;
            self.separator();
        }
        self.annotations()?;
        self.document.enums.push(Enum { name, members, doc });
        Ok(())
    }

    fn structure(&mut self, kind: StructKind, doc: Option<String>, line: usize) -> Result<(), Error> {
        let name = self.name("a name")?;
        // `xsd_all` may stand here.
        while !matches!(self.peek(), Some(Token::Sign('{')) | None) {
            self.at += 1;
        }
        let fields = self.fields('{', '}')?;
        let annotations = self.annotations()?;
        self.document.structs.push(Struct { name, kind, fields, doc, annotations, line });
        Ok(())
    }

    fn service(&mut self, doc: Option<String>, line: usize) -> Result<(), Error> {
        let name = self.name("the name of a service")?;
        let extends = match self.keyword("extends") {
            true => Some(self.name("a service")?),
            false => None,
        };
        self.expect('{')?;
        let mut functions = Vec::new();
        while !self.sign('}') {
            let (doc, line) = (self.doc(), self.line());
            let oneway = self.keyword("oneway") || self.keyword("async");
            let returns = if self.keyword("void") { None } else { Some(self.ty()?) };
            let name = self.name("the name of a method")?;
            let arguments = self.fields('(', ')')?;
            let throws = if self.keyword("throws") { self.fields('(', ')')? } else { Vec::new() };
            let annotations = self.annotations()?;
            self.separator();
            functions.push(Function { name, oneway, returns, arguments, throws, doc, annotations, line });
        }
        self.annotations()?;
        self.document.services.push(Service { name, extends, functions, doc, line });
        Ok(())
    }

    fn fields(&mut self, open: char, close: char) -> Result<Vec<Field>, Error> {
        self.expect(open)?;
        let (mut fields, mut implicit) = (Vec::<Field>::new(), 0i16);
        while !self.sign(close) {
            let (doc, line) = (self.doc(), self.line());
            let id = match self.peek() {
                Some(Token::Int(id)) => {
                    let id = i16::try_from(*id);
                    let id = id.map_err(|_| self.error_at(line, "the number of a field is over 16 bits"))?;
                    self.at += 1;
                    self.expect(':')?;
                    id
                }
                // As the compiler of Thrift numbers those without.
                _ => {
                    implicit -= 1;
                    implicit
                }
            };
            let requiredness = if self.keyword("required") {
                Requiredness::Required
            } else if self.keyword("optional") {
                Requiredness::Optional
            } else {
                Requiredness::Default
            };
            let ty = self.ty()?;
            // A reference in C++; recursive types are found without it.
            self.sign('&');
            let name = self.name("the name of a field")?;
            let default = if self.sign('=') { Some(self.value()?) } else { None };
            self.annotations()?;
            self.separator();
            if let Some(other) = fields.iter().find(|other| other.id == id || other.name == name) {
                return Err(self.error_at(line, &format!("{name} has the number or name of {}", other.name)));
            }
            fields.push(Field { id, name, ty, requiredness, default, doc, line });
        }
        Ok(fields)
    }

    fn ty(&mut self) -> Result<Type, Error> {
        let line = self.line();
        let name = self.name("a type")?;
        let base = match name.as_str() {
            "bool" => Some(Base::Bool),
            "byte" | "i8" => Some(Base::I8),
            "i16" => Some(Base::I16),
            "i32" => Some(Base::I32),
            "i64" => Some(Base::I64),
            "double" => Some(Base::Double),
            "string" | "slist" => Some(Base::String),
            "binary" => Some(Base::Binary),
            "uuid" => Some(Base::Uuid),
            _ => None,
        };
        let ty = match (base, name.as_str()) {
            (Some(base), _) => Type::Base(base),
            (None, "list" | "set" | "map") => {
                if self.keyword("cpp_type") {
                    self.text()?;
                }
                self.expect('<')?;
                let first = Box::new(self.ty()?);
                let ty = match name.as_str() {
                    "list" => Type::List(first),
                    "set" => Type::Set(first),
                    _ => {
                        self.expect(',')?;
                        Type::Map(first, Box::new(self.ty()?))
                    }
                };
                self.expect('>')?;
                if self.keyword("cpp_type") {
                    self.text()?;
                }
                ty
            }
            (None, "void") => return Err(self.error_at(line, "void is no type of a value")),
            (None, _) => Type::Named(name),
        };
        self.annotations()?;
        Ok(ty)
    }

    fn value(&mut self) -> Result<Value, Error> {
        let line = self.line();
        let Some(word) = self.words.get(self.at) else {
            return Err(self.error_at(line, "a value is missing"));
        };
        let token = word.token.clone();
        self.at += 1;
        Ok(match token {
            Token::Double(number) => Value::Double(number),
            Token::Int(number) => Value::Int(number),
            Token::Name(name) => Value::Name(name),
            Token::Text(text) => Value::Text(text),
            Token::Sign('[') => {
                let mut values = Vec::new();
                while !self.sign(']') {
                    values.push(self.value()?);
                    self.separator();
                }
                Value::List(values)
            }
            Token::Sign('{') => {
                let mut pairs = Vec::new();
                while !self.sign('}') {
                    let key = self.value()?;
                    self.expect(':')?;
                    pairs.push((key, self.value()?));
                    self.separator();
                }
                Value::Map(pairs)
            }
            Token::Sign(sign) => return Err(self.error_at(line, &format!("`{sign}` begins no value"))),
        })
    }

    fn annotations(&mut self) -> Result<Annotations, Error> {
        let mut annotations = Vec::new();
        if !self.sign('(') {
            return Ok(annotations);
        }
        while !self.sign(')') {
            let name = self.name("an annotation")?;
            let value = if self.sign('=') { self.text()? } else { "1".to_owned() };
            annotations.push((name, value));
            self.separator();
        }
        Ok(annotations)
    }

    fn separator(&mut self) {
        let _ = self.sign(',') || self.sign(';');
    }

    fn peek(&self) -> Option<&Token> {
        self.words.get(self.at).map(|word| &word.token)
    }

    fn doc(&self) -> Option<String> {
        self.words.get(self.at)?.doc.clone()
    }

    fn line(&self) -> usize {
        self.words.get(self.at).or(self.words.last()).map_or(1, |word| word.line)
    }

    fn sign(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(&Token::Sign(wanted));
        self.at += usize::from(is_there);
        is_there
    }

    fn keyword(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Name(name)) if name == wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, wanted: char) -> Result<(), Error> {
        if self.sign(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    fn name(&mut self, what: &str) -> Result<String, Error> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn text(&mut self) -> Result<String, Error> {
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

    fn error_at(&self, line: usize, what: &str) -> Error {
        Error::new(format!("{}:{line}: {what}", self.file))
    }
}

//! Parses words to definitions.

use super::ast::{
    Base, Constant, Document, Enum, Field, Function, Requiredness, Service, Struct, StructKind, Type,
    Typedef, Value,
};
use crate::{Error, cursor::Cursor, lexer::Token};

/// Names and values of annotations in parentheses.
type Annotations = Vec<(String, String)>;

/// Parses a file.
///
/// # Errors
/// Returns an error with `file:line` for anything that is not a definition.
pub(super) fn parse(file: &str, text: &str) -> Result<Document, Error> {
    let mut parser = Parser { words: Cursor::new(file, text)?, document: Document::default() };
    while parser.words.peek().is_some() {
        parser.definition()?;
    }
    Ok(parser.document)
}

struct Parser<'a> {
    words: Cursor<'a>,
    document: Document,
}

impl Parser<'_> {
    fn definition(&mut self) -> Result<(), Error> {
        let (doc, line) = (self.words.doc(), self.words.line());
        let word = self.words.name("a definition")?;
        match word.as_str() {
            "include" => {
                let path = self.words.text()?;
                self.document.includes.push((path, line));
            }
            "cpp_include" => drop(self.words.text()?),
            "namespace" => {
                let language =
                    if self.words.sign('*') { "*".to_owned() } else { self.words.name("a language")? };
                let name = match self.words.peek() {
                    Some(Token::Text(_)) => self.words.text()?,
                    _ => self.words.name("a namespace")?,
                };
                self.annotations()?;
                self.document.namespaces.push((language, name));
            }
            "const" => {
                let (ty, name) = (self.ty()?, self.words.name("a name")?);
                self.words.expect('=')?;
                let value = self.value()?;
                self.document.constants.push(Constant { name, ty, value, doc, line });
            }
            "typedef" => {
                let (ty, name) = (self.ty()?, self.words.name("a name")?);
                self.annotations()?;
                self.document.typedefs.push(Typedef { name, ty, doc, line });
            }
            "enum" => self.enumeration(doc)?,
            "struct" => self.structure(StructKind::Struct, doc, line)?,
            "union" => self.structure(StructKind::Union, doc, line)?,
            "exception" => self.structure(StructKind::Exception, doc, line)?,
            "service" => self.service(doc, line)?,
            other => return Err(self.words.error_at(line, &format!("`{other}` begins no definition"))),
        }
        self.words.separator();
        Ok(())
    }

    fn enumeration(&mut self, doc: Option<String>) -> Result<(), Error> {
        let name = self.words.name("the name of an enum")?;
        self.words.expect('{')?;
        let (mut members, mut next) = (Vec::new(), 0i64);
        while !self.words.sign('}') {
            let (doc, line) = (self.words.doc(), self.words.line());
            let member = self.words.name("a member")?;
            if self.words.sign('=') {
                let Value::Int(number) = self.value()? else {
                    return Err(self
                        .words
                        .error_at(line, &format!("{member} has a value that is not a number")));
                };
                next = number;
            }
            let number = i32::try_from(next);
            let number = number
                .map_err(|_| self.words.error_at(line, &format!("{next}, of {member}, is over 32 bits")))?;
            members.push((member, number, doc));
            next += 1;
            self.annotations()?;
            self.words.separator();
        }
        self.annotations()?;
        self.document.enums.push(Enum { name, members, doc });
        Ok(())
    }

    fn structure(&mut self, kind: StructKind, doc: Option<String>, line: usize) -> Result<(), Error> {
        let name = self.words.name("a name")?;
        // `xsd_all` may precede the fields.
        while !matches!(self.words.peek(), Some(Token::Sign('{')) | None) {
            self.words.next();
        }
        let fields = self.fields('{', '}')?;
        let annotations = self.annotations()?;
        self.document.structs.push(Struct { name, kind, fields, doc, annotations, line });
        Ok(())
    }

    fn service(&mut self, doc: Option<String>, line: usize) -> Result<(), Error> {
        let name = self.words.name("the name of a service")?;
        let extends = match self.words.keyword("extends") {
            true => Some(self.words.name("a service")?),
            false => None,
        };
        self.words.expect('{')?;
        let mut functions = Vec::new();
        while !self.words.sign('}') {
            let (doc, line) = (self.words.doc(), self.words.line());
            let oneway = self.words.keyword("oneway") || self.words.keyword("async");
            let returns = if self.words.keyword("void") { None } else { Some(self.ty()?) };
            let name = self.words.name("the name of a method")?;
            let arguments = self.fields('(', ')')?;
            let throws = if self.words.keyword("throws") { self.fields('(', ')')? } else { Vec::new() };
            let annotations = self.annotations()?;
            self.words.separator();
            functions.push(Function { name, oneway, returns, arguments, throws, doc, annotations, line });
        }
        self.annotations()?;
        self.document.services.push(Service { name, extends, functions, doc, line });
        Ok(())
    }

    fn fields(&mut self, open: char, close: char) -> Result<Vec<Field>, Error> {
        self.words.expect(open)?;
        let (mut fields, mut implicit) = (Vec::<Field>::new(), 0i16);
        while !self.words.sign(close) {
            let (doc, line) = (self.words.doc(), self.words.line());
            let id = match self.words.peek() {
                Some(Token::Int(id)) => {
                    let id = i16::try_from(*id);
                    let id =
                        id.map_err(|_| self.words.error_at(line, "the number of a field is over 16 bits"))?;
                    self.words.next();
                    self.words.expect(':')?;
                    id
                }
                // The compiler of Thrift assigns the same numbers to fields without one.
                _ => {
                    implicit -= 1;
                    implicit
                }
            };
            let requiredness = if self.words.keyword("required") {
                Requiredness::Required
            } else if self.words.keyword("optional") {
                Requiredness::Optional
            } else {
                Requiredness::Default
            };
            let ty = self.ty()?;
            // A reference in C++; recursive types are detected without it.
            self.words.sign('&');
            let name = self.words.name("the name of a field")?;
            let default = if self.words.sign('=') { Some(self.value()?) } else { None };
            self.annotations()?;
            self.words.separator();
            if let Some(other) = fields.iter().find(|other| other.id == id || other.name == name) {
                return Err(self
                    .words
                    .error_at(line, &format!("{name} has the number or name of {}", other.name)));
            }
            fields.push(Field { id, name, ty, requiredness, default, doc, line });
        }
        Ok(fields)
    }

    fn ty(&mut self) -> Result<Type, Error> {
        let line = self.words.line();
        let name = self.words.name("a type")?;
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
                if self.words.keyword("cpp_type") {
                    self.words.text()?;
                }
                self.words.expect('<')?;
                let first = Box::new(self.ty()?);
                let ty = match name.as_str() {
                    "list" => Type::List(first),
                    "set" => Type::Set(first),
                    _ => {
                        self.words.expect(',')?;
                        Type::Map(first, Box::new(self.ty()?))
                    }
                };
                self.words.expect('>')?;
                if self.words.keyword("cpp_type") {
                    self.words.text()?;
                }
                ty
            }
            (None, "void") => return Err(self.words.error_at(line, "void is not the type of a value")),
            (None, _) => Type::Named(name),
        };
        self.annotations()?;
        Ok(ty)
    }

    fn value(&mut self) -> Result<Value, Error> {
        let line = self.words.line();
        let Some(token) = self.words.next() else {
            return Err(self.words.error_at(line, "a value is missing"));
        };
        Ok(match token {
            Token::Double(number) => Value::Double(number),
            Token::Int(number) => Value::Int(number),
            Token::Name(name) => Value::Name(name),
            Token::Text(text) => Value::Text(text),
            Token::Sign('[') => {
                let mut values = Vec::new();
                while !self.words.sign(']') {
                    values.push(self.value()?);
                    self.words.separator();
                }
                Value::List(values)
            }
            Token::Sign('{') => {
                let mut pairs = Vec::new();
                while !self.words.sign('}') {
                    let key = self.value()?;
                    self.words.expect(':')?;
                    pairs.push((key, self.value()?));
                    self.words.separator();
                }
                Value::Map(pairs)
            }
            Token::Sign(sign) => return Err(self.words.error_at(line, &format!("`{sign}` begins no value"))),
        })
    }

    fn annotations(&mut self) -> Result<Annotations, Error> {
        let mut annotations = Vec::new();
        if !self.words.sign('(') {
            return Ok(annotations);
        }
        while !self.words.sign(')') {
            let name = self.words.name("an annotation")?;
            let value = if self.words.sign('=') { self.words.text()? } else { "1".to_owned() };
            annotations.push((name, value));
            self.words.separator();
        }
        Ok(annotations)
    }
}

//! Parses words to definitions.

use super::ast::{Attributes, Base, Field, Item, Kind, Method, Type, Variant};
use crate::{Error, cursor::Cursor, lexer::Token};

/// Longest array; the derives of generated code do not support longer ones.
const ARRAY_MAX: i64 = 32;

/// Parsed content of a file.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Included paths as written, and their lines.
    pub(super) includes: Vec<(String, usize)>,
    pub(super) items: Vec<Item>,
}

/// Parses a file; definitions without a namespace are in `stem`.
///
/// # Errors
/// Returns an error with `file:line` for anything that is not a definition.
pub(super) fn parse(file: &str, stem: &str, text: &str) -> Result<Document, Error> {
    let words = Cursor::new(file, text)?;
    let mut parser = Parser { file, stem, words, namespace: None, document: Document::default() };
    while parser.words.peek().is_some() {
        parser.definition()?;
    }
    Ok(parser.document)
}

struct Parser<'a> {
    file: &'a str,
    stem: &'a str,
    words: Cursor<'a>,
    namespace: Option<String>,
    document: Document,
}

impl Parser<'_> {
    fn definition(&mut self) -> Result<(), Error> {
        let (doc, line) = (self.words.doc(), self.words.line());
        let word = self.words.name("a definition")?;
        let place = format!("{}:{line}", self.file);
        match word.as_str() {
            "include" | "native_include" => {
                let path = self.words.text()?;
                if word == "include" {
                    self.document.includes.push((path, line));
                }
                return self.words.expect(';');
            }
            "namespace" => {
                self.namespace = match self.words.sign(';') {
                    true => None,
                    false => {
                        let name = self.words.name("a namespace")?;
                        self.words.expect(';')?;
                        Some(name)
                    }
                };
                return Ok(());
            }
            "attribute" | "file_identifier" | "file_extension" | "root_type" => {
                self.words.next();
                return self.words.expect(';');
            }
            _ => {}
        }
        let name = self.words.name("a name")?;
        let kind = match word.as_str() {
            "table" => {
                self.attributes()?;
                Kind::Table(self.fields()?)
            }
            "struct" => {
                let attributes = self.attributes()?;
                let align = attributes.int("force_align").unwrap_or(1);
                let align =
                    usize::try_from(align).ok().filter(|align| align.is_power_of_two() && *align <= 16);
                let align =
                    align.ok_or_else(|| self.words.error_at(line, "force_align is 1, 2, 4, 8 or 16 here"))?;
                let fields = self.fields()?;
                if fields.is_empty() {
                    return Err(self.words.error_at(line, &format!("struct {name} has no field")));
                }
                Kind::Struct { fields, align }
            }
            "enum" => self.enumeration(&name, line)?,
            "union" => self.union(&name, line)?,
            "rpc_service" => self.service()?,
            other => return Err(self.words.error_at(line, &format!("`{other}` begins no definition"))),
        };
        let is_global = self.namespace.is_none();
        let namespace = self.namespace.clone().unwrap_or_else(|| self.stem.to_owned());
        self.document.items.push(Item { namespace, is_global, name, kind, doc, place });
        Ok(())
    }

    fn fields(&mut self) -> Result<Vec<Field>, Error> {
        self.words.expect('{')?;
        let mut fields = Vec::<Field>::new();
        while !self.words.sign('}') {
            let (doc, line) = (self.words.doc(), self.words.line());
            let name = self.words.name("the name of a field")?;
            self.words.expect(':')?;
            let ty = self.ty()?;
            let default = if self.words.sign('=') { self.words.next() } else { None };
            let attributes = self.attributes()?;
            self.words.expect(';')?;
            if fields.iter().any(|other| other.name == name) {
                return Err(self.words.error_at(line, &format!("{name} is defined twice")));
            }
            let place = format!("{}:{line}", self.file);
            fields.push(Field { name, ty, default, attributes, doc, place });
        }
        Ok(fields)
    }

    fn ty(&mut self) -> Result<Type, Error> {
        let line = self.words.line();
        if !self.words.sign('[') {
            let name = self.words.name("a type")?;
            return Ok(match Base::of(&name) {
                Some(base) => Type::Base(base),
                None if name == "string" => Type::String,
                None => Type::Named(name),
            });
        }
        let inner = Box::new(self.ty()?);
        if let Type::Array(..) | Type::Vector(_) = *inner {
            return Err(self.words.error_at(line, "a vector of vectors: put the inner one into a table"));
        }
        let ty = match self.words.sign(':') {
            false => Type::Vector(inner),
            true => match self.words.next() {
                Some(Token::Int(size @ 1..=ARRAY_MAX)) => Type::Array(inner, size as usize),
                _ => {
                    let what = format!("an array has 1 to {ARRAY_MAX} items here");
                    return Err(self.words.error_at(line, &what));
                }
            },
        };
        self.words.expect(']')?;
        Ok(ty)
    }

    fn enumeration(&mut self, name: &str, line: usize) -> Result<Kind, Error> {
        self.words.expect(':')?;
        let base = self.words.name("a type of numbers")?;
        let base = Base::of(&base).filter(|base| !base.is_float() && *base != Base::Bool);
        let base = base.ok_or_else(|| {
            self.words.error_at(line, &format!("enum {name} must have a type of whole numbers"))
        })?;
        let are_bits = self.attributes()?.has("bit_flags");
        self.words.expect('{')?;
        let (mut members, mut next) = (Vec::new(), Some(0i64));
        while !self.words.sign('}') {
            let (doc, line) = (self.words.doc(), self.words.line());
            let member = self.words.name("a member")?;
            if self.words.sign('=') {
                let Some(Token::Int(number)) = self.words.next() else {
                    return Err(self
                        .words
                        .error_at(line, &format!("{member} has a value that is not a number")));
                };
                next = Some(number);
            }
            self.attributes()?;
            self.words.separator();
            let number = next.ok_or_else(|| {
                self.words.error_at(line, &format!("there is no number for {member} after the largest one"))
            })?;
            let value = if are_bits {
                u32::try_from(number).ok().and_then(|bit| 1i64.checked_shl(bit))
            } else {
                Some(number)
            };
            let value = value.filter(|value| fits(base, *value));
            let value = value.ok_or_else(|| {
                self.words.error_at(line, &format!("{number}, of {member}, does not fit the type of {name}"))
            })?;
            members.push((member, value, doc));
            next = number.checked_add(1);
        }
        Ok(Kind::Enum { base, are_bits, members })
    }

    fn union(&mut self, name: &str, line: usize) -> Result<Kind, Error> {
        self.attributes()?;
        self.words.expect('{')?;
        let mut variants = Vec::new();
        while !self.words.sign('}') {
            let doc = self.words.doc();
            let first = self.words.name("a table")?;
            let table = if self.words.sign(':') { self.words.name("a table")? } else { first.clone() };
            let name = first.rsplit_once('.').map_or(first.as_str(), |(_, name)| name).to_owned();
            variants.push(Variant { name, table, doc });
            self.words.separator();
        }
        if variants.is_empty() || variants.len() > usize::from(u8::MAX) {
            return Err(self.words.error_at(line, &format!("union {name} has no member, or more than 255")));
        }
        Ok(Kind::Union(variants))
    }

    fn service(&mut self) -> Result<Kind, Error> {
        self.words.expect('{')?;
        let mut methods = Vec::new();
        while !self.words.sign('}') {
            let (doc, line) = (self.words.doc(), self.words.line());
            let name = self.words.name("the name of a method")?;
            self.words.expect('(')?;
            let request = self.words.name("a table")?;
            self.words.expect(')')?;
            self.words.expect(':')?;
            let reply = self.words.name("a table")?;
            let attributes = self.attributes()?;
            self.words.expect(';')?;
            let place = format!("{}:{line}", self.file);
            methods.push(Method { name, request, reply, attributes, doc, place });
        }
        Ok(Kind::Service(methods))
    }

    fn attributes(&mut self) -> Result<Attributes, Error> {
        let mut attributes = Attributes::default();
        if !self.words.sign('(') {
            return Ok(attributes);
        }
        while !self.words.sign(')') {
            // flatc accepts names in quotes as well.
            let name = match self.words.peek() {
                Some(Token::Text(_)) => self.words.text()?,
                _ => self.words.name("an attribute")?,
            };
            let value = if self.words.sign(':') { self.words.next() } else { None };
            attributes.0.push((name, value));
            self.words.separator();
        }
        Ok(attributes)
    }
}

/// Returns true if the type can hold the number.
pub(super) fn fits(base: Base, number: i64) -> bool {
    match base {
        Base::Bool => matches!(number, 0 | 1),
        Base::F32 | Base::F64 | Base::I64 => true,
        Base::I8 => i8::try_from(number).is_ok(),
        Base::I16 => i16::try_from(number).is_ok(),
        Base::I32 => i32::try_from(number).is_ok(),
        Base::U8 => u8::try_from(number).is_ok(),
        Base::U16 => u16::try_from(number).is_ok(),
        Base::U32 => u32::try_from(number).is_ok(),
        Base::U64 => number >= 0,
    }
}

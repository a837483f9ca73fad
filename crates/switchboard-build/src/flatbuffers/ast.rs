//! Syntax tree of a `.fbs` file.

use crate::{Error, lexer::Token};

/// A named definition.
#[derive(Debug)]
pub(super) struct Item {
    /// Name of the generated module: `demo.v1`.
    pub(super) namespace: String,
    /// The definition has no namespace: other files refer to it by its bare name.
    pub(super) is_global: bool,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) doc: Option<String>,
    /// `file:line`.
    pub(super) place: String,
}

#[derive(Debug)]
pub(super) enum Kind {
    Enum { base: Base, are_bits: bool, members: Vec<(String, i64, Option<String>)> },
    Service(Vec<Method>),
    Struct { fields: Vec<Field>, align: usize },
    Table(Vec<Field>),
    Union(Vec<Variant>),
}

/// A field of a table or struct.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) default: Option<Token>,
    pub(super) attributes: Attributes,
    pub(super) doc: Option<String>,
    pub(super) place: String,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    /// Name of its table.
    pub(super) table: String,
    pub(super) doc: Option<String>,
}

#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: String,
    /// Names of tables.
    pub(super) request: String,
    pub(super) reply: String,
    pub(super) attributes: Attributes,
    pub(super) doc: Option<String>,
    pub(super) place: String,
}

impl Method {
    /// Returns whether requests and whether replies are streams.
    ///
    /// # Errors
    /// Returns an error for an unknown value of the attribute.
    pub(super) fn streams(&self) -> Result<[bool; 2], Error> {
        match self.attributes.text("streaming") {
            None | Some("none") => Ok([false, false]),
            Some("server") => Ok([false, true]),
            Some("client") => Ok([true, false]),
            Some("bidi") => Ok([true, true]),
            Some(_) => Err(Error::new(format!(
                "{}: {} has an unknown streaming kind; use none, server, client or bidi",
                self.place, self.name
            ))),
        }
    }
}

/// Attributes in parentheses.
#[derive(Debug, Default)]
pub(super) struct Attributes(pub(super) Vec<(String, Option<Token>)>);

impl Attributes {
    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            Some(Token::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Some(Token::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn value(&self, name: &str) -> Option<Option<&Token>> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }
}

#[derive(Clone, Debug)]
pub(super) enum Type {
    Array(Box<Type>, usize),
    Base(Base),
    Named(String),
    String,
    Vector(Box<Type>),
}

/// A scalar type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the scalar types of FlatBuffers
pub enum Base {
    /// `bool`: a byte, 0 or 1.
    Bool,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `byte`.
    I8,
    /// `short`.
    I16,
    /// `int`.
    I32,
    /// `long`.
    I64,
    /// `ubyte`.
    U8,
    /// `ushort`.
    U16,
    /// `uint`.
    U32,
    /// `ulong`.
    U64,
}

impl Base {
    pub(super) fn of(name: &str) -> Option<Base> {
        Some(match name {
            "bool" => Base::Bool,
            "byte" | "int8" => Base::I8,
            "ubyte" | "uint8" => Base::U8,
            "short" | "int16" => Base::I16,
            "ushort" | "uint16" => Base::U16,
            "int" | "int32" => Base::I32,
            "uint" | "uint32" => Base::U32,
            "long" | "int64" => Base::I64,
            "ulong" | "uint64" => Base::U64,
            "float" | "float32" => Base::F32,
            "double" | "float64" => Base::F64,
            _ => return None,
        })
    }

    /// Returns size and alignment in bytes.
    pub const fn size(self) -> usize {
        match self {
            Base::Bool | Base::I8 | Base::U8 => 1,
            Base::I16 | Base::U16 => 2,
            Base::F32 | Base::I32 | Base::U32 => 4,
            Base::F64 | Base::I64 | Base::U64 => 8,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Base::F32 | Base::F64)
    }
}

//! Syntax tree of a `.thrift` file.

use std::path::PathBuf;

/// One file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) path: PathBuf,
    /// Name of the file without extension, by which other files refer to its definitions.
    pub(super) stem: String,
    /// Name of the generated module: `demo.v1`.
    pub(super) package: String,
    /// Language and name of each namespace.
    pub(super) namespaces: Vec<(String, String)>,
    /// Included paths as written, and their lines.
    pub(super) includes: Vec<(String, usize)>,
    /// Stems of the included files, and their indexes in the list of documents.
    pub(super) included: Vec<(String, usize)>,
    pub(super) constants: Vec<Constant>,
    pub(super) typedefs: Vec<Typedef>,
    pub(super) enums: Vec<Enum>,
    pub(super) structs: Vec<Struct>,
    pub(super) services: Vec<Service>,
}

#[derive(Clone, Debug)]
pub(super) enum Type {
    Base(Base),
    /// A defined type, in this file or after the stem of another file and a dot.
    Named(String),
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<Type>, Box<Type>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Base {
    Binary,
    Bool,
    Double,
    I8,
    I16,
    I32,
    I64,
    String,
    Uuid,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Double(f64),
    Int(i64),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// A constant or a member of an enum.
    Name(String),
    Text(String),
}

#[derive(Debug)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) value: Value,
    pub(super) doc: Option<String>,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Typedef {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) doc: Option<String>,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) members: Vec<(String, i32, Option<String>)>,
    pub(super) doc: Option<String>,
}

/// Kind of a struct.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the grammar of Thrift
pub enum StructKind {
    /// An exception of methods.
    Exception,
    /// A struct: any of its fields may be set.
    Struct,
    /// A union: one of its fields is set.
    Union,
}

#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) kind: StructKind,
    pub(super) fields: Vec<Field>,
    pub(super) doc: Option<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) line: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Requiredness {
    /// No keyword: always written, and optional for readers.
    Default,
    Optional,
    Required,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) id: i16,
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) requiredness: Requiredness,
    pub(super) default: Option<Value>,
    pub(super) doc: Option<String>,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) extends: Option<String>,
    pub(super) functions: Vec<Function>,
    pub(super) doc: Option<String>,
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) oneway: bool,
    /// `None` is `void`.
    pub(super) returns: Option<Type>,
    pub(super) arguments: Vec<Field>,
    pub(super) throws: Vec<Field>,
    pub(super) doc: Option<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) line: usize,
}

//! A `.thrift` file as it is written.

use std::path::PathBuf;

/// One file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) path: PathBuf,
    /// Its name without extension, by which others refer to what is in it.
    pub(super) stem: String,
    /// What the generated module is called: `demo.v1`.
    pub(super) package: String,
    /// Of which language, and what.
    pub(super) namespaces: Vec<(String, String)>,
    /// As written, and where.
    pub(super) includes: Vec<(String, usize)>,
    /// By their stems, where they are in the list of documents.
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
    /// Something defined, here or behind the stem of another file and a dot.
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
    /// Of a constant or a member of an enum.
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

/// What a struct is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StructKind {
    /// A method throws it.
    Exception,
    /// Any of its fields.
    Struct,
    /// One of its fields.
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
    /// Nothing said: written always, and nobody misses it.
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
    /// None is `void`.
    pub(super) returns: Option<Type>,
    pub(super) arguments: Vec<Field>,
    pub(super) throws: Vec<Field>,
    pub(super) doc: Option<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) line: usize,
}

//! Declarations of `.thrift` files, for programs that read them at run time.

use super::{
    ast::{self, Base},
    schema::{Resolved, Schema},
};
use crate::Error;
use std::path::PathBuf;

pub use ast::StructKind;

/// Services of `.thrift` files and every type that they use, with typedefs resolved and included files read.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Services, in the order of the files.
    pub services: Vec<Service>,
    /// Structs, which [`Type::Struct`] refers to by index.
    pub structs: Vec<Struct>,
    /// Enums, which [`Type::Enum`] refers to by index.
    pub enums: Vec<Enum>,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name with its package, such as `tutorial.Calculator`.
    pub name: String,
    /// Methods of the services that it extends, followed by its own.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Name on the wire.
    pub name: String,
    /// True if the method has no reply.
    pub oneway: bool,
    /// The fields of a request.
    pub arguments: Vec<Field>,
    /// Type of field 0 of a reply; `None` is `void`.
    pub returns: Option<Type>,
    /// The fields of a reply that are exceptions.
    pub throws: Vec<Field>,
}

/// A field, argument or exception.
#[derive(Clone, Debug)]
pub struct Field {
    /// Number on the wire.
    pub id: i16,
    /// Name in JSON.
    pub name: String,
    /// Type of the value.
    pub ty: Type,
    /// True if readers reject a struct without the field.
    pub required: bool,
}

/// The type of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: the generator writes each type
pub enum Type {
    /// Bytes.
    Binary,
    /// A boolean.
    Bool,
    /// IEEE 754, 64 bits.
    Double,
    /// An enum, as an index of [`Interface::enums`].
    Enum(usize),
    /// A signed byte.
    I8,
    /// A number of 16 bits.
    I16,
    /// A number of 32 bits.
    I32,
    /// A number of 64 bits.
    I64,
    /// A list.
    List(Box<Type>),
    /// A map of keys and values.
    Map(Box<Type>, Box<Type>),
    /// A set.
    Set(Box<Type>),
    /// Text.
    String,
    /// A struct, as an index of [`Interface::structs`].
    Struct(usize),
    /// A UUID of 16 bytes.
    Uuid,
}

/// A struct, union or exception.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Name with its package.
    pub name: String,
    /// Kind: struct, union or exception.
    pub kind: StructKind,
    /// Fields, in the order of the file.
    pub fields: Vec<Field>,
    /// Annotation `switchboard.code` of an exception.
    pub code: Option<String>,
}

/// Names of fields of exceptions that contain the error text.
pub(super) const TEXTS: [&str; 6] = ["message", "msg", "reason", "why", "error", "description"];

impl Struct {
    /// Returns the field of an exception that becomes the text of its status.
    pub fn text(&self) -> Option<&Field> {
        self.fields.iter().find(|field| field.ty == Type::String && TEXTS.contains(&&*field.name))
    }
}

/// An enum.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Name with its package.
    pub name: String,
    /// Names and numbers.
    pub members: Vec<(String, i32)>,
}

impl Interface {
    /// Reads `files` and the files that they include, which are looked up beside the including file, then in
    /// `includes`.
    ///
    /// # Errors
    /// Returns an error for files that cannot be read or parsed, and for undefined names.
    pub fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Interface, Error> {
        let schema = Schema::read(files, includes)?;
        let mut interface = Interface::default();
        for (at, document) in schema.documents.iter().enumerate() {
            let full_name = |name: &str| format!("{}.{name}", document.package);
            for item in &document.enums {
                let members = item.members.iter().map(|(name, number, _)| (name.clone(), *number));
                interface.enums.push(Enum { name: full_name(&item.name), members: members.collect() });
            }
            for item in &document.structs {
                let code = item.annotations.iter().find(|(name, _)| name == "switchboard.code");
                interface.structs.push(Struct {
                    name: full_name(&item.name),
                    kind: item.kind,
                    fields: schema.fields(at, &item.fields)?,
                    code: code.map(|(_, code)| code.clone()),
                });
            }
            for service in &document.services {
                let mut methods = Vec::new();
                for (file, part) in schema.extended(at, service)? {
                    for function in &part.functions {
                        methods.push(schema.method(file, function)?);
                    }
                }
                interface.services.push(Service { name: full_name(&service.name), methods });
            }
        }
        Ok(interface)
    }
}

impl Schema {
    fn method(&self, file: usize, function: &ast::Function) -> Result<Method, Error> {
        let returns = function.returns.as_ref().map(|ty| self.ty(file, ty, function.line)).transpose()?;
        for field in &function.throws {
            self.exception(file, &field.ty, field.line)?;
        }
        Ok(Method {
            name: function.name.clone(),
            oneway: function.oneway,
            arguments: self.fields(file, &function.arguments)?,
            returns,
            throws: self.fields(file, &function.throws)?,
        })
    }

    fn fields(&self, file: usize, fields: &[ast::Field]) -> Result<Vec<Field>, Error> {
        let field = |field: &ast::Field| {
            let ty = self.ty(file, &field.ty, field.line)?;
            let required = field.requiredness == ast::Requiredness::Required;
            Ok(Field { id: field.id, name: field.name.clone(), ty, required })
        };
        fields.iter().map(field).collect()
    }

    fn ty(&self, file: usize, ty: &ast::Type, line: usize) -> Result<Type, Error> {
        self.resolve(file, ty, line).map(|resolved| self.numbered(&resolved))
    }

    fn numbered(&self, resolved: &Resolved<'_>) -> Type {
        let inner = |resolved: &Resolved<'_>| Box::new(self.numbered(resolved));
        match resolved {
            Resolved::Base(base) => match base {
                Base::Binary => Type::Binary,
                Base::Bool => Type::Bool,
                Base::Double => Type::Double,
                Base::I8 => Type::I8,
                Base::I16 => Type::I16,
                Base::I32 => Type::I32,
                Base::I64 => Type::I64,
                Base::String => Type::String,
                Base::Uuid => Type::Uuid,
            },
            Resolved::Enum(file, item) => {
                Type::Enum(self.number(*file, |document| &document.enums, |other| other.name == item.name))
            }
            Resolved::List(element) => Type::List(inner(element)),
            Resolved::Map(key, value) => Type::Map(inner(key), inner(value)),
            Resolved::Set(element) => Type::Set(inner(element)),
            Resolved::Struct(file, item) => Type::Struct(self.number(
                *file,
                |document| &document.structs,
                |other| other.name == item.name,
            )),
        }
    }

    /// Returns the index in the list of all such items, in which items of earlier files come first. Names are unique in
    /// a file.
    fn number<T>(
        &self,
        file: usize,
        items: impl Fn(&ast::Document) -> &Vec<T>,
        is_meant: impl Fn(&T) -> bool,
    ) -> usize {
        let (before, rest) = self.documents.split_at(file);
        let before: usize = before.iter().map(|document| items(document).len()).sum();
        before + items(&rest[0]).iter().position(is_meant).expect("what was resolved is defined in its file")
    }
}

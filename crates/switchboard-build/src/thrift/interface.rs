//! What `.thrift` files declare, for programs that read them while they run.

use super::{
    ast::{self, Base},
    schema::{Resolved, Schema},
};
use crate::Error;
use std::path::PathBuf;

pub use ast::StructKind;

/// Services of `.thrift` files and every type that they use, with typedefs followed and included files read.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// In the order of the files.
    pub services: Vec<Service>,
    /// What [`Type::Struct`] counts.
    pub structs: Vec<Struct>,
    /// What [`Type::Enum`] counts.
    pub enums: Vec<Enum>,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// With its package, as in `tutorial.Calculator`.
    pub name: String,
    /// Its own behind those of the services that it extends.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// As it is on the wire.
    pub name: String,
    /// Whether nothing comes back.
    pub oneway: bool,
    /// The fields of a request.
    pub arguments: Vec<Field>,
    /// The type of field 0 of a reply; none is `void`.
    pub returns: Option<Type>,
    /// The fields of a reply that are exceptions.
    pub throws: Vec<Field>,
}

/// A field, argument or exception.
#[derive(Clone, Debug)]
pub struct Field {
    /// On the wire.
    pub id: i16,
    /// In JSON.
    pub name: String,
    /// Of its value.
    pub ty: Type,
    /// Whether readers refuse a struct without it.
    pub required: bool,
}

/// The type of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Type {
    /// Bytes.
    Binary,
    /// True or false.
    Bool,
    /// IEEE 754, 64 bits.
    Double,
    /// One of [`Interface::enums`].
    Enum(usize),
    /// A byte with a sign.
    I8,
    /// 16 bits.
    I16,
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// Elements.
    List(Box<Type>),
    /// Pairs.
    Map(Box<Type>, Box<Type>),
    /// Elements that differ.
    Set(Box<Type>),
    /// Text.
    String,
    /// One of [`Interface::structs`].
    Struct(usize),
    /// 16 bytes.
    Uuid,
}

/// A struct, union or exception.
#[derive(Clone, Debug)]
pub struct Struct {
    /// With its package.
    pub name: String,
    /// Which of the three.
    pub kind: StructKind,
    /// In the order of the file.
    pub fields: Vec<Field>,
    /// The annotation `switchboard.code` of an exception.
    pub code: Option<String>,
}

/// Fields of exceptions that say in words what happened.
pub(super) const TEXTS: [&str; 6] = ["message", "msg", "reason", "why", "error", "description"];

impl Struct {
    /// The field of an exception that is the text of its status.
    pub fn text(&self) -> Option<&Field> {
        self.fields.iter().find(|field| field.ty == Type::String && TEXTS.contains(&&*field.name))
    }
}

/// An enum.
#[derive(Clone, Debug)]
pub struct Enum {
    /// With its package.
    pub name: String,
    /// Names and numbers.
    pub members: Vec<(String, i32)>,
}

impl Interface {
    /// Reads `files`, and what they include: from beside the file that does, else from `includes`.
    ///
    /// # Errors
    /// Files that cannot be read or understood, and names in them that nobody defined.
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

    /// The place in the list of all such items: those of earlier files come first. Names are defined once in a file.
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

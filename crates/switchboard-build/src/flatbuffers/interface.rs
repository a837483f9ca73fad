//! What `.fbs` files declare, for programs that read them while they run.

use super::{
    ast::{self, Item, Kind},
    fields::DefaultValue,
    schema::{Resolved, Schema},
    variants::variant_name,
};
use crate::Error;
use std::{mem::discriminant, path::PathBuf, ptr};

pub use ast::Base;

/// Services of `.fbs` files and every type in them, with included files read.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// In the order of the files.
    pub services: Vec<Service>,
    /// What [`Type::Table`] counts.
    pub tables: Vec<Table>,
    /// What [`Type::Struct`] counts.
    pub structs: Vec<Struct>,
    /// What [`Type::Enum`] counts.
    pub enums: Vec<Enum>,
    /// What [`Type::Union`] counts.
    pub unions: Vec<Union>,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// With its namespace, as in `demo.v1.Store`.
    pub name: String,
    /// In the order of the file.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// As it is on the wire.
    pub name: String,
    /// The table that it takes: one of [`Interface::tables`].
    pub request: usize,
    /// The table that it returns.
    pub reply: usize,
    /// Whether requests, and whether replies, are streams.
    pub streams: [bool; 2],
    /// Whether nothing comes back.
    pub oneway: bool,
    /// Whether a second call changes nothing more.
    pub idempotent: bool,
    /// Whether it changes nothing at all.
    pub read_only: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// With its namespace.
    pub name: String,
    /// In the order of the file, without those that are deprecated.
    pub fields: Vec<Field>,
}

/// A field of a table.
#[derive(Clone, Debug)]
pub struct Field {
    /// In JSON.
    pub name: String,
    /// In the table. Before that of a [union](Type::Union) is the number of a byte that says which it is, and before
    /// that of a vector of them the number of a vector of those.
    pub number: usize,
    /// Of its value.
    pub ty: Type,
    /// What it is where it is not there, for numbers and enums that do not leave that open.
    pub default: Option<Default>,
    /// Whether readers refuse a table without it.
    pub required: bool,
}

/// A default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// Of a `bool`.
    Bool(bool),
    /// Of a `float` or `double`.
    Float(f64),
    /// Of a whole number or enum.
    Int(i64),
}

/// A struct.
#[derive(Clone, Debug)]
pub struct Struct {
    /// With its namespace.
    pub name: String,
    /// Bytes that it takes, a multiple of `align`.
    pub size: usize,
    /// What its position is a multiple of.
    pub align: usize,
    /// In the order of the file.
    pub fields: Vec<Place>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Place {
    /// In JSON.
    pub name: String,
    /// Of its value: a number, enum, struct or array of those.
    pub ty: Type,
    /// How many bytes of the struct come before it.
    pub at: usize,
}

/// An enum.
#[derive(Clone, Debug)]
pub struct Enum {
    /// With its namespace.
    pub name: String,
    /// What it is written as.
    pub base: Base,
    /// Whether a value may be several members at once.
    pub are_bits: bool,
    /// Names and numbers.
    pub members: Vec<(String, i64)>,
}

/// A union.
#[derive(Clone, Debug)]
pub struct Union {
    /// With its namespace.
    pub name: String,
    /// The first has the number 1.
    pub members: Vec<Member>,
}

/// One of the tables of a union.
#[derive(Clone, Debug)]
pub struct Member {
    /// As the file has it.
    pub name: String,
    /// The variant of generated code, which its JSON has.
    pub variant: String,
    /// One of [`Interface::tables`].
    pub table: usize,
}

/// The type of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Type {
    /// As many as it says, in a struct.
    Array(Box<Type>, usize),
    /// A number, or true or false.
    Base(Base),
    /// One of [`Interface::enums`].
    Enum(usize),
    /// Text.
    String,
    /// One of [`Interface::structs`].
    Struct(usize),
    /// One of [`Interface::tables`].
    Table(usize),
    /// One of [`Interface::unions`].
    Union(usize),
    /// Elements.
    Vector(Box<Type>),
}

impl Interface {
    /// Reads `files`, and what they include: from beside the file that does, else from `includes`.
    ///
    /// # Errors
    /// Files that cannot be read or understood, and names in them that nobody defined.
    pub fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Interface, Error> {
        let schema = Schema::read(files, includes)?;
        let mut interface = Interface::default();
        for item in &schema.items {
            let name = format!("{}.{}", item.namespace, item.name);
            match &item.kind {
                Kind::Enum { base, are_bits, members } => {
                    let members = members.iter().map(|(name, number, _)| (name.clone(), *number)).collect();
                    interface.enums.push(Enum { name, base: *base, are_bits: *are_bits, members });
                }
                Kind::Service(methods) => {
                    let methods = methods.iter().map(|method| schema.method(item, method));
                    interface.services.push(Service { name, methods: methods.collect::<Result<_, _>>()? });
                }
                Kind::Struct { fields, .. } => {
                    let offsets = schema.offsets_of(item)?;
                    let places = fields.iter().zip(&offsets.fields).map(|(field, at)| {
                        let ty = schema.resolve(&item.namespace, &field.ty, &field.place)?;
                        Ok(Place { name: field.name.clone(), ty: schema.counted(&ty), at: *at })
                    });
                    let fields = places.collect::<Result<_, Error>>()?;
                    interface.structs.push(Struct { name, size: offsets.size, align: offsets.align, fields });
                }
                Kind::Table(fields) => {
                    let fields = schema.fields(item, fields)?;
                    interface.tables.push(Table { name, fields });
                }
                Kind::Union(variants) => {
                    let member = |variant: &ast::Variant| {
                        let table = schema.table(&item.namespace, &variant.table, &item.place)?;
                        let (name, in_code) = (variant.name.clone(), variant_name(&variant.name));
                        Ok(Member { name, variant: in_code, table: schema.count(table) })
                    };
                    let members = variants.iter().map(member).collect::<Result<_, Error>>()?;
                    interface.unions.push(Union { name, members });
                }
            }
        }
        Ok(interface)
    }

    /// Bytes that a value takes where it lies, and what its position is a multiple of. What others refer to is an
    /// offset there.
    pub fn layout(&self, ty: &Type) -> (usize, usize) {
        match ty {
            Type::Array(item, len) => {
                let (size, align) = self.layout(item);
                (size * len, align)
            }
            Type::Base(base) => (base.size(), base.size()),
            Type::Enum(at) => self.layout(&Type::Base(self.enums[*at].base)),
            Type::Struct(at) => (self.structs[*at].size, self.structs[*at].align),
            Type::String | Type::Table(_) | Type::Union(_) | Type::Vector(_) => (4, 4),
        }
    }
}

impl Schema {
    fn method(&self, service: &Item, method: &ast::Method) -> Result<Method, Error> {
        let (request, reply) = self.messages(service, method)?;
        Ok(Method {
            name: method.name.clone(),
            request: self.count(request),
            reply: self.count(reply),
            streams: method.streams()?,
            oneway: method.attributes.has("switchboard_oneway"),
            idempotent: method.attributes.has("idempotent"),
            read_only: method.attributes.has("switchboard_read_only"),
        })
    }

    fn fields(&self, table: &Item, fields: &[ast::Field]) -> Result<Vec<Field>, Error> {
        let numbered = self.numbered(table, fields)?.into_iter();
        let field = numbered.map(|numbered| Field {
            name: numbered.field.name.clone(),
            number: numbered.number,
            ty: self.counted(&numbered.ty),
            default: numbered.default.map(|default| match default {
                DefaultValue::Bool(value) => Default::Bool(value),
                DefaultValue::Float(value) => Default::Float(value),
                DefaultValue::Int(value) | DefaultValue::Member(_, value) => Default::Int(value),
            }),
            required: numbered.field.attributes.has("required"),
        });
        Ok(field.collect())
    }

    fn counted(&self, ty: &Resolved<'_>) -> Type {
        match ty {
            Resolved::Array(item, len) => Type::Array(Box::new(self.counted(item)), *len),
            Resolved::Base(base) => Type::Base(*base),
            Resolved::String => Type::String,
            Resolved::Vector(item) => Type::Vector(Box::new(self.counted(item))),
            Resolved::Item(item) => match item.kind {
                Kind::Enum { .. } => Type::Enum(self.count(item)),
                Kind::Struct { .. } => Type::Struct(self.count(item)),
                Kind::Union(_) => Type::Union(self.count(item)),
                // No type is a service.
                Kind::Service(_) | Kind::Table(_) => Type::Table(self.count(item)),
            },
        }
    }

    /// How many of its kind come before it.
    fn count(&self, item: &Item) -> usize {
        let before = self.items.iter().take_while(|other| !ptr::eq(*other, item));
        before.filter(|other| discriminant(&other.kind) == discriminant(&item.kind)).count()
    }
}

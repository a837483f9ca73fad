//! Declarations of `.fbs` files, for programs that read them at run time.

use super::{
    ast::{self, Item, Kind},
    fields::DefaultValue,
    schema::{Resolved, Schema},
    variants::variant_name,
};
use crate::Error;
use std::{mem::discriminant, path::PathBuf, ptr};

pub use ast::Base;

/// Services of `.fbs` files and every type in them, including those of included files.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Services, in the order of the files.
    pub services: Vec<Service>,
    /// Tables, which [`Type::Table`] refers to by index.
    pub tables: Vec<Table>,
    /// Structs, which [`Type::Struct`] refers to by index.
    pub structs: Vec<Struct>,
    /// Enums, which [`Type::Enum`] refers to by index.
    pub enums: Vec<Enum>,
    /// Unions, which [`Type::Union`] refers to by index.
    pub unions: Vec<Union>,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name with its namespace, such as `demo.v1.Store`.
    pub name: String,
    /// Methods, in the order of the file.
    pub methods: Vec<Method>,
}

/// A method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Name on the wire.
    pub name: String,
    /// Request table, as an index of [`Interface::tables`].
    pub request: usize,
    /// Reply table, as an index of [`Interface::tables`].
    pub reply: usize,
    /// True if requests, and if replies, are streams.
    pub streams: [bool; 2],
    /// True if the method has no reply.
    pub oneway: bool,
    /// True if a repeated call has no further effect.
    pub idempotent: bool,
    /// True if the method has no effect.
    pub read_only: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name with its namespace.
    pub name: String,
    /// Fields that are not deprecated, in the order of the file.
    pub fields: Vec<Field>,
}

/// A field of a table.
#[derive(Clone, Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: String,
    /// Number in the table. The tag byte of a [union](Type::Union) has the number before it, and so does the vector of
    /// tags of a vector of unions.
    pub number: usize,
    /// Type of the value.
    pub ty: Type,
    /// Value of a missing field, for numbers and enums that are not optional.
    pub default: Option<Default>,
    /// True if readers reject a table without the field.
    pub required: bool,
}

/// Default value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
// closed: the generator writes each kind
pub enum Default {
    /// Default of a `bool`.
    Bool(bool),
    /// Default of a `float` or `double`.
    Float(f64),
    /// Default of a whole number or enum.
    Int(i64),
}

/// A struct.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Name with its namespace.
    pub name: String,
    /// Size in bytes, a multiple of `align`.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Fields, in the order of the file.
    pub fields: Vec<StructField>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct StructField {
    /// Name in JSON.
    pub name: String,
    /// Type of the value: a number, enum, struct or array of those.
    pub ty: Type,
    /// Offset in the struct, in bytes.
    pub at: usize,
}

/// An enum.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Name with its namespace.
    pub name: String,
    /// Type of the encoded number.
    pub base: Base,
    /// True if a value may combine several members as bits.
    pub are_bits: bool,
    /// Names and numbers.
    pub members: Vec<(String, i64)>,
}

/// A union.
#[derive(Clone, Debug)]
pub struct Union {
    /// Name with its namespace.
    pub name: String,
    /// Members; the first has the number 1.
    pub members: Vec<Member>,
}

/// One of the tables of a union.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name as in the file.
    pub name: String,
    /// Variant of generated code, which is also its name in JSON.
    pub variant: String,
    /// Table of the member, as an index of [`Interface::tables`].
    pub table: usize,
}

/// The type of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: the generator writes each type
pub enum Type {
    /// An array of fixed length, in a struct.
    Array(Box<Type>, usize),
    /// A number, or a boolean.
    Base(Base),
    /// An enum, as an index of [`Interface::enums`].
    Enum(usize),
    /// Text.
    String,
    /// A struct, as an index of [`Interface::structs`].
    Struct(usize),
    /// A table, as an index of [`Interface::tables`].
    Table(usize),
    /// A union, as an index of [`Interface::unions`].
    Union(usize),
    /// A vector.
    Vector(Box<Type>),
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
                    let fields = fields.iter().zip(&offsets.fields).map(|(field, at)| {
                        let ty = schema.resolve(&item.namespace, &field.ty, &field.place)?;
                        Ok(StructField { name: field.name.clone(), ty: schema.counted(&ty), at: *at })
                    });
                    let fields = fields.collect::<Result<_, Error>>()?;
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

    /// Returns size and alignment in bytes of a value in place. A value that is stored elsewhere is an offset there.
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
                // A type never resolves to a service.
                Kind::Service(_) | Kind::Table(_) => Type::Table(self.count(item)),
            },
        }
    }

    /// Returns the index of an item among the items of its kind.
    fn count(&self, item: &Item) -> usize {
        let before = self.items.iter().take_while(|other| !ptr::eq(*other, item));
        before.filter(|other| discriminant(&other.kind) == discriminant(&item.kind)).count()
    }
}

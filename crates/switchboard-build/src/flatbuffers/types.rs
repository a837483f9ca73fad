//! Rust types of FlatBuffers types.

use super::{
    ast::{Base, Field, Item, Kind},
    fields::DefaultValue,
    schema::{Resolved, Schema},
};
use crate::{
    Error,
    names::{constant_ident, relative_path},
};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// Types as written in the code of one package.
pub(super) struct Types<'a> {
    pub(super) schema: &'a Schema,
    pub(super) package: &'a str,
}

impl<'a> Types<'a> {
    pub(super) fn resolve(&self, item: &Item, field: &Field) -> Result<Resolved<'a>, Error> {
        self.schema.resolve(&item.namespace, &field.ty, &field.place)
    }

    /// Returns the type of a present value.
    pub(super) fn rust(&self, ty: &Resolved<'_>) -> TokenStream {
        match ty {
            Resolved::Array(item, len) => {
                let (item, len) = (self.rust(item), Literal::usize_unsuffixed(*len));
                quote!([#item; #len])
            }
            Resolved::Base(number) => base(*number),
            Resolved::Item(item) => self.path(item),
            Resolved::String => quote!(::std::string::String),
            Resolved::Vector(item) => {
                let item = self.rust(item);
                quote!(::std::vec::Vec<#item>)
            }
        }
    }

    pub(super) fn path(&self, item: &Item) -> TokenStream {
        relative_path(self.package, &item.namespace, &item.name)
    }

    /// Returns the default of a field of this type.
    pub(super) fn default(&self, ty: &Resolved<'_>, value: DefaultValue<'_>) -> TokenStream {
        let literal = match value {
            DefaultValue::Bool(value) => quote!(#value),
            DefaultValue::Float(value) if value.is_finite() => {
                let value = Literal::f64_unsuffixed(value);
                quote!(#value)
            }
            DefaultValue::Float(value) => {
                let ty = self.rust(ty);
                if value.is_nan() { quote!(#ty::NAN) } else { quote!(#ty::INFINITY) }
            }
            DefaultValue::Int(value) => {
                let value = Literal::i64_unsuffixed(value);
                quote!(#value)
            }
            DefaultValue::Member(name, _) => {
                let (path, constant) = (self.rust(ty), constant_ident(name));
                return quote!(#path::#constant);
            }
        };
        match ty {
            Resolved::Item(item) => {
                let path = self.path(item);
                quote!(#path(#literal))
            }
            _ => literal,
        }
    }
}

pub(super) fn base(number: Base) -> TokenStream {
    match number {
        Base::Bool => quote!(bool),
        Base::F32 => quote!(f32),
        Base::F64 => quote!(f64),
        Base::I8 => quote!(i8),
        Base::I16 => quote!(i16),
        Base::I32 => quote!(i32),
        Base::I64 => quote!(i64),
        Base::U8 => quote!(u8),
        Base::U16 => quote!(u16),
        Base::U32 => quote!(u32),
        Base::U64 => quote!(u64),
    }
}

/// Returns true if a vector stores values of the type by offset.
pub(super) fn is_referred(ty: &Resolved<'_>) -> bool {
    matches!(ty, Resolved::String | Resolved::Item(Item { kind: Kind::Table(_), .. }))
}

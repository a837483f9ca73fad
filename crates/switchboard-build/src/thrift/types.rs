//! Rust types of Thrift types.

use super::{
    ast::{Base, Requiredness, Struct, StructKind},
    schema::{Resolved, Schema},
};
pub(super) use crate::names::{constant_ident, field_ident, snake, type_ident};
use crate::{Error, names};
use proc_macro2::TokenStream;
use quote::quote;

/// Types as written in the code of one package.
pub(super) struct Types<'a> {
    pub(super) schema: &'a Schema,
    pub(super) package: &'a str,
}

impl<'a> Types<'a> {
    /// Returns the Rust type. Values in sets and keys of maps must be ordered, so doubles have another type there.
    ///
    /// # Errors
    /// Returns an error for a struct with doubles in a set or key.
    pub(super) fn rust(&self, ty: &Resolved<'a>, keyed: bool) -> Result<TokenStream, Error> {
        Ok(match ty {
            Resolved::Base(base) => base_type(*base, keyed),
            Resolved::Enum(file, item) => self.path(*file, &item.name),
            Resolved::List(element) => {
                let element = self.rust(element, keyed)?;
                quote!(::std::vec::Vec<#element>)
            }
            Resolved::Set(element) => {
                let element = self.rust(element, true)?;
                quote!(::std::collections::BTreeSet<#element>)
            }
            Resolved::Map(key, value) => {
                let (key, value) = (self.rust(key, true)?, self.rust(value, keyed)?);
                quote!(::std::collections::BTreeMap<#key, #value>)
            }
            Resolved::Struct(file, item) => {
                if keyed && self.has_double(ty) {
                    return Err(Error::new(format!(
                        "{}: {} has a double and is in a set or the key of a map somewhere, where doubles have no \
                         order; make it a list there",
                        self.schema.place(*file, item.line),
                        item.name
                    )));
                }
                self.path(*file, &item.name)
            }
        })
    }

    /// Returns the path of an item that is defined in `file`.
    pub(super) fn path(&self, file: usize, name: &str) -> TokenStream {
        names::relative_path(self.package, &self.schema.documents[file].package, name)
    }

    /// Returns true if the type contains a double that has no order.
    pub(super) fn has_double(&self, ty: &Resolved<'a>) -> bool {
        self.any(ty, &mut Vec::new(), false, &|base, keyed| base == Base::Double && !keyed)
    }

    fn any(
        &self,
        ty: &Resolved<'a>,
        seen: &mut Vec<*const Struct>,
        keyed: bool,
        test: &dyn Fn(Base, bool) -> bool,
    ) -> bool {
        match ty {
            Resolved::Base(base) => test(*base, keyed),
            Resolved::Enum(..) => false,
            Resolved::List(element) => self.any(element, seen, keyed, test),
            Resolved::Set(element) => self.any(element, seen, true, test),
            Resolved::Map(key, value) => {
                self.any(key, seen, true, test) || self.any(value, seen, keyed, test)
            }
            Resolved::Struct(file, item) => {
                let known = std::ptr::from_ref(*item);
                if seen.contains(&known) {
                    return false;
                }
                seen.push(known);
                // A struct has the same type everywhere.
                self.fields(*file, item).any(|(_, ty)| self.any(&ty, seen, false, test))
            }
        }
    }

    /// Returns true if the type has a default value.
    pub(super) fn has_default(&self, ty: &Resolved<'a>) -> bool {
        self.has_default_within(ty, &mut Vec::new())
    }

    fn has_default_within(&self, ty: &Resolved<'a>, seen: &mut Vec<*const Struct>) -> bool {
        let Resolved::Struct(file, item) = ty else { return true };
        if item.kind == StructKind::Union {
            return false;
        }
        let known = std::ptr::from_ref(*item);
        if seen.contains(&known) {
            return true;
        }
        seen.push(known);
        self.fields(*file, item).all(|(requiredness, ty)| {
            requiredness != Requiredness::Required || self.has_default_within(&ty, seen)
        })
    }

    /// Returns true if a value of the type contains one of `item` without a container in between; only a container
    /// makes the type finite.
    pub(super) fn holds(&self, ty: &Resolved<'a>, item: &Struct) -> bool {
        self.holds_within(ty, item, &mut Vec::new())
    }

    fn holds_within(&self, ty: &Resolved<'a>, wanted: &Struct, seen: &mut Vec<*const Struct>) -> bool {
        let Resolved::Struct(file, item) = ty else { return false };
        if std::ptr::eq(*item, wanted) {
            return true;
        }
        let known = std::ptr::from_ref(*item);
        if seen.contains(&known) {
            return false;
        }
        seen.push(known);
        self.fields(*file, item).any(|(_, ty)| self.holds_within(&ty, wanted, seen))
    }

    /// Returns the fields whose types resolve; the others are reported when they are emitted.
    fn fields(&self, file: usize, item: &'a Struct) -> impl Iterator<Item = (Requiredness, Resolved<'a>)> {
        item.fields.iter().filter_map(move |field| {
            Some((field.requiredness, self.schema.resolve(file, &field.ty, field.line).ok()?))
        })
    }
}

fn base_type(base: Base, keyed: bool) -> TokenStream {
    match base {
        Base::Binary => quote!(::switchboard::codegen::Bytes),
        Base::Bool => quote!(bool),
        Base::Double if keyed => quote!(::switchboard::codegen::thrift::Double),
        Base::Double => quote!(f64),
        Base::I8 => quote!(i8),
        Base::I16 => quote!(i16),
        Base::I32 => quote!(i32),
        Base::I64 => quote!(i64),
        Base::String => quote!(::std::string::String),
        Base::Uuid => quote!(::switchboard::codegen::thrift::Uuid),
    }
}

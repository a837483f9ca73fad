//! What Rust has for a type.

use super::{
    ast::{Base, Requiredness, Struct, StructKind},
    schema::{Resolved, Schema},
};
pub(super) use crate::names::{constant_ident, field_ident, snake, type_ident};
use crate::{Error, names};
use proc_macro2::TokenStream;
use quote::quote;

/// Types as the code of one package writes them.
pub(super) struct Types<'a> {
    pub(super) schema: &'a Schema,
    pub(super) package: &'a str,
}

impl<'a> Types<'a> {
    /// The type. Inside sets and keys of maps everything has an order, so that doubles are of another type there.
    ///
    /// # Errors
    /// A struct with doubles in a set or key.
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

    /// The path of something that is defined in `file`.
    pub(super) fn path(&self, file: usize, name: &str) -> TokenStream {
        names::relative_path(self.package, &self.schema.documents[file].package, name)
    }

    /// Whether there is a double in it that has no order.
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
                // A struct is of one type wherever it is.
                self.fields(*file, item).any(|(_, ty)| self.any(&ty, seen, false, test))
            }
        }
    }

    /// Whether there is a value of the type when nobody says one.
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

    /// Whether a value of the type holds one of `item` without a container in between, which alone ends the circle.
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

    /// The fields that resolve; those that do not are complained of where they are emitted.
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

//! What Rust has for a type.

use super::{
    ast::{Base, Field, Item, Kind, Method},
    parser,
    schema::{Resolved, Schema},
};
use crate::{
    Error,
    lexer::Token,
    names::{constant_ident, relative_path},
};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// Types as the code of one package writes them.
pub(super) struct Types<'a> {
    pub(super) schema: &'a Schema,
    pub(super) package: &'a str,
}

impl<'a> Types<'a> {
    pub(super) fn resolve(&self, item: &Item, field: &Field) -> Result<Resolved<'a>, Error> {
        self.schema.resolve(&item.namespace, &field.ty, &field.place)
    }

    /// The type of a value that is there.
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

    /// The table that a method or union names.
    ///
    /// # Errors
    /// Something else has the name, or nothing.
    pub(super) fn table(&self, namespace: &str, name: &str, place: &str) -> Result<&'a Item, Error> {
        match self.schema.find(namespace, name, place)? {
            item @ Item { kind: Kind::Table(_), .. } => Ok(item),
            _ => Err(Error::new(format!("{place}: {name} is no table"))),
        }
    }

    /// The default of a number or enum; `None` where there may be none at all.
    ///
    /// # Errors
    /// A default that is of another type.
    pub(super) fn default(&self, ty: &Resolved<'_>, field: &Field) -> Result<Option<TokenStream>, Error> {
        let wrong =
            || Error::new(format!("{}: the default does not fit the type of {}", field.place, field.name));
        if matches!(&field.default, Some(Token::Name(name)) if name == "null") {
            return Ok(None);
        }
        let (number, path) = match ty {
            Resolved::Base(base) => (*base, None),
            Resolved::Item(item @ Item { kind: Kind::Enum { base, members }, .. }) => {
                if let Some(Token::Name(name)) = &field.default {
                    let bare = name.rsplit_once('.').map_or(name.as_str(), |(_, name)| name);
                    if !members.iter().any(|(known, ..)| known == bare) {
                        return Err(wrong());
                    }
                    let (path, constant) = (self.path(item), constant_ident(bare));
                    return Ok(Some(quote!(#path::#constant)));
                }
                (*base, Some(self.path(item)))
            }
            _ => return Err(wrong()),
        };
        let value = match (&field.default, number) {
            (None, Base::Bool) => quote!(false),
            (None, _) if number.is_float() => quote!(0.0),
            (None, _) => quote!(0),
            (Some(Token::Int(value)), Base::Bool) if parser::fits(number, *value) => {
                let value = *value == 1;
                quote!(#value)
            }
            (Some(Token::Int(value)), _) if number.is_float() => float(*value as f64),
            (Some(Token::Int(value)), _) if parser::fits(number, *value) => {
                let value = Literal::i64_unsuffixed(*value);
                quote!(#value)
            }
            (Some(Token::Double(value)), _) if number.is_float() && value.is_finite() => float(*value),
            (Some(Token::Name(name)), Base::Bool) if name == "true" || name == "false" => {
                let value = name == "true";
                quote!(#value)
            }
            (Some(Token::Name(name)), _) if number.is_float() && (name == "nan" || name == "inf") => {
                let ty = base(number);
                if name == "inf" { quote!(#ty::INFINITY) } else { quote!(#ty::NAN) }
            }
            _ => return Err(wrong()),
        };
        Ok(Some(path.map_or(value.clone(), |path| quote!(#path(#value)))))
    }

    /// The tables of a method.
    ///
    /// # Errors
    /// Those of [`table`](Self::table).
    pub(super) fn messages(&self, item: &Item, method: &Method) -> Result<(&'a Item, &'a Item), Error> {
        let table = |name: &str| self.table(&item.namespace, name, &method.place);
        Ok((table(&method.request)?, table(&method.reply)?))
    }
}

fn float(value: f64) -> TokenStream {
    let value = Literal::f64_unsuffixed(value);
    quote!(#value)
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

/// Whether a type is one that a vector holds by offsets.
pub(super) fn is_referred(ty: &Resolved<'_>) -> bool {
    matches!(ty, Resolved::String | Resolved::Item(Item { kind: Kind::Table(_), .. }))
}

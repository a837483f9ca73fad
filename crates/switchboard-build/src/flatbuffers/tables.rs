//! Emits tables as structs whose fields may be missing.

use super::{
    ast::{Field, Item, Kind},
    fields::Numbered,
    schema::Resolved,
    structs::{doc_of, rename},
    types::{Types, is_referred},
};
use crate::{
    Error, docs,
    names::{field_ident, type_ident},
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

/// A field of the generated struct.
struct Plan<'a> {
    field: &'a Field,
    ident: Ident,
    /// Number in the table.
    number: usize,
    shape: Shape,
    required: bool,
    /// Type of a present value.
    ty: TokenStream,
    /// Size in the table, in bytes: wider fields come first.
    size: usize,
}

/// Encoding of a field.
enum Shape {
    /// A number or enum with a default.
    Number(TokenStream),
    /// A number or enum without a default, or a struct.
    Inline,
    Inlines,
    References,
    Text,
    Table,
    Union,
    Unions,
}

/// Emits a table.
///
/// # Errors
/// Returns an error for fields of types that a table cannot have.
pub(super) fn emit(types: &Types<'_>, item: &Item, fields: &[Field]) -> Result<TokenStream, Error> {
    let plans = plans(types, item, fields)?;
    let ident = type_ident(&item.name);
    let doc = docs::attributes(
        &item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::escape_comment),
    );
    let members = plans.iter().map(Plan::member);
    let default = Plan::defaults(&plans).map(|values| {
        quote! {
            impl ::core::default::Default for #ident {
                fn default() -> Self {
                    Self { #values }
                }
            }
        }
    });
    let all_default = default.as_ref().map(|_| quote!(#[serde(default)]));
    let mut in_place: Vec<_> = plans.iter().collect();
    in_place.sort_by_key(|plan| std::cmp::Reverse(plan.size));
    let in_place = in_place.into_iter().map(Plan::write_in_place);
    // The tags of unions are bytes, which come last.
    let tags = plans.iter().map(Plan::write_tag);
    let behind = plans.iter().map(Plan::write_behind);
    let reads = plans.iter().map(|plan| plan.read(&item.name));
    let table = if plans.is_empty() { quote!(_table) } else { quote!(table) };
    Ok(quote! {
        #doc
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #all_default
        pub struct #ident { #(#members),* }

        #default

        impl ::switchboard::codegen::flatbuffers::Referred for #ident {
            fn write(&self, out: &mut ::switchboard::codegen::flatbuffers::Writer) -> usize {
                out.begin();
                #(#in_place)*
                #(#tags)*
                let table = out.end();
                #(#behind)*
                table
            }

            fn read(
                at: ::switchboard::codegen::flatbuffers::Position<'_>,
            ) -> ::core::result::Result<Self, ::switchboard::codegen::flatbuffers::Malformed> {
                let #table = at.table::<Self>()?;
                ::core::result::Result::Ok(Self { #(#reads),* })
            }
        }
    })
}

/// Returns the fields that are not deprecated.
fn plans<'a>(types: &Types<'a>, item: &Item, fields: &'a [Field]) -> Result<Vec<Plan<'a>>, Error> {
    let mut plans = Vec::<Plan<'a>>::new();
    for numbered in types.schema.numbered(item, fields)? {
        let plan = plan(types, &numbered)?;
        if let Some(other) = plans.iter().find(|other| other.ident == plan.ident) {
            let (field, other) = (plan.field, other.field);
            return Err(Error::new(format!(
                "{}: {} has the name of {}",
                field.place, field.name, other.name
            )));
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn plan<'a>(types: &Types<'_>, numbered: &Numbered<'a>) -> Result<Plan<'a>, Error> {
    let Numbered { field, ty, number, size, default } = numbered;
    let shape = match ty {
        Resolved::Base(_) | Resolved::Item(Item { kind: Kind::Enum { .. }, .. }) => {
            default.map_or(Shape::Inline, |value| Shape::Number(types.default(ty, value)))
        }
        Resolved::Item(Item { kind: Kind::Struct { .. }, .. }) | Resolved::Array(..) => Shape::Inline,
        _ if ty.is_union() => Shape::Union,
        Resolved::Item(_) => Shape::Table,
        Resolved::String => Shape::Text,
        Resolved::Vector(inner) => match (is_referred(inner), types.schema.layout(inner)?) {
            (true, _) => Shape::References,
            (false, Some(_)) => Shape::Inlines,
            (false, None) => Shape::Unions,
        },
    };
    Ok(Plan {
        field,
        ident: field_ident(&field.name),
        number: *number,
        shape,
        required: field.attributes.has("required"),
        ty: types.rust(ty),
        size: *size,
    })
}

impl Plan<'_> {
    /// Returns true if the field of the struct is an `Option`.
    fn is_option(&self) -> bool {
        match self.shape {
            Shape::Inlines | Shape::Number(_) | Shape::References | Shape::Unions => false,
            Shape::Inline | Shape::Table | Shape::Text | Shape::Union => !self.required,
        }
    }

    fn member(&self) -> TokenStream {
        let Plan { ident, ty, field, .. } = self;
        let (doc, rename) = (doc_of(field), rename(field));
        let ty = match self.shape {
            Shape::Table => quote!(::std::boxed::Box<#ty>),
            _ => quote!(#ty),
        };
        if self.is_option() {
            let skip = quote!(#[serde(default, skip_serializing_if = "::core::option::Option::is_none")]);
            return quote!(#doc #rename #skip pub #ident: ::core::option::Option<#ty>);
        }
        quote!(#doc #rename pub #ident: #ty)
    }

    /// Returns the values of a table without fields; `None` if a field has no default.
    fn defaults(plans: &[Plan<'_>]) -> Option<TokenStream> {
        let value = |plan: &Plan<'_>| {
            let ident = &plan.ident;
            match &plan.shape {
                Shape::Number(default) => Some(quote!(#ident: #default)),
                Shape::Table | Shape::Union if plan.required => None,
                _ => Some(quote!(#ident: ::core::default::Default::default())),
            }
        };
        let values = plans.iter().map(value).collect::<Option<Vec<_>>>()?;
        Some(quote!(#(#values),*))
    }

    /// Name of the variable for the slot of its offset.
    fn slot(&self) -> Ident {
        format_ident!("slot_{}", self.number)
    }

    /// Name of the variable for the slot of the offset to the tags of its unions.
    fn tags_slot(&self) -> Ident {
        format_ident!("slot_{}", self.number - 1)
    }

    fn write_in_place(&self) -> TokenStream {
        let Plan { ident, number, required, .. } = self;
        let (number, slot) = (Literal::usize_unsuffixed(*number), self.slot());
        match &self.shape {
            Shape::Number(default) => quote!(out.inline(#number, self.#ident, #default);),
            Shape::Inline if *required => {
                quote!(out.optional(#number, ::core::option::Option::Some(self.#ident));)
            }
            Shape::Inline => quote!(out.optional(#number, self.#ident);),
            Shape::Unions => {
                let (tags, tags_slot) = (Literal::usize_unsuffixed(self.number - 1), self.tags_slot());
                let is_there = if *required { quote!(true) } else { quote!(!self.#ident.is_empty()) };
                quote! {
                    let #tags_slot = out.refer(#tags, #is_there);
                    let #slot = out.refer(#number, #is_there);
                }
            }
            _ if *required => quote!(let #slot = out.refer(#number, true);),
            Shape::Inlines | Shape::References => {
                quote!(let #slot = out.refer(#number, !self.#ident.is_empty());)
            }
            Shape::Table | Shape::Text | Shape::Union => {
                quote!(let #slot = out.refer(#number, self.#ident.is_some());)
            }
        }
    }

    fn write_tag(&self) -> Option<TokenStream> {
        let Shape::Union = self.shape else { return None };
        let (value, number) = (self.value(), Literal::usize_unsuffixed(self.number - 1));
        let tag = quote!(::switchboard::codegen::flatbuffers::Union::tag);
        Some(quote!(out.optional(#number, #value.map(#tag));))
    }

    /// Returns the value as an `Option` expression.
    fn value(&self) -> TokenStream {
        let ident = &self.ident;
        if self.required {
            quote!(::core::option::Option::Some(&self.#ident))
        } else {
            quote!(self.#ident.as_ref())
        }
    }

    fn write_behind(&self) -> TokenStream {
        let (ident, slot, value) = (&self.ident, self.slot(), self.value());
        match self.shape {
            Shape::Inline | Shape::Number(_) => quote!(),
            Shape::Inlines => quote!(out.point_to_inlines(#slot, &self.#ident);),
            Shape::References => quote!(out.point_to_all(#slot, &self.#ident);),
            Shape::Table | Shape::Text => quote!(out.point(#slot, #value);),
            Shape::Union => quote!(out.point_to_union(#slot, #value);),
            Shape::Unions => {
                let tags_slot = self.tags_slot();
                quote!(out.point_to_unions(#tags_slot, #slot, &self.#ident);)
            }
        }
    }

    fn read(&self, table: &str) -> TokenStream {
        let (ident, number) = (&self.ident, Literal::usize_unsuffixed(self.number));
        let field = &self.field.name;
        let read = match &self.shape {
            Shape::Number(default) => {
                return quote! {
                    #ident: table.inline(#number).map_err(|error| error.in_field(#field))?.unwrap_or(#default)
                };
            }
            Shape::Inline => quote!(inline),
            Shape::Inlines => quote!(inlines),
            Shape::References => quote!(all),
            Shape::Table | Shape::Text => quote!(referred),
            Shape::Union => quote!(union),
            Shape::Unions => quote!(unions),
        };
        let read = quote!(table.#read(#number).map_err(|error| error.in_field(#field))?);
        if self.required {
            let name = format!("{table}.{}", self.field.name);
            return quote! {
                #ident: #read.ok_or_else(|| ::switchboard::codegen::flatbuffers::Malformed::missing(#name))?
            };
        }
        match self.shape {
            Shape::Inlines | Shape::References | Shape::Unions => {
                quote!(#ident: #read.unwrap_or_default())
            }
            _ => quote!(#ident: #read),
        }
    }
}

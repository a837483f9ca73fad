//! Emits unions as enums of tables.

use super::{
    ast::{Item, Variant},
    types::Types,
    variants::variant_name,
};
use crate::{Error, docs, names::type_ident};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

/// Emits a union.
///
/// # Errors
/// Returns an error for members that are not tables, and for duplicate names.
pub(super) fn emit(types: &Types<'_>, item: &Item, variants: &[Variant]) -> Result<TokenStream, Error> {
    let ident = type_ident(&item.name);
    let doc = docs::attributes(
        &item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::escape_comment),
    );
    let (mut members, mut tags, mut writes, mut reads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for (tag, variant) in (1u8..).zip(variants) {
        let table = types.schema.table(&item.namespace, &variant.table, &item.place)?;
        let (name, path, tag) = (ident_of(&variant.name), types.path(table), Literal::u8_unsuffixed(tag));
        if seen.contains(&name) {
            return Err(Error::new(format!("{}: {} has two members {name}", item.place, item.name)));
        }
        let doc = variant.doc.as_deref();
        let doc = docs::attributes(&doc.map_or_else(|| format!("`{}`.", variant.name), docs::escape_comment));
        members.push(quote!(#doc #name(::std::boxed::Box<#path>)));
        tags.push(quote!(Self::#name(_) => #tag));
        writes.push(quote! {
            Self::#name(value) => ::switchboard::codegen::flatbuffers::Referred::write(value, out)
        });
        reads.push(quote! {
            #tag => Self::#name(::switchboard::codegen::flatbuffers::Referred::read(at)?)
        });
        seen.push(name);
    }
    Ok(quote! {
        #doc
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        // closed: the schema has its members
        pub enum #ident { #(#members),* }

        impl ::switchboard::codegen::flatbuffers::Union for #ident {
            fn tag(&self) -> u8 {
                match self { #(#tags),* }
            }

            fn write(&self, out: &mut ::switchboard::codegen::flatbuffers::Writer) -> usize {
                match self { #(#writes),* }
            }

            fn read(
                tag: u8,
                at: ::switchboard::codegen::flatbuffers::Position<'_>,
            ) -> ::core::result::Result<
                ::core::option::Option<Self>,
                ::switchboard::codegen::flatbuffers::Malformed,
            > {
                ::core::result::Result::Ok(::core::option::Option::Some(match tag {
                    #(#reads,)*
                    _ => return ::core::result::Result::Ok(::core::option::Option::None),
                }))
            }
        }
    })
}

fn ident_of(member: &str) -> Ident {
    Ident::new(&variant_name(member), Span::call_site())
}

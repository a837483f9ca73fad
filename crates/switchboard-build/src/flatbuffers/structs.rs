//! In-place values: structs and enums.

use super::{
    ast::{Field, Item},
    types::Types,
};
use crate::{
    Error, docs,
    names::{field_ident, type_ident},
};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// Emits a struct.
///
/// # Errors
/// Returns an error for fields of types that a struct cannot have.
pub(super) fn emit(types: &Types<'_>, item: &Item, fields: &[Field]) -> Result<TokenStream, Error> {
    let offsets = types.schema.offsets_of(item)?;
    let ident = type_ident(&item.name);
    let doc = docs::attributes(
        &item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::escape_comment),
    );
    let (mut members, mut puts, mut takes) = (Vec::new(), Vec::new(), Vec::new());
    let mut end = 0;
    for (field, at) in fields.iter().zip(&offsets.fields) {
        let resolved = types.resolve(item, field)?;
        let (name, ty) = (field_ident(&field.name), types.rust(&resolved));
        let (doc, rename) = (doc_of(field), rename(field));
        members.push(quote!(#doc #rename pub #name: #ty));
        puts.push(padding(at - end));
        puts.push(quote!(::switchboard::codegen::flatbuffers::Inline::put(&self.#name, out);));
        let at_literal = Literal::usize_unsuffixed(*at);
        takes.push(quote!(#name: ::switchboard::codegen::flatbuffers::Inline::take(&bytes[#at_literal..])));
        end = at + types.schema.layout(&resolved)?.map_or(0, |(size, _)| size);
    }
    puts.push(padding(offsets.size - end));
    let (size, align) = (Literal::usize_unsuffixed(offsets.size), Literal::usize_unsuffixed(offsets.align));
    Ok(quote! {
        #doc
        #[derive(Clone, Copy, Debug, Default, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(default)]
        pub struct #ident { #(#members),* }

        impl ::switchboard::codegen::flatbuffers::Inline for #ident {
            const SIZE: usize = #size;
            const ALIGN: usize = #align;

            fn put(&self, out: &mut ::std::vec::Vec<u8>) {
                #(#puts)*
            }

            fn take(bytes: &[u8]) -> Self {
                Self { #(#takes),* }
            }
        }
    })
}

/// Emits the in-place encoding of an enum, whose type is emitted elsewhere.
pub(super) fn of_enum(item: &Item, repr: &TokenStream) -> TokenStream {
    let ident = type_ident(&item.name);
    quote! {
        impl ::switchboard::codegen::flatbuffers::Inline for #ident {
            const SIZE: usize = ::core::mem::size_of::<#repr>();
            const ALIGN: usize = ::core::mem::size_of::<#repr>();

            fn put(&self, out: &mut ::std::vec::Vec<u8>) {
                ::switchboard::codegen::flatbuffers::Inline::put(&self.0, out);
            }

            fn take(bytes: &[u8]) -> Self {
                Self(::switchboard::codegen::flatbuffers::Inline::take(bytes))
            }
        }
    }
}

fn padding(bytes: usize) -> TokenStream {
    if bytes == 0 {
        return quote!();
    }
    let bytes = Literal::usize_unsuffixed(bytes);
    quote!(out.resize(out.len() + #bytes, 0);)
}

pub(super) fn doc_of(field: &Field) -> TokenStream {
    docs::attributes(&field.doc.as_deref().map_or_else(|| format!("`{}`.", field.name), docs::escape_comment))
}

/// Returns the serde attribute for the name in JSON, if it differs from the name in Rust.
pub(super) fn rename(field: &Field) -> Option<TokenStream> {
    let name = &field.name;
    (field_ident(name) != name).then(|| quote!(#[serde(rename = #name)]))
}

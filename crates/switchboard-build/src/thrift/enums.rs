//! Emits open enums, which are 32 bits on the wire.

use super::{ast::Enum, types::type_ident};
use crate::open_enum;
use proc_macro2::TokenStream;
use quote::quote;

pub(super) fn emit(item: &Enum) -> TokenStream {
    let members =
        item.members.iter().map(|(name, number, doc)| (&**name, i64::from(*number), doc.as_deref()));
    let open = open_enum::emit(&item.name, item.doc.as_deref(), &quote!(i32), members);
    let ident = type_ident(&item.name);
    quote! {
        #open

        impl ::switchboard::codegen::thrift::Value for #ident {
            const TYPE: ::switchboard::codegen::thrift::Type = ::switchboard::codegen::thrift::Type::I32;

            fn write(&self, out: &mut ::std::vec::Vec<u8>) {
                ::switchboard::codegen::thrift::Value::write(&self.0, out);
            }

            fn read(
                input: &mut ::switchboard::codegen::thrift::Reader<'_>,
            ) -> ::core::result::Result<Self, ::switchboard::codegen::thrift::Malformed> {
                <i32 as ::switchboard::codegen::thrift::Value>::read(input).map(Self)
            }
        }
    }
}

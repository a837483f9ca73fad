//! Enums: numbers with names. One that nobody here knows is still a number.

use super::{
    ast::Enum,
    types::{constant_ident, type_ident},
};
use crate::docs;
use proc_macro2::{Literal, TokenStream};
use quote::quote;

pub(super) fn emit(item: &Enum) -> TokenStream {
    let ident = type_ident(&item.name);
    let doc =
        docs::attributes(&item.doc.as_deref().map_or_else(|| format!("`{}`.", item.name), docs::harmless));
    let members = item.members.iter().map(|(name, number, doc)| {
        let (ident, number) = (constant_ident(name), Literal::i32_unsuffixed(*number));
        let doc = docs::attributes(&doc.as_deref().map_or_else(|| format!("`{name}`."), docs::harmless));
        quote!(#doc pub const #ident: Self = Self(#number);)
    });
    let mut seen = Vec::new();
    let arms = item.members.iter().filter_map(|(name, number, _)| {
        if seen.contains(number) {
            return None;
        }
        seen.push(*number);
        let number = Literal::i32_unsuffixed(*number);
        Some(quote!(#number => #name,))
    });
    quote! {
        #doc
        #[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(transparent)]
        pub struct #ident(pub i32);

        impl #ident {
            #(#members)*

            /// The name of the number, if it is known here.
            pub fn name(self) -> ::core::option::Option<&'static str> {
                ::core::option::Option::Some(match self.0 {
                    #(#arms)*
                    _ => return ::core::option::Option::None,
                })
            }
        }

        impl ::core::fmt::Debug for #ident {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    ::core::option::Option::Some(name) => f.write_str(name),
                    ::core::option::Option::None => write!(f, "{}", self.0),
                }
            }
        }

        impl ::core::convert::From<i32> for #ident {
            fn from(number: i32) -> Self {
                Self(number)
            }
        }

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

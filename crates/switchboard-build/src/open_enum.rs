//! Emits enums as numbers with names. An unknown value is still a valid number.

use crate::{
    docs,
    names::{constant_ident, type_ident},
};
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// Emits the enum `name` over the numbers `repr`, with names, numbers and comments of its members.
pub(crate) fn emit<'a>(
    name: &str,
    doc: Option<&str>,
    repr: &TokenStream,
    members: impl Iterator<Item = (&'a str, i64, Option<&'a str>)> + Clone,
) -> TokenStream {
    let ident = type_ident(name);
    let said = |name: &str, doc: Option<&str>| {
        docs::attributes(&doc.map_or_else(|| format!("`{name}`."), docs::escape_comment))
    };
    let doc = said(name, doc);
    let constants = members.clone().map(|(name, number, doc)| {
        let (ident, number, doc) = (constant_ident(name), Literal::i64_unsuffixed(number), said(name, doc));
        quote!(#doc pub const #ident: Self = Self(#number);)
    });
    let mut seen = Vec::new();
    let arms = members.filter_map(|(name, number, _)| {
        if seen.contains(&number) {
            return None;
        }
        seen.push(number);
        let number = Literal::i64_unsuffixed(number);
        Some(quote!(#number => #name,))
    });
    quote! {
        #doc
        #[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(transparent)]
        pub struct #ident(pub #repr);

        impl #ident {
            #(#constants)*

            /// The name of the number, if it is a known member.
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

        impl ::core::convert::From<#repr> for #ident {
            fn from(number: #repr) -> Self {
                Self(number)
            }
        }
    }
}

//! The trait without its service, for a service that cannot be made of it.
//!
//! Its uses compile then: the error about the trait is not buried below errors about its implementations and warnings
//! about its imports.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{FnArg, ItemTrait, Pat, PatWild, Token, TraitItem, parse_quote};

/// The trait, its methods without attributes, bodies or patterns that a trait cannot have.
pub(crate) fn plain(mut item: ItemTrait) -> TokenStream {
    for member in &mut item.items {
        let TraitItem::Fn(method) = member else { continue };
        method.attrs.clear();
        for input in &mut method.sig.inputs {
            match input {
                FnArg::Typed(typed) => {
                    typed.attrs.clear();
                    *typed.pat = Pat::Wild(PatWild {
                        attrs: Vec::new(),
                        underscore_token: Token![_](Span::call_site()),
                    });
                }
                FnArg::Receiver(receiver) => receiver.attrs.clear(),
            }
        }
        if method.default.is_some() {
            method.default = Some(parse_quote!({ ::core::panic!("the service has an error") }));
        }
    }
    quote! {
        #[allow(async_fn_in_trait, dead_code)]
        #item
    }
}

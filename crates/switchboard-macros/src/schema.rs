//! Fingerprint of a method: builds with equal fingerprints understand each other's messages.
//!
//! It covers names and types of arguments and results as they are written, in order. `Vec<u8>` and `std::vec::Vec<u8>`
//! have different fingerprints. Two types with the same name and different fields have the same one: the fingerprint
//! detects common errors, but does not prove compatibility.

use crate::{
    method::{Method, Role},
    model::Service,
};
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};

/// Computes the fingerprint. Each method has its own, so that adding a method to one side affects no callers.
pub(crate) fn id(service: &Service, method: &Method) -> u64 {
    let mut id = Fnv::default();
    id.text(&service.name);
    id.method(method);
    id.0
}

/// FNV-1a, 64 bits: short, and stable across compilers and machines.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn method(&mut self, method: &Method) {
        self.text(&method.name);
        for param in &method.params {
            let role = match param.role {
                Role::Context => continue,
                Role::Receiver(_) => "receiver",
                Role::Sender(_) => "sender",
                Role::Value => "value",
            };
            self.text(role);
            self.text(&param.name.to_string());
            self.tokens(param.ty.to_token_stream());
        }
        // A returned stream is the same on the wire as a last argument `out: Sender<T>`.
        if let Some(item) = &method.returned_stream {
            self.text("sender");
            self.text("out");
            self.tokens(quote!(Sender<#item>));
        }
        self.text("returns");
        self.tokens(method.output.to_token_stream());
    }

    /// Hashes token by token: the text of a whole stream has spaces that depend on the compiler.
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    self.text(&format!("{:?}", group.delimiter()));
                    self.tokens(group.stream());
                    self.text("end");
                }
                TokenTree::Ident(ident) => self.text(&ident.to_string()),
                TokenTree::Literal(literal) => self.text(&literal.to_string()),
                TokenTree::Punct(punct) => self.text(&punct.as_char().to_string()),
            }
        }
    }

    fn text(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn of(item: syn::ItemTrait) -> u64 {
        let service = Service::read(item, Default::default()).unwrap();
        id(&service, &service.methods[0])
    }

    #[test]
    fn changes_with_names_types_and_order_only() {
        let base = of(parse_quote!(
            trait A {
                async fn x(&self, a: u8, b: u16) -> Result<u8>;
            }
        ));
        let same: [syn::ItemTrait; 2] = [
            parse_quote!(
                trait A {
                    /// Documented.
                    #[switchboard(spawn)]
                    async fn x(&self, cx: &Cx, a: u8, b: u16) -> switchboard::Result<u8, Mine>;
                }
            ),
            parse_quote!(
                trait A {
                    async fn x(&self, a: u8, b: u16) -> Result<u8>;
                    async fn y(&self) -> Result<()>;
                }
            ),
        ];
        for same in same {
            assert_eq!(base, of(same));
        }
        let others: [syn::ItemTrait; 5] = [
            parse_quote!(
                trait B {
                    async fn x(&self, a: u8, b: u16) -> Result<u8>;
                }
            ),
            parse_quote!(
                trait A {
                    async fn y(&self, a: u8, b: u16) -> Result<u8>;
                }
            ),
            parse_quote!(
                trait A {
                    async fn x(&self, a: u8, c: u16) -> Result<u8>;
                }
            ),
            parse_quote!(
                trait A {
                    async fn x(&self, b: u16, a: u8) -> Result<u8>;
                }
            ),
            parse_quote!(
                trait A {
                    async fn x(&self, a: u8, b: u16) -> Result<u16>;
                }
            ),
        ];
        for other in others {
            assert_ne!(base, of(other));
        }
    }
}

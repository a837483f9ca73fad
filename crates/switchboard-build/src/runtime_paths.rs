//! Rewrites paths of the runtime in generated messages to go through `switchboard`, so that users need no other
//! dependency.
//!
//! `buffa-codegen` writes `::buffa::…`, `::serde::…` and `::buffa_types::…` and has no option to change this. The
//! rewrite works on tokens, not on text, so that other occurrences of the same text are not changed.

use proc_macro2::{Delimiter, Group, Ident, Literal, Spacing, Span, TokenStream, TokenTree};
use quote::quote;

/// Crates that the runtime re-exports for generated code.
const CRATES: [&str; 4] = ["buffa", "buffa_types", "serde", "serde_json"];

/// Rewrites every path that begins with one of [`CRATES`], including those in strings of attributes, and adds the path
/// of serde for its derives.
pub(crate) fn through_switchboard(tokens: TokenStream) -> TokenStream {
    rewrite(tokens, false)
}

fn rewrite(tokens: TokenStream, in_attribute: bool) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let attribute = group.delimiter() == Delimiter::Bracket
                    && matches!(out.last(), Some(TokenTree::Punct(p)) if p.as_char() == '#');
                let inner = rewrite(group.stream(), in_attribute || attribute);
                let derives_serde = attribute && derives_serde(&group.stream());
                let mut changed = Group::new(group.delimiter(), inner);
                changed.set_span(group.span());
                out.push(changed.into());
                if derives_serde {
                    out.extend(quote!(#[serde(crate = "::switchboard::codegen::serde")]));
                }
            }
            TokenTree::Ident(name) if CRATES.iter().any(|known| name == known) && starts_path(&out) => {
                out.extend(quote!(switchboard::codegen::));
                out.push(name.into());
            }
            TokenTree::Literal(literal) if in_attribute => out.push(rewrite_string(literal).into()),
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

/// Returns true if the next token is the first segment of a path that begins with `::`.
fn starts_path(before: &[TokenTree]) -> bool {
    let colons = matches!(before, [.., TokenTree::Punct(first), TokenTree::Punct(second)]
        if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':');
    let continued = match before.len().checked_sub(3).map(|index| &before[index]) {
        // `module::buffa` continues a path; `impl ::buffa` and `&'a ::buffa` begin one.
        Some(TokenTree::Ident(name)) => !is_keyword(name) && !is_lifetime(&before[..before.len() - 3]),
        _ => false,
    };
    colons && !continued
}

/// Returns true if the next identifier is the name of a lifetime.
fn is_lifetime(before: &[TokenTree]) -> bool {
    matches!(before.last(), Some(TokenTree::Punct(quote)) if quote.as_char() == '\'')
}

/// Returns true for keywords that may precede a path without being part of it.
fn is_keyword(name: &Ident) -> bool {
    let name = name.to_string();
    buffa_codegen::idents::is_rust_keyword(&name)
        && !["crate", "self", "super", "Self"].contains(&name.as_str())
}

fn derives_serde(attribute: &TokenStream) -> bool {
    let mut tokens = attribute.clone().into_iter();
    let is_derive = matches!(tokens.next(), Some(TokenTree::Ident(name)) if name == "derive");
    is_derive && attribute.to_string().contains("serde")
}

/// Rewrites strings such as `"::buffa::json_helpers::int64"` in `#[serde(with = …)]`.
fn rewrite_string(literal: Literal) -> Literal {
    let text = literal.to_string();
    if !CRATES.iter().any(|name| text.contains(&format!("::{name}::"))) {
        return literal;
    }
    let Ok(string) = syn::parse_str::<syn::LitStr>(&text) else { return literal };
    let mut value = string.value();
    for name in CRATES {
        value = value.replace(&format!("::{name}::"), &format!("::switchboard::codegen::{name}::"));
    }
    let mut changed = Literal::string(&value);
    changed.set_span(Span::call_site());
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(tokens: TokenStream) -> String {
        through_switchboard(tokens).to_string()
    }

    #[test]
    fn paths_of_the_runtime_change_and_others_do_not() {
        let expected = quote!(
            impl<'a> ::switchboard::codegen::buffa::View<'a> for Foo {}
        )
        .to_string();
        assert_eq!(
            rewritten(quote!(
                impl<'a> ::buffa::View<'a> for Foo {}
            )),
            expected
        );
        for same in
            [quote!(super::buffa::Foo), quote!(let x: ::core::option::Option<u8>;), quote!(a.buffa::<u8>())]
        {
            assert_eq!(rewritten(same.clone()), same.to_string());
        }
    }

    #[test]
    fn attributes_change_too_and_serde_learns_where_it_is() {
        let code = rewritten(quote! {
            #[derive(::serde::Serialize)]
            struct Foo { #[serde(with = "::buffa::json_helpers::int64")] x: i64 }
        });
        assert!(code.contains(r#"with = "::switchboard::codegen::buffa::json_helpers::int64""#), "{code}");
        assert!(code.contains(r#"serde (crate = "::switchboard::codegen::serde")"#), "{code}");
    }

    #[test]
    fn strings_outside_of_attributes_stay() {
        assert_eq!(
            rewritten(quote!(
                const A: &str = "::buffa::x";
            )),
            quote!(
                const A: &str = "::buffa::x";
            )
            .to_string()
        );
    }
}

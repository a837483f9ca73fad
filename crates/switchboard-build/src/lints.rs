//! Lints that generated code is not held to, whatever the crate that includes it asks for.
//!
//! A file that is included cannot allow lints for itself, so its items do.

use syn::{Attribute, File, Item, parse_quote};

/// Messages: buffa writes for the compiler, not for readers.
pub(crate) fn allow_in_messages(file: &mut File) {
    for item in &mut file.items {
        match item {
            Item::Impl(_) | Item::Mod(_) => allow(
                item,
                parse_quote! {
                    #[allow(
                        clippy::all, clippy::pedantic, dead_code, elided_lifetimes_in_paths, missing_docs,
                        unreachable_pub
                    )]
                },
            ),
            Item::Use(_) => allow(item, parse_quote!(#[allow(unreachable_pub, unused_imports)])),
            Item::Macro(_) => {}
            _ => allow(item, parse_quote!(#[allow(dead_code, missing_docs, unreachable_pub)])),
        }
    }
}

/// Services: nobody uses all that is generated for them.
pub(crate) fn allow_in_services(file: &mut File) {
    for item in &mut file.items {
        match item {
            Item::Impl(item) if item.trait_.is_some() => {}
            // Requests are taken by value although encoding only reads them: callers rarely need them after.
            Item::Impl(_) => allow(
                item,
                parse_quote!(#[allow(clippy::needless_pass_by_value, dead_code, unreachable_pub)]),
            ),
            _ => allow(item, parse_quote!(#[allow(dead_code, unreachable_pub)])),
        }
    }
}

/// What the schemas of others decide: how many arguments a method has, how deep its types are, and that it returns
/// nothing.
pub(crate) fn allow_signatures(file: &mut File) {
    for item in &mut file.items {
        allow(
            item,
            parse_quote!(#[allow(clippy::too_many_arguments, clippy::type_complexity, clippy::unit_arg)]),
        );
    }
}

fn allow(item: &mut Item, attribute: Attribute) {
    let attributes = match item {
        Item::Const(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Fn(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        Item::Mod(item) => &mut item.attrs,
        Item::Static(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        Item::Trait(item) => &mut item.attrs,
        Item::Type(item) => &mut item.attrs,
        Item::Use(item) => &mut item.attrs,
        _ => return,
    };
    attributes.push(attribute);
}

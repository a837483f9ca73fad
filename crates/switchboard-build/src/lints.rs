//! Lints that generated code disables, independent of the settings of the crate that includes it.
//!
//! An included file cannot disable lints for itself, so its items do.

use syn::{Attribute, File, Item, parse_quote};

/// Disables lints in messages: buffa writes code for the compiler, not for readers.
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

/// Disables lints in services: no program uses all items that are generated for them.
pub(crate) fn allow_in_services(file: &mut File) {
    for item in &mut file.items {
        match item {
            Item::Impl(item) if item.trait_.is_some() => {}
            // Requests are taken by value although encoding only reads them: callers rarely need them afterwards.
            Item::Impl(_) => allow(
                item,
                parse_quote!(#[allow(clippy::needless_pass_by_value, dead_code, unreachable_pub)]),
            ),
            _ => allow(item, parse_quote!(#[allow(dead_code, unreachable_pub)])),
        }
    }
}

/// Disables lints on properties that the schema determines: the number of arguments of a method, the depth of its
/// types, and a missing result.
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

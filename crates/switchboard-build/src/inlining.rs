//! Inlining hints for generated code.

use syn::{Attribute, ImplItem, Item, parse_quote};

/// Adds an inline attribute to the function that matches the fields of each view, so that it becomes part of the loop
/// that reads the view. The function is large, so without the hint the compiler calls it once for each field as soon as
/// a program has a second such loop. The calls take a quarter of the time that a message of 40 fields needs.
pub(crate) fn fold_view_fields(items: &mut [Item]) {
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    fold_view_fields(items);
                }
            }
            Item::Impl(implementation) => fold_in(&mut implementation.items),
            _ => {}
        }
    }
}

fn fold_in(items: &mut [ImplItem]) {
    for item in items {
        if let ImplItem::Fn(method) = item
            && method.sig.ident == "merge_view_field"
        {
            let is_inline = |attribute: &Attribute| attribute.path().is_ident("inline");
            method.attrs.retain(|attribute| !is_inline(attribute));
            method.attrs.push(parse_quote!(#[inline(always)]));
        }
    }
}

//! Where generated code is to be inlined that the compiler would call.

use syn::{Attribute, ImplItem, Item, parse_quote};

/// Folds the match over the fields of each view into the loop that reads it. It is large, so that the compiler calls it
/// once for each field as soon as a program has a second loop: a quarter of the time that a message of 40 fields takes.
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

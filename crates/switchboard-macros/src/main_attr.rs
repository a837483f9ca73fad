//! `#[switchboard::main]`.

use crate::options::MainOptions;
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Error, ItemFn, Result};

/// A function that runs the async one inside it. Inside, because an `async fn` gets better messages than an async
/// block: its return type is known.
///
/// # Errors
/// A function that is not async, or takes arguments.
pub(crate) fn expand(item: ItemFn, options: &MainOptions) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = item;
    if sig.asyncness.is_none() {
        return Err(Error::new_spanned(sig.fn_token, format!("write `async fn {}`", sig.ident)));
    }
    if !sig.inputs.is_empty() {
        return Err(Error::new_spanned(&sig.inputs, format!("`{}` takes no arguments", sig.ident)));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(&sig.generics, format!("`{}` cannot be generic", sig.ident)));
    }
    let (name, output) = (&sig.ident, &sig.output);
    let workers = options.workers.as_ref().map(|workers| quote!(.workers(#workers)));
    let spin = options.spin_us.as_ref().map(|spin| quote!(.spin(::core::time::Duration::from_micros(#spin))));
    let run = if workers.is_none() && spin.is_none() {
        quote_spanned!(name.span()=> ::switchboard::run)
    } else {
        quote_spanned!(name.span()=> ::switchboard::runtime::Runtime::new() #workers #spin.run)
    };
    Ok(quote! {
        #(#attrs)*
        #vis fn #name() #output {
            #sig #block
            #run(#name())
        }
    })
}

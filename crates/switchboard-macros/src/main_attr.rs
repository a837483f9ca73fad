//! `#[switchboard::main]`.

use crate::options::MainOptions;
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Error, ItemFn, Result, ReturnType, Type};

/// Generates a function that runs the async one inside it. The inner `async fn` gets better error messages than an
/// async block, because its return type is known.
///
/// # Errors
/// Returns an error for a function that is not async or takes arguments.
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
    if name == "main" && is_result(output) {
        return Ok(quote! {
            #(#attrs)*
            #vis fn #name() -> ::std::process::ExitCode {
                #sig #block
                ::switchboard::runtime::exit(#run(#name()))
            }
        });
    }
    Ok(quote! {
        #(#attrs)*
        #vis fn #name() #output {
            #sig #block
            #run(#name())
        }
    })
}

/// Returns whether the type is called `Result`, as that of the standard library, or an alias such as `AppResult`.
fn is_result(output: &ReturnType) -> bool {
    let ReturnType::Type(_, ty) = output else { return false };
    let Type::Path(path) = &**ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident.to_string().ends_with("Result"))
}

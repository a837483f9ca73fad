//! Generates the serving half: the trait, its table of methods, and the server that decodes, calls and encodes.

use crate::{
    http,
    method::{Method, Role},
    model::Service,
    schema,
};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{ext::IdentExt, spanned::Spanned};

/// Generates the public items: the trait, `CALC` and `CalcServer`.
pub(crate) fn items(service: &Service) -> TokenStream {
    let Service { cfgs, ident, name, visibility, .. } = service;
    let (info, server) = (service.info(), service.server());
    let the_trait = the_trait(service);
    let methods = service.methods.iter().map(|method| method_info(service, method));
    let info_doc = format!("Name and methods of [`{ident}`].");
    let server_doc = format!("Serves a [`{ident}`].");
    quote! {
        #the_trait

        #(#cfgs)*
        #[doc = #info_doc]
        #visibility static #info: ::switchboard::ServiceInfo = ::switchboard::ServiceInfo {
            name: #name,
            methods: &[#(#methods),*],
            descriptor: &[],
        };

        #(#cfgs)*
        #[doc = #server_doc]
        #[allow(dead_code)]
        #visibility struct #server<T>(::switchboard::codegen::Arc<T>);

        #(#cfgs)*
        #[allow(dead_code)]
        impl<T: #ident> #server<T> {
            /// Serves `service`.
            #visibility fn new(service: T) -> Self {
                Self(::switchboard::codegen::Arc::new(service))
            }

            /// Serves a shared service.
            #visibility fn from_arc(service: ::switchboard::codegen::Arc<T>) -> Self {
                Self(service)
            }
        }

        #(#cfgs)*
        impl<T> ::core::clone::Clone for #server<T> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
    }
}

/// Generates a private struct per method for its arguments, in JSON an object with their names, and the checks that
/// paths can fill them.
pub(crate) fn requests(service: &Service) -> TokenStream {
    let requests = service.methods.iter().filter(|method| method.receives().is_none()).map(|method| {
        let Method { cfgs, request, .. } = method;
        let fields = method.values().map(|value| {
            let (name, ty) = (&value.name, &value.ty);
            quote!(#name: #ty)
        });
        quote! {
            #(#cfgs)*
            #[derive(::switchboard::codegen::serde::Deserialize, ::switchboard::codegen::serde::Serialize)]
            #[serde(crate = "::switchboard::codegen::serde")]
            struct #request { #(#fields),* }
        }
    });
    let assertions = service.methods.iter().map(http::assertions);
    quote!(#(#requests)* #(#assertions)*)
}

/// Generates the dispatch of calls to the handlers.
pub(crate) fn service_impl(service: &Service) -> TokenStream {
    let Service { ident, name, .. } = service;
    let (info, server) = (service.info(), service.server());
    let arms = service.methods.iter().enumerate().map(|(at, method)| {
        let cfgs = &method.cfgs;
        let allow = method.allow_deprecated();
        let index = service.index(at);
        // Only a plain number is a pattern.
        let conditional = service.methods[..at].iter().any(|method| !method.cfgs.is_empty());
        let pattern = if conditional { quote!(index if index == #index) } else { index };
        let body = handler(method);
        quote!(#(#cfgs)* #allow #pattern => { #body })
    });
    let unknown = format!("{name} has no method number {{other}}");
    quote! {
        impl<T: #ident> ::switchboard::Service for #server<T> {
            fn info(&self) -> &'static ::switchboard::ServiceInfo {
                &#info
            }

            async fn call(&self, call: ::switchboard::Call) -> ::switchboard::Result<::switchboard::Reply> {
                let codec = call.codec();
                match call.method() {
                    #(#arms)*
                    other => Err(::switchboard::Status::unimplemented(::std::format!(#unknown))),
                }
            }
        }
    }
}

/// Generates the trait with `async fn` desugared, because callers on other threads need futures that are `Send`.
fn the_trait(service: &Service) -> TokenStream {
    let Service { attributes, cfgs, ident, supertraits, visibility, .. } = service;
    let supertraits = supertraits.iter();
    let methods = service.methods.iter().map(|method| {
        let Method { attributes, cfgs, ident, signature, .. } = method;
        let (fn_token, inputs) = (&signature.fn_token, &signature.inputs);
        let output = method.declared_result();
        quote! {
            #(#cfgs)*
            #(#attributes)*
            #fn_token #ident(#inputs) ->
                impl ::core::future::Future<Output = #output> + ::core::marker::Send;
        }
    });
    quote! {
        #(#cfgs)*
        #(#attributes)*
        #visibility trait #ident: ::core::marker::Send + ::core::marker::Sync + 'static #(+ #supertraits)* {
            #(#methods)*
        }
    }
}

/// Returns the `Result<T, E>` of a method.
fn result_type(signature: &syn::Signature) -> &syn::Type {
    match &signature.output {
        syn::ReturnType::Type(_, ty) => ty,
        syn::ReturnType::Default => unreachable!("a method without a result is refused when it is read"),
    }
}

fn method_info(service: &Service, method: &Method) -> TokenStream {
    let Method { cfgs, name, options, .. } = method;
    let kind = match (method.receives(), method.sends()) {
        (None, None) => quote!(Unary),
        (None, Some(_)) => quote!(ServerStream),
        (Some(_), None) => quote!(ClientStream),
        (Some(_), Some(_)) => quote!(Bidi),
    };
    let idempotency = match (options.read_only, options.idempotent) {
        (true, _) => Some(quote!(.idempotency(::switchboard::Idempotency::NoSideEffects))),
        (false, true) => Some(quote!(.idempotency(::switchboard::Idempotency::Idempotent))),
        (false, false) => None,
    };
    let oneway = options.oneway.then(|| quote!(.oneway()));
    let spawn = options.spawn.then(|| quote!(.spawn()));
    let schema = schema::id(service, method);
    let params = method.receives().is_none().then(|| {
        let names = method.values().map(|value| value.name.unraw().to_string());
        quote!(.params(::switchboard::Params::Arguments(&[#(#names),*])))
    });
    let http = http::entry(method);
    quote! {
        #(#cfgs)*
        ::switchboard::MethodInfo::new(#name, ::switchboard::Kind::#kind)
            #oneway #spawn #idempotency #params #http .schema(#schema)
    }
}

/// Generates the code that opens the call, and the code that reads its request or makes its stream of requests.
fn reading(method: &Method) -> (TokenStream, TokenStream) {
    let Some(item) = method.receives() else {
        let request = &method.request;
        let read = quote! {
            let request = ::switchboard::codegen::read_request(
                &cx,
                codec,
                bytes,
                ::switchboard::codegen::codec::serde::decode::<#request>,
                ::switchboard::codegen::codec::serde::decode_strict::<#request>,
            )?;
        };
        return (quote!(let (bytes, cx) = call.into_one()?;), read);
    };
    let serde = quote!(::switchboard::codegen::codec::serde);
    let decode = quote_spanned!(item.span()=> #serde::decode::<#item>);
    let strict = quote!(#serde::decode_strict::<#item>);
    let read =
        quote!(let input = ::switchboard::codegen::receive_request(&cx, codec, raw, #decode, #strict)?;);
    (quote!(let (raw, cx) = call.into_many();), read)
}

/// Generates the code from the call to the reply.
fn handler(method: &Method) -> TokenStream {
    let Method { ident, output, signature, .. } = method;
    let arguments = method.params.iter().map(|param| {
        let name = &param.name;
        match param.role {
            Role::Context => quote!(&cx),
            Role::Receiver(_) => quote!(input),
            Role::Sender(_) => quote!(out),
            Role::Value => quote!(request.#name),
        }
    });
    let arguments = quote!(#(#arguments),*);
    let returned = result_type(signature).span().resolved_at(Span::call_site());
    let into_status = quote_spanned!(returned=> outcome.map_err(::switchboard::Status::from));
    // Spans of the user's types: rustc points at an error type that does not convert to `Status`, or a type without
    // serde.
    let encode =
        |ty: &syn::Type| quote_spanned!(ty.span()=> ::switchboard::codegen::codec::serde::encode::<#ty>);
    let (open, read) = reading(method);
    if let Some(item) = method.sends() {
        let encode = encode(item);
        if method.returned_stream.is_some() {
            return quote! {
                #open
                #read
                let service = self.0.clone();
                Ok(::switchboard::codegen::stream_reply(cx, codec, #encode, move |cx, out| async move {
                    let outcome = service.#ident(#arguments).await;
                    let stream = #into_status?;
                    out.pipe(stream).await
                }))
            };
        }
        return quote! {
            #open
            #read
            let service = self.0.clone();
            Ok(::switchboard::codegen::stream_reply(cx, codec, #encode, move |cx, out| async move {
                let outcome = service.#ident(#arguments).await;
                #into_status
            }))
        };
    }
    let reply = if method.options.oneway {
        quote! {
            #into_status.map_err(|status| cx.failed(status))?;
            Ok(::switchboard::Reply::one(::switchboard::codegen::Bytes::new(), cx))
        }
    } else {
        let encode = quote_spanned!(
            output.span()=> ::switchboard::codegen::codec::serde::encode_payload::<#output>
        );
        quote! {
            let reply = #into_status.map_err(|status| cx.failed(status))?;
            let bytes = #encode(&reply, codec).map_err(|status| cx.failed(status))?;
            Ok(::switchboard::Reply::one(bytes, cx))
        }
    };
    // The block drops the rest of the request before the wait; otherwise every waiting call would occupy memory for it.
    quote! {
        #open
        let answer = {
            #read
            self.0.#ident(#arguments)
        };
        let outcome = answer.await;
        #reply
    }
}

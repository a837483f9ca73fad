//! Generates the calling half: the client, and the trait that its fakes implement.

use crate::{method::Method, model::Service};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

/// Generates the public items: `CalcClient` and `CalcApi`.
pub(crate) fn items(service: &Service) -> TokenStream {
    let Service { cfgs, ident, name, visibility, .. } = service;
    let (server, client, api) = (service.server(), service.client(), service.api());
    let client_doc = format!("Calls `{name}`.");
    let api_doc = format!(
        "Methods of `{name}` for callers: implement it with a fake in tests. A method that a fake lacks fails with \
         `Unimplemented`."
    );
    let api_methods = service.methods.iter().map(|method| {
        let docs = docs(service, method);
        let (cfgs, signature) = (&method.cfgs, api_signature(method));
        let answer = answer(method);
        let names = method.values().map(|value| &value.name);
        let missing = format!("the fake has no {name}/{}", method.name);
        quote! {
            #(#cfgs)*
            #docs
            fn #signature -> impl ::core::future::Future<Output = #answer> + ::core::marker::Send {
                #(let _ = #names;)*
                async { Err(::switchboard::Status::unimplemented(#missing)) }
            }
        }
    });
    quote! {
        #(#cfgs)*
        #[doc = #client_doc]
        #[allow(dead_code)]
        #[derive(Clone, Debug)]
        #visibility struct #client {
            channel: ::switchboard::Channel,
            codec: ::switchboard::Codec,
        }

        #(#cfgs)*
        #[allow(dead_code)]
        impl #client {
            /// Connects to the server at `url`.
            ///
            /// # Errors
            /// Returns the errors of [`Channel::connect`](::switchboard::Channel::connect).
            #visibility async fn connect(url: &str) -> ::switchboard::Result<Self> {
                Ok(Self::new(::switchboard::Channel::connect(url).await?))
            }

            /// Calls through `channel`.
            #visibility fn new(channel: ::switchboard::Channel) -> Self {
                let codec = channel.codec(::switchboard::Codec::Postcard);
                Self { channel, codec }
            }

            /// Calls `service` in this process.
            #visibility fn local<T: #ident>(service: T) -> Self {
                Self::new(::switchboard::Channel::local(#server::new(service)))
            }

            /// Writes messages as `codec`, `Postcard` or `Json`.
            #[must_use]
            #visibility fn with_codec(mut self, codec: ::switchboard::Codec) -> Self {
                self.codec = codec;
                self
            }

            /// The channel of the calls.
            #visibility fn channel(&self) -> &::switchboard::Channel {
                &self.channel
            }
        }

        #(#cfgs)*
        #[doc = #api_doc]
        #[allow(dead_code)]
        #visibility trait #api: ::core::marker::Send + ::core::marker::Sync {
            #(#api_methods)*
        }
    }
}

/// Generates the client's methods, for the client and for its trait.
pub(crate) fn method_impls(service: &Service) -> TokenStream {
    let (client, api) = (service.client(), service.api());
    let calls = service.methods.iter().enumerate().map(|(at, method)| call(service, at, method));
    let api_calls = service.methods.iter().map(|method| {
        let (cfgs, ident) = (&method.cfgs, &method.ident);
        let (allow, signature, answer) = (method.allow_deprecated(), api_signature(method), answer(method));
        let names = method.values().map(|value| &value.name);
        let call = quote!(#client::#ident(self #(, #names)*).await);
        let unary = method.receives().is_none() && method.sends().is_none() && !method.options.oneway;
        let body = if unary { quote!(Ok(#call?.into_inner())) } else { call };
        quote! {
            #(#cfgs)*
            #allow
            async fn #signature -> #answer {
                #body
            }
        }
    });
    quote! {
        #[allow(dead_code)]
        impl #client {
            #(#calls)*
        }

        impl #api for #client {
            #(#api_calls)*
        }
    }
}

/// Generates one call of the client.
fn call(service: &Service, at: usize, method: &Method) -> TokenStream {
    let Method { cfgs, name, output, request, .. } = method;
    let (visibility, info) = (&service.visibility, service.info());
    let (docs, signature, index) = (docs(service, method), api_signature(method), service.index(at));
    let path = format!("{}/{name}", service.name);
    let names = method.values().map(|value| &value.name);
    let request = quote!(&#request { #(#names),* }, self.codec);
    let bytes = quote!(::switchboard::codegen::codec::serde::encode(#request));
    let payload = quote!(::switchboard::codegen::codec::serde::encode_payload(#request));
    let encode =
        |ty: &syn::Type| quote_spanned!(ty.span()=> ::switchboard::codegen::codec::serde::encode::<#ty>);
    let decode =
        |ty: &syn::Type| quote_spanned!(ty.span()=> ::switchboard::codegen::codec::serde::decode::<#ty>);
    let (returns, function, arguments) = match (method.receives(), method.sends()) {
        _ if method.options.oneway => (quote!(OnewayCall), quote!(oneway), bytes),
        (None, None) => {
            let decode = decode(output);
            (quote!(UnaryCall<#output>), quote!(unary), quote!(#payload, #decode))
        }
        (None, Some(reply)) => {
            let decode = decode(reply);
            (quote!(ServerStreamCall<#reply>), quote!(server_stream), quote!(#bytes, #decode))
        }
        (Some(item), None) => {
            let (encode, decode) = (encode(item), decode(output));
            (quote!(ClientStreamCall<#item, #output>), quote!(client_stream), quote!(#encode, #decode))
        }
        (Some(item), Some(reply)) => {
            let (encode, decode) = (encode(item), decode(reply));
            (quote!(BidiCall<#item, #reply>), quote!(bidi), quote!(#encode, #decode))
        }
    };
    quote! {
        #(#cfgs)*
        #docs
        #visibility fn #signature -> ::switchboard::#returns {
            static METHOD: ::switchboard::ClientMethod =
                ::switchboard::ClientMethod { service: &#info, index: #index, path: #path };
            self.channel.#function(&METHOD, self.codec, #arguments)
        }
    }
}

/// Generates the signature with the arguments of a caller: `add(&self, a: i64, b: i64)`.
fn api_signature(method: &Method) -> TokenStream {
    let ident = &method.ident;
    let arguments = method.values().map(|value| {
        let (name, ty) = (&value.name, &value.ty);
        quote!(#name: #ty)
    });
    quote!(#ident(&self #(, #arguments)*))
}

/// Returns the type that awaiting a call of the client's trait returns.
fn answer(method: &Method) -> TokenStream {
    let output = &method.output;
    let answer = match (method.receives(), method.sends()) {
        (None, None) => quote!(#output),
        (None, Some(reply)) => quote!(::switchboard::Receiver<#reply>),
        (Some(item), None) => quote!(::switchboard::Upload<#item, #output>),
        (Some(item), Some(reply)) => quote!((::switchboard::Sender<#item>, ::switchboard::Receiver<#reply>)),
    };
    quote!(::switchboard::Result<#answer>)
}

/// Returns the method's own attributes, with a line of documentation if it has none.
fn docs(service: &Service, method: &Method) -> TokenStream {
    let own = method.shared_attributes();
    let documented = method.shared_attributes().any(|attribute| attribute.path().is_ident("doc"));
    let line = format!("Calls `{}/{}`.", service.name, method.name);
    let line = (!documented).then(|| quote!(#[doc = #line]));
    quote!(#line #(#own)*)
}

//! Emits the client side of a service: the client, and the trait that fakes implement.

use crate::{
    docs,
    package::Names,
    service::{Kind, Method, Service},
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

/// Emits the client of a service and its trait.
pub(crate) fn emit(service: &Service, names: &Names<'_>) -> TokenStream {
    let client = client(service, names);
    let api = api(service, names);
    quote! { #client #api }
}

fn client(service: &Service, names: &Names<'_>) -> TokenStream {
    let Service { interface, server, client, full_name, .. } = service;
    let calls = service.methods.iter().enumerate().map(|(index, method)| call(service, index, method));
    let (handler, codec, calls) = (&names.handler, service.family.codec(), calls.collect());
    ClientType { full_name, client, server, interface, handler, codec, calls }.emit()
}

/// Client type of a service, independent of the schema language.
pub(crate) struct ClientType<'a> {
    pub(crate) full_name: &'a str,
    pub(crate) client: &'a Ident,
    pub(crate) server: &'a Ident,
    pub(crate) interface: &'a Ident,
    /// Name of the type parameter for handlers; it collides with no other name.
    pub(crate) handler: &'a Ident,
    /// Default codec of messages.
    pub(crate) codec: Ident,
    /// The methods.
    pub(crate) calls: TokenStream,
}

impl ClientType<'_> {
    pub(crate) fn emit(&self) -> TokenStream {
        let ClientType { full_name, client, server, interface, handler, codec, calls } = self;
        let doc = docs::attributes(&format!("Calls `{full_name}`."));
        let with_codec = docs::attributes(&format!(
            "Writes messages with this codec instead of [`{codec}`](::switchboard::Codec::{codec})."
        ));
        quote! {
            #doc
            #[derive(Clone, Debug)]
            pub struct #client {
                channel: ::switchboard::Channel,
                codec: ::switchboard::Codec,
            }

            impl #client {
                /// Connects to `url` and waits for the first connection.
                ///
                /// # Errors
                /// Returns the errors of [`Channel::connect`](::switchboard::Channel::connect).
                pub async fn connect(url: &str) -> ::switchboard::Result<Self> {
                    Ok(Self::new(::switchboard::Channel::connect(url).await?))
                }

                /// Calls through `channel`.
                pub fn new(channel: ::switchboard::Channel) -> Self {
                    let codec = channel.codec(::switchboard::Codec::#codec);
                    Self { channel, codec }
                }

                /// Calls `service` in this process, without a connection.
                pub fn local<#handler: #interface>(service: #handler) -> Self {
                    Self::new(::switchboard::Channel::local(#server::new(service)))
                }

                #with_codec
                #[must_use]
                pub fn with_codec(mut self, codec: ::switchboard::Codec) -> Self {
                    self.codec = codec;
                    self
                }

                /// The channel of the calls.
                pub fn channel(&self) -> &::switchboard::Channel {
                    &self.channel
                }

                #calls
            }
        }
    }
}

/// Emits a method of the client.
fn call(service: &Service, index: usize, method: &Method) -> TokenStream {
    let Method { ident, request, reply, .. } = method;
    let info = &service.info;
    let path = format!("{}/{}", service.full_name, method.name);
    let doc = docs::attributes(&method.comment.clone().unwrap_or_else(|| format!("Calls `{path}`.")));
    let index = Literal::usize_unsuffixed(index);
    let module = service.family.module();
    let name = quote! {
        static METHOD: ::switchboard::ClientMethod =
            ::switchboard::ClientMethod { service: &#info, index: #index, path: #path };
    };
    // By value or by reference, so that a caller can send the same message again without a clone.
    let encoded = quote!(#module::encode::<#request>(request.borrow(), self.codec));
    let payload = quote!(#module::encode_payload::<#request>(request.borrow(), self.codec));
    let argument = quote!(request: impl ::core::borrow::Borrow<#request>);
    match method.kind {
        Kind::Unary if method.oneway => quote! {
            #doc
            pub fn #ident(&self, #argument) -> ::switchboard::OnewayCall {
                #name
                self.channel.oneway(&METHOD, self.codec, #encoded)
            }
        },
        Kind::Unary => quote! {
            #doc
            pub fn #ident(&self, #argument) -> ::switchboard::UnaryCall<#reply> {
                #name
                self.channel.unary(&METHOD, self.codec, #payload, #module::decode::<#reply>)
            }
        },
        Kind::ServerStream => quote! {
            #doc
            pub fn #ident(&self, #argument) -> ::switchboard::ServerStreamCall<#reply> {
                #name
                self.channel.server_stream(&METHOD, self.codec, #encoded, #module::decode::<#reply>)
            }
        },
        Kind::ClientStream => quote! {
            #doc
            pub fn #ident(&self) -> ::switchboard::ClientStreamCall<#request, #reply> {
                #name
                self.channel.client_stream(&METHOD, self.codec, #module::encode::<#request>, #module::decode::<#reply>)
            }
        },
        Kind::Bidi => quote! {
            #doc
            pub fn #ident(&self) -> ::switchboard::BidiCall<#request, #reply> {
                #name
                self.channel.bidi(&METHOD, self.codec, #module::encode::<#request>, #module::decode::<#reply>)
            }
        },
    }
}

fn api(service: &Service, names: &Names<'_>) -> TokenStream {
    let Service { client, api, full_name, .. } = service;
    let doc = docs::attributes(&format!(
        "Methods of `{full_name}` for callers: implement it with a fake in tests. A method that a fake lacks fails \
         with `Unimplemented`."
    ));
    let (send, sync) = (names.core("Send"), names.core("Sync"));
    let signatures = service.methods.iter().map(|method| {
        let Method { ident, name, .. } = method;
        let doc = docs::attributes(
            &method.comment.clone().unwrap_or_else(|| format!("Calls `{full_name}/{name}`.")),
        );
        let (parameter, output) = (parameter(method), output(method));
        let unused = takes_request(method).then(|| quote!(let _ = request;));
        let missing = format!("the fake has no {full_name}/{name}");
        quote! {
            #doc
            fn #ident(&self #parameter)
                -> impl ::core::future::Future<Output = ::switchboard::Result<#output>> + #send
            {
                #unused
                async { Err(::switchboard::Status::unimplemented(#missing)) }
            }
        }
    });
    let calls = service.methods.iter().map(|method| {
        let ident = &method.ident;
        let (parameter, output) = (parameter(method), output(method));
        let argument = takes_request(method).then(|| quote!(, request));
        let called = quote!(#client::#ident(self #argument).await);
        let body = if method.kind == Kind::Unary && !method.oneway {
            quote!(Ok(#called?.into_inner()))
        } else {
            called
        };
        quote! {
            async fn #ident(&self #parameter) -> ::switchboard::Result<#output> { #body }
        }
    });
    quote! {
        #doc
        pub trait #api: #send + #sync {
            #(#signatures)*
        }

        impl #api for #client {
            #(#calls)*
        }
    }
}

fn takes_request(method: &Method) -> bool {
    matches!(method.kind, Kind::Unary | Kind::ServerStream)
}

fn parameter(method: &Method) -> Option<TokenStream> {
    let request = &method.request;
    takes_request(method).then(|| quote!(, request: #request))
}

/// Returns the result type of a call.
fn output(method: &Method) -> TokenStream {
    let Method { request, reply, .. } = method;
    match method.kind {
        Kind::Unary if method.oneway => quote!(()),
        Kind::Unary => quote!(#reply),
        Kind::ServerStream => quote!(::switchboard::Receiver<#reply>),
        Kind::ClientStream => quote!(::switchboard::Upload<#request, #reply>),
        Kind::Bidi => quote!((::switchboard::Sender<#request>, ::switchboard::Receiver<#reply>)),
    }
}

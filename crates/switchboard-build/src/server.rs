//! Emits the server side of a service: its static, its trait and the type that serves the trait.

use crate::{
    docs,
    http_rules::Rule,
    package::Names,
    service::{Family, Kind, Method, Service},
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

/// Emits the static, the trait and the server of a service.
pub(crate) fn emit(service: &Service, names: &Names<'_>) -> TokenStream {
    let info = info(service);
    let interface = interface(service, names);
    let server = server(service, names);
    quote! { #info #interface #server }
}

fn info(service: &Service) -> TokenStream {
    let Service { full_name, info, .. } = service;
    let descriptor = service.family.descriptor();
    let doc = docs::attributes(&format!("Name, methods and descriptor of `{full_name}`."));
    let methods = service.methods.iter().map(|method| {
        let name = &method.name;
        let kind = format_ident!("{}", format!("{:?}", method.kind));
        let idempotency =
            method.idempotency.as_ref().map(|level| quote!(.idempotency(::switchboard::Idempotency::#level)));
        let oneway = method.oneway.then(|| quote!(.oneway()));
        let spawn = method.spawn.then(|| quote!(.spawn()));
        let rules = method.http.iter().map(Rule::emit);
        let http = (!method.http.is_empty()).then(|| quote!(.http(&[#(#rules),*])));
        let params = method
            .fields
            .as_ref()
            .map(|names| quote!(.params(::switchboard::Params::Fields(&[#(#names),*]))));
        quote! {
            ::switchboard::MethodInfo::new(#name, ::switchboard::Kind::#kind)
                #idempotency #oneway #spawn #params #http
        }
    });
    quote! {
        #doc
        pub static #info: ::switchboard::ServiceInfo = ::switchboard::ServiceInfo {
            name: #full_name,
            methods: &[#(#methods),*],
            descriptor: #descriptor,
        };
    }
}

fn interface(service: &Service, names: &Names<'_>) -> TokenStream {
    let Service { interface, full_name, .. } = service;
    let comment = service.comment.clone().unwrap_or_else(|| format!("Handlers of `{full_name}`."));
    let doc = docs::attributes(&comment);
    let methods = service.methods.iter().map(|method| signature(method, full_name, names));
    let (send, sync) = (names.core("Send"), names.core("Sync"));
    quote! {
        #doc
        pub trait #interface: #send + #sync + 'static {
            #(#methods)*
        }
    }
}

fn signature(method: &Method, service: &str, names: &Names<'_>) -> TokenStream {
    let Method { ident, reply, .. } = method;
    let comment = method.comment.clone().unwrap_or_else(|| format!("Handles `{service}/{}`.", method.name));
    let doc = docs::attributes(&comment);
    let mut parameters = match method.kind {
        Kind::Unary | Kind::ServerStream => {
            let request = request_type(method);
            quote!(request: #request, cx: &::switchboard::Cx)
        }
        Kind::ClientStream | Kind::Bidi => {
            let request = &method.request;
            quote!(input: ::switchboard::Receiver<#request>, cx: &::switchboard::Cx)
        }
    };
    let is_streamed = matches!(method.kind, Kind::ServerStream | Kind::Bidi);
    if is_streamed && !method.returns_stream {
        parameters.extend(quote!(, out: ::switchboard::Sender<#reply>));
    }
    let send = names.core("Send");
    let output = match method.kind {
        Kind::Unary | Kind::ClientStream if method.encoded => quote!(::switchboard::Encoded<#reply>),
        Kind::Unary | Kind::ClientStream if !method.oneway => quote!(#reply),
        // It may borrow from the handler, the request and the context, which the server keeps until its end.
        _ if method.returns_stream => quote! {
            impl ::switchboard::codegen::Stream<Item = ::switchboard::Result<#reply>> + #send
        },
        _ => quote!(()),
    };
    quote! {
        #doc
        fn #ident(&self, #parameters)
            -> impl ::core::future::Future<Output = ::switchboard::Result<#output>> + #send;
    }
}

fn request_type(method: &Method) -> TokenStream {
    let Method { request, view, .. } = method;
    if method.owned { quote!(#request) } else { quote!(#view<'_>) }
}

fn server(service: &Service, names: &Names<'_>) -> TokenStream {
    let Service { interface, server, info, full_name, .. } = service;
    let handler = &names.handler;
    let arms = service.methods.iter().enumerate().map(|(index, method)| {
        let index = Literal::usize_unsuffixed(index);
        let body = dispatch(service.family, method, handler);
        quote!(#index => { #body })
    });
    let unknown = format!("{full_name} has no method number {{}}");
    let unknown = quote!(Err(::switchboard::Status::unimplemented(format!(#unknown, call.method()))));
    let body = if service.methods.is_empty() {
        unknown
    } else {
        quote! {
            let codec = call.codec();
            match call.method() {
                #(#arms)*
                _ => #unknown,
            }
        }
    };
    ServerType { server, interface, handler, info, body }.emit()
}

/// Server type of a service, independent of the schema language.
pub(crate) struct ServerType<'a> {
    pub(crate) server: &'a Ident,
    pub(crate) interface: &'a Ident,
    /// Name of the type parameter for handlers; it collides with no other name.
    pub(crate) handler: &'a Ident,
    pub(crate) info: &'a Ident,
    /// Body of the method `call`.
    pub(crate) body: TokenStream,
}

impl ServerType<'_> {
    pub(crate) fn emit(&self) -> TokenStream {
        let ServerType { server, interface, handler, info, body } = self;
        let doc = docs::attributes(&format!("Serves a [`{interface}`]."));
        quote! {
            #doc
            pub struct #server<#handler>(::switchboard::codegen::Arc<#handler>);

            impl<#handler: #interface> #server<#handler> {
                /// Serves `service`.
                pub fn new(service: #handler) -> Self {
                    Self::from_arc(::switchboard::codegen::Arc::new(service))
                }

                /// Serves a shared `service`.
                pub fn from_arc(service: ::switchboard::codegen::Arc<#handler>) -> Self {
                    Self(service)
                }
            }

            impl<#handler> ::core::clone::Clone for #server<#handler> {
                fn clone(&self) -> Self {
                    Self(::switchboard::codegen::Arc::clone(&self.0))
                }
            }

            impl<#handler: #interface> ::switchboard::Service for #server<#handler> {
                fn info(&self) -> &'static ::switchboard::ServiceInfo {
                    &#info
                }

                async fn call(&self, call: ::switchboard::Call) -> ::switchboard::Result<::switchboard::Reply> {
                    #body
                }
            }
        }
    }
}

/// Emits the body of a match arm. Handlers are called by path, since a method such as `clone` would resolve to that of
/// `Arc`.
fn dispatch(family: Family, method: &Method, handler: &Ident) -> TokenStream {
    let Method { ident, request, reply, .. } = method;
    let module = family.module();
    let run = run_stream(method, handler);
    let encode = if method.encoded {
        quote!(reply.into_reply(codec).map_err(|status| cx.failed(status))?)
    } else {
        quote!(#module::encode_payload(&reply, codec).map_err(|status| cx.failed(status))?)
    };
    let receive = quote! {
        let input = ::switchboard::codegen::receive_request(
            &cx,
            codec,
            raw,
            #module::decode::<#request>,
            #module::decode_strict::<#request>,
        )?;
    };
    match method.kind {
        Kind::Unary => {
            let read = read(family, method);
            let outcome = or_fail(&quote!(#handler::#ident(&self.0, request, &cx).await));
            let answer = if method.oneway {
                quote! {
                    #outcome;
                    Ok(::switchboard::Reply::one(::switchboard::codegen::Bytes::new(), cx))
                }
            } else {
                quote! {
                    let reply = #outcome;
                    let bytes = #encode;
                    Ok(::switchboard::Reply::one(bytes, cx))
                }
            };
            quote! {
                let (bytes, cx) = call.into_one()?;
                #read
                #answer
            }
        }
        Kind::ClientStream => {
            let outcome = or_fail(&quote!(#handler::#ident(&self.0, input, &cx).await));
            quote! {
                let (raw, cx) = call.into_many();
                #receive
                let reply = #outcome;
                let bytes = #encode;
                Ok(::switchboard::Reply::one(bytes, cx))
            }
        }
        Kind::ServerStream => {
            // A view borrows from the bytes, so it is created where the handler runs.
            let (before, inside) = if method.owned {
                (read(family, method), quote!())
            } else {
                let view = &method.view;
                (view_bytes(&module, request), quote!(let request = #module::view::<#view<'_>>(&bytes)?;))
            };
            quote! {
                let (bytes, cx) = call.into_one()?;
                #before
                let service = ::switchboard::codegen::Arc::clone(&self.0);
                let encode = #module::encode::<#reply>;
                let reply = ::switchboard::codegen::stream_reply(cx, codec, encode, move |cx, out| async move {
                    #inside
                    #run
                });
                Ok(reply)
            }
        }
        Kind::Bidi => quote! {
            let (raw, cx) = call.into_many();
            #receive
            let service = ::switchboard::codegen::Arc::clone(&self.0);
            let encode = #module::encode::<#reply>;
            let reply = ::switchboard::codegen::stream_reply(cx, codec, encode, move |cx, out| async move {
                #run
            });
            Ok(reply)
        },
    }
}

/// Emits the value of the `outcome` of a handler. Its error ends the call, with the metadata that was added to the
/// reply. A `match`, because `map_err` would move a large reply once more.
fn or_fail(outcome: &TokenStream) -> TokenStream {
    quote! {
        match #outcome {
            Ok(reply) => reply,
            Err(status) => return Err(cx.failed(status)),
        }
    }
}

/// Emits the run of a handler with a stream of replies.
fn run_stream(method: &Method, handler: &Ident) -> TokenStream {
    let ident = &method.ident;
    let argument = if method.kind == Kind::Bidi { quote!(input) } else { quote!(request) };
    if method.returns_stream {
        quote! {
            let replies = #handler::#ident(&service, #argument, &cx).await?;
            out.pipe(replies).await?;
            Ok(())
        }
    } else {
        quote!(#handler::#ident(&service, #argument, &cx, out).await)
    }
}

/// Emits the decoding of `request` from `bytes`.
fn read(family: Family, method: &Method) -> TokenStream {
    let Method { request, view, .. } = method;
    let module = family.module();
    if method.owned {
        return quote! {
            let request = ::switchboard::codegen::read_request(
                &cx,
                codec,
                bytes,
                #module::decode::<#request>,
                #module::decode_strict::<#request>,
            )?;
        };
    }
    let view_bytes = view_bytes(&module, request);
    quote! {
        #view_bytes
        let mut request = <#view<'_> as ::core::default::Default>::default();
        #module::read_view(&mut request, &bytes).map_err(|status| cx.failed(status))?;
    }
}

/// Makes of `bytes` those that a view borrows from.
fn view_bytes(module: &TokenStream, request: &TokenStream) -> TokenStream {
    quote! {
        let bytes = ::switchboard::codegen::read_request(
            &cx,
            codec,
            bytes,
            #module::view_bytes::<#request>,
            #module::view_bytes_strict::<#request>,
        )?;
    }
}

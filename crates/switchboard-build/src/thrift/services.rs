//! Emits services: the trait for handlers, the server, the client, and the trait for callers.

use super::{
    ast::{Function, Service},
    structs::{self, Plan},
    types::{Types, snake, type_ident},
};
use crate::{Error, client::ClientType, docs, names, server::ServerType};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

/// A method of the service or of a service that it extends.
struct Method<'a> {
    /// Name on the wire.
    name: &'a str,
    ident: Ident,
    oneway: bool,
    doc: Option<&'a str>,
    arguments: Vec<Plan<'a>>,
    /// Struct of its arguments.
    request: Ident,
    reply: TokenStream,
    /// Declared exceptions: their field and type.
    throws: Vec<(i16, TokenStream)>,
    spawn: bool,
    idempotency: Option<Ident>,
    schema: u64,
    ordered: bool,
    has_default: bool,
}

/// Emits a service.
pub(super) fn emit(types: &Types<'_>, file: usize, service: &Service) -> Result<TokenStream, Error> {
    let full_name = names::qualified(types.package, &service.name);
    let name = names::service_name(&service.name);
    let methods = methods(types, file, service, &name, &full_name)?;
    let parts = Parts {
        interface: type_ident(&service.name),
        server: format_ident!("{name}Server"),
        client: format_ident!("{name}Client"),
        api: format_ident!("{name}Api"),
        info: format_ident!("{}", names::static_name(&name)),
        doc: service.doc.as_deref(),
        full_name,
        methods,
    };
    let (requests, info, interface) = (parts.requests(), parts.info(), parts.interface());
    let (server, client, api) = (parts.server(), parts.client(), parts.api());
    Ok(quote!(#info #interface #server #client #api #requests))
}

/// Returns the methods of a service. Methods of extended services come first; the order is free, as their clients call
/// methods by name.
fn methods<'a>(
    types: &Types<'a>,
    file: usize,
    service: &'a Service,
    owner: &str,
    full_name: &str,
) -> Result<Vec<Method<'a>>, Error> {
    let mut methods = Vec::<Method<'a>>::new();
    for (at, part) in types.schema.extended(file, service)? {
        for function in &part.functions {
            let method = method(types, at, function, owner, full_name)?;
            if let Some(other) = methods.iter().find(|other| other.ident == method.ident) {
                return Err(Error::new(format!(
                    "{}: methods {} and {} both become `{}`: rename one of them",
                    types.schema.place(at, function.line),
                    other.name,
                    method.name,
                    method.ident
                )));
            }
            methods.push(method);
        }
    }
    Ok(methods)
}

fn method<'a>(
    types: &Types<'a>,
    file: usize,
    function: &'a Function,
    owner: &str,
    full_name: &str,
) -> Result<Method<'a>, Error> {
    let arguments = function.arguments.iter().map(|field| Plan::of_argument(types, file, field));
    let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
    let reply = match &function.returns {
        None => quote!(()),
        Some(ty) => types.rust(&types.schema.resolve(file, ty, function.line)?, false)?,
    };
    let place = || types.schema.place(file, function.line);
    if function.oneway && (function.returns.is_some() || !function.throws.is_empty()) {
        return Err(Error::new(format!(
            "{}: oneway method {} cannot return or throw: make it void without throws",
            place(),
            function.name
        )));
    }
    let mut throws = Vec::new();
    for field in &function.throws {
        let (at, exception) = types.schema.exception(file, &field.ty, field.line)?;
        throws.push((field.id, types.path(at, &exception.name)));
    }
    let flag = |wanted: &str| function.annotations.iter().any(|(name, _)| name == wanted);
    let idempotency = match (flag("switchboard.read_only"), flag("switchboard.idempotent")) {
        (true, _) => Some(format_ident!("NoSideEffects")),
        (false, true) => Some(format_ident!("Idempotent")),
        (false, false) => None,
    };
    let mut schema = Fnv::default();
    schema.text(full_name);
    schema.text(&function.name);
    for plan in &arguments {
        schema.text(&plan.ident.to_string());
        schema.text(&plan.ty().to_string());
    }
    schema.text(&reply.to_string());
    let has_double = arguments.iter().any(|plan| types.has_double(&plan.resolved));
    let has_default = arguments.iter().all(|plan| types.has_default(&plan.resolved));
    Ok(Method {
        name: &function.name,
        ident: names::method_ident(&function.name),
        oneway: function.oneway,
        doc: function.doc.as_deref(),
        arguments,
        request: format_ident!("{owner}{}Arguments", type_ident(&snake(&function.name)).to_string()),
        reply,
        throws,
        spawn: flag("switchboard.spawn"),
        idempotency,
        schema: schema.0,
        ordered: !has_double,
        has_default,
    })
}

struct Parts<'a> {
    full_name: String,
    interface: Ident,
    server: Ident,
    client: Ident,
    api: Ident,
    info: Ident,
    doc: Option<&'a str>,
    methods: Vec<Method<'a>>,
}

impl Method<'_> {
    fn doc(&self, otherwise: &str, service: &str) -> TokenStream {
        let text =
            self.doc.map_or_else(|| format!("{otherwise} `{service}/{}`.", self.name), docs::escape_comment);
        docs::attributes(&text)
    }

    /// `a: i32, b: i32`.
    fn parameters(&self) -> TokenStream {
        let parameters = self.arguments.iter().map(|plan| {
            let (ident, ty) = (&plan.ident, plan.ty());
            quote!(#ident: #ty)
        });
        quote!(#(#parameters),*)
    }

    fn names(&self) -> Vec<&Ident> {
        self.arguments.iter().map(|plan| &plan.ident).collect()
    }

    fn throws(&self) -> TokenStream {
        let throws = self.throws.iter().map(|(id, ty)| {
            let id = Literal::i16_unsuffixed(*id);
            quote!(::switchboard::codegen::thrift::Throw::new::<#ty>(#id))
        });
        quote!(const { &[#(#throws),*] })
    }
}

impl Parts<'_> {
    /// Returns the type parameter for handlers: a name that collides with no other.
    fn handler(&self) -> Ident {
        let mut thrown = self.methods.iter().flat_map(|method| &method.throws);
        let is_taken = self.interface == "Handler" || thrown.any(|(_, ty)| ty.to_string() == "Handler");
        format_ident!("{}", if is_taken { "SwitchboardHandler" } else { "Handler" })
    }

    fn requests(&self) -> TokenStream {
        let requests = self.methods.iter().map(|method| {
            let doc = docs::attributes(&format!("The arguments of `{}/{}`.", self.full_name, method.name));
            let Method { request, arguments, ordered, has_default, .. } = method;
            let name = format!("the call of {}", method.name);
            structs::structure(request, &name, arguments, &doc, &quote!(), *ordered, *has_default)
        });
        quote!(#(#requests)*)
    }

    fn info(&self) -> TokenStream {
        let Parts { full_name, info, .. } = self;
        let doc = docs::attributes(&format!("Name and methods of `{full_name}`."));
        let methods = self.methods.iter().map(|method| {
            let Method { name, schema, idempotency, .. } = method;
            let oneway = method.oneway.then(|| quote!(.oneway()));
            let spawn = method.spawn.then(|| quote!(.spawn()));
            let level = idempotency.as_ref();
            let idempotency = level.map(|level| quote!(.idempotency(::switchboard::Idempotency::#level)));
            let params: Vec<_> = method.arguments.iter().map(Plan::json_name).collect();
            quote! {
                ::switchboard::MethodInfo::new(#name, ::switchboard::Kind::Unary)
                    #oneway #spawn #idempotency
                    .params(::switchboard::Params::Arguments(&[#(#params),*]))
                    .schema(#schema)
            }
        });
        quote! {
            #doc
            pub static #info: ::switchboard::ServiceInfo = ::switchboard::ServiceInfo {
                name: #full_name,
                methods: &[#(#methods),*],
                descriptor: &[],
            };
        }
    }

    fn interface(&self) -> TokenStream {
        let Parts { full_name, interface, .. } = self;
        let doc = self.doc.map_or_else(|| format!("Handlers of `{full_name}`."), docs::escape_comment);
        let doc = docs::attributes(&doc);
        let methods = self.methods.iter().map(|method| {
            let Method { ident, reply, .. } = method;
            let (doc, parameters) = (method.doc("Handles", full_name), method.parameters());
            let comma = (!method.arguments.is_empty()).then(|| quote!(,));
            quote! {
                #doc
                fn #ident(&self, #parameters #comma cx: &::switchboard::Cx)
                    -> impl ::core::future::Future<Output = ::switchboard::Result<#reply>> + ::core::marker::Send;
            }
        });
        quote! {
            #doc
            pub trait #interface: ::core::marker::Send + ::core::marker::Sync + 'static {
                #(#methods)*
            }
        }
    }

    fn server(&self) -> TokenStream {
        let Parts { full_name, interface, server, info, .. } = self;
        let arms = self.methods.iter().enumerate().map(|(index, method)| {
            let index = Literal::usize_unsuffixed(index);
            let Method { ident, request, .. } = method;
            let (names, throws) = (method.names(), method.throws());
            let request_name = if names.is_empty() { quote!(_request) } else { quote!(request) };
            let reply = if method.oneway {
                quote! {
                    outcome.map_err(|status| cx.failed(status))?;
                    Ok(::switchboard::Reply::one(::switchboard::codegen::Bytes::new(), cx))
                }
            } else {
                quote! {
                    let bytes = ::switchboard::codegen::thrift::encode_result(outcome, codec, #throws)
                        .map_err(|status| cx.failed(status))?;
                    Ok(::switchboard::Reply::one(bytes, cx))
                }
            };
            quote! {
                #index => {
                    let (bytes, cx) = call.into_one()?;
                    let answer = {
                        let #request_name: #request = ::switchboard::codegen::read_request(
                            &cx,
                            codec,
                            bytes,
                            ::switchboard::codegen::thrift::decode::<#request>,
                            ::switchboard::codegen::thrift::decode_strict::<#request>,
                        )?;
                        Handler::#ident(&*self.0, #(request.#names,)* &cx)
                    };
                    let outcome = answer.await;
                    #reply
                }
            }
        });
        let unknown = format!("{full_name} has no method number {{other}}");
        let body = quote! {
            let codec = call.codec();
            match call.method() {
                #(#arms)*
                other => Err(::switchboard::Status::unimplemented(::std::format!(#unknown))),
            }
        };
        let handler = &self.handler();
        ServerType { server, interface, handler, info, body }.emit()
    }

    fn client(&self) -> TokenStream {
        let Parts { full_name, interface, server, client, info, .. } = self;
        let methods = self.methods.iter().enumerate().map(|(index, method)| {
            let Method { ident, request, reply, .. } = method;
            let (doc, parameters) = (method.doc("Calls", full_name), method.parameters());
            let path = format!("{full_name}/{}", method.name);
            let index = Literal::usize_unsuffixed(index);
            let (names, throws) = (method.names(), method.throws());
            let bytes = quote!(::switchboard::codegen::thrift::encode(&#request { #(#names),* }, self.codec));
            let (returns, call) = if method.oneway {
                (quote!(::switchboard::OnewayCall), quote!(self.channel.oneway(&METHOD, self.codec, #bytes)))
            } else {
                let decode = quote! {
                    |codec, bytes| ::switchboard::codegen::thrift::decode_result::<#reply>(codec, bytes, #throws)
                };
                let call = quote!(self.channel.unary(&METHOD, self.codec, #bytes, #decode));
                (quote!(::switchboard::UnaryCall<#reply>), call)
            };
            quote! {
                #doc
                pub fn #ident(&self, #parameters) -> #returns {
                    static METHOD: ::switchboard::ClientMethod =
                        ::switchboard::ClientMethod { service: &#info, index: #index, path: #path };
                    #call
                }
            }
        });
        let (handler, codec, calls) = (&self.handler(), format_ident!("Thrift"), methods.collect());
        ClientType { full_name, client, server, interface, handler, codec, calls }.emit()
    }

    fn api(&self) -> TokenStream {
        let Parts { full_name, client, api, .. } = self;
        let doc = docs::attributes(&format!(
            "Methods of `{full_name}` for callers: implement it with a fake in tests. A method that a fake lacks \
             fails with `Unimplemented`."
        ));
        let signatures = self.methods.iter().map(|method| {
            let Method { ident, name, reply, .. } = method;
            let (doc, parameters) = (method.doc("Calls", full_name), method.parameters());
            let names = method.names();
            let missing = format!("the fake has no {full_name}/{name}");
            quote! {
                #doc
                fn #ident(&self, #parameters)
                    -> impl ::core::future::Future<Output = ::switchboard::Result<#reply>> + ::core::marker::Send
                {
                    #(let _ = #names;)*
                    async { Err(::switchboard::Status::unimplemented(#missing)) }
                }
            }
        });
        let calls = self.methods.iter().map(|method| {
            let Method { ident, reply, .. } = method;
            let (parameters, names) = (method.parameters(), method.names());
            let call = quote!(#client::#ident(self, #(#names),*).await);
            let body = if method.oneway { call } else { quote!(Ok(#call?.into_inner())) };
            quote!(async fn #ident(&self, #parameters) -> ::switchboard::Result<#reply> { #body })
        });
        quote! {
            #doc
            pub trait #api: ::core::marker::Send + ::core::marker::Sync {
                #(#signatures)*
            }

            impl #api for #client {
                #(#calls)*
            }
        }
    }
}

/// FNV-1a, 64 bits: short, and stable across compilers and machines.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn text(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

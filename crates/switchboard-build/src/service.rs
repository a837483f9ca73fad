//! Model of services for the emitters.

use crate::{
    Error, docs,
    http_rules::{Messages, Rule},
    names::{self, Named as _, package_of, qualified},
    schema::Schema,
};
use buffa::unknown_fields::UnknownFieldData;
use buffa_codegen::{
    context::{CodeGenContext, SENTINEL_MOD},
    generated::descriptor::{
        FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto, MethodOptions,
        ServiceDescriptorProto, method_options::IdempotencyLevel,
    },
    idents,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::BTreeSet;

/// A service and the names of its generated items.
pub(crate) struct Service {
    /// `demo.v1.Greeter`.
    pub(crate) full_name: String,
    /// `Greeter`.
    pub(crate) interface: Ident,
    /// `GreeterServer`.
    pub(crate) server: Ident,
    /// `GreeterClient`.
    pub(crate) client: Ident,
    /// `GreeterApi`.
    pub(crate) api: Ident,
    /// `GREETER`.
    pub(crate) info: Ident,
    pub(crate) comment: Option<String>,
    pub(crate) methods: Vec<Method>,
    pub(crate) family: Family,
}

/// Kind of the messages of a service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    FlatBuffers,
    Protobuf,
}

impl Family {
    /// Returns the module that encodes and decodes the messages.
    pub(crate) fn module(self) -> TokenStream {
        match self {
            Family::FlatBuffers => quote!(::switchboard::codegen::codec::flatbuffers),
            Family::Protobuf => quote!(::switchboard::codegen::codec::proto),
        }
    }

    /// Returns the default codec of the messages.
    pub(crate) fn codec(self) -> Ident {
        match self {
            Family::FlatBuffers => format_ident!("FlatBuffers"),
            Family::Protobuf => format_ident!("Proto"),
        }
    }

    /// Returns the descriptor that peers receive.
    pub(crate) fn descriptor(self) -> TokenStream {
        match self {
            Family::FlatBuffers => quote!(&[]),
            Family::Protobuf => quote!(DESCRIPTOR_SET),
        }
    }
}

/// A method and the types in its signatures.
pub(crate) struct Method {
    /// `Greet`.
    pub(crate) name: String,
    /// `greet`.
    pub(crate) ident: Ident,
    pub(crate) kind: Kind,
    pub(crate) oneway: bool,
    pub(crate) spawn: bool,
    pub(crate) owned: bool,
    pub(crate) encoded: bool,
    /// True if the handler returns a stream of replies; false if it gets a sender for them.
    pub(crate) returns_stream: bool,
    pub(crate) idempotency: Option<Ident>,
    /// JSON names of the fields of a single request; `None` for well-known types, which have their own JSON form.
    pub(crate) fields: Option<Vec<String>>,
    pub(crate) request: TokenStream,
    /// The view of the request, without its lifetime.
    pub(crate) view: TokenStream,
    pub(crate) reply: TokenStream,
    pub(crate) comment: Option<String>,
    /// HTTP paths of the method.
    pub(crate) http: Vec<Rule>,
}

/// Number of messages in each direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Bidi,
    ClientStream,
    ServerStream,
    Unary,
}

/// Field numbers in `switchboard/options.proto`.
const ONEWAY: u32 = 50901;
const SPAWN: u32 = 50902;
const OWNED: u32 = 50903;
const ENCODED: u32 = 50904;
const RETURNS_STREAM: u32 = 50905;

/// Context for reading services.
pub(crate) struct Reader<'a> {
    /// Resolves the Rust path of every message.
    pub(crate) paths: &'a CodeGenContext<'a>,
    /// Names in the root of the package, where the views of most messages are.
    pub(crate) root: &'a BTreeSet<String>,
    /// True if handlers get owned requests by default.
    pub(crate) owned: bool,
    /// True if handlers return streams of replies by default.
    pub(crate) returns_streams: bool,
    /// Messages that HTTP paths refer to.
    pub(crate) messages: &'a Messages<'a>,
    pub(crate) schema: &'a Schema,
}

impl Reader<'_> {
    /// Reads the services of a file.
    pub(crate) fn services(&self, file: &FileDescriptorProto) -> Result<Vec<Service>, Error> {
        file.service.iter().enumerate().map(|(index, service)| self.service(file, index, service)).collect()
    }

    fn service(
        &self,
        file: &FileDescriptorProto,
        index: usize,
        service: &ServiceDescriptorProto,
    ) -> Result<Service, Error> {
        let full_name = qualified(package_of(file), service.name());
        let name = names::service_name(service.name());
        let methods = service.method.iter().enumerate().map(|(place, method)| {
            let comment = docs::comment(file, index, Some(place));
            let place = docs::place(file, index, Some(place));
            self.method(file, &full_name, method, comment, &place)
        });
        Ok(Service {
            interface: if name == "Self" { format_ident!("Self_") } else { format_ident!("{name}") },
            server: format_ident!("{name}Server"),
            client: format_ident!("{name}Client"),
            api: format_ident!("{name}Api"),
            info: format_ident!("{}", names::static_name(&name)),
            comment: docs::comment(file, index, None),
            methods: methods.collect::<Result<_, _>>()?,
            full_name,
            family: Family::Protobuf,
        })
    }

    fn method(
        &self,
        file: &FileDescriptorProto,
        service: &str,
        method: &MethodDescriptorProto,
        comment: Option<String>,
        place: &str,
    ) -> Result<Method, Error> {
        let package = package_of(file);
        let kind = match (method.client_streaming.unwrap_or(false), method.server_streaming.unwrap_or(false))
        {
            (false, false) => Kind::Unary,
            (false, true) => Kind::ServerStream,
            (true, false) => Kind::ClientStream,
            (true, true) => Kind::Bidi,
        };
        let options = method.options.as_option();
        let flag = |number| options.is_some_and(|options| is_set(options, number));
        if flag(ONEWAY) && kind != Kind::Unary {
            return Err(Error::new(format!(
                "{place}: {service}/{} streams and cannot be one-way: remove `stream` or (switchboard.oneway)",
                method.name()
            )));
        }
        let is_streamed = matches!(kind, Kind::ServerStream | Kind::Bidi);
        if flag(ENCODED) && (is_streamed || flag(ONEWAY)) {
            return Err(Error::new(format!(
                "{place}: {service}/{} has no single reply: remove (switchboard.encoded)",
                method.name()
            )));
        }
        if flag(RETURNS_STREAM) && !is_streamed {
            return Err(Error::new(format!(
                "{place}: {service}/{} has no stream of replies: remove (switchboard.returns_stream)",
                method.name()
            )));
        }
        let http = self
            .messages
            .rules(method, kind)
            .map_err(|what| Error::new(format!("{place}: {service}/{}: {what}", method.name())))?;
        let request = method.input_type.as_deref().unwrap_or_default();
        let reply = method.output_type.as_deref().unwrap_or_default();
        Ok(Method {
            name: method.name().to_owned(),
            ident: names::method_ident(method.name()),
            kind,
            oneway: flag(ONEWAY),
            spawn: flag(SPAWN),
            owned: self.owned || flag(OWNED),
            encoded: flag(ENCODED),
            returns_stream: is_streamed && (self.returns_streams || flag(RETURNS_STREAM)),
            idempotency: options.and_then(idempotency),
            fields: match kind {
                Kind::Unary | Kind::ServerStream => self.fields(request),
                Kind::Bidi | Kind::ClientStream => None,
            },
            request: self.message(file, package, request)?,
            view: self.view(file, package, request)?,
            reply: self.message(file, package, reply)?,
            comment,
            http,
        })
    }

    /// Returns the JSON names of the fields, in the order of their numbers.
    fn fields(&self, message: &str) -> Option<Vec<String>> {
        if message.starts_with(".google.protobuf.") {
            return None;
        }
        let mut fields: Vec<_> = self.schema.message(message)?.field.iter().collect();
        fields.sort_by_key(|field| field.number);
        let name = |field: &&FieldDescriptorProto| {
            field
                .json_name
                .clone()
                .unwrap_or_else(|| names::json_name(field.name.as_deref().unwrap_or_default()))
        };
        Some(fields.iter().map(name).collect())
    }

    fn message(&self, file: &FileDescriptorProto, package: &str, name: &str) -> Result<TokenStream, Error> {
        let path = self.paths.rust_type_relative(name, package, 0).ok_or_else(|| unknown(file, name))?;
        Ok(idents::rust_path_to_tokens(&path))
    }

    fn view(&self, file: &FileDescriptorProto, package: &str, name: &str) -> Result<TokenStream, Error> {
        let path =
            self.paths.rust_type_relative_split(name, package, 0).ok_or_else(|| unknown(file, name))?;
        let view = format!("{}View", path.within_package);
        // The short name, unless another item in the package uses it.
        if path.to_package.is_empty() && !view.contains("::") && self.root.contains(&view) {
            let view = Ident::new(&view, Span::call_site());
            return Ok(quote!(#view));
        }
        let separator = if path.to_package.is_empty() { "" } else { "::" };
        let view = format!("{}{separator}{SENTINEL_MOD}::view::{view}", path.to_package);
        Ok(idents::rust_path_to_tokens(&view))
    }
}

fn unknown(file: &FileDescriptorProto, message: &str) -> Error {
    Error::new(format!("{}: type {message} is in none of the files that were read", file.name()))
}

/// Returns true if a boolean option without a descriptor field is set to true.
fn is_set(options: &MethodOptions, number: u32) -> bool {
    // The last value counts, as always in protobuf.
    let last = options.__buffa_unknown_fields.iter().rfind(|field| field.number == number);
    last.is_some_and(|field| matches!(field.data, UnknownFieldData::Varint(value) if value != 0))
}

/// Returns the name of the `Idempotency`, unless unknown.
fn idempotency(options: &MethodOptions) -> Option<Ident> {
    match options.idempotency_level? {
        IdempotencyLevel::NO_SIDE_EFFECTS => Some(format_ident!("NoSideEffects")),
        IdempotencyLevel::IDEMPOTENT => Some(format_ident!("Idempotent")),
        IdempotencyLevel::IDEMPOTENCY_UNKNOWN => None,
    }
}

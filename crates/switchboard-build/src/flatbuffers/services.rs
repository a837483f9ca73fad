//! Converts services to the model of the emitters that all schema languages share.

use super::{
    ast::{Item, Kind as ItemKind, Method},
    types::Types,
};
use crate::{
    Error, client, docs, names,
    package::Names,
    server,
    service::{self, Family, Kind, Service},
};
use proc_macro2::TokenStream;
use quote::format_ident;
use std::collections::BTreeSet;

/// Emits a service.
///
/// # Errors
/// Returns an error for methods with the same name, for messages that are not tables, and for unknown kinds.
pub(super) fn emit(types: &Types<'_>, item: &Item, methods: &[Method]) -> Result<TokenStream, Error> {
    let full_name = names::qualified(&item.namespace, &item.name);
    let name = names::service_name(&item.name);
    let mut read = Vec::<service::Method>::new();
    for written in methods {
        let method = method(types, item, written)?;
        if let Some(other) = read.iter().find(|other| other.ident == method.ident) {
            return Err(Error::new(format!(
                "{}: methods {} and {} both become `{}`: rename one of them",
                written.place, other.name, method.name, method.ident
            )));
        }
        read.push(method);
    }
    let service = Service {
        full_name,
        interface: names::type_ident(&item.name),
        server: format_ident!("{name}Server"),
        client: format_ident!("{name}Client"),
        api: format_ident!("{name}Api"),
        info: format_ident!("{}", names::static_name(&name)),
        comment: item.doc.as_deref().map(docs::escape_comment),
        methods: read,
        family: Family::FlatBuffers,
    };
    // Names of the package that shadow prelude names.
    let namespace = types.schema.items.iter().filter(|other| other.namespace == item.namespace);
    let root: BTreeSet<_> = namespace.map(|other| names::type_ident(&other.name).to_string()).collect();
    let names = Names::new(&root);
    let mut tokens = server::emit(&service, &names);
    tokens.extend(client::emit(&service, &names));
    Ok(tokens)
}

fn method(types: &Types<'_>, item: &Item, method: &Method) -> Result<service::Method, Error> {
    let (request, reply) = types.schema.messages(item, method)?;
    let attributes = &method.attributes;
    let kind = match method.streams()? {
        [false, false] => Kind::Unary,
        [false, true] => Kind::ServerStream,
        [true, false] => Kind::ClientStream,
        [true, true] => Kind::Bidi,
    };
    let oneway = attributes.has("switchboard_oneway");
    if oneway && kind != Kind::Unary {
        return Err(Error::new(format!("{}: {} streams and cannot be one-way", method.place, method.name)));
    }
    let idempotency = match (attributes.has("switchboard_read_only"), attributes.has("idempotent")) {
        (true, _) => Some(format_ident!("NoSideEffects")),
        (false, true) => Some(format_ident!("Idempotent")),
        (false, false) => None,
    };
    let fields = match (&request.kind, kind) {
        (ItemKind::Table(fields), Kind::Unary | Kind::ServerStream) => {
            let known = fields.iter().filter(|field| !field.attributes.has("deprecated"));
            Some(known.map(|field| field.name.clone()).collect())
        }
        _ => None,
    };
    Ok(service::Method {
        name: method.name.clone(),
        ident: names::method_ident(&method.name),
        kind,
        oneway,
        spawn: attributes.has("switchboard_spawn"),
        owned: true,
        encoded: false,
        returns_stream: false,
        idempotency,
        fields,
        request: types.path(request),
        view: TokenStream::new(),
        reply: types.path(reply),
        comment: method.doc.as_deref().map(docs::escape_comment),
        http: Vec::new(),
    })
}

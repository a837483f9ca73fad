//! The methods and messages of the upstream services, from files or from the servers.

use super::{ProxyArgs, rules, upstream::Upstream};
use crate::call::{
    Definitions, Failure, Function, Procedure, Reflection, Schema, Tables, declared_kind, idempotency,
    is_about_the_server, takes_json_alone,
};
use prost_reflect::{FieldDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use switchboard::{
    Codec, Kind, MethodInfo, Params, ServiceInfo, Status,
    codec::thrift::{self, MethodMessages},
};

/// Time limit for reading the schema from servers.
const REFLECTION_MAX: Duration = Duration::from_secs(10);

/// The services of a schema; empty without one.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxySchema {
    pub(super) services: Vec<ProxyService>,
    /// By `package.Service/Method`.
    pub(super) methods: Arc<HashMap<String, Method>>,
}

#[derive(Clone, Debug)]
pub(super) struct ProxyService {
    /// The description in the form that servers have; never freed.
    pub(super) info: &'static ServiceInfo,
    /// Codecs of its messages by the schema: without the JSON of a Rust trait, and without Thrift.
    pub(super) codecs: Vec<Codec>,
}

/// The request and reply types of a method.
#[derive(Clone, Debug, Default)]
pub(super) struct Method {
    /// In protobuf. If there are such messages, callers see them.
    pub(super) messages: Option<Messages>,
    /// From a `.thrift` file.
    pub(super) function: Option<Function>,
    /// From a `.fbs` file.
    pub(super) procedure: Option<Procedure>,
}

/// The messages of a method.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    method: MethodDescriptor,
    structs: Arc<Structs>,
}

impl Messages {
    pub(super) fn request(&self) -> MessageDescriptor {
        self.method.input()
    }

    pub(super) fn reply(&self) -> MessageDescriptor {
        self.method.output()
    }

    /// Returns their Thrift structs.
    ///
    /// # Errors
    /// An inconsistent schema.
    pub(super) fn structs(&self) -> Result<MethodMessages, Status> {
        let read = || thrift::Messages::read(self.structs.descriptor);
        let all = self.structs.read.get_or_init(read).as_ref().map_err(Clone::clone)?;
        all.method(self.method.parent_service().full_name(), self.method.name())
    }
}

/// The messages of all methods, read for Thrift once when they are first needed.
#[derive(Debug)]
struct Structs {
    descriptor: &'static [u8],
    read: OnceLock<Result<thrift::Messages, Status>>,
}

impl ProxySchema {
    /// Reads the schema that the command line specifies.
    ///
    /// # Errors
    /// Files that cannot be read, and servers without reflection.
    pub(super) async fn of(args: &ProxyArgs, upstream: &Upstream) -> Result<ProxySchema, String> {
        let definitions = Definitions::of_files(&args.schema).map_err(|failure| said(&failure))?;
        let tables = Tables::of_files(&args.schema).map_err(|failure| said(&failure))?;
        let mut known = ProxySchema::of_protobuf(args, upstream).await?;
        if let Some(definitions) = definitions {
            known.add(&definitions, &args.service);
        }
        if let Some(tables) = tables {
            known.add_tables(&tables, &args.service);
        }
        Ok(known)
    }

    async fn of_protobuf(args: &ProxyArgs, upstream: &Upstream) -> Result<ProxySchema, String> {
        match Schema::of_files(&args.schema).map_err(|failure| said(&failure))? {
            Some(schema) => ProxySchema::read(schema, &args.service).await,
            None if args.reflect => {
                let service = args.service.first();
                if upstream.is_registry() && service.is_none() {
                    return Err("--reflect with a registry needs a --service to query a server of".to_owned());
                }
                let channel = upstream.reflecting(service.map_or("", String::as_str))?;
                let deadline = Some(Instant::now() + REFLECTION_MAX);
                let server = Reflection::new(channel, args.headers.clone(), deadline);
                ProxySchema::read(Schema::of_server(server), &args.service).await
            }
            None => Ok(ProxySchema::default()),
        }
    }

    /// Reads these services, or all, except those about the server itself.
    async fn read(mut schema: Schema, wanted: &[String]) -> Result<ProxySchema, String> {
        let mut descriptors = Vec::new();
        for name in schema.services().await.map_err(|failure| said(&failure))? {
            if is_about_the_server(&name) || !is_wanted(&name, wanted) {
                continue;
            }
            match schema.service(&name).await {
                Ok(descriptor) => descriptors.push(descriptor),
                // A service without a schema does not affect the others: its calls are forwarded as bytes.
                Err(Failure::Usage(why)) => tracing::warn!("{why}"),
                Err(failure) => return Err(said(&failure)),
            }
        }
        let set: &'static [u8] = schema.pool.encode_to_vec().leak();
        let structs = Arc::new(Structs { descriptor: set, read: OnceLock::new() });
        let mut methods = HashMap::new();
        let mut services = Vec::new();
        for descriptor in &descriptors {
            let is_protobuf = !descriptor.methods().any(|method| takes_json_alone(&method));
            for method in descriptor.methods().filter(|_| is_protobuf) {
                let path = format!("{}/{}", descriptor.full_name(), method.name());
                let messages = Some(Messages { method, structs: structs.clone() });
                methods.insert(path, Method { messages, ..Method::default() });
            }
            services.push(ProxyService {
                info: info(descriptor, if is_protobuf { set } else { &[] }),
                codecs: if is_protobuf { vec![Codec::Proto] } else { Vec::new() },
            });
        }
        Ok(ProxySchema { services, methods: Arc::new(methods) })
    }

    /// Adds those of `.thrift` files. A service that is known already keeps its methods, and gets the new information.
    fn add(&mut self, definitions: &Definitions, wanted: &[String]) {
        let by_path = Arc::make_mut(&mut self.methods);
        for (name, functions) in definitions.services() {
            if !is_wanted(name, wanted) {
                continue;
            }
            if !self.services.iter().any(|service| service.info.name == name) {
                let methods: Vec<_> = functions.iter().map(method_of).collect();
                let info = ServiceInfo { name: leaked(name), methods: methods.leak(), descriptor: &[] };
                self.services.push(ProxyService { info: Box::leak(Box::new(info)), codecs: Vec::new() });
            }
            for function in functions {
                let path = function.path().to_owned();
                by_path.entry(path).or_default().function = Some(function);
            }
        }
    }

    /// Adds those of `.fbs` files.
    fn add_tables(&mut self, tables: &Tables, wanted: &[String]) {
        let by_path = Arc::make_mut(&mut self.methods);
        for (name, procedures) in tables.services() {
            if !is_wanted(name, wanted) {
                continue;
            }
            if let Some(known) = self.services.iter_mut().find(|service| service.info.name == name) {
                known.codecs.push(Codec::FlatBuffers);
            } else {
                let methods: Vec<_> = procedures.iter().map(method_of_tables).collect();
                let info = ServiceInfo { name: leaked(name), methods: methods.leak(), descriptor: &[] };
                let info = Box::leak(Box::new(info));
                self.services.push(ProxyService { info, codecs: vec![Codec::FlatBuffers] });
            }
            for procedure in procedures {
                let path = procedure.path().to_owned();
                by_path.entry(path).or_default().procedure = Some(procedure);
            }
        }
    }
}

/// Returns whether the service is one of the wanted ones, or all are wanted.
fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

/// Formats a failure without the prefix of `call`.
fn said(failure: &Failure) -> String {
    let text = failure.text();
    text.strip_prefix("switchboard: ").unwrap_or(&text).to_owned()
}

/// Returns the service in the form of generated code.
fn info(service: &ServiceDescriptor, descriptor: &'static [u8]) -> &'static ServiceInfo {
    let methods = service.methods().map(|method| {
        let known =
            MethodInfo::new(leaked(method.name()), declared_kind(&method)).idempotency(idempotency(&method));
        match descriptor.is_empty() {
            true => of_trait(known, &method),
            false => known.params(params(&method)).http(rules::of(&method).leak()),
        }
    });
    let methods = methods.collect::<Vec<_>>().leak();
    Box::leak(Box::new(ServiceInfo { name: leaked(service.full_name()), methods, descriptor }))
}

/// Returns a method of a Rust trait, with its arguments and HTTP paths. Messages that are not objects of arguments,
/// such as those of a stream of requests, have neither.
fn of_trait(known: MethodInfo, method: &MethodDescriptor) -> MethodInfo {
    if method.input().full_name() == "google.protobuf.Value" {
        return known;
    }
    let names = rules::arguments(method).iter().map(|field| leaked(field.json_name())).collect::<Vec<_>>();
    known
        .params(Params::Arguments(names.leak()))
        .texts(rules::texts(method).leak())
        .http(rules::of(method).leak())
}

/// Returns a method of a `.thrift` file.
fn method_of(function: &Function) -> MethodInfo {
    let arguments: Vec<_> = function.arguments().map(leaked).collect();
    let method =
        MethodInfo::new(leaked(function.name()), Kind::Unary).params(Params::Arguments(arguments.leak()));
    if function.is_oneway() { method.oneway() } else { method }
}

/// Returns a method of a `.fbs` file.
fn method_of_tables(procedure: &Procedure) -> MethodInfo {
    let fields: Vec<_> = procedure.fields().map(leaked).collect();
    let method = MethodInfo::new(leaked(procedure.name()), procedure.kind())
        .idempotency(procedure.idempotency())
        .params(Params::Fields(fields.leak()));
    if procedure.is_oneway() { method.oneway() } else { method }
}

/// Returns the fields of the request, for callers that send them without names.
fn params(method: &MethodDescriptor) -> Params {
    let mut fields: Vec<_> = method.input().fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let names: Vec<_> = fields.iter().map(|field| leaked(field.json_name())).collect();
    Params::Fields(names.leak())
}

fn leaked(text: &str) -> &'static str {
    Box::leak(text.into())
}

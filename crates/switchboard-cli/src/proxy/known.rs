//! What is known of the services behind: their methods and messages, from files or from the servers themselves.

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

/// How long servers get to tell their schema.
const REFLECTION_MAX: Duration = Duration::from_secs(10);

/// The services of a schema; none without one.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) services: Vec<KnownService>,
    /// By `package.Service/Method`.
    pub(super) methods: Arc<HashMap<String, Method>>,
}

#[derive(Clone, Debug)]
pub(super) struct KnownService {
    /// As servers of it have it; kept until the process ends.
    pub(super) info: &'static ServiceInfo,
    /// What its messages are in, by the schema: not the JSON of a Rust trait, nor Thrift.
    pub(super) codecs: Vec<Codec>,
}

/// What a method takes and gives.
#[derive(Clone, Debug, Default)]
pub(super) struct Method {
    /// In protobuf. Where there are such messages, they are what callers see.
    pub(super) messages: Option<Messages>,
    /// By a `.thrift` file.
    pub(super) function: Option<Function>,
    /// By a `.fbs` file.
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

    /// What they are in Thrift.
    ///
    /// # Errors
    /// A schema that fits nothing.
    pub(super) fn structs(&self) -> Result<MethodMessages, Status> {
        let read = || thrift::Messages::read(self.structs.descriptor);
        let all = self.structs.read.get_or_init(read).as_ref().map_err(Clone::clone)?;
        all.method(self.method.parent_service().full_name(), self.method.name())
    }
}

/// The messages of all methods, read once for Thrift when somebody speaks it.
#[derive(Debug)]
struct Structs {
    descriptor: &'static [u8],
    read: OnceLock<Result<thrift::Messages, Status>>,
}

impl Known {
    /// What the command line asks for.
    ///
    /// # Errors
    /// Files that cannot be read, and servers that do not tell.
    pub(super) async fn of(args: &ProxyArgs, upstream: &Upstream) -> Result<Known, String> {
        let definitions = Definitions::of_files(&args.schema).map_err(|failure| said(&failure))?;
        let tables = Tables::of_files(&args.schema).map_err(|failure| said(&failure))?;
        let mut known = Known::of_protobuf(args, upstream).await?;
        if let Some(definitions) = definitions {
            known.add(&definitions, &args.service);
        }
        if let Some(tables) = tables {
            known.add_tables(&tables, &args.service);
        }
        Ok(known)
    }

    async fn of_protobuf(args: &ProxyArgs, upstream: &Upstream) -> Result<Known, String> {
        match Schema::of_files(&args.schema).map_err(|failure| said(&failure))? {
            Some(schema) => Known::read(schema, &args.service).await,
            None if args.reflect => {
                let service = args.service.first();
                if upstream.is_registry() && service.is_none() {
                    return Err(
                        "--reflect with a registry needs a --service, of which a server is asked".to_owned()
                    );
                }
                let channel = upstream.reflecting(service.map_or("", String::as_str))?;
                let deadline = Some(Instant::now() + REFLECTION_MAX);
                let server = Reflection::new(channel, args.headers.clone(), deadline);
                Known::read(Schema::of_server(server), &args.service).await
            }
            None => Ok(Known::default()),
        }
    }

    /// Those of these services, or all, that are not about the server itself.
    async fn read(mut schema: Schema, wanted: &[String]) -> Result<Known, String> {
        let mut descriptors = Vec::new();
        for name in schema.services().await.map_err(|failure| said(&failure))? {
            if is_about_the_server(&name) || !is_wanted(&name, wanted) {
                continue;
            }
            match schema.service(&name).await {
                Ok(descriptor) => descriptors.push(descriptor),
                // One of several without a schema takes nothing from the others: its calls go through as bytes.
                Err(Failure::Asked(why)) => tracing::warn!("{why}"),
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
            services.push(KnownService {
                info: info(descriptor, if is_protobuf { set } else { &[] }),
                codecs: if is_protobuf { vec![Codec::Proto] } else { Vec::new() },
            });
        }
        Ok(Known { services, methods: Arc::new(methods) })
    }

    /// Adds those of `.thrift` files. A service that is known already keeps its methods, of which more is known then.
    fn add(&mut self, definitions: &Definitions, wanted: &[String]) {
        let by_path = Arc::make_mut(&mut self.methods);
        for (name, functions) in definitions.services() {
            if !is_wanted(name, wanted) {
                continue;
            }
            if !self.services.iter().any(|service| service.info.name == name) {
                let methods: Vec<_> = functions.iter().map(method_of).collect();
                let info = ServiceInfo { name: leaked(name), methods: methods.leak(), descriptor: &[] };
                self.services.push(KnownService { info: Box::leak(Box::new(info)), codecs: Vec::new() });
            }
            for function in functions {
                let path = function.path().to_owned();
                by_path.entry(path).or_default().function = Some(function);
            }
        }
    }

    /// The same for `.fbs` files.
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
                self.services.push(KnownService { info, codecs: vec![Codec::FlatBuffers] });
            }
            for procedure in procedures {
                let path = procedure.path().to_owned();
                by_path.entry(path).or_default().procedure = Some(procedure);
            }
        }
    }
}

/// Whether it is one of those that are asked for, or all are.
fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

/// For people, without what `call` puts before it.
fn said(failure: &Failure) -> String {
    let text = failure.text();
    text.strip_prefix("switchboard: ").unwrap_or(&text).to_owned()
}

/// The service as generated code would have it.
fn info(service: &ServiceDescriptor, descriptor: &'static [u8]) -> &'static ServiceInfo {
    let methods = service.methods().map(|method| {
        let known =
            MethodInfo::new(leaked(method.name()), declared_kind(&method)).idempotency(idempotency(&method));
        match descriptor.is_empty() {
            true => known,
            false => known.params(params(&method)).http(rules::of(&method).leak()),
        }
    });
    let methods = methods.collect::<Vec<_>>().leak();
    Box::leak(Box::new(ServiceInfo { name: leaked(service.full_name()), methods, descriptor }))
}

/// A method of a `.thrift` file.
fn method_of(function: &Function) -> MethodInfo {
    let arguments: Vec<_> = function.arguments().map(leaked).collect();
    let method =
        MethodInfo::new(leaked(function.name()), Kind::Unary).params(Params::Arguments(arguments.leak()));
    if function.is_oneway() { method.oneway() } else { method }
}

/// A method of a `.fbs` file.
fn method_of_tables(procedure: &Procedure) -> MethodInfo {
    let fields: Vec<_> = procedure.fields().map(leaked).collect();
    let method = MethodInfo::new(leaked(procedure.name()), procedure.kind())
        .idempotency(procedure.idempotency())
        .params(Params::Fields(fields.leak()));
    if procedure.is_oneway() { method.oneway() } else { method }
}

/// The fields of the request, for callers that send them without names.
fn params(method: &MethodDescriptor) -> Params {
    let mut fields: Vec<_> = method.input().fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let names: Vec<_> = fields.iter().map(|field| leaked(field.json_name())).collect();
    Params::Fields(names.leak())
}

fn leaked(text: &str) -> &'static str {
    Box::leak(text.into())
}

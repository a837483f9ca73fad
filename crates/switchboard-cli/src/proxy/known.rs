//! What is known of the services behind: their methods and messages, from files or from the servers themselves.

use super::{ProxyArgs, rules, upstream::Upstream};
use crate::call::{
    Definitions, Failure, Function, Reflection, Schema, declared_kind, idempotency, is_about_the_server,
    takes_json_alone,
};
use prost_reflect::{FieldDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard::{Kind, MethodInfo, Params, ServiceInfo};

/// How long servers get to tell their schema.
const REFLECTION_MAX: Duration = Duration::from_secs(10);

/// The services of a schema; none without one.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) services: Vec<KnownService>,
    /// The messages of protobuf methods, by `package.Service/Method`.
    pub(super) messages: Arc<HashMap<String, Messages>>,
    /// The methods of `.thrift` files, by the same.
    pub(super) functions: Arc<HashMap<String, Function>>,
}

#[derive(Clone, Debug)]
pub(super) struct KnownService {
    /// As servers of it have it; kept until the process ends.
    pub(super) info: &'static ServiceInfo,
    /// Its messages are those of protobuf: not the JSON of a Rust trait.
    pub(super) is_protobuf: bool,
}

/// The types of a method's messages.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    pub(super) request: MessageDescriptor,
    pub(super) reply: MessageDescriptor,
}

impl Known {
    /// What the command line asks for.
    ///
    /// # Errors
    /// Files that cannot be read, and servers that do not tell.
    pub(super) async fn of(args: &ProxyArgs, upstream: &Upstream) -> Result<Known, String> {
        if let Some(definitions) = Definitions::of_files(&args.schema).map_err(|failure| said(&failure))? {
            return Ok(Known::declared(&definitions, &args.service));
        }
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
            if is_about_the_server(&name) || !(wanted.is_empty() || wanted.contains(&name)) {
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
        let mut messages = HashMap::new();
        let mut services = Vec::new();
        for descriptor in &descriptors {
            let is_protobuf = !descriptor.methods().any(|method| takes_json_alone(&method));
            for method in descriptor.methods().filter(|_| is_protobuf) {
                let types = Messages { request: method.input(), reply: method.output() };
                messages.insert(format!("{}/{}", descriptor.full_name(), method.name()), types);
            }
            services.push(KnownService {
                info: info(descriptor, if is_protobuf { set } else { &[] }),
                is_protobuf,
            });
        }
        Ok(Known { services, messages: Arc::new(messages), functions: Arc::default() })
    }

    /// Those of `.thrift` files.
    fn declared(definitions: &Definitions, wanted: &[String]) -> Known {
        let mut known = Known::default();
        let mut by_name = HashMap::new();
        for (name, functions) in definitions.services() {
            if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
                continue;
            }
            let methods: Vec<_> = functions.iter().map(method_of).collect();
            let info = ServiceInfo { name: leaked(name), methods: methods.leak(), descriptor: &[] };
            known.services.push(KnownService { info: Box::leak(Box::new(info)), is_protobuf: false });
            by_name.extend(functions.into_iter().map(|function| (function.path().to_owned(), function)));
        }
        known.functions = Arc::new(by_name);
        known
    }
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

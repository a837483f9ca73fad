//! Calls of services of `.fbs` files: the files say what JSON becomes as FlatBuffers, and what comes back.
//!
//! JSON is as `flatc` writes it: enums by the names of their members, several of them with spaces between where they
//! are bits; a union as two fields, `x_type` with the name of its member and `x`; what has its default left out;
//! vectors of bytes as lists of numbers. Requests may have vectors of bytes in base64 too.

mod reply;
mod request;
#[cfg(test)]
mod tests;
mod text;

pub(super) use reply::Look;

use super::{
    Command,
    args::CallArgs,
    failure::Failure,
    input::{Form, Input},
    names::{method_at, service_at, split_method},
    output::Output,
    replies::Replies,
};
use std::sync::Arc;
use switchboard::{ClientMethod, Codec, Idempotency, Kind};
use switchboard_build::flatbuffers_interface::{Default, Interface, Method, Table, Type};

impl Command<'_> {
    /// Calls a method of a `.fbs` file.
    pub(super) async fn call_procedure(
        &mut self,
        definitions: &Definitions,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let procedure = definitions.procedure(&self.args.verb)?;
        self.oneway |= procedure.method.oneway;
        let method = ClientMethod::intern(&procedure.path, procedure.kind(), procedure.idempotency())
            .map_err(|status| Failure::Asked(status.message().to_owned()))?;
        let [streams, _] = procedure.method.streams;
        let takes_fields = !procedure.request().fields.is_empty();
        let input = Input::new(self.args.data.as_deref(), streams, takes_fields)?;
        let requests = input.read(Form::Table(procedure.clone()));
        let channel = self.connect(self.target.wire).await?;
        // gRPC without a subtype says protobuf, and the generated code of FlatBuffers calls so.
        let codec = channel.codec(Codec::FlatBuffers);
        if !matches!(codec, Codec::FlatBuffers | Codec::Proto) {
            let text = format!("codec={codec} in the URL: tables of .fbs files are written as FlatBuffers");
            return Err(Failure::Asked(text));
        }
        self.invoke(&channel, method, codec, requests, Replies::of_procedure(procedure), output).await
    }
}

/// What the files declare that the command line names.
#[derive(Debug)]
pub(super) struct Definitions(Arc<Interface>);

impl Definitions {
    /// None if the command line names no file.
    pub(super) fn of_files(args: &CallArgs) -> Result<Option<Definitions>, Failure> {
        if args.fbs.is_empty() {
            return Ok(None);
        }
        let read = Interface::read(&args.fbs, &args.schema.includes);
        let interface = read.map_err(|error| Failure::Asked(error.to_string()))?;
        Ok(Some(Definitions(Arc::new(interface))))
    }

    /// The names of all services, or of the methods of one.
    pub(super) fn list(&self, service: Option<&str>) -> Result<Vec<String>, Failure> {
        let Some(name) = service else { return Ok(self.names().into_iter().map(str::to_owned).collect()) };
        let service = &self.0.services[service_at(&self.names(), name).map_err(Failure::Asked)?];
        Ok(service.methods.iter().map(|method| format!("{}/{}", service.name, method.name)).collect())
    }

    /// The method that was typed.
    pub(super) fn procedure(&self, typed: &str) -> Result<Procedure, Failure> {
        let find = || {
            let (service, name) = split_method(typed)?;
            let service = &self.0.services[service_at(&self.names(), service)?];
            let known: Vec<_> = service.methods.iter().map(|method| &*method.name).collect();
            let method = service.methods[method_at(&service.name, &known, name)?].clone();
            let path = format!("{}/{name}", service.name);
            Ok(Procedure { interface: self.0.clone(), path, method })
        };
        find().map_err(Failure::Asked)
    }

    fn names(&self) -> Vec<&str> {
        self.0.services.iter().map(|service| &*service.name).collect()
    }
}

/// A method, and every type that it needs.
#[derive(Clone, Debug)]
pub(super) struct Procedure {
    interface: Arc<Interface>,
    /// As in `demo.v1.Store/Retrieve`.
    path: String,
    method: Method,
}

impl Procedure {
    fn request(&self) -> &Table {
        &self.interface.tables[self.method.request]
    }

    fn kind(&self) -> Kind {
        match self.method.streams {
            [false, false] => Kind::Unary,
            [false, true] => Kind::ServerStream,
            [true, false] => Kind::ClientStream,
            [true, true] => Kind::Bidi,
        }
    }

    fn idempotency(&self) -> Idempotency {
        match &self.method {
            Method { read_only: true, .. } => Idempotency::NoSideEffects,
            Method { idempotent: true, .. } => Idempotency::Idempotent,
            _ => Idempotency::Unknown,
        }
    }
}

/// Whether values lie where they are, and nothing refers to them.
fn is_in_place(ty: &Type) -> bool {
    matches!(ty, Type::Array(..) | Type::Base(_) | Type::Enum(_) | Type::Struct(_))
}

/// The union that a field has one or several of.
fn union_of(ty: &Type) -> Option<usize> {
    match ty {
        Type::Union(at) => Some(*at),
        Type::Vector(item) => union_of(item),
        _ => None,
    }
}

/// A default as it lies in place.
fn bytes_of(default: Default, size: usize) -> Vec<u8> {
    match default {
        Default::Bool(value) => vec![u8::from(value)],
        Default::Int(value) => value.to_le_bytes()[..size].to_vec(),
        Default::Float(value) if size == 4 => (value as f32).to_le_bytes().to_vec(),
        Default::Float(value) => value.to_le_bytes().to_vec(),
    }
}

/// The name in JSON of the field that says which member of a union another has.
fn type_name(field: &str) -> String {
    format!("{field}_type")
}

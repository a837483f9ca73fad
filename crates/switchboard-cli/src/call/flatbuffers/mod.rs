//! Services of `.fbs` files: converts JSON to FlatBuffers and tables to JSON by these files.
//!
//! JSON for people has the form that `flatc` writes: enums by the names of their members, with spaces between several
//! names if they are bit flags; a union as two fields, `x_type` with the name of its member and `x`; fields with
//! default values omitted; vectors of bytes as lists of numbers. JSON for programs has the form of servers and clients
//! that are generated from the file: enums as numbers, a union as an object with its member as the only field, and
//! defaults included. Both forms are accepted as input, and so are vectors of bytes in base64.

mod read;
#[cfg(test)]
mod tests;
mod text;
mod write;

pub(crate) use read::Look;

use super::{
    Command,
    failure::Failure,
    input::{Form, Input},
    names::{method_at, service_at, split_method},
    output::Output,
    replies::Replies,
    schema::SchemaArgs,
    thrift::For,
};
use bytes::Bytes;
use serde_json::Value as Json;
use std::sync::Arc;
use switchboard::{ClientMethod, Codec, Idempotency, Kind, Status};
use switchboard_build::flatbuffers_interface::{Default, Interface, Method, Service, Type};
use switchboard_wire::flatbuffers::GROWTH_MAX;

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
            .map_err(|status| Failure::Usage(status.message().to_owned()))?;
        let [streams, _] = procedure.method.streams;
        let takes_fields = procedure.fields().next().is_some();
        let input = Input::new(self.args.data.as_deref(), streams, takes_fields)?;
        let requests = input.read(Form::Table(procedure.clone()));
        let channel = self.connect(self.target.wire).await?;
        // gRPC without a subtype means protobuf, and the generated code of FlatBuffers uses it.
        let codec = channel.codec(Codec::FlatBuffers);
        if !matches!(codec, Codec::FlatBuffers | Codec::Proto) {
            let text = format!("codec={codec} in the URL: tables of .fbs files are written as FlatBuffers");
            return Err(Failure::Usage(text));
        }
        self.invoke(&channel, method, codec, requests, Replies::of_procedure(procedure), output).await
    }
}

/// The declarations of the files that the command line names.
#[derive(Debug)]
pub(crate) struct Definitions(Arc<Interface>);

impl Definitions {
    /// Returns `None` if the command line names no file.
    pub(crate) fn of_files(args: &SchemaArgs) -> Result<Option<Definitions>, Failure> {
        if args.fbs.is_empty() {
            return Ok(None);
        }
        let read = Interface::read(&args.fbs, &args.includes);
        let interface = read.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Some(Definitions(Arc::new(interface))))
    }

    /// Returns the names of all services, or of the methods of one.
    pub(super) fn list(&self, service: Option<&str>) -> Result<Vec<String>, Failure> {
        let Some(name) = service else { return Ok(self.names().into_iter().map(str::to_owned).collect()) };
        let service = &self.0.services[service_at(&self.names(), name).map_err(Failure::Usage)?];
        Ok(service.methods.iter().map(|method| format!("{}/{}", service.name, method.name)).collect())
    }

    /// Returns the method with a name that the user typed.
    pub(super) fn procedure(&self, typed: &str) -> Result<Procedure, Failure> {
        let find = || {
            let (service, name) = split_method(typed)?;
            let service = &self.0.services[service_at(&self.names(), service)?];
            let known: Vec<_> = service.methods.iter().map(|method| &*method.name).collect();
            Ok(self.of(service, &service.methods[method_at(&service.name, &known, name)?]))
        };
        find().map_err(Failure::Usage)
    }

    /// Returns every service, and its methods.
    pub(crate) fn services(&self) -> impl Iterator<Item = (&str, Vec<Procedure>)> {
        let services = self.0.services.iter();
        services.map(|service| {
            let procedures = service.methods.iter().map(|method| self.of(service, method));
            (&*service.name, procedures.collect())
        })
    }

    fn of(&self, service: &Service, method: &Method) -> Procedure {
        let path = format!("{}/{}", service.name, method.name);
        Procedure { interface: self.0.clone(), path, method: method.clone() }
    }

    fn names(&self) -> Vec<&str> {
        self.0.services.iter().map(|service| &*service.name).collect()
    }
}

/// A method, and every type that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    interface: Arc<Interface>,
    /// As in `demo.v1.Store/Retrieve`.
    path: String,
    method: Method,
}

/// A request or reply of a method: a table, and every type that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root<'a> {
    interface: &'a Interface,
    table: usize,
}

/// JSON bytes that every message may use, even if it is small.
const ALLOWANCE: usize = 64 << 10;

impl Procedure {
    /// As in `demo.v1.Store/Retrieve`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name on the wire.
    pub(crate) fn name(&self) -> &str {
        &self.method.name
    }

    /// Returns the names of the fields of the request.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        let table = &self.interface.tables[self.method.request];
        table.fields.iter().map(|field| &*field.name)
    }

    /// Returns whether the method has no reply.
    pub(crate) fn is_oneway(&self) -> bool {
        self.method.oneway
    }

    pub(crate) fn request(&self) -> Root<'_> {
        Root { interface: &self.interface, table: self.method.request }
    }

    pub(crate) fn reply(&self) -> Root<'_> {
        Root { interface: &self.interface, table: self.method.reply }
    }

    /// Converts an object to the table of a request.
    ///
    /// # Errors
    /// The value that does not fit, and its field.
    pub(super) fn write(&self, json: &Json) -> Result<Bytes, String> {
        self.request().write(json, For::People, BYTES_MAX)
    }

    /// Converts a reply to JSON.
    ///
    /// # Errors
    /// `Internal` for bytes that are not a table of the type, or that are far larger as JSON.
    pub(super) fn read(&self, reply: &[u8], look: Look) -> Result<String, Status> {
        let bytes_max = reply.len().saturating_mul(GROWTH_MAX).saturating_add(ALLOWANCE);
        self.reply().read(reply, look, bytes_max).map_err(|malformed| {
            let name = &self.interface.tables[self.method.reply].name;
            Status::internal(format!("the reply is no {name}: {malformed}"))
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.method.streams {
            [false, false] => Kind::Unary,
            [false, true] => Kind::ServerStream,
            [true, false] => Kind::ClientStream,
            [true, true] => Kind::Bidi,
        }
    }

    pub(crate) fn idempotency(&self) -> Idempotency {
        match &self.method {
            Method { read_only: true, .. } => Idempotency::NoSideEffects,
            Method { idempotent: true, .. } => Idempotency::Idempotent,
            _ => Idempotency::Unknown,
        }
    }
}

/// Largest FlatBuffers message; offsets are signed in other languages.
const BYTES_MAX: usize = i32::MAX as usize;

/// Returns whether values are stored in place, without an offset to them.
fn is_in_place(ty: &Type) -> bool {
    matches!(ty, Type::Array(..) | Type::Base(_) | Type::Enum(_) | Type::Struct(_))
}

/// Returns the union of which a field has one or several values.
fn union_of(ty: &Type) -> Option<usize> {
    match ty {
        Type::Union(at) => Some(*at),
        Type::Vector(item) => union_of(item),
        _ => None,
    }
}

/// Returns a default value in the form that is stored in place.
fn bytes_of(default: Default, size: usize) -> Vec<u8> {
    match default {
        Default::Bool(value) => vec![u8::from(value)],
        Default::Int(value) => value.to_le_bytes()[..size].to_vec(),
        Default::Float(value) if size == 4 => (value as f32).to_le_bytes().to_vec(),
        Default::Float(value) => value.to_le_bytes().to_vec(),
    }
}

/// Returns the JSON name of the field that contains the type of a union.
fn type_name(field: &str) -> String {
    format!("{field}_type")
}

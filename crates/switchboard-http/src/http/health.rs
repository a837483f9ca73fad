//! Parts of the service `grpc.health.v1.Health` that `connectrpc` does not have: methods, and a descriptor. Tools such
//! as grpcui query reflection for each listed service and stop at one without a descriptor.
//!
//! Names, numbers and types are those of the public `grpc/health/v1/health.proto`.

mod list;
mod watch;

pub(super) use list::Shown;

use buffa::Message;
use buffa_descriptor::generated::descriptor::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, MethodDescriptorProto, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use connectrpc::Router;
use connectrpc_health::StaticChecker;
use std::sync::Arc;

const PACKAGE: &str = "grpc.health.v1";
const STATUS: &str = ".grpc.health.v1.HealthCheckResponse.ServingStatus";

/// Names of the statuses by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Replaces methods of `connectrpc`, or adds those that it does not have.
pub(super) fn install(router: Router, health: &Arc<StaticChecker>) -> Router {
    let router = watch::install(router, health.clone());
    list::install(router, health.clone())
}

/// Returns an encoded `FileDescriptorSet` of the service.
pub(super) fn descriptors() -> Vec<u8> {
    let request = message("HealthCheckRequest", field("service", 1, Type::TYPE_STRING, None));
    let mut response = message("HealthCheckResponse", field("status", 1, Type::TYPE_ENUM, some(STATUS)));
    let statuses = STATUSES.iter().zip(0..).map(|(name, number)| EnumValueDescriptorProto {
        name: some(name),
        number: Some(number),
        ..Default::default()
    });
    response.enum_type.push(EnumDescriptorProto {
        name: some("ServingStatus"),
        value: statuses.collect(),
        ..Default::default()
    });
    let all = DescriptorProto { name: some("HealthListRequest"), ..Default::default() };
    let watch = MethodDescriptorProto { server_streaming: Some(true), ..method("Watch", "Check") };
    let file = FileDescriptorProto {
        name: some("grpc/health/v1/health.proto"),
        package: some(PACKAGE),
        message_type: vec![request, response, all, statuses_by_name()],
        service: vec![ServiceDescriptorProto {
            name: some("Health"),
            method: vec![method("Check", "Check"), method("List", "List"), watch],
            ..Default::default()
        }],
        syntax: some("proto3"),
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file], ..Default::default() }.encode_to_vec()
}

/// `map<string, HealthCheckResponse> statuses = 1` in a message.
fn statuses_by_name() -> DescriptorProto {
    let name = "HealthListResponse";
    let value = Some(format!(".{PACKAGE}.HealthCheckResponse"));
    let mut entry = message("StatusesEntry", field("key", 1, Type::TYPE_STRING, None));
    entry.field.push(field("value", 2, Type::TYPE_MESSAGE, value));
    entry.options = MessageOptions { map_entry: Some(true), ..Default::default() }.into();
    let entries = Some(format!(".{PACKAGE}.{name}.StatusesEntry"));
    let mut statuses = field("statuses", 1, Type::TYPE_MESSAGE, entries);
    statuses.label = Some(Label::LABEL_REPEATED);
    DescriptorProto { nested_type: vec![entry], ..message(name, statuses) }
}

/// Describes a method with the messages `Health…Request` and `Health…Response`.
fn method(name: &str, messages: &str) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: some(name),
        input_type: Some(format!(".{PACKAGE}.Health{messages}Request")),
        output_type: Some(format!(".{PACKAGE}.Health{messages}Response")),
        ..Default::default()
    }
}

fn message(name: &str, field: FieldDescriptorProto) -> DescriptorProto {
    DescriptorProto { name: some(name), field: vec![field], ..Default::default() }
}

fn field(name: &str, number: i32, kind: Type, type_name: Option<String>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: some(name),
        json_name: some(name),
        number: Some(number),
        label: Some(Label::LABEL_OPTIONAL),
        r#type: Some(kind),
        type_name,
        ..Default::default()
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

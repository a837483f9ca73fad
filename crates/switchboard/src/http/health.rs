//! The descriptor of `grpc.health.v1.Health`: tools that ask reflection for each service that it lists, as grpcui does,
//! stop at one that has none.
//!
//! Names, numbers and types are those of the public `grpc/health/v1/health.proto`.

use buffa::Message;
use buffa_descriptor::generated::descriptor::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

const PACKAGE: &str = "grpc.health.v1";
const STATUS: &str = ".grpc.health.v1.HealthCheckResponse.ServingStatus";

/// By number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// An encoded `FileDescriptorSet` of the service.
pub(super) fn descriptors() -> Vec<u8> {
    let request = message("HealthCheckRequest", field("service", Type::TYPE_STRING, None));
    let mut response = message("HealthCheckResponse", field("status", Type::TYPE_ENUM, some(STATUS)));
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
    let watch = MethodDescriptorProto { server_streaming: Some(true), ..method("Watch") };
    let file = FileDescriptorProto {
        name: some("grpc/health/v1/health.proto"),
        package: some(PACKAGE),
        message_type: vec![request, response],
        service: vec![ServiceDescriptorProto {
            name: some("Health"),
            method: vec![method("Check"), watch],
            ..Default::default()
        }],
        syntax: some("proto3"),
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file], ..Default::default() }.encode_to_vec()
}

fn method(name: &str) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: some(name),
        input_type: Some(format!(".{PACKAGE}.HealthCheckRequest")),
        output_type: Some(format!(".{PACKAGE}.HealthCheckResponse")),
        ..Default::default()
    }
}

fn message(name: &str, field: FieldDescriptorProto) -> DescriptorProto {
    DescriptorProto { name: some(name), field: vec![field], ..Default::default() }
}

/// The first field of a message.
fn field(name: &str, kind: Type, type_name: Option<String>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: some(name),
        json_name: some(name),
        number: Some(1),
        label: Some(Label::LABEL_OPTIONAL),
        r#type: Some(kind),
        type_name,
        ..Default::default()
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

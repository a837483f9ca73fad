//! proto2, proto3 and, through descriptor sets, editions.

#![allow(clippy::unwrap_used)]

mod support;

use buffa::Message as _;
use buffa_codegen::generated::descriptor::{
    DescriptorProto, Edition, FeatureSet, FieldDescriptorProto, FieldOptions, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
    feature_set::FieldPresence,
    field_descriptor_proto::{Label, Type},
};
use support::{Workspace, has};

#[test]
fn proto2_knows_required_and_optional() {
    let workspace = Workspace::new("proto2_knows_required_and_optional");
    let file = workspace.file(
        "old.proto",
        r#"syntax = "proto2"; package old.v1;
           message Old { required string name = 1; optional int32 age = 2 [default = 7]; repeated int32 marks = 3; }"#,
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    has(
        &workspace.generated("old.v1.rs"),
        &[
            "pub name: ::switchboard::codegen::buffa::alloc::string::String,",
            "pub age: ::core::option::Option<i32>,",
            "pub marks: ::switchboard::codegen::buffa::alloc::vec::Vec<i32>,",
        ],
    );
}

#[test]
fn proto3_has_presence_only_where_declared() {
    let workspace = Workspace::new("proto3_has_presence_only_where_declared");
    let file = workspace.file(
        "new.proto",
        r#"syntax = "proto3"; package new.v1; message New { int32 plain = 1; optional int32 present = 2; }"#,
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    let code = workspace.generated("new.v1.rs");
    has(&code, &["pub plain: i32,", "pub present: ::core::option::Option<i32>,"]);
    assert!(!code.contains("DESCRIPTOR_SET"), "no services, no descriptors");
}

#[test]
fn editions_come_as_descriptor_sets() {
    let workspace = Workspace::new("editions_come_as_descriptor_sets");
    let set = FileDescriptorSet { file: vec![edition_file()], ..Default::default() };
    let path = workspace.file("next.binpb", set.encode_to_vec());
    workspace.emit(switchboard_build::descriptor_set(path)).unwrap();
    has(
        &workspace.generated("next.v1.rs"),
        &[
            "pub explicit: ::core::option::Option<i32>,",
            "pub implicit: i32,",
            "pub trait Next: Send + Sync + 'static",
            r#"MethodInfo::new("Go", ::switchboard::Kind::ServerStream)"#,
        ],
    );
    let embedded = FileDescriptorSet::decode_from_slice(&workspace.generated_bytes("next.v1.binpb")).unwrap();
    assert_eq!(embedded.file, [edition_file()]);
}

#[test]
fn a_set_without_its_imports_is_refused() {
    let workspace = Workspace::new("a_set_without_its_imports_is_refused");
    let mut file = edition_file();
    file.dependency.push("other.proto".into());
    let set = FileDescriptorSet { file: vec![file], ..Default::default() };
    let path = workspace.file("next.binpb", set.encode_to_vec());
    let error = workspace.emit(switchboard_build::descriptor_set(path)).unwrap_err();
    has(
        &error.to_string(),
        &["next.proto imports other.proto, which is not in the set", "--include_imports"],
    );
}

/// Returns the descriptor that `protoc` writes for a file of edition 2023 with one field of each presence.
fn edition_file() -> FileDescriptorProto {
    let mut implicit = field("implicit", 2);
    let features = FeatureSet { field_presence: Some(FieldPresence::IMPLICIT), ..Default::default() };
    implicit.options = FieldOptions { features: features.into(), ..Default::default() }.into();
    FileDescriptorProto {
        name: Some("next.proto".into()),
        package: Some("next.v1".into()),
        syntax: Some("editions".into()),
        edition: Some(Edition::EDITION_2023),
        message_type: vec![DescriptorProto {
            name: Some("M".into()),
            field: vec![field("explicit", 1), implicit],
            ..Default::default()
        }],
        service: vec![ServiceDescriptorProto {
            name: Some("Next".into()),
            method: vec![MethodDescriptorProto {
                name: Some("Go".into()),
                input_type: Some(".next.v1.M".into()),
                output_type: Some(".next.v1.M".into()),
                server_streaming: Some(true),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn field(name: &str, number: i32) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        label: Some(Label::LABEL_OPTIONAL),
        r#type: Some(Type::TYPE_INT32),
        json_name: Some(name.into()),
        ..Default::default()
    }
}

//! Error messages: each names the file, the line and the remedy.

#![allow(clippy::unwrap_used)]

mod support;

use support::Workspace;

/// Fails with the whole text if a part is missing.
#[track_caller]
fn has(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "missing: {part}\nin: {error}");
    }
}

#[test]
fn syntax_errors_have_a_position() {
    let workspace = Workspace::new("syntax_errors_have_a_position");
    let error = workspace.error("syntax = \"proto3\";\nmessage A { strin name 1; }");
    has(&error, &["test.proto:2:", "expected"]);
}

#[test]
fn unknown_types_have_a_position() {
    let workspace = Workspace::new("unknown_types_have_a_position");
    let error = workspace.error("syntax = \"proto3\";\nmessage A {\n  Missing m = 1;\n}");
    has(&error, &["test.proto:3:3", "'Missing'"]);
}

#[test]
fn missing_imports_name_the_searched_directories() {
    let workspace = Workspace::new("missing_imports_name_the_searched_directories");
    let error = workspace.error("syntax = \"proto3\";\nimport \"other.proto\";");
    has(&error, &["test.proto:2:", "'other.proto' not found", "missing_imports_name", ".include(…)"]);
}

#[test]
fn missing_files_say_where_they_were_looked_for() {
    let workspace = Workspace::new("missing_files_say_where_they_were_looked_for");
    let error = workspace.emit(switchboard_build::proto("proto/nope.proto")).unwrap_err();
    has(&error.to_string(), &["cannot read proto/nope.proto", "the path is relative to"]);
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn a_message_with_the_name_of_a_generated_item_is_named() {
    let workspace = Workspace::new("a_message_with_the_name_of_a_generated_item_is_named");
    let error = workspace.error(
        "syntax = \"proto3\";\npackage a.v1;\nmessage FooServer {}\nservice Foo {\n  rpc Go(FooServer) returns (FooServer);\n}",
    );
    assert_eq!(
        error,
        "test.proto:4: service a.v1.Foo generates `FooServer`, and so does message a.v1.FooServer (test.proto): \
         rename one of them"
    );
}

#[test]
fn a_service_with_the_name_of_a_view_is_named() {
    let workspace = Workspace::new("a_service_with_the_name_of_a_view_is_named");
    let error = workspace.error(
        "syntax = \"proto3\";\npackage a.v1;\nmessage Foo {}\nservice FooView { rpc Go(Foo) returns (Foo); }",
    );
    has(&error, &["test.proto:4: service a.v1.FooView generates `FooView`, and so does message a.v1.Foo"]);
}

#[test]
fn services_that_generate_the_same_names_are_named() {
    let workspace = Workspace::new("services_that_generate_the_same_names_are_named");
    let error = workspace.error("syntax = \"proto3\";\nservice Foo {}\nservice FooClient {}\nservice foo {}");
    has(
        &error,
        &["test.proto:3: service FooClient generates `FooClient`, and so does service Foo (test.proto:2)"],
    );
}

#[test]
fn the_same_name_for_a_message_and_a_service_is_refused() {
    let workspace = Workspace::new("the_same_name_for_a_message_and_a_service_is_refused");
    let error =
        workspace.error("syntax = \"proto3\";\nmessage Foo {}\nservice Foo { rpc Go(Foo) returns (Foo); }");
    has(&error, &["test.proto:3:9", "'Foo' is defined twice"]);
}

#[test]
fn methods_that_become_the_same_function_are_named() {
    let workspace = Workspace::new("methods_that_become_the_same_function_are_named");
    let error = workspace.error(
        "syntax = \"proto3\";\nmessage M {}\nservice Foo {\n  rpc GetIt(M) returns (M);\n  rpc get_it(M) returns (M);\n}",
    );
    assert_eq!(
        error,
        "test.proto:5: methods GetIt and get_it of Foo both become `get_it`: rename one of them"
    );
}

#[test]
fn streams_cannot_be_one_way() {
    let workspace = Workspace::new("streams_cannot_be_one_way");
    let error = workspace.error(
        "syntax = \"proto3\";\nimport \"switchboard/options.proto\";\nmessage M {}\nservice Foo {\n  \
         rpc Go(stream M) returns (M) { option (switchboard.oneway) = true; }\n}",
    );
    has(&error, &["test.proto:5: Foo/Go streams and cannot be one-way", "remove `stream`"]);
}

#[test]
fn only_a_single_reply_stays_encoded() {
    let workspace = Workspace::new("only_a_single_reply_stays_encoded");
    let error = workspace.error(
        "syntax = \"proto3\";\nimport \"switchboard/options.proto\";\nmessage M {}\nservice Foo {\n  \
         rpc Go(M) returns (stream M) { option (switchboard.encoded) = true; }\n}",
    );
    has(&error, &["test.proto:5: Foo/Go has no single reply", "remove (switchboard.encoded)"]);
}

#[test]
fn only_streams_of_replies_are_returned_as_streams() {
    let workspace = Workspace::new("only_streams_of_replies_are_returned_as_streams");
    let error = workspace.error(
        "syntax = \"proto3\";\nimport \"switchboard/options.proto\";\nmessage M {}\nservice Foo {\n  \
         rpc Go(stream M) returns (M) { option (switchboard.returns_stream) = true; }\n}",
    );
    has(&error, &["test.proto:5: Foo/Go has no stream of replies", "remove (switchboard.returns_stream)"]);
}

#[test]
fn messages_without_json_are_refused() {
    let workspace = Workspace::new("messages_without_json_are_refused");
    let error = workspace.error(
        "syntax = \"proto3\";\nimport \"google/protobuf/descriptor.proto\";\n\
         message M { google.protobuf.FileDescriptorSet set = 1; }",
    );
    has(&error, &["test.proto: .google.protobuf.FileDescriptorSet cannot be used", "as `bytes`"]);
}

#[test]
fn editions_need_a_descriptor_set() {
    let workspace = Workspace::new("editions_need_a_descriptor_set");
    let error = workspace.error("edition = \"2023\";\nmessage M {}");
    has(&error, &["test.proto:1:", ".descriptor_set(…)"]);
}

#[test]
fn a_package_is_emitted_once() {
    let workspace = Workspace::new("a_package_is_emitted_once");
    let file = workspace.file("once.proto", "syntax = \"proto3\"; package once.v1; message M {}");
    workspace.emit(switchboard_build::proto(&file)).unwrap();
    let error = workspace.emit(switchboard_build::proto(&file)).unwrap_err();
    has(&error.to_string(), &["package once.v1 was emitted before", "one builder"]);
}

#[test]
fn a_descriptor_set_must_be_one() {
    let workspace = Workspace::new("a_descriptor_set_must_be_one");
    let path = workspace.file("set.binpb", "not a descriptor set");
    let error = workspace.emit(switchboard_build::descriptor_set(path)).unwrap_err();
    has(&error.to_string(), &["set.binpb", "failed to decode"]);
}

//! The `google.api.http` option: generated code and error messages.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Workspace, has};

/// Returns a file whose only method has this option.
fn with_option(option: &str) -> String {
    with_method(&format!("rpc Get(Request) returns (Book) {{ option (google.api.http) = {{ {option} }}; }}"))
}

fn with_method(method: &str) -> String {
    format!(
        r#"syntax = "proto3";
package library.v1;
import "google/api/annotations.proto";
import "google/protobuf/timestamp.proto";
service Library {{
  {method}
}}
message Request {{ string id = 1; repeated string tags = 2; Book book = 3; google.protobuf.Timestamp at = 4; }}
message Book {{ string name = 1; Book part = 2; }}
"#
    )
}

#[test]
fn rules_become_statics() {
    let workspace = Workspace::new("rules_become_statics");
    let file = workspace.file(
        "test.proto",
        with_option(
            r#"get: "/v1/{book.part.name=books/*}/{at}:read" response_body: "name"
               additional_bindings { post: "/v1/books" body: "book" }
               additional_bindings { custom { kind: "PROPFIND" path: "/v1/**" } body: "*" }"#,
        ),
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    let code = workspace.generated("library.v1.rs");
    has(
        &code,
        &[
            r#"MethodInfo::new("Get", ::switchboard::Kind::Unary).params("#,
            r#"verb: "GET", path: "/v1/{book.part.name=books/*}/{at}:read", body: "", response_body: "name""#,
            r#"verb: "POST", path: "/v1/books", body: "book", response_body: """#,
            r#"verb: "PROPFIND", path: "/v1/**", body: "*", response_body: """#,
        ],
    );
    assert!(!code.contains("pub struct HttpRule"), "the messages of the option are not generated");
}

#[test]
fn bodies_that_are_no_json_have_a_message() {
    let workspace = Workspace::new("bodies_that_are_no_json_have_a_message");
    let source = with_method(
        r#"rpc Read(Request) returns (google.api.HttpBody) { option (google.api.http).get = "/v1/{id}"; }"#,
    )
    .replace(
        "import \"google/api/annotations.proto\";",
        "import \"google/api/annotations.proto\";\nimport \"google/api/httpbody.proto\";",
    );
    let file = workspace.file("test.proto", source);
    workspace.emit(switchboard_build::proto(file)).unwrap();
    has(&workspace.generated("google.api.rs"), &["pub struct HttpBody {"]);
    has(&workspace.generated("library.v1.rs"), &[r#"verb: "GET", path: "/v1/{id}""#]);
}

#[test]
fn own_copies_of_the_files_come_first() {
    let workspace = Workspace::new("own_copies_of_the_files_come_first");
    workspace.file("google/api/annotations.proto", "syntax = \"proto3\";\nmessage Own {");
    let file = workspace.file("test.proto", with_option("get: \"/v1\""));
    let error = workspace.emit(switchboard_build::proto(file)).unwrap_err().to_string();
    assert!(error.contains("reached end of file"), "{error}");
}

#[test]
fn rules_that_do_not_fit_are_reported_with_their_position() {
    let workspace = Workspace::new("rules_that_do_not_fit_are_reported_with_their_position");
    for (option, what) in [
        (r#"get: "/v1/{nope}""#, "GET /v1/{nope}: library.v1.Request has no field `nope`"),
        (r#"get: "/v1/{book.nope}""#, "library.v1.Book has no field `nope`"),
        (r#"get: "/v1/{id.nope}""#, "`id` is not a message and has no fields"),
        (r#"get: "/v1/{tags}""#, "`tags` is repeated"),
        (r#"get: "/v1/{book}""#, "`book` is a library.v1.Book: name one of its fields"),
        (r#"get: "/v1/{id""#, "path /v1/{id: a brace is not closed"),
        (r#"get: "v1""#, "it must begin with a slash"),
        (r#"get: "/v1" body: "*""#, "a GET has no body"),
        (r#"post: "/v1" body: "nope""#, "body: library.v1.Request has no field `nope`"),
        (r#"post: "/v1/{id}" body: "id""#, "`id` is both in the path and the body"),
        (r#"get: "/v1" response_body: "id""#, "response_body: library.v1.Book has no field `id`"),
        (r#"body: "*""#, "has no verb and path"),
        (
            r#"get: "/v1" additional_bindings { get: "/v2" additional_bindings { get: "/v3" } }"#,
            "additional_bindings inside of additional_bindings",
        ),
        (r#"get: "/v1/*" additional_bindings { get: "/v1/{id}" }"#, "library.v1.Library/Get has this path"),
    ] {
        let error = workspace.error(&with_option(option));
        assert!(error.contains(what), "{option}: {error}");
        assert!(error.contains("test.proto") && error.contains("library.v1.Library/Get"), "{error}");
    }
    let error = workspace.error(&with_option(r#"get: "/v1/{nope}""#));
    assert!(error.starts_with("test.proto:6: library.v1.Library/Get: GET /v1/{nope}: "), "{error}");
    let stream = r#"rpc Put(stream Request) returns (Book) { option (google.api.http) = { post: "/v1/{id}" body: "*" }; }"#;
    let error = workspace.error(&with_method(stream));
    assert!(
        error.contains("a stream of requests needs `body: \"*\"` and a path without variables"),
        "{error}"
    );
}

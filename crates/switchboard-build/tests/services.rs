//! Generated code for services: names, kinds, options, paths and comments.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Workspace, fold, has};

const KINDS: &str = r#"
syntax = "proto3";
package demo.v1;

// Greets in [every] kind of call.
service Greeter {
  // One greeting.
  rpc Greet(Text) returns (Text) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Watch(Text) returns (stream Number);
  rpc Sum(stream Number) returns (Text);
  rpc Chat(stream Text) returns (stream Number);
}

message Text { string text = 1; }
message Number { int64 value = 1; }
"#;

#[test]
fn parameters_are_the_json_names_by_number() {
    let workspace = Workspace::new("parameters_are_the_json_names_by_number");
    let file = workspace.file(
        "demo.proto",
        r#"
syntax = "proto3";
package demo.v1;
import "google/protobuf/wrappers.proto";
service Names {
  rpc All(Outer.Inner) returns (Outer);
  rpc Well(google.protobuf.StringValue) returns (Outer);
}
message Outer {
  message Inner {
    string third_one = 9;
    int32 _x = 2;
    oneof o { bool a_b = 1; bool c = 3 [json_name = "see"]; }
  }
}
"#,
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    has(
        &workspace.generated("demo.v1.rs"),
        &[
            r#"Fields(&["aB", "X", "see", "thirdOne"]))"#,
            r#"MethodInfo::new("Well", ::switchboard::Kind::Unary),"#,
        ],
    );
}

#[test]
fn every_kind_has_its_signatures() {
    let workspace = Workspace::new("every_kind_has_its_signatures");
    let file = workspace.file("demo.proto", KINDS);
    workspace.emit(switchboard_build::proto(file)).unwrap();
    let code = workspace.generated("demo.v1.rs");
    has(
        &code,
        &[
            "pub static GREETER: ::switchboard::ServiceInfo",
            r#"name: "demo.v1.Greeter""#,
            r#"MethodInfo::new("Greet", ::switchboard::Kind::Unary).idempotency(::switchboard::Idempotency::NoSideEffects).params(::switchboard::Params::Fields(&["text"]))"#,
            r#"MethodInfo::new("Watch", ::switchboard::Kind::ServerStream).params(::switchboard::Params::Fields(&["text"]))"#,
            r#"MethodInfo::new("Sum", ::switchboard::Kind::ClientStream)"#,
            r#"MethodInfo::new("Chat", ::switchboard::Kind::Bidi)"#,
            r"/// Greets in \[every\] kind of call.",
            "pub trait Greeter: Send + Sync + 'static {",
            "/// One greeting. fn greet(&self, request: TextView<'_>, cx: &::switchboard::Cx) -> impl \
             ::core::future::Future<Output = ::switchboard::Result<Text>> + Send;",
            "fn watch(&self, request: TextView<'_>, cx: &::switchboard::Cx, out: ::switchboard::Sender<Number>)",
            "fn sum(&self, input: ::switchboard::Receiver<Number>, cx: &::switchboard::Cx) -> impl \
             ::core::future::Future<Output = ::switchboard::Result<Text>> + Send;",
            "fn chat(&self, input: ::switchboard::Receiver<Text>, cx: &::switchboard::Cx, out: \
             ::switchboard::Sender<Number>)",
            "pub struct GreeterServer<T>",
            "impl<T: Greeter> ::switchboard::Service for GreeterServer<T>",
            "pub fn greet(&self, request: impl ::core::borrow::Borrow<Text>) -> ::switchboard::UnaryCall<Text>",
            "pub fn watch(&self, request: impl ::core::borrow::Borrow<Text>) -> ::switchboard::ServerStreamCall<Number>",
            "pub fn sum(&self) -> ::switchboard::ClientStreamCall<Number, Text>",
            "pub fn chat(&self) -> ::switchboard::BidiCall<Text, Number>",
            r#"path: "demo.v1.Greeter/Greet""#,
            "impl GreeterApi for GreeterClient {",
            "async fn greet(&self, request: Text) -> ::switchboard::Result<Text> { \
             Ok(GreeterClient::greet(self, request).await?.into_inner()) }",
        ],
    );
}

#[test]
fn options_of_methods_are_honoured() {
    let workspace = Workspace::new("options_of_methods_are_honoured");
    let source = r#"
        syntax = "proto3";
        package log.v1;
        import "switchboard/options.proto";
        import "google/protobuf/empty.proto";
        service Log {
          rpc Note(Line) returns (google.protobuf.Empty) { option (switchboard.oneway) = true; }
          rpc Sort(Line) returns (Line) {
            option (switchboard.spawn) = true;
            option (switchboard.owned) = true;
            option idempotency_level = IDEMPOTENT;
          }
          rpc Plain(Line) returns (Line) { option (switchboard.owned) = false; }
        }
        message Line { string text = 1; }
    "#;
    let file = workspace.file("log.proto", source);
    workspace.emit(switchboard_build::proto(file)).unwrap();
    has(
        &workspace.generated("log.v1.rs"),
        &[
            r#"MethodInfo::new("Note", ::switchboard::Kind::Unary).oneway()"#,
            r#"MethodInfo::new("Sort", ::switchboard::Kind::Unary).idempotency(::switchboard::Idempotency::Idempotent).spawn()"#,
            "fn note(&self, request: LineView<'_>, cx: &::switchboard::Cx) -> impl \
             ::core::future::Future<Output = ::switchboard::Result<()>> + Send;",
            "pub fn note(&self, request: impl ::core::borrow::Borrow<Line>) -> ::switchboard::OnewayCall",
            "fn sort(&self, request: Line, cx: &::switchboard::Cx)",
            "fn plain(&self, request: LineView<'_>, cx: &::switchboard::Cx)",
            "Ok(::switchboard::Reply::one(::switchboard::codegen::Bytes::new(), cx))",
        ],
    );
}

#[test]
fn encoded_replies_are_sent_unchanged() {
    let workspace = Workspace::new("encoded_replies_are_sent_unchanged");
    let file = workspace.file(
        "log.proto",
        r#"syntax = "proto3"; package log.v1; import "switchboard/options.proto"; message Line {}
           service Log { rpc Top(Line) returns (Line) { option (switchboard.encoded) = true; } }"#,
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    let code = workspace.generated("log.v1.rs");
    has(
        &code,
        &[
            "Result<::switchboard::Encoded<Line>>",
            "reply.into_reply(codec).map_err(|status| cx.failed(status))?",
        ],
    );
}

const RETURNED: &str = "Output = ::switchboard::Result<impl \
    ::switchboard::codegen::Stream<Item = ::switchboard::Result<Number>> + Send>> + Send;";

#[test]
fn streams_of_replies_are_returned_by_one_method_or_all() {
    let workspace = Workspace::new("streams_of_replies_are_returned_by_one_method_or_all");
    let option = "import \"switchboard/options.proto\";\npackage demo.v1;";
    let one = KINDS.replace("package demo.v1;", option);
    let one = one.replace(
        "rpc Watch(Text) returns (stream Number);",
        "rpc Watch(Text) returns (stream Number) { option (switchboard.returns_stream) = true; }",
    );
    let one = workspace.file("one/demo.proto", one);
    workspace.emit(switchboard_build::proto(one)).unwrap();
    let code = workspace.generated("demo.v1.rs");
    let watch = format!(
        "fn watch(&self, request: TextView<'_>, cx: &::switchboard::Cx) -> impl ::core::future::Future<{RETURNED}"
    );
    let run = "let replies = T::watch(&service, request, &cx).await?; out.pipe(replies).await?; Ok(())";
    has(&code, &[&watch, run, "cx: &::switchboard::Cx, out: ::switchboard::Sender<Number>)"]);

    let workspace = Workspace::new("streams_of_replies_are_returned_by_all");
    let file = workspace.file("demo.proto", KINDS);
    workspace.emit(switchboard_build::proto(file).returns_streams()).unwrap();
    let code = workspace.generated("demo.v1.rs");
    let count = |text: &str| code.matches(&fold(text)).count();
    assert_eq!((count(RETURNED), count("out.pipe(replies).await?;")), (2, 2), "{code}");
    assert_eq!(count("out: ::switchboard::Sender<"), 0, "{code}");
    has(&code, &["-> impl ::core::future::Future<Output = ::switchboard::Result<Text>> + Send;"]);
}

#[test]
fn owned_applies_to_every_method() {
    let workspace = Workspace::new("owned_applies_to_every_method");
    let file = workspace.file("demo.proto", KINDS);
    workspace.emit(switchboard_build::proto(file).owned()).unwrap();
    let code = workspace.generated("demo.v1.rs");
    has(
        &code,
        &[
            "fn greet(&self, request: Text, cx: &::switchboard::Cx)",
            "let request = ::switchboard::codegen::read_request(&cx, codec, bytes, \
        ::switchboard::codegen::codec::proto::decode::<Text>, \
        ::switchboard::codegen::codec::proto::decode_strict::<Text>)?;",
        ],
    );
    assert!(!code.contains("request: TextView"));
}

#[test]
fn messages_of_other_packages_nested_and_well_known_are_found() {
    let workspace = Workspace::new("messages_of_other_packages_nested_and_well_known_are_found");
    workspace.file(
        "proto/common/v1/money.proto",
        r#"syntax = "proto3"; package common.v1; message Money { int64 units = 1; message Rate { double rate = 1; } }"#,
    );
    workspace
        .file("proto/unused/v1/unused.proto", r#"syntax = "proto3"; package unused.v1; message Unused {}"#);
    let shop = workspace.file(
        "proto/shop/v1/shop.proto",
        r#"
        syntax = "proto3";
        package shop.v1;
        import "common/v1/money.proto";
        import "unused/v1/unused.proto";
        import "google/protobuf/timestamp.proto";
        service Shop { rpc Buy(Order.Line) returns (common.v1.Money); rpc Rate(common.v1.Money.Rate) returns (Order); }
        service Clock { rpc Now(google.protobuf.Timestamp) returns (google.protobuf.Timestamp); }
        message Order { message Line { string sku = 1; } common.v1.Money total = 1; }
        "#,
    );
    workspace.emit(switchboard_build::proto(shop)).unwrap();
    let well_known = "::switchboard::codegen::buffa_types::google::protobuf";
    has(
        &workspace.generated("shop.v1.rs"),
        &[
            "fn buy(&self, request: __buffa::view::order::LineView<'_>, cx: &::switchboard::Cx) -> impl \
             ::core::future::Future<Output = ::switchboard::Result<super::super::common::v1::Money>> + Send;",
            "request: super::super::common::v1::__buffa::view::money::RateView<'_>",
            &format!("request: {well_known}::__buffa::view::TimestampView<'_>"),
            "pub static SHOP:",
            "pub static CLOCK:",
        ],
    );
    has(&workspace.generated("common.v1.rs"), &["pub struct Money {"]);
    let all = workspace.generated("_all.rs");
    has(&all, &[r#"pub mod shop {"#, r#"include!("shop.v1.rs")"#, r#"include!("common.v1.rs")"#]);
    assert!(!all.contains("unused.v1"), "{all}");
    let descriptors = workspace.generated_bytes("shop.v1.binpb");
    for name in ["shop/v1/shop.proto", "common/v1/money.proto", "google/protobuf/timestamp.proto"] {
        assert!(descriptors.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
    }
}

#[test]
fn generated_code_needs_no_crate_but_switchboard() {
    let workspace = Workspace::new("generated_code_needs_no_crate_but_switchboard");
    let file = workspace.file("demo.proto", KINDS);
    workspace.emit(switchboard_build::proto(file)).unwrap();
    let code = workspace.generated("demo.v1.rs");
    has(
        &code,
        &[
            r#"#[serde(crate = "::switchboard::codegen::serde")]"#,
            "impl ::switchboard::codegen::buffa::Message for Text",
            r#"with = "::switchboard::codegen::buffa::json_helpers::int64""#,
        ],
    );
    for krate in ["::buffa::", "::serde::", "::serde_json::", "::buffa_types::"] {
        let rest = code.replace(&format!("codegen{krate}"), "");
        assert!(!rest.contains(krate), "{krate} is reached without switchboard");
    }
}

#[test]
fn existing_code_is_used_for_extern_paths() {
    let workspace = Workspace::new("existing_code_is_used_for_extern_paths");
    workspace.file("common.proto", r#"syntax = "proto3"; package common.v1; message Money {}"#);
    let shop = workspace.file(
        "shop.proto",
        r#"syntax = "proto3"; package shop.v1; import "common.proto";
           service Shop { rpc Buy(common.v1.Money) returns (common.v1.Money); }"#,
    );
    workspace.emit(switchboard_build::proto(shop).extern_path("common.v1", "::prices::common::v1")).unwrap();
    has(
        &workspace.generated("shop.v1.rs"),
        &[
            "request: ::prices::common::v1::__buffa::view::MoneyView<'_>",
            "Result<::prices::common::v1::Money>",
        ],
    );
    assert!(!workspace.generated("_all.rs").contains("common.v1"));
}

#[test]
fn names_that_rust_has_already_are_escaped() {
    let workspace = Workspace::new("names_that_rust_has_already_are_escaped");
    let file = workspace.file(
        "odd.proto",
        r#"
        syntax = "proto3";
        service Odd { rpc Type(T) returns (Send); rpc Self(T) returns (T); rpc Connect(T) returns (T); }
        message T { string type = 1; string self = 2; }
        message Send {}
        "#,
    );
    workspace.emit(switchboard_build::proto(file)).unwrap();
    has(
        &workspace.generated("_.rs"),
        &[
            r#"name: "Odd""#,
            r#"path: "Odd/Type""#,
            "pub trait Odd: ::core::marker::Send + Sync + 'static",
            "pub struct OddServer<Handler>",
            "fn r#type(&self, request: TView<'_>",
            "fn self_(&self",
            "pub fn connect_(&self, request: impl ::core::borrow::Borrow<T>)",
            "pub r#type:",
            "pub self_:",
        ],
    );
}

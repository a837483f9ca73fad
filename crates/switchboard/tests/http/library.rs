//! A service with HTTP paths that answers each message with itself.

use std::sync::LazyLock;
use switchboard::{
    Call, Codec, HttpRule,
    Idempotency::NoSideEffects,
    Kind, MethodInfo, Receiver, Reply, Result, Running, Server, Service, ServiceInfo, Status,
    codegen::{Bytes, stream_reply},
};

const SCHEMA: &str = r#"
syntax = "proto3";
package library.v1;
import "google/protobuf/duration.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

service Library {
  // Finds a book.
  rpc Get(Kinds) returns (Kinds);
  rpc Put(Kinds) returns (Kinds);
  rpc Title(Kinds) returns (Kinds);
  rpc File(Kinds) returns (google.api.HttpBody);
  rpc Upload(google.api.HttpBody) returns (google.api.HttpBody);
  rpc Follow(Kinds) returns (stream Kinds);
  rpc Load(stream Kinds) returns (Kinds);
  rpc Fail(Kinds) returns (Kinds);
}

enum Color { GREY = 0; RED = 1; DARK_BLUE = 2; }

// Every kind of field.
message Kinds {
  bool flag = 1;
  bytes data = 2;
  double ratio = 3;
  int32 small = 4;
  int64 large = 5;
  uint32 count = 6;
  fixed64 hash = 7;
  string text = 8;
  Color color = 9;
  repeated int64 numbers = 10;
  repeated Color colors = 11;
  Inner inner = 12;
  google.protobuf.Timestamp at = 13;
  google.protobuf.Duration wait_time = 14;
  google.protobuf.FieldMask mask = 15;
  google.protobuf.Int64Value maybe = 16;
  google.protobuf.StringValue note = 17;
  map<string, string> labels = 18;
  repeated Inner inners = 19;
  string book_id = 20;
  oneof pick { string left = 21; int32 right = 22; }
}

message Inner {
  // What it is called.
  string name = 1;
  Inner deeper = 2;
}
"#;

/// Google's message, in a package of its own because it is one.
const HTTP_BODY: &str = r#"
syntax = "proto3";
package google.api;
message HttpBody { string content_type = 1; bytes data = 2; }
"#;

const fn rule(verb: &'static str, path: &'static str) -> HttpRule {
    HttpRule { verb, path, body: "", response_body: "" }
}

const fn body(verb: &'static str, path: &'static str, body: &'static str) -> HttpRule {
    HttpRule { verb, path, body, response_body: "" }
}

const METHODS: &[MethodInfo] = &[
    MethodInfo::new("Get", Kind::Unary).idempotency(NoSideEffects).http(&[
        rule("GET", "/v1/books/{book_id}"),
        rule("GET", "/v1/{text=shelves/*/books/*}"),
        rule("GET", "/v1/files/{text=**}"),
        rule("GET", "/v1/books/new"),
        rule("GET", "/v1/books/{book_id}:peek"),
        rule("GET", "/v1/inner/{inner.name}/{inner.deeper.name}"),
        rule("GET", "/v1/kinds/{color}/{small}/{data}/{at}"),
        rule("GET", "/v1/books"),
        rule("DELETE", "/v1/books/{book_id}"),
    ]),
    MethodInfo::new("Put", Kind::Unary).http(&[
        body("POST", "/v1/books", "*"),
        body("PUT", "/v1/books/{book_id}", "*"),
        body("PATCH", "/v1/books/{inner.name}", "inner"),
        body("PROPFIND", "/v1/books", "*"),
    ]),
    MethodInfo::new("Title", Kind::Unary).idempotency(NoSideEffects).http(&[
        HttpRule { verb: "GET", path: "/v1/title", body: "", response_body: "text" },
        HttpRule { verb: "GET", path: "/v1/numbers", body: "", response_body: "numbers" },
    ]),
    MethodInfo::new("File", Kind::Unary).idempotency(NoSideEffects).http(&[rule("GET", "/v1/file")]),
    MethodInfo::new("Upload", Kind::Unary).http(&[body("POST", "/v1/file", "*")]),
    MethodInfo::new("Follow", Kind::ServerStream)
        .idempotency(NoSideEffects)
        .http(&[rule("GET", "/v1/follow")]),
    MethodInfo::new("Load", Kind::ClientStream).http(&[body("POST", "/v1/load", "*")]),
    MethodInfo::new("Fail", Kind::Unary).idempotency(NoSideEffects).http(&[rule("GET", "/v1/fail")]),
];

pub(crate) static LIBRARY: LazyLock<ServiceInfo> = LazyLock::new(|| ServiceInfo {
    name: "library.v1.Library",
    methods: METHODS,
    descriptor: descriptor().leak(),
});

/// The descriptors of the schema, comments included.
pub(crate) fn descriptor() -> Vec<u8> {
    struct Files;
    impl protox::file::FileResolver for Files {
        fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
            let with_import = SCHEMA.replace(
                "import \"google/protobuf/dur",
                "import \"body.proto\";\nimport \"google/protobuf/dur",
            );
            match name {
                "library.proto" => protox::file::File::from_source(name, &with_import),
                "body.proto" => protox::file::File::from_source(name, HTTP_BODY),
                _ => protox::file::GoogleFileResolver::new().open_file(name),
            }
        }
    }
    let mut compiler = protox::Compiler::with_file_resolver(Files);
    compiler.include_imports(true).include_source_info(true).open_file("library.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

pub(crate) struct Library;

/// A server on a port of its own.
pub(crate) async fn start(change: impl FnOnce(Server) -> Server) -> Running {
    change(Server::new().add(Library).listen("tcp://127.0.0.1:0")).start().await.unwrap()
}

/// The messages pass as they are.
fn same(message: &Bytes, _: Codec) -> Result<Bytes> {
    Ok(message.clone())
}

impl Service for Library {
    fn info(&self) -> &'static ServiceInfo {
        &LIBRARY
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        match call.cx().method().name {
            "Follow" => {
                let (message, cx) = call.into_one()?;
                Ok(stream_reply(cx, codec, same, |cx, out| async move {
                    cx.reply_metadata("x-head", "first")?;
                    for _ in 0..2 {
                        out.send(message.clone()).await?;
                    }
                    if &message[..] == br#"{"text":"hang"}"# {
                        std::future::pending::<()>().await;
                    }
                    cx.reply_trailer("x-end", "bye")?;
                    match &message[..] {
                        br#"{"text":"fail"}"# => Err(Status::aborted("half way")),
                        _ => Ok(()),
                    }
                }))
            }
            "Load" => {
                let (raw, cx) = call.into_many();
                let mut input = Receiver::of_request(raw, codec, |_, message| Ok(message));
                let mut last = Bytes::from_static(b"{}");
                let mut count = 0;
                while let Some(message) = input.next().await? {
                    (last, count) = (message, count + 1);
                }
                cx.reply_metadata("x-count", count.to_string())?;
                Ok(Reply::one(last, cx))
            }
            "Fail" => Err(Status::not_found("no such book").with_detail("library.v1.Why", &b"\x08\x01"[..])),
            "File" => {
                let (_, cx) = call.into_one()?;
                let file = r#"{"contentType":"text/csv","data":"YSxiCg=="}"#;
                Ok(Reply::one(bytes::Bytes::from(file), cx))
            }
            _ => {
                let (message, cx) = call.into_one()?;
                for (name, value) in cx.metadata().iter().filter(|(name, _)| name.starts_with("x-")) {
                    cx.reply_metadata(name, value.clone())?;
                    cx.reply_trailer(name, value.clone())?;
                }
                if let Some(left) = cx.time_left() {
                    cx.reply_metadata("x-left", if left.as_secs() < 60 { "some" } else { "much" })?;
                }
                cx.reply_metadata("x-wire", cx.peer().wire())?;
                Ok(Reply::one(message, cx))
            }
        }
    }
}

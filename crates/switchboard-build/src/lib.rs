//! Generates Switchboard services and messages from `.proto` files, in build scripts. No `protoc` is needed.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), switchboard_build::Error> {
//!     switchboard_build::proto("proto/greet.proto").emit()
//! }
//! ```
//!
//! and in the crate, which needs no other dependency than `switchboard`:
//!
//! ```ignore
//! switchboard::include_proto!("demo.v1");
//! ```
//!
//! # Generated items
//!
//! Each package generates one file, `<package>.rs`, with the items of that package: messages and their views, and for
//! each service `Greeter`
//!
//! | item | purpose |
//! | --- | --- |
//! | `Greeter` | the trait that handlers implement |
//! | `GreeterServer` | makes a service from a handler |
//! | `GreeterClient` | calls the service |
//! | `GreeterApi` | the methods that callers use: implemented by the client, and by fakes in tests |
//! | `GREETER` | its name, methods and descriptor |
//!
//! The descriptors of the package and all its imports are written beside it to `<package>.binpb`, and are in the
//! generated `DESCRIPTOR_SET`. A package without a name is called `_`.
//!
//! Packages refer to each other by relative paths, as nested modules. If one uses messages of another, either include
//! the file `_all.rs`, which nests every package that the build script emitted, or nest them manually:
//!
//! ```ignore
//! switchboard::include_proto!();                                           // all: demo::v1::…, common::v1::…
//!
//! mod demo { pub mod v1 { switchboard::include_proto!("demo.v1"); } }      // the same manually
//! mod common { pub mod v1 { switchboard::include_proto!("common.v1"); } }
//! ```
//!
//! Messages of imported files are generated too if a generated item uses them. Well-known types
//! (`google.protobuf.Timestamp` and the like) come from `buffa-types`.
//!
//! # Names
//!
//! Methods become `snake_case`. Rust keywords are written `r#type`, or with a trailing underscore if a raw identifier
//! is impossible (`self_`). Methods with the name of a client function also get a trailing underscore: `connect_`,
//! `new_`, `local_`, `channel_`, `with_codec_`.
//!
//! # Method options
//!
//! ```proto
//! import "switchboard/options.proto";     // known to the compiler, no copy is needed
//!
//! service Log {
//!   rpc Note(Line) returns (google.protobuf.Empty) { option (switchboard.oneway) = true; }
//!   rpc Sort(Lines) returns (Lines) { option (switchboard.spawn) = true; option (switchboard.owned) = true; }
//!   rpc Find(Query) returns (Lines) { option idempotency_level = NO_SIDE_EFFECTS; }
//!   rpc Top(Query) returns (Lines) { option (switchboard.encoded) = true; }
//!   rpc Tail(Query) returns (stream Line) { option (switchboard.returns_stream) = true; }
//! }
//! ```
//!
//! # Streams of replies
//!
//! A handler sends its replies to a `Sender`, which is its last argument, or returns them as a stream: with
//! `(switchboard.returns_stream)`, or with [`Proto::returns_streams`] for all methods with a stream of replies. For
//! callers there is no difference.
//!
//! ```ignore
//! async fn tail(&self, query: QueryView<'_>, cx: &Cx, out: Sender<Line>) -> Result<()>;
//! async fn tail(&self, query: QueryView<'_>, cx: &Cx) -> Result<impl Stream<Item = Result<Line>> + Send>;
//! ```
//!
//! `Stream` is that of the crates `futures-core`, `futures` and `tokio-stream`. The stream may borrow from the handler,
//! the request and the context.
//!
//! # HTTP paths
//!
//! Every method is available as `POST /package.Service/Method`. Further paths come from the option of Google's API
//! files, which the compiler knows too:
//!
//! ```proto
//! import "google/api/annotations.proto";  // and google/api/httpbody.proto, for replies that are not JSON
//!
//! service Library {
//!   rpc GetBook(GetBookRequest) returns (Book) {
//! option idempotency_level = NO_SIDE_EFFECTS;  // otherwise GET requires a header that browsers do not send by default
//!     option (google.api.http) = {
//!       get: "/v1/{name=shelves/*/books/*}"
//!       additional_bindings { get: "/v1/books/{id}" }
//!     };
//!   }
//!   rpc AddBook(AddBookRequest) returns (Book) {
//!     option (google.api.http) = { post: "/v1/{parent=shelves/*}/books" body: "book" };
//!   }
//! }
//! ```
//!
//! A rule that does not match the messages, and the same path for two methods, fail the build.
//!
//! # Thrift
//!
//! `.thrift` files are read in the same way, and generate the same items for a service:
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), switchboard_build::Error> {
//!     switchboard_build::thrift("thrift/calculator.thrift").emit()
//! }
//! ```
//!
//! The package is the namespace for `rs`, the namespace for `*`, or the name of the file; include it with
//! `include_proto!` like a `.proto` package. Structs become structs, unions enums, enums numbers with names, exceptions
//! structs that convert to a `Status` and back. Methods take their arguments one by one. Fields that are `optional`,
//! and fields that would make a type infinite, are `Option`s. A method may be annotated with `(switchboard.spawn)`,
//! `(switchboard.idempotent)` and `(switchboard.read_only)`, an exception with `(switchboard.code = "not_found")`.
//!
//! Programs that read `.thrift` files at run time find the declarations in [`interface`].
//!
//! # FlatBuffers
//!
//! `.fbs` files with an `rpc_service` are read in the same way:
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), switchboard_build::Error> {
//!     switchboard_build::flatbuffers("fbs/monster.fbs").emit()
//! }
//! ```
//!
//! The package is the namespace, or the name of the file. Tables and structs become structs, unions enums, enums
//! numbers with names. A missing vector is empty; other fields are `Option`s unless they are `required` or have a
//! default. Methods take and return a table. They may be marked `(streaming: "client")`, `"server"` or `"bidi"`,
//! `(idempotent)`, and with the attributes `switchboard_oneway`, `switchboard_spawn` and `switchboard_read_only`, if
//! the file declares these: `attribute "switchboard_spawn";`.
//!
//! Programs that read `.fbs` files at run time find the declarations in [`flatbuffers_interface`]. Without the feature
//! `codegen` this crate contains only this module and [`interface`].
//!
//! # Editions
//!
//! The built-in compiler reads proto2 and proto3. Files of an edition require `protoc` or `buf`: run `protoc
//! --include_imports --include_source_info -o greet.binpb greet.proto`, or `buf build -o greet.binpb`, then
//! `switchboard_build::descriptor_set("greet.binpb").emit()`.

#[cfg(feature = "codegen")]
mod builder;
#[cfg(feature = "codegen")]
mod client;
#[cfg(feature = "codegen")]
mod collisions;
mod cursor;
#[cfg(feature = "codegen")]
mod docs;
mod error;
mod flatbuffers;
#[cfg(feature = "codegen")]
mod http_rules;
#[cfg(feature = "codegen")]
mod idl;
mod imports;
#[cfg(feature = "codegen")]
mod in_order;
#[cfg(feature = "codegen")]
mod inlining;
mod lexer;
#[cfg(feature = "codegen")]
mod lints;
#[cfg(feature = "codegen")]
mod names;
#[cfg(feature = "codegen")]
mod open_enum;
#[cfg(feature = "codegen")]
mod package;
#[cfg(feature = "codegen")]
mod runtime_paths;
#[cfg(feature = "codegen")]
mod schema;
#[cfg(feature = "codegen")]
mod server;
#[cfg(feature = "codegen")]
mod service;
mod thrift;

#[cfg(feature = "codegen")]
pub use builder::Proto;
pub use error::Error;
pub use flatbuffers::interface as flatbuffers_interface;
#[cfg(feature = "codegen")]
pub use idl::Idl;
pub use imports::IMPORTS;
pub use thrift::interface;

#[cfg(feature = "codegen")]
use std::path::Path;

/// Creates a builder with one `.proto` file; more can be added.
#[cfg(feature = "codegen")]
#[must_use = "nothing is generated before .emit()"]
pub fn proto(file: impl AsRef<Path>) -> Proto {
    Proto::default().proto(file)
}

/// Creates a builder with a descriptor set that `protoc` or `buf` wrote, including imports.
#[cfg(feature = "codegen")]
#[must_use = "nothing is generated before .emit()"]
pub fn descriptor_set(path: impl AsRef<Path>) -> Proto {
    Proto::default().descriptor_set(path)
}

/// Creates a builder with one `.thrift` file; more can be added.
#[cfg(feature = "codegen")]
#[must_use = "nothing is generated before .emit()"]
pub fn thrift(file: impl AsRef<Path>) -> Idl {
    Idl::new(idl::Language::Thrift, file.as_ref())
}

/// Creates a builder with one `.fbs` file; more can be added.
#[cfg(feature = "codegen")]
#[must_use = "nothing is generated before .emit()"]
pub fn flatbuffers(file: impl AsRef<Path>) -> Idl {
    Idl::new(idl::Language::FlatBuffers, file.as_ref())
}

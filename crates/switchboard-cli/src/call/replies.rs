//! Replies: decodes messages so that every `Any` in them can be written as JSON.
//!
//! Types that appear only in an `Any` are queried from the server. An unknown type is written as its bytes, in base64,
//! under the name `value`.

use super::{bytes::Digits, failure::Failure, flatbuffers::Procedure, schema::Schema, thrift::Function};
use bytes::{Bytes, BytesMut};
use prost::{Message, encoding};
use prost_reflect::{
    DynamicMessage, MessageDescriptor, ReflectMessage, Value,
    prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, field_descriptor_proto::Type},
};
use std::collections::BTreeSet;
use switchboard::{Codec, Detail, Status};

/// Deepest nesting of messages, including those in an `Any`: deeper messages could exhaust the stack.
const DEPTH_MAX: usize = 128;
/// Most unknown types: each costs a query to the server and an entry in the schema.
const OPAQUE_MAX: usize = 256;

/// A reply that can be written as JSON.
#[derive(Debug)]
pub(super) enum Reply {
    Message(DynamicMessage),
    Raw(serde_json::Value),
    /// A table of FlatBuffers.
    Table(Procedure, Bytes),
}

/// Decodes the replies of a method.
#[derive(Debug)]
pub(super) struct Replies {
    schema: Schema,
    form: Form,
    /// Types that are unknown to the server.
    opaque: BTreeSet<String>,
}

/// The form of the reply bytes.
#[derive(Debug)]
enum Form {
    /// A message.
    Message(MessageDescriptor),
    /// Any bytes; in JSON a text of these digits.
    Bytes(Digits),
    /// Any JSON.
    Raw,
    /// The result of this method, in Thrift's binary protocol.
    Result(Function),
    /// A table of this method, in FlatBuffers.
    Table(Procedure),
}

impl Replies {
    /// Creates a reader of replies that are messages.
    pub(super) fn new(schema: Schema, message: MessageDescriptor) -> Replies {
        Replies { schema, form: Form::Message(message), opaque: BTreeSet::new() }
    }

    /// Creates a reader of replies that are any JSON.
    pub(super) fn raw() -> Replies {
        Replies { schema: Schema::empty(), form: Form::Raw, opaque: BTreeSet::new() }
    }

    /// Creates a reader of replies that are bytes.
    pub(super) fn bytes(digits: Digits) -> Replies {
        Replies { form: Form::Bytes(digits), ..Replies::raw() }
    }

    /// Creates a reader of replies of a method of a `.thrift` file.
    pub(super) fn of_function(function: Function) -> Replies {
        Replies { schema: Schema::empty(), form: Form::Result(function), opaque: BTreeSet::new() }
    }

    /// Creates a reader of replies of a method of a `.fbs` file.
    pub(super) fn of_procedure(procedure: Procedure) -> Replies {
        Replies { form: Form::Table(procedure), ..Replies::raw() }
    }

    /// Decodes the message of a reply.
    pub(super) async fn read(&mut self, codec: Codec, bytes: Bytes) -> Result<Reply, Failure> {
        let message = match &self.form {
            Form::Message(message) => message,
            Form::Bytes(digits) => return Ok(Reply::Raw(digits.encode(&bytes).into())),
            Form::Raw if codec != Codec::Json => {
                let text = format!(
                    "the server replied in {codec}, not in JSON: name its .proto file with --proto, or --bytes to see the bytes"
                );
                return Err(Status::internal(text).into());
            }
            Form::Raw => {
                let read = serde_json::from_slice(&bytes);
                let read =
                    read.map_err(|error| Status::internal(format!("the reply is not JSON: {error}")))?;
                return Ok(Reply::Raw(read));
            }
            Form::Table(procedure) => return Ok(Reply::Table(procedure.clone(), bytes)),
            Form::Result(function) => return Ok(Reply::Raw(function.read(&bytes)?)),
        };
        let name = message.full_name().to_owned();
        if codec == Codec::Json {
            let mut json = serde_json::Deserializer::from_slice(&bytes);
            let read = DynamicMessage::deserialize(message.clone(), &mut json);
            let wrong = |error| Status::internal(format!("the reply is not a {name} in JSON: {error}"));
            return Ok(Reply::Message(read.map_err(wrong)?));
        }
        self.read_as(name, bytes).await.map(Reply::Message)
    }

    /// Decodes a detail of a status, in the JSON that an `Any` has.
    pub(super) async fn read_detail(&mut self, detail: &Detail) -> Result<DynamicMessage, Failure> {
        let mut any = BytesMut::new();
        encoding::string::encode(1, &format!("type.googleapis.com/{}", detail.type_name), &mut any);
        encoding::bytes::encode(2, &detail.value, &mut any);
        self.read_as("google.protobuf.Any".into(), any.freeze()).await
    }

    async fn read_as(&mut self, name: String, bytes: Bytes) -> Result<DynamicMessage, Failure> {
        loop {
            // Each iteration adds types to the schema; messages of the previous one do not have them.
            let descriptor = self
                .schema
                .pool
                .get_message_by_name(&name)
                .ok_or_else(|| Failure::from(Status::internal(format!("the schema has no {name}"))))?;
            let mut message = DynamicMessage::decode(descriptor, bytes.clone()).map_err(|error| {
                Status::internal(format!("the reply is not a {name} in protobuf: {error}"))
            })?;
            let mut visit = Visit { opaque: &self.opaque, unknown: BTreeSet::new() };
            visit.message(&mut message, 0)?;
            if visit.unknown.is_empty() {
                return Ok(message);
            }
            for unknown in visit.unknown {
                if self.opaque.len() == OPAQUE_MAX {
                    let text = format!("the reply's Anys have over {OPAQUE_MAX} unknown types");
                    return Err(Status::resource_exhausted(text).into());
                }
                self.learn(unknown).await;
            }
        }
    }

    /// Adds the details that every server may send.
    fn learn_standard_details(&mut self) {
        let mut pool = self.schema.pool.clone();
        let file = protox::file::File::from_source("google/rpc/error_details.proto", DETAILS)
            .expect("the file is part of the program and tested");
        // A schema with other definitions of these names keeps them.
        if pool.add_file_descriptor_proto(file.file_descriptor_proto().clone()).is_ok() {
            self.schema.pool = pool;
        }
    }

    /// Gets a type from the server, or creates one that shows its bytes.
    async fn learn(&mut self, name: String) {
        // A server without the type, or without reflection, does not fail the call.
        let _ = self.schema.fetch(&name).await;
        if name.starts_with("google.rpc.") && self.schema.pool.get_message_by_name(&name).is_none() {
            self.learn_standard_details();
        }
        if self.schema.pool.get_message_by_name(&name).is_none() {
            let mut pool = self.schema.pool.clone();
            if pool.add_file_descriptor_proto(opaque_file(&name)).is_ok() {
                self.schema.pool = pool;
            }
            self.opaque.insert(name);
        }
    }
}

/// The standard details of statuses.
const DETAILS: &str = include_str!("../../proto/google/rpc/error_details.proto");

/// Visits every `Any`.
struct Visit<'a> {
    opaque: &'a BTreeSet<String>,
    unknown: BTreeSet<String>,
}

impl Visit<'_> {
    fn message(&mut self, message: &mut DynamicMessage, depth: usize) -> Result<(), Status> {
        if depth == DEPTH_MAX {
            let text = format!("the reply has messages within messages more than {DEPTH_MAX} deep");
            return Err(Status::resource_exhausted(text));
        }
        if message.descriptor().full_name() == "google.protobuf.Any" {
            return self.any(message, depth);
        }
        let known = message.fields_mut().map(|(_, value)| value);
        for value in known {
            self.value(value, depth)?;
        }
        for (_, value) in message.extensions_mut() {
            self.value(value, depth)?;
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, depth: usize) -> Result<(), Status> {
        match value {
            Value::Message(message) => self.message(message, depth + 1),
            Value::List(values) => values.iter_mut().try_for_each(|value| self.value(value, depth)),
            Value::Map(map) => map.values_mut().try_for_each(|value| self.value(value, depth)),
            _ => Ok(()),
        }
    }

    fn any(&mut self, any: &mut DynamicMessage, depth: usize) -> Result<(), Status> {
        let field = |number| any.get_field_by_number(number).map(std::borrow::Cow::into_owned);
        let (Some(Value::String(url)), Some(Value::Bytes(bytes))) = (field(1), field(2)) else {
            return Ok(());
        };
        let name = url.rsplit('/').next().unwrap_or_default();
        let inner = if self.opaque.contains(name) {
            let mut shown = BytesMut::new();
            encoding::bytes::encode(1, &bytes, &mut shown);
            shown.freeze()
        } else if let Some(descriptor) = any.descriptor().parent_pool().get_message_by_name(name) {
            let mut inner = DynamicMessage::decode(descriptor, bytes)
                .map_err(|error| Status::internal(format!("the reply's Any is not a {name}: {error}")))?;
            self.message(&mut inner, depth + 1)?;
            inner.encode_to_vec().into()
        } else {
            // A type without a valid name cannot be written at all.
            self.unknown.insert(name.to_owned());
            return Ok(());
        };
        any.set_field_by_number(2, Value::Bytes(inner));
        Ok(())
    }
}

/// Creates a file with a message of this name and one field, `bytes value = 1`.
fn opaque_file(full_name: &str) -> FileDescriptorProto {
    let (package, name) = full_name.rsplit_once('.').map_or((None, full_name), |(p, n)| (Some(p), n));
    let mut field =
        FieldDescriptorProto { name: Some("value".into()), number: Some(1), ..Default::default() };
    field.set_type(Type::Bytes);
    FileDescriptorProto {
        name: Some(format!("opaque/{full_name}.proto")),
        package: package.map(str::to_owned),
        syntax: Some("proto3".into()),
        message_type: vec![DescriptorProto {
            name: Some(name.to_owned()),
            field: vec![field],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    const SOURCE: &str = r#"
        syntax = "proto3";
        package t;
        import "google/protobuf/any.proto";
        message Known { string text = 1; google.protobuf.Any more = 2; }
        message Many { repeated google.protobuf.Any more = 1; }
    "#;

    fn replies(message: &str) -> Replies {
        let mut pool = DescriptorPool::global();
        let file = protox::file::File::from_source("t.proto", SOURCE).unwrap();
        pool.add_file_descriptor_proto(file.file_descriptor_proto().clone()).unwrap();
        let message = pool.get_message_by_name(message).unwrap();
        Replies::new(Schema::of_pool(pool), message)
    }

    async fn json(replies: &mut Replies, bytes: Vec<u8>) -> serde_json::Value {
        match replies.read(Codec::Proto, bytes.into()).await.unwrap() {
            Reply::Message(message) => serde_json::to_value(message).unwrap(),
            Reply::Raw(value) => value,
            Reply::Table(..) => unreachable!("no file was named"),
        }
    }

    fn any(name: &str, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encoding::string::encode(1, &format!("type.googleapis.com/{name}"), &mut bytes);
        encoding::bytes::encode(2, &value.to_vec(), &mut bytes);
        bytes
    }

    /// Returns a `t.Known` around an `Any`.
    fn known(more: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encoding::string::encode(1, &"a".to_owned(), &mut bytes);
        encoding::bytes::encode(2, &more.to_vec(), &mut bytes);
        bytes
    }

    #[tokio::test]
    async fn unknown_types_are_shown_as_bytes() {
        let mut replies = replies("t.Known");
        let inner = known(&any("far.away.Thing", b"\x01\x02"));
        let bytes = known(&any("t.Known", &inner));
        assert_eq!(
            json(&mut replies, bytes).await,
            serde_json::json!({"text": "a", "more": {
                "@type": "type.googleapis.com/t.Known", "text": "a", "more": {
                    "@type": "type.googleapis.com/far.away.Thing", "value": "AQI=",
                },
            }})
        );
        let detail = Detail { type_name: "far.away.Other".into(), value: Bytes::from_static(b"\x01") };
        let detail = serde_json::to_value(replies.read_detail(&detail).await.unwrap()).unwrap();
        assert_eq!(detail["value"], "AQ==", "{detail}");
    }

    #[tokio::test]
    async fn standard_details_need_no_schema() {
        let mut info = Vec::new();
        encoding::string::encode(1, &"QUOTA".to_owned(), &mut info);
        let detail = Detail { type_name: "google.rpc.ErrorInfo".into(), value: info.into() };
        let shown = serde_json::to_value(Replies::raw().read_detail(&detail).await.unwrap()).unwrap();
        assert_eq!(shown["reason"], "QUOTA", "{shown}");
        let detail = Detail { type_name: "google.rpc.Unheard".into(), value: Bytes::from_static(b"x") };
        let shown = serde_json::to_value(Replies::raw().read_detail(&detail).await.unwrap()).unwrap();
        assert_eq!(shown["value"], "eA==", "{shown}");
    }

    #[tokio::test]
    async fn malformed_replies_are_a_status_and_no_panic() {
        let mut deep = known(b"");
        for _ in 0..5000 {
            deep = known(&any("t.Known", &deep));
        }
        let mut message = Vec::new();
        for n in 0..1000 {
            encoding::bytes::encode(1, &any(&format!("far.Away{n}"), b""), &mut message);
        }
        let many = replies("t.Many").read(Codec::Proto, message.into()).await.unwrap_err();
        assert!(many.text().contains("over 256 unknown types"), "{}", many.text());
        for (bytes, expected) in [
            (deep, "more than 128 deep"),
            (known(&any("t.Known", b"\xff")), "Any is not a t.Known"),
            (vec![0xff], "is not a t.Known"),
        ] {
            let failure = replies("t.Known").read(Codec::Proto, bytes.into()).await.unwrap_err();
            assert!(failure.text().contains(expected), "{}", failure.text());
        }
        // An invalid name ends the search too.
        for name in ["", "a b", ".", "a..b", "t.Known.text"] {
            let message = known(&any(name, b"\x01")).into();
            assert!(replies("t.Known").read(Codec::Proto, message).await.is_ok(), "{name:?}");
        }
    }
}

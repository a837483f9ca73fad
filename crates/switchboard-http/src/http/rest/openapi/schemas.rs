//! Messages and enums as JSON schemas, in protobuf JSON.

use super::{
    super::{fields::Schema, routes::HTTP_BODY},
    comments::Comments,
    described,
};
use buffa::editions::FieldPresence;
use buffa_descriptor::{EnumIndex, EnumValueDescriptor, FieldKind, MessageIndex, ScalarType, SingularKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Names of the schemas of errors.
pub(super) const CONNECT_ERROR: &str = "switchboard.ConnectError";
pub(super) const ERROR: &str = "switchboard.Error";

/// The schemas in use, and those that they refer to.
pub(super) struct Schemas<'a> {
    schema: Option<&'a Schema>,
    comments: &'a Comments,
    messages: BTreeSet<MessageIndex>,
    enums: BTreeSet<EnumIndex>,
    /// Messages whose fields are not processed yet.
    open: Vec<MessageIndex>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(schema: Option<&'a Schema>, comments: &'a Comments) -> Schemas<'a> {
        Schemas { schema, comments, messages: BTreeSet::new(), enums: BTreeSet::new(), open: Vec::new() }
    }

    /// Returns the schema of a message, usually a reference.
    pub(super) fn of_message(&mut self, index: MessageIndex) -> Value {
        let Some(schema) = self.schema else { return json!({}) };
        let name = schema.pool.message(index).full_name();
        if let Some(known) = well_known(name) {
            return known;
        }
        if self.messages.insert(index) {
            self.open.push(index);
        }
        reference(name)
    }

    fn of_kind(&mut self, kind: SingularKind, is_argument: bool) -> Value {
        match kind {
            SingularKind::Scalar(scalar) => of_scalar(scalar, is_argument),
            SingularKind::Enum(index) => {
                let Some(schema) = self.schema else { return json!({}) };
                let name = schema.pool.enumeration(index).full_name();
                if name == "google.protobuf.NullValue" {
                    return json!({"type": "null"});
                }
                self.enums.insert(index);
                reference(name)
            }
            SingularKind::Message(index) => self.of_message(index),
        }
    }

    /// Returns the schema of a field of this message.
    pub(super) fn of_field(&mut self, message: MessageIndex, kind: FieldKind) -> Value {
        let is_argument = self.schema.is_some_and(|schema| schema.is_arguments(message));
        match kind {
            FieldKind::Singular(kind) => self.of_kind(kind, is_argument),
            FieldKind::List(kind) => json!({"type": "array", "items": self.of_kind(kind, is_argument)}),
            FieldKind::Map { value, .. } => {
                json!({"type": "object", "additionalProperties": self.of_kind(value, is_argument)})
            }
        }
    }

    /// Returns all schemas, by name.
    pub(super) fn finish(mut self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert(ERROR.to_owned(), error(&json!({"type": "integer", "description": "a code of gRPC"})));
        let by_name = json!({"type": "string", "description": "a code of Connect"});
        all.insert(CONNECT_ERROR.to_owned(), error(&by_name));
        let Some(schema) = self.schema else { return all };
        while let Some(index) = self.open.pop() {
            let message = schema.pool.message(index);
            let (mut properties, mut required) = (Map::new(), Vec::new());
            for field in message.fields() {
                let property = self.of_field(index, field.kind());
                let comment = self.comments.of_name(&format!("{}.{}", message.full_name(), field.name()));
                properties.insert(field.json_name().to_owned(), described(property, comment));
                if field.presence() == FieldPresence::LegacyRequired {
                    required.push(field.json_name());
                }
            }
            let mut object = json!({"type": "object", "properties": properties});
            if !required.is_empty() {
                object["required"] = required.into();
            }
            let comment = self.comments.of_name(message.full_name());
            all.insert(message.full_name().to_owned(), described(object, comment));
        }
        for index in &self.enums {
            let item = schema.pool.enumeration(*index);
            let names: Vec<_> = item.values().iter().map(EnumValueDescriptor::name).collect();
            let names = json!({"type": "string", "enum": names});
            all.insert(
                item.full_name().to_owned(),
                described(names, self.comments.of_name(item.full_name())),
            );
        }
        all
    }
}

/// Returns a reference to the schema of this name.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn error(code: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["code"],
        "properties": {
            "code": code,
            "message": {"type": "string"},
            "details": {"type": "array", "items": {"type": "object"}},
        },
    })
}

/// Returns the schema of a scalar in protobuf JSON, or, for arguments, in serde's JSON.
fn of_scalar(scalar: ScalarType, is_argument: bool) -> Value {
    use ScalarType::{
        Bool, Bytes, Double, Fixed32, Fixed64, Float, Int32, Int64, Sfixed32, Sfixed64, Sint32, Sint64,
        String, Uint32, Uint64,
    };
    match scalar {
        Double if is_argument => json!({"type": "number", "format": "double"}),
        Int64 if is_argument => json!({"type": "integer", "format": "int64"}),
        Uint64 if is_argument => json!({"type": "integer", "minimum": 0}),
        Bool => json!({"type": "boolean"}),
        Bytes => json!({"type": "string", "contentEncoding": "base64"}),
        Double => json!({"anyOf": [{"type": "number", "format": "double"}, special()]}),
        Float => json!({"anyOf": [{"type": "number", "format": "float"}, special()]}),
        Fixed32 | Uint32 => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        // JavaScript cannot represent all 64-bit integers.
        Fixed64 | Uint64 => json!({"type": "string", "format": "uint64"}),
        Int32 | Sfixed32 | Sint32 => json!({"type": "integer", "format": "int32"}),
        Int64 | Sfixed64 | Sint64 => json!({"type": "string", "format": "int64"}),
        String => json!({"type": "string"}),
    }
}

/// Returns the schema of the floating point values that JSON numbers cannot represent.
fn special() -> Value {
    json!({"enum": ["NaN", "Infinity", "-Infinity"]})
}

/// Returns the schema of a message that has a special JSON form.
fn well_known(name: &str) -> Option<Value> {
    if name == HTTP_BODY {
        return Some(json!({"type": "object", "properties": {
            "contentType": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
        }}));
    }
    Some(match name.strip_prefix("google.protobuf.")? {
        "Any" => json!({"type": "object", "properties": {"@type": {"type": "string"}}}),
        "BoolValue" => json!({"type": ["boolean", "null"]}),
        "BytesValue" => json!({"type": ["string", "null"], "contentEncoding": "base64"}),
        "DoubleValue" | "FloatValue" => json!({"anyOf": [{"type": ["number", "null"]}, special()]}),
        "Duration" => json!({"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]{1,9})?s$"}),
        "Empty" | "Struct" => json!({"type": "object"}),
        "FieldMask" => json!({"type": "string"}),
        "Int32Value" | "UInt32Value" => json!({"type": ["integer", "null"]}),
        "Int64Value" | "StringValue" | "UInt64Value" => json!({"type": ["string", "null"]}),
        "ListValue" => json!({"type": "array", "items": {}}),
        "Timestamp" => json!({"type": "string", "format": "date-time"}),
        "Value" => json!({}),
        _ => return None,
    })
}

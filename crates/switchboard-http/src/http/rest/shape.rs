//! Selects the part of a reply that is sent: the message or one field of it, with or without defaults.

use super::{fields::Schema, routes::ReplyPart};
use crate::http::HttpState;
use buffa::editions::FieldPresence;
use buffa_descriptor::{FieldKind, MessageIndex, MethodDescriptor, ScalarType, SingularKind};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use switchboard_wire::MethodId;

/// The conversion of the replies of one call.
pub(super) struct Shape {
    shared: Arc<HttpState>,
    route: Option<usize>,
    /// Fields of this message are printed with their defaults.
    defaults: Option<MessageIndex>,
}

impl Shape {
    /// Returns `None` if messages are sent unchanged.
    pub(super) fn of(shared: &Arc<HttpState>, route: Option<usize>, method: MethodId) -> Option<Shape> {
        let rest = &shared.config.rest;
        let has_field = route.is_some_and(|index| rest.routes.routes[index].reply.field.is_some());
        let defaults = rest.options.print_defaults.then(|| {
            let name = shared.table.full_name(method);
            let (service, method) = name.split_once('/')?;
            let service = rest.schema.as_ref()?.pool.service_by_name(service)?;
            service.method(method).map(MethodDescriptor::output)
        });
        let shape = Shape { shared: shared.clone(), route, defaults: defaults.flatten() };
        (has_field || shape.defaults.is_some()).then_some(shape)
    }

    /// # Errors
    /// The message is not JSON, which handlers do not produce.
    pub(super) fn apply(&self, message: &[u8]) -> Result<Bytes, String> {
        let rest = &self.shared.config.rest;
        let mut value: Value = serde_json::from_slice(message).map_err(|error| error.to_string())?;
        if let (Some(index), Some(schema)) = (self.defaults, &rest.schema) {
            fill(schema, index, &mut value);
        }
        let part = self.route.map(|index| &rest.routes.routes[index].reply);
        let Some(ReplyPart { field: Some((field, default)), .. }) = part else {
            return Ok(value.to_string().into());
        };
        Ok(value.get(field).map_or_else(|| (*default).into(), |value| value.to_string().into()))
    }
}

/// Adds the defaults of missing fields.
fn fill(schema: &Schema, message: MessageIndex, value: &mut Value) {
    let message = schema.pool.message(message);
    let Value::Object(object) = value else { return };
    if message.full_name().starts_with("google.protobuf.") {
        return;
    }
    for field in message.fields() {
        let inner = match field.kind() {
            FieldKind::Singular(SingularKind::Message(inner))
            | FieldKind::List(SingularKind::Message(inner))
            | FieldKind::Map { value: SingularKind::Message(inner), .. } => Some(inner),
            _ => None,
        };
        match (object.get_mut(field.json_name()), inner) {
            (Some(Value::Array(items)), Some(inner)) => {
                items.iter_mut().for_each(|item| fill(schema, inner, item));
            }
            (Some(Value::Object(entries)), Some(inner)) if matches!(field.kind(), FieldKind::Map { .. }) => {
                entries.values_mut().for_each(|entry| fill(schema, inner, entry));
            }
            (Some(value), Some(inner)) => fill(schema, inner, value),
            (Some(_), None) => {}
            (None, _) => {
                let default = match field.kind() {
                    FieldKind::Singular(_) if field.presence() != FieldPresence::Implicit => continue,
                    FieldKind::Singular(SingularKind::Enum(index)) => {
                        let first = schema.pool.enumeration(index).value(0);
                        first.map_or_else(|| json!(0), |first| json!(first.name()))
                    }
                    kind => serde_json::from_str(default_json(kind)).unwrap_or_default(),
                };
                object.insert(field.json_name().to_owned(), default);
            }
        }
    }
}

/// Returns the JSON of a field's default; enums are written as a number, which JSON also allows.
pub(super) fn default_json(kind: FieldKind) -> &'static str {
    use ScalarType::{Bool, Bytes, Fixed64, Int64, Sfixed64, Sint64, String, Uint64};
    match kind {
        FieldKind::List(_) => "[]",
        FieldKind::Map { .. } => "{}",
        FieldKind::Singular(SingularKind::Message(_)) => "null",
        FieldKind::Singular(SingularKind::Scalar(Bool)) => "false",
        FieldKind::Singular(SingularKind::Scalar(Bytes | String)) => "\"\"",
        FieldKind::Singular(SingularKind::Scalar(Fixed64 | Int64 | Sfixed64 | Sint64 | Uint64)) => "\"0\"",
        FieldKind::Singular(_) => "0",
    }
}

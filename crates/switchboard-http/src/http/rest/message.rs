//! The message of a request, assembled from its path, its query and its body.

use super::{
    fields::{BASE64, Schema, Target},
    json, percent,
    routes::{Body, Route},
};
use base64::Engine as _;
use buffa_descriptor::SingularKind;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use switchboard_core::Result;
use switchboard_wire::Status;

/// The parts of a request besides its verb.
pub(super) struct Parts<'a> {
    /// The values of the route's variables.
    pub(super) variables: Vec<String>,
    pub(super) query: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) body: Bytes,
}

/// Returns the message as JSON.
///
/// # Errors
/// `InvalidArgument` for a body that is not JSON, for unknown or duplicate fields, and for text that does not fit the
/// field's type.
pub(super) fn assemble(
    schema: &Schema,
    route: &Route,
    parts: Parts<'_>,
    ignore_unknown: bool,
) -> Result<Bytes> {
    let Parts { variables, query, content_type, body } = parts;
    let query = query.unwrap_or_default();
    let mut object = match &route.body {
        Body::All if route.is_raw => raw(content_type, &body),
        Body::All if body.is_empty() => Map::new(),
        // The decoder of the message finds the remaining errors.
        Body::All if route.variables.is_empty() && query.is_empty() => {
            json::check_depth(&body)?;
            return Ok(body);
        }
        Body::All => match json::read(&body)? {
            Value::Object(object) => object,
            _ => return Err(Status::invalid_argument("the body is not a JSON object")),
        },
        Body::Field(field) if route.is_raw => one(field, raw(content_type, &body).into()),
        Body::Field(_) if body.is_empty() => Map::new(),
        Body::Field(field) => one(field, json::read(&body)?),
        Body::None => Map::new(),
    };
    let parameters = percent::query(query)?;
    if let (Body::All, Some((name, _)), false) = (&route.body, parameters.first(), ignore_unknown) {
        let text = format!("the parameter `{name}` has no field: the body contains all fields");
        return Err(Status::invalid_argument(text));
    }
    let mut known: Vec<Target> = Vec::new();
    let parameters = parameters.into_iter().filter(|_| !matches!(route.body, Body::All));
    for (name, text) in parameters {
        let target = match schema.target(route.input, &name) {
            Ok(target) => target,
            Err(_) if ignore_unknown => continue,
            Err(what) => return Err(wrong(&name, &what)),
        };
        if target.is_repeated && matches!(target.kind, SingularKind::Message(_)) {
            return Err(wrong(&name, "a list of messages cannot be in a query"));
        }
        if let Body::Field(field) = &route.body
            && target.outermost() == field
        {
            return Err(wrong(&name, &format!("`{field}` is in the body")));
        }
        // Values in the path take precedence.
        if route.variables.iter().any(|variable| variable.overlaps(&target)) {
            continue;
        }
        if known.iter().any(|known| known.overlaps(&target) && !(known.is_repeated && target.is_repeated)) {
            return Err(wrong(&name, "it is given twice"));
        }
        let value = schema.value(target.kind, &text).map_err(|what| wrong(&name, &what))?;
        put(&mut object, &target, value)?;
        known.push(target);
    }
    for (target, text) in route.variables.iter().zip(variables) {
        let value = schema.value(target.kind, &text).map_err(|what| {
            Status::invalid_argument(format!("`{}` in the path: {what}", target.json_path()))
        })?;
        put(&mut object, target, value)?;
    }
    // A body with all arguments also contains the lists.
    for list in route.lists.iter().filter(|_| !matches!(route.body, Body::All)) {
        object.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    }
    Ok(Value::Object(object).to_string().into())
}

/// Returns the message of a path without rules: the body, or an empty message.
///
/// # Errors
/// `InvalidArgument` for JSON that nests too deep.
pub(super) fn plain(body: Bytes) -> Result<Bytes> {
    if body.is_empty() {
        return Ok(Bytes::from_static(b"{}"));
    }
    json::check_depth(&body)?;
    Ok(body)
}

fn put(object: &mut Map<String, Value>, target: &Target, value: Value) -> Result<()> {
    target.put(object, value).then_some(()).ok_or_else(|| {
        let path = target.json_path();
        Status::invalid_argument(format!("the value of `{path}` in the body has another type"))
    })
}

fn wrong(name: &str, what: &str) -> Status {
    Status::invalid_argument(format!("parameter `{name}`: {what}"))
}

/// Creates a `google.api.HttpBody`.
fn raw(content_type: Option<&str>, body: &Bytes) -> Map<String, Value> {
    let mut object = one("contentType", content_type.unwrap_or_default().into());
    object.insert("data".to_owned(), json!(BASE64.encode(body)));
    object
}

fn one(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

//! The description of all services in OpenAPI 3.1, from their descriptors and comments.
//!
//! Each method is listed by its name and by each of its rules. Features that OpenAPI cannot express are described in
//! text: a variable of several segments is a parameter for each wildcard in it; a stream is one message per line. Verbs
//! that OpenAPI does not define are left out.

mod comments;
mod schemas;

use super::{
    Rest,
    fields::{Schema, text_kind},
    routes::{Body, Route},
};
use buffa::editions::FieldPresence;
use buffa_descriptor::{FieldKind, MessageIndex, SingularKind};
use comments::Comments;
use schemas::Schemas;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use switchboard_guard::guard::{Guarding, Visible};
use switchboard_wire::{Kind, MethodId, MethodInfo, MethodTable, ServiceInfo, http_rule::Segment};

const VERSION: &str = "3.1.0";
const VERBS: [&str; 8] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
/// Query parameters of nested messages are listed to this depth; deeper ones also work.
const QUERY_DEPTH: usize = 3;

/// Returns the document as JSON, with the visible methods.
pub(super) fn document(table: &MethodTable, rest: &Rest, guarding: &Guarding, visible: &Visible) -> String {
    let own;
    let schema = match &rest.schema {
        Some(schema) => Some(schema),
        None => {
            own = Schema::of(table.services()).inspect_err(|what| {
                tracing::warn!("the description at /openapi.json has no messages: {what}");
            });
            own.as_ref().ok()
        }
    };
    let comments = schema.map_or_else(Comments::default, |schema| Comments::of(schema.pool.files()));
    let (schemes, any) = guarding.accepted.openapi();
    let is_secured = schemes.as_object().is_some_and(|schemes| !schemes.is_empty());
    let mut document = Document {
        schema,
        schemas: Schemas::new(schema, &comments),
        comments: &comments,
        paths: BTreeMap::new(),
        needs_caller: &|id| guarding.needs_caller(table, id),
        is_secured,
    };
    let shown = |id: &MethodId| !table.is_hidden(*id) && visible.has(*id);
    for id in (0..table.len() as u16).map(MethodId).filter(shown) {
        document.plain(table, id);
    }
    for route in rest.routes.routes.iter().filter(|route| visible.has(route.method)) {
        document.route(table, route);
    }
    let paths: Map<String, Value> =
        document.paths.into_values().map(|path| (path.text, path.operations.into())).collect();
    let services: Vec<_> =
        table.services().iter().filter(|service| visible.has_service(table, service.name)).collect();
    let tags: Vec<_> = services
        .iter()
        .map(|service| described(json!({"name": service.name}), comments.of_name(service.name)))
        .collect();
    let names: Vec<_> = services.iter().map(|service| service.name).collect();
    let mut document = json!({
        "openapi": VERSION,
        "info": {"title": names.join(", "), "version": "1"},
        "tags": tags,
        "paths": paths,
        "components": {"schemas": document.schemas.finish()},
    });
    if is_secured {
        document["components"]["securitySchemes"] = schemes;
        document["security"] = any;
    }
    document.to_string()
}

struct Document<'a> {
    schema: Option<&'a Schema>,
    schemas: Schemas<'a>,
    comments: &'a Comments,
    /// Paths by shape: OpenAPI considers paths that differ only in the names of parameters equal.
    paths: BTreeMap<String, Path>,
    needs_caller: &'a dyn Fn(MethodId) -> bool,
    /// The document names credentials.
    is_secured: bool,
}

#[derive(Default)]
struct Path {
    text: String,
    /// Names of the wildcards, in order.
    wildcards: Vec<String>,
    operations: Map<String, Value>,
}

impl Document<'_> {
    /// Adds `POST /package.Service/Method`.
    fn plain(&mut self, table: &MethodTable, id: MethodId) {
        let (service, info) = (service_of(table, id), table.info(id));
        let messages = self.messages(service.name, info.name);
        let request = match messages {
            Some((input, _)) => self.schemas.of_message(input),
            None => {
                json!({"description": "the parameters of the method: an object by their names, or an array in their order"})
            }
        };
        let mut operation = self.operation(service, info, id, "");
        operation["requestBody"] = request_body(info.kind, &request);
        let reply = match messages {
            Some((_, output)) => self.schemas.of_message(output),
            None => json!({}),
        };
        let error = if info.kind == Kind::Unary { schemas::CONNECT_ERROR } else { schemas::ERROR };
        operation["responses"] = responses(info.kind, &reply, error);
        let text = format!("/{}/{}", service.name, info.name);
        let path = self.paths.entry(text.clone()).or_default();
        path.text = text;
        path.operations.insert("post".to_owned(), operation);
    }

    /// Adds the path of a rule.
    fn route(&mut self, table: &MethodTable, route: &Route) {
        let (service, info) = (service_of(table, route.method), table.info(route.method));
        let (Some(schema), Some((input, output))) = (self.schema, self.messages(service.name, info.name))
        else {
            return;
        };
        if !VERBS.contains(&route.rule.verb) {
            return;
        }
        let mut parameters = self.path_parameters(route, input);
        // Other methods do not change the number.
        let number = info.http.iter().position(|rule| *rule == route.rule).unwrap_or_default() + 1;
        let mut operation = self.operation(service, info, route.method, &format!(".{number}"));
        match &route.body {
            Body::All if !route.is_raw => {
                operation["requestBody"] = request_body(info.kind, &self.schemas.of_message(input));
            }
            Body::Field(field) if !route.is_raw => {
                let field = schema.pool.message(input).field_by_name(field);
                let body =
                    field.map_or_else(|| json!({}), |field| self.schemas.of_field(input, field.kind()));
                operation["requestBody"] = request_body(info.kind, &body);
            }
            Body::All | Body::Field(_) => {
                operation["requestBody"] = json!({"content": {"*/*": {"schema": {}}}});
            }
            Body::None => {}
        }
        if !matches!(route.body, Body::All) {
            let mut path = Vec::new();
            self.query(schema, input, route, &mut path, &mut parameters);
        }
        operation["parameters"] = parameters.into();
        let reply = match &route.reply.field {
            None => self.schemas.of_message(output),
            Some((field, _)) => {
                let field = schema.pool.message(output).field_by_name(field);
                field.map_or_else(|| json!({}), |field| self.schemas.of_field(output, field.kind()))
            }
        };
        operation["responses"] = responses(info.kind, &reply, schemas::ERROR);
        if route.reply.is_raw {
            operation["responses"]["200"] =
                json!({"description": "a body", "content": {"*/*": {"schema": {}}}});
        }
        let path = self.paths.entry(route.template.to_string()).or_default();
        path.operations.insert(route.rule.verb.to_lowercase(), operation);
    }

    /// Registers the path of a route; returns the parameters of its wildcards.
    fn path_parameters(&mut self, route: &Route, input: MessageIndex) -> Vec<Value> {
        let wildcards = self.path(route);
        let mut parameters = Vec::new();
        let mut at = 0;
        for (place, segment) in route.template.segments.iter().enumerate() {
            if matches!(segment, Segment::Literal(_)) {
                continue;
            }
            let bound = route
                .template
                .variables
                .iter()
                .position(|variable| (variable.first..variable.first + variable.count).contains(&place));
            let mut parameter = json!({
                "name": wildcards[at], "in": "path", "required": true, "schema": {"type": "string"},
            });
            if let Some(bound) = bound {
                let (variable, target) = (&route.template.variables[bound], &route.variables[bound]);
                if variable.is_single {
                    parameter["schema"] = self.schemas.of_field(input, FieldKind::Singular(target.kind));
                    parameter["description"] = format!("`{}`", target.json_path()).into();
                } else {
                    let text = format!("a part of `{}`, as in `{}`", target.json_path(), route.rule.path);
                    parameter["description"] = text.into();
                }
            }
            parameters.push(parameter);
            at += 1;
        }
        parameters
    }

    /// Registers the path of a route; returns the names of its wildcards.
    fn path(&mut self, route: &Route) -> Vec<String> {
        let path = self.paths.entry(route.template.to_string()).or_default();
        if !path.text.is_empty() {
            return path.wildcards.clone();
        }
        for (place, segment) in route.template.segments.iter().enumerate() {
            path.text.push('/');
            if let Segment::Literal(text) = segment {
                path.text.push_str(text);
                continue;
            }
            let bound = route
                .template
                .variables
                .iter()
                .find(|variable| (variable.first..variable.first + variable.count).contains(&place));
            let name = match bound {
                Some(variable) if variable.is_single => variable.field.clone(),
                Some(variable) => format!("{}_{}", variable.field, path.wildcards.len() + 1),
                None => format!("segment_{}", path.wildcards.len() + 1),
            };
            path.text.push_str(&format!("{{{name}}}"));
            path.wildcards.push(name);
        }
        if route.template.segments.is_empty() {
            path.text.push('/');
        }
        if let Some(verb) = &route.template.verb {
            path.text.push_str(&format!(":{verb}"));
        }
        path.wildcards.clone()
    }

    /// Adds a parameter for each field that is neither in the path nor in the body.
    fn query(
        &mut self,
        schema: &Schema,
        message: MessageIndex,
        route: &Route,
        path: &mut Vec<String>,
        parameters: &mut Vec<Value>,
    ) {
        for field in schema.pool.message(message).fields() {
            path.push(field.json_name().to_owned());
            let name = path.join(".");
            let in_body = matches!(&route.body, Body::Field(body) if *body == name);
            let in_path = route.variables.iter().any(|variable| variable.json_path() == name);
            let kind = field.kind();
            if let FieldKind::Singular(SingularKind::Message(inner)) = kind
                && text_kind(schema.pool.message(inner).full_name()).is_none()
            {
                if !in_body && path.len() < QUERY_DEPTH {
                    self.query(schema, inner, route, path, parameters);
                }
            } else if !in_body
                && !in_path
                && !matches!(kind, FieldKind::Map { .. } | FieldKind::List(SingularKind::Message(_)))
            {
                let owner = schema.pool.message(message).full_name();
                let schema = self.schemas.of_field(message, kind);
                let mut parameter = json!({"name": name, "in": "query", "schema": schema});
                if field.presence() == FieldPresence::LegacyRequired && path.len() == 1 {
                    parameter["required"] = true.into();
                }
                let comment = self.comments.of_name(&format!("{owner}.{}", field.name()));
                parameters.push(described(parameter, comment));
            }
            path.pop();
        }
    }

    /// Returns the description that all paths of a method share.
    fn operation(&self, service: &ServiceInfo, info: &MethodInfo, id: MethodId, suffix: &str) -> Value {
        let name = format!("{}.{}", service.name, info.name);
        let comment = self.comments.of_name(&name);
        let mut operation = json!({"operationId": name + suffix, "tags": [service.name]});
        if self.is_secured && !(self.needs_caller)(id) {
            // Overrides the credentials of the document.
            operation["security"] = json!([]);
        }
        described(operation, comment)
    }

    fn messages(&self, service: &str, method: &str) -> Option<(MessageIndex, MessageIndex)> {
        let method = self.schema?.pool.service_by_name(service)?.method(method)?;
        Some((method.input(), method.output()))
    }
}

fn service_of(table: &MethodTable, id: MethodId) -> &'static ServiceInfo {
    table.service(id)
}

fn described(mut value: Value, comment: Option<&str>) -> Value {
    if let Some(comment) = comment {
        value["description"] = comment.into();
    }
    value
}

fn request_body(kind: Kind, schema: &Value) -> Value {
    match kind {
        Kind::Unary | Kind::ServerStream => json!({"content": {"application/json": {"schema": schema}}}),
        Kind::Bidi | Kind::ClientStream => json!({
            "description": "one message per line",
            "content": {"application/x-ndjson": {"schema": schema}},
        }),
    }
}

fn responses(kind: Kind, reply: &Value, error: &str) -> Value {
    let failed = json!({
        "description": "an error",
        "content": {"application/json": {"schema": schemas::reference(error)}},
    });
    let reply = match kind {
        Kind::Unary | Kind::ClientStream => json!({
            "description": "the reply",
            "content": {"application/json": {"schema": reply}},
        }),
        Kind::Bidi | Kind::ServerStream => {
            let line = json!({
                "type": "object",
                "properties": {"result": reply, "error": schemas::reference(error)},
            });
            json!({
                "description": "one line per message and at most one for an error; or one event for each, of \
                                type `error` for an error, and one of type `end` at the end",
                "content": {
                    "application/json": {"schema": line.clone()},
                    "application/x-ndjson": {"schema": line},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            })
        }
    };
    json!({"200": reply, "default": failed})
}

//! Finds the method of a path.
//!
//! A trie over the segments of all templates, built when the server starts. A path is split at its slashes before it is
//! percent-decoded. If several templates match, literal text has precedence over `*`, and `*` over `**`, from left to
//! right; a template that ends in a `:verb` has precedence over one that takes the colon as text.

use super::{
    super::plugin_route::PluginRoute,
    fields::{Schema, Target},
    percent,
    shape::default_json,
};
use ::http::Method;
use buffa_descriptor::{FieldDescriptor, FieldKind, MessageIndex, SingularKind};
use std::collections::BTreeMap;
use switchboard_core::Result;
use switchboard_wire::{
    HttpRule, Kind, MethodId, MethodTable,
    http_rule::{Segment, Template},
};

/// The paths of all methods that have rules, and those of plugins.
#[derive(Default)]
pub(super) struct Routes {
    root: Node,
    pub(super) routes: Vec<Route>,
    /// Their indices follow those of `routes`.
    pub(super) plugins: Vec<PluginRoute>,
}

/// One rule of one method.
pub(super) struct Route {
    pub(super) method: MethodId,
    /// `package.Service/Method`.
    pub(super) name: String,
    pub(super) rule: HttpRule,
    pub(super) template: Template,
    /// The fields of the template's variables, in order.
    pub(super) variables: Vec<Target>,
    pub(super) body: Body,
    pub(super) input: MessageIndex,
    /// Arguments of traits that are lists, by name: serde requires them in the message even if they are empty.
    pub(super) lists: Vec<String>,
    /// The message is `google.api.HttpBody`: the body of the request is its content.
    pub(super) is_raw: bool,
    pub(super) reply: ReplyPart,
}

/// The part of the message that the body of a request fills.
pub(super) enum Body {
    All,
    /// This field, by its name in JSON.
    Field(String),
    None,
}

/// The part of a reply that is sent.
#[derive(Debug)]
pub(super) struct ReplyPart {
    /// Only this field: its name in JSON, and the JSON of its default, which messages omit.
    pub(super) field: Option<(String, &'static str)>,
    /// The part is a `google.api.HttpBody`, whose content is the body.
    pub(super) is_raw: bool,
}

/// The result of a path lookup.
pub(super) enum Found<'p> {
    /// No template matches.
    Nothing,
    /// The index of a route, and the segments that its template matched.
    Route(usize, Vec<&'p str>),
    /// The path exists, but only for these verbs.
    Verbs(Vec<&'static str>),
}

#[derive(Default)]
struct Node {
    literals: BTreeMap<String, Node>,
    any: Option<Box<Node>>,
    ends: Vec<End>,
    /// Templates that end in `**` here.
    rests: Vec<End>,
}

/// A template ends here.
struct End {
    custom: Option<String>,
    verb: &'static str,
    route: usize,
}

/// The message whose fields are content type and content of a body.
pub(super) const HTTP_BODY: &str = "google.api.HttpBody";

impl Routes {
    /// Builds the routes of all methods of a table.
    ///
    /// # Errors
    /// A rule that does not fit its method, and two rules for the same path.
    pub(super) fn of(table: &MethodTable, schema: &Schema) -> Result<Routes, String> {
        let mut routes = Routes::default();
        for id in (0..table.len() as u16).map(MethodId).filter(|id| !table.is_hidden(*id)) {
            for rule in table.info(id).http {
                let name = table.full_name(id);
                let route = Route::new(id, name, table.info(id).kind, *rule, schema)?;
                routes.add(route)?;
            }
        }
        Ok(routes)
    }

    fn add(&mut self, route: Route) -> Result<(), String> {
        self.insert(route.rule.verb, &route.template, &route.name)?;
        self.routes.push(route);
        Ok(())
    }

    /// Adds a path of a plugin, after those of all methods.
    ///
    /// # Errors
    /// A path that exists.
    pub(super) fn add_plugin(&mut self, route: PluginRoute) -> Result<(), String> {
        self.insert(route.verb, &route.template, &route.name)?;
        self.plugins.push(route);
        Ok(())
    }

    /// Returns the index of a plugin's path for that of a path.
    pub(super) fn plugin(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.routes.len())
    }

    /// Adds a template, with the next index.
    fn insert(&mut self, verb: &'static str, template: &Template, name: &str) -> Result<(), String> {
        let mut node = &mut self.root;
        let mut is_rest = false;
        for segment in &template.segments {
            match segment {
                Segment::Any => node = node.any.get_or_insert_default(),
                Segment::Literal(text) => node = node.literals.entry(text.clone()).or_default(),
                Segment::Rest => is_rest = true,
            }
        }
        let ends = if is_rest { &mut node.rests } else { &mut node.ends };
        let same = |end: &&End| end.verb == verb && end.custom == template.verb;
        if let Some(end) = ends.iter().find(same) {
            let known = match end.route.checked_sub(self.routes.len()) {
                Some(plugin) => &self.plugins[plugin].name,
                None => &self.routes[end.route].name,
            };
            return Err(format!(
                "{verb} {template} is a path of both {known} and {name}: change one of them"
            ));
        }
        let route = self.routes.len() + self.plugins.len();
        ends.push(End { custom: template.verb.clone(), verb, route });
        Ok(())
    }

    /// Looks up the path of a request.
    pub(super) fn find<'p>(&self, method: &Method, path: &'p str) -> Found<'p> {
        let has_routes = !self.routes.is_empty() || !self.plugins.is_empty();
        let Some(path) = path.strip_prefix('/').filter(|_| has_routes) else {
            return Found::Nothing;
        };
        let mut segments: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        let mut verbs = Vec::new();
        let whole = segments.last().copied();
        if let Some((before, custom)) = whole.and_then(|last| last.rsplit_once(':'))
            && let Some(last) = segments.last_mut()
        {
            *last = before;
            if let Some(route) = self.search(&self.root, &segments, Some(custom), method, &mut verbs) {
                return Found::Route(route, segments);
            }
        }
        if let (Some(last), Some(whole)) = (segments.last_mut(), whole) {
            *last = whole;
        }
        match self.search(&self.root, &segments, None, method, &mut verbs) {
            Some(route) => Found::Route(route, segments),
            None if verbs.is_empty() => Found::Nothing,
            None => {
                verbs.sort_unstable();
                verbs.dedup();
                Found::Verbs(verbs)
            }
        }
    }

    /// Visits each node at most once: only one path leads to each node.
    fn search(
        &self,
        node: &Node,
        segments: &[&str],
        custom: Option<&str>,
        method: &Method,
        verbs: &mut Vec<&'static str>,
    ) -> Option<usize> {
        if let Some((first, rest)) = segments.split_first() {
            // Characters that need no escape may be escaped.
            let decoded = if first.contains('%') { percent::decode(first, false).ok() } else { None };
            let literal = node.literals.get(decoded.as_deref().unwrap_or(first));
            let any = node.any.as_deref().filter(|_| !first.is_empty());
            for next in literal.into_iter().chain(any) {
                if let Some(route) = self.search(next, rest, custom, method, verbs) {
                    return Some(route);
                }
            }
        }
        let ends = if segments.is_empty() { &node.ends[..] } else { &[] };
        for end in ends.iter().chain(&node.rests).filter(|end| end.custom.as_deref() == custom) {
            if end.verb == method.as_str() || end.verb == "*" || (end.verb == "GET" && method == Method::HEAD)
            {
                return Some(end.route);
            }
            verbs.push(end.verb);
        }
        None
    }
}

impl Route {
    fn new(
        method: MethodId,
        name: String,
        kind: Kind,
        rule: HttpRule,
        schema: &Schema,
    ) -> Result<Route, String> {
        let wrong = |what: String| format!("{name}: {} {}: {what}", rule.verb, rule.path);
        let template = Template::parse(rule.path).map_err(|what| format!("{name}: {what}"))?;
        let (service, short) = name.split_once('/').unwrap_or((&name, ""));
        let described = schema.pool.service_by_name(service).and_then(|service| service.method(short));
        let described = described
            .ok_or_else(|| wrong("paths need a descriptor of the service, and it has none".to_owned()))?;
        let (input, output) = (described.input(), described.output());
        let mut variables = Vec::new();
        for variable in &template.variables {
            let target = schema.target(input, &variable.field);
            let target = target.map_err(|what| wrong(format!("`{}`: {what}", variable.field)))?;
            if target.is_repeated {
                return Err(wrong(format!("`{}` is repeated: it cannot be in a path", variable.field)));
            }
            variables.push(target);
        }
        let whole = schema.pool.message(input).full_name() == HTTP_BODY;
        let (body, is_raw) = match rule.body {
            "" => (Body::None, false),
            "*" => (Body::All, whole),
            field => {
                let field = own_field(schema, input, field).map_err(wrong)?;
                (Body::Field(field.json_name().to_owned()), is_http_body(schema, field))
            }
        };
        if matches!(kind, Kind::Bidi | Kind::ClientStream) && (rule.body != "*" || !variables.is_empty()) {
            return Err(wrong(
                "a stream of requests needs body \"*\" and a path without variables".to_owned(),
            ));
        }
        let reply = match rule.response_body {
            "" => ReplyPart::whole(schema, output),
            field => {
                let field = own_field(schema, output, field).map_err(wrong)?;
                let default = default_json(field.kind());
                ReplyPart {
                    field: Some((field.json_name().to_owned(), default)),
                    is_raw: is_http_body(schema, field),
                }
            }
        };
        let fields = schema.pool.message(input).fields().iter();
        let lists = fields.filter(|field| matches!(field.kind(), FieldKind::List(_)));
        let lists = lists.filter(|_| schema.is_arguments(input)).map(|field| field.json_name().to_owned());
        let lists = lists.collect();
        Ok(Route { method, rule, template, variables, body, input, lists, is_raw, reply, name })
    }

    /// Returns the values of the variables as text, in order.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid escapes.
    pub(super) fn texts(&self, segments: &[&str]) -> Result<Vec<String>> {
        texts(&self.template, segments)
    }
}

/// Returns the values of the variables of a template as text, in order.
///
/// # Errors
/// `InvalidArgument` for invalid escapes.
pub(super) fn texts(template: &Template, segments: &[&str]) -> Result<Vec<String>> {
    let text = |variable: &switchboard_wire::http_rule::Variable| {
        let last = variable.first + variable.count;
        let is_rest = template.segments.get(last - 1) == Some(&Segment::Rest);
        let last = if is_rest { segments.len() } else { last };
        match variable.is_single {
            true => percent::decode(segments[variable.first], false),
            false => percent::decode(&segments[variable.first..last].join("/"), true),
        }
    };
    template.variables.iter().map(text).collect()
}

impl ReplyPart {
    /// Returns the complete message.
    pub(super) fn whole(schema: &Schema, output: MessageIndex) -> ReplyPart {
        ReplyPart { field: None, is_raw: schema.pool.message(output).full_name() == HTTP_BODY }
    }
}

fn own_field<'s>(
    schema: &'s Schema,
    message: MessageIndex,
    name: &str,
) -> Result<&'s FieldDescriptor, String> {
    let message = schema.pool.message(message);
    let field = message.field_by_name(name);
    field.ok_or_else(|| format!("{} has no field `{name}`", message.full_name()))
}

fn is_http_body(schema: &Schema, field: &FieldDescriptor) -> bool {
    match field.kind() {
        FieldKind::Singular(SingularKind::Message(message)) => {
            schema.pool.message(message).full_name() == HTTP_BODY
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

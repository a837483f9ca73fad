//! HTTP paths of the methods of a schema: what `google.api.http` says.

use prost_reflect::{DynamicMessage, ExtensionDescriptor, MethodDescriptor, Value};
use std::borrow::Cow;
use switchboard::HttpRule;

/// The fields of a rule that name a verb.
const VERBS: [(&str, &str); 5] =
    [("get", "GET"), ("put", "PUT"), ("post", "POST"), ("delete", "DELETE"), ("patch", "PATCH")];

/// The paths of a method; none if its schema gives it none.
pub(super) fn of(method: &MethodDescriptor) -> Vec<HttpRule> {
    let extension = method.parent_pool().get_extension_by_name("google.api.http");
    extension.and_then(|extension| rule(&method.options(), &extension)).unwrap_or_default()
}

fn rule(options: &DynamicMessage, extension: &ExtensionDescriptor) -> Option<Vec<HttpRule>> {
    if !options.has_extension(extension) {
        return None;
    }
    let Value::Message(rule) = options.get_extension(extension).into_owned() else { return None };
    let mut rules: Vec<_> = one(&rule).into_iter().collect();
    if let Some(Value::List(more)) = rule.get_field_by_name("additional_bindings").map(Cow::into_owned) {
        rules.extend(more.iter().filter_map(|more| one(more.as_message()?)));
    }
    Some(rules)
}

fn one(rule: &DynamicMessage) -> Option<HttpRule> {
    let text = |message: &DynamicMessage, name: &str| -> Option<String> {
        let value = message.get_field_by_name(name)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let leaked = |text: Option<String>| -> &'static str { Box::leak(text.unwrap_or_default().into()) };
    let usual = VERBS.iter().find_map(|(field, verb)| Some(((*verb).to_owned(), text(rule, field)?)));
    let (verb, path) = usual.or_else(|| {
        let custom = rule.get_field_by_name("custom")?;
        let custom = custom.as_message()?;
        Some((text(custom, "kind")?, text(custom, "path")?))
    })?;
    Some(HttpRule {
        verb: leaked(Some(verb)),
        path: leaked(Some(path)),
        body: leaked(text(rule, "body")),
        response_body: leaked(text(rule, "response_body")),
    })
}

//! HTTP paths of the methods of a schema, from `google.api.http`.

use prost_reflect::{DynamicMessage, ExtensionDescriptor, FieldDescriptor, MethodDescriptor, Value};
use std::borrow::Cow;
use switchboard::{HttpRule, TextParam};

/// The fields of a rule that name a verb.
const VERBS: [(&str, &str); 5] =
    [("get", "GET"), ("put", "PUT"), ("post", "POST"), ("delete", "DELETE"), ("patch", "PATCH")];

/// Returns the paths of a method; none if its schema has none.
pub(super) fn of(method: &MethodDescriptor) -> Vec<HttpRule> {
    let extension = method.parent_pool().get_extension_by_name("google.api.http");
    let declared = extension.and_then(|extension| rule(&method.options(), &extension));
    // Descriptors of Rust traits have the option without the file that declares it.
    declared.or_else(|| HttpRule::decode(&unknown(&method.options(), HttpRule::OPTION)?)).unwrap_or_default()
}

/// Returns how text in paths and queries fills the arguments of a method of a Rust trait, as reflection describes it.
pub(super) fn texts(method: &MethodDescriptor) -> Vec<Option<TextParam>> {
    let fields = arguments(method);
    let text = |field: &FieldDescriptor| {
        let options = field.options();
        let option = options.unknown_fields().find(|option| option.number() == TextParam::OPTION)?;
        let mut bytes = Vec::new();
        option.encode(&mut bytes);
        // The key is followed by a number of one byte.
        TextParam::of_number(u32::from(*bytes.last()?))
    };
    fields.iter().map(text).collect()
}

/// Returns the arguments of a method of a Rust trait, in order.
pub(super) fn arguments(method: &MethodDescriptor) -> Vec<FieldDescriptor> {
    let mut fields: Vec<_> = method.input().fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    fields
}

/// Returns the bytes of an option that no file of the schema declares.
fn unknown(options: &DynamicMessage, number: u32) -> Option<Vec<u8>> {
    let option = options.unknown_fields().find(|option| option.number() == number)?;
    let mut bytes = Vec::new();
    option.encode(&mut bytes);
    // The value is preceded by its key and its length, numbers whose last byte is below 128.
    let mut rest = &bytes[..];
    for _ in 0..2 {
        let end = rest.iter().position(|byte| *byte < 0x80)?;
        rest = &rest[end + 1..];
    }
    Some(rest.to_vec())
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

//! The `google.api.http` option of methods: parsing, checks against the messages, and emission as statics.

use crate::{
    names::{Named as _, package_of, qualified},
    service::Kind,
};
use buffa::unknown_fields::{UnknownFieldData, UnknownFields};
use buffa_codegen::generated::descriptor::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
    field_descriptor_proto::{Label, Type},
};
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::{BTreeMap, HashMap};
use switchboard_wire::http_rule::Template;

/// Number of the extension of `MethodOptions`.
const HTTP: u32 = 72_295_728;

/// Field numbers of `HttpRule`.
const VERBS: [(u32, &str); 5] = [(2, "GET"), (3, "PUT"), (4, "POST"), (5, "DELETE"), (6, "PATCH")];
const BODY: u32 = 7;
const CUSTOM: u32 = 8;
const ADDITIONAL: u32 = 11;
const RESPONSE_BODY: u32 = 12;

/// Messages that have a text form.
const TEXT: [&str; 12] = [
    "BoolValue",
    "BytesValue",
    "DoubleValue",
    "Duration",
    "FieldMask",
    "FloatValue",
    "Int32Value",
    "Int64Value",
    "StringValue",
    "Timestamp",
    "UInt32Value",
    "UInt64Value",
];

/// An HTTP path of a method.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rule {
    verb: String,
    path: String,
    body: String,
    response_body: String,
}

/// All messages by full name, with a leading dot, to check fields.
pub(crate) struct Messages<'a>(HashMap<String, &'a DescriptorProto>);

impl<'a> Messages<'a> {
    pub(crate) fn of(files: &'a [FileDescriptorProto]) -> Messages<'a> {
        let mut messages = HashMap::new();
        for file in files {
            for message in &file.message_type {
                note(&mut messages, &qualified(package_of(file), message.name()), message);
            }
        }
        Messages(messages)
    }

    /// Returns the rules of a method.
    ///
    /// # Errors
    /// Returns the reason why a rule is invalid, without its position.
    pub(crate) fn rules(&self, method: &MethodDescriptorProto, kind: Kind) -> Result<Vec<Rule>, String> {
        let Some(options) = method.options.as_option() else { return Ok(Vec::new()) };
        let mut rules = Vec::new();
        // Each of them is a part of one rule: protobuf merges a message that is written in parts.
        let parts = options.__buffa_unknown_fields.iter().filter(|field| field.number == HTTP);
        let encoded: Vec<u8> = parts.filter_map(|field| bytes(&field.data)).flatten().copied().collect();
        if encoded.is_empty() {
            return Ok(rules);
        }
        let fields = decode(&encoded)?;
        rules.push(Rule::read(&fields)?);
        for field in fields.iter().filter(|field| field.number == ADDITIONAL) {
            let fields = decode(bytes(&field.data).unwrap_or_default())?;
            if fields.iter().any(|field| field.number == ADDITIONAL) {
                return Err(
                    "additional_bindings inside of additional_bindings: write them side by side".into()
                );
            }
            rules.push(Rule::read(&fields)?);
        }
        for rule in &rules {
            self.check(rule, method, kind).map_err(|what| format!("{} {}: {what}", rule.verb, rule.path))?;
        }
        Ok(rules)
    }

    fn check(&self, rule: &Rule, method: &MethodDescriptorProto, kind: Kind) -> Result<(), String> {
        let template = Template::parse(&rule.path)?;
        let request = method.input_type.as_deref().unwrap_or_default();
        let reply = method.output_type.as_deref().unwrap_or_default();
        for variable in &template.variables {
            self.check_variable(request, &variable.field)?;
            let outer = variable.field.split('.').next().unwrap_or_default();
            if outer == variable.field && outer == rule.body {
                return Err(format!("`{outer}` is both in the path and the body"));
            }
        }
        if matches!(rule.verb.as_str(), "GET" | "HEAD") && !rule.body.is_empty() {
            return Err(format!("a {} has no body: remove `body`, the query carries the fields", rule.verb));
        }
        if !matches!(rule.body.as_str(), "" | "*") {
            self.field(request, &rule.body).map_err(|what| format!("body: {what}"))?;
        }
        if !rule.response_body.is_empty() {
            self.field(reply, &rule.response_body).map_err(|what| format!("response_body: {what}"))?;
        }
        let streams = matches!(kind, Kind::Bidi | Kind::ClientStream);
        if streams && (rule.body != "*" || !template.variables.is_empty()) {
            return Err("a stream of requests needs `body: \"*\"` and a path without variables".into());
        }
        Ok(())
    }

    /// Checks that a variable refers to a single value with a text form.
    fn check_variable(&self, request: &str, path: &str) -> Result<(), String> {
        let mut message = request;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let field = self.field(message, part)?;
            if field.label == Some(Label::LABEL_REPEATED) {
                return Err(format!("`{path}`: `{part}` is repeated, a path has one value"));
            }
            let is_message = matches!(field.r#type, Some(Type::TYPE_GROUP | Type::TYPE_MESSAGE));
            let name = field.type_name.as_deref().unwrap_or_default();
            let is_text = name.strip_prefix(".google.protobuf.").is_some_and(|name| TEXT.contains(&name));
            match (parts.peek().is_some(), is_message) {
                (true, false) => {
                    return Err(format!("`{path}`: `{part}` is not a message and has no fields"));
                }
                (false, true) if !is_text => {
                    let name = name.trim_start_matches('.');
                    return Err(format!("`{path}` is a {name}: name one of its fields"));
                }
                _ => message = name,
            }
        }
        Ok(())
    }

    fn field(&self, message: &str, name: &str) -> Result<&FieldDescriptorProto, String> {
        let known = self.0.get(message).and_then(|known| {
            known.field.iter().find(|field| field.name.as_deref().unwrap_or_default() == name)
        });
        known.ok_or_else(|| format!("{} has no field `{name}`", message.trim_start_matches('.')))
    }
}

impl Rule {
    fn read(fields: &UnknownFields) -> Result<Rule, String> {
        let mut rule = Rule::default();
        for field in fields {
            let Some(value) = bytes(&field.data) else { continue };
            match field.number {
                BODY => rule.body = text(value)?,
                RESPONSE_BODY => rule.response_body = text(value)?,
                CUSTOM => {
                    for part in &decode(value)? {
                        match (part.number, bytes(&part.data)) {
                            (1, Some(kind)) => rule.verb = text(kind)?,
                            (2, Some(path)) => rule.path = text(path)?,
                            _ => {}
                        }
                    }
                }
                number => {
                    if let Some((_, verb)) = VERBS.iter().find(|(known, _)| *known == number) {
                        (rule.verb, rule.path) = ((*verb).to_owned(), text(value)?);
                    }
                }
            }
        }
        if rule.verb.is_empty() {
            return Err("(google.api.http) has no verb and path: add get, put, post, delete or patch".into());
        }
        Ok(rule)
    }

    /// Emits the rule as an expression for the static.
    pub(crate) fn emit(&self) -> TokenStream {
        let Rule { verb, path, body, response_body } = self;
        quote! {
            ::switchboard::HttpRule { verb: #verb, path: #path, body: #body, response_body: #response_body }
        }
    }
}

/// Rejects two methods with the same path.
#[derive(Default)]
pub(crate) struct Paths(BTreeMap<(String, String), String>);

impl Paths {
    /// # Errors
    /// Returns the path and the method that already has it.
    pub(crate) fn add(&mut self, rules: &[Rule], method: &str) -> Result<(), String> {
        for rule in rules {
            let shape = Template::parse(&rule.path)?.to_string();
            let known = self.0.insert((rule.verb.clone(), shape), method.to_owned());
            if let Some(known) = known {
                return Err(format!("{} {}: {known} has this path", rule.verb, rule.path));
            }
        }
        Ok(())
    }
}

fn note<'a>(messages: &mut HashMap<String, &'a DescriptorProto>, name: &str, message: &'a DescriptorProto) {
    for nested in &message.nested_type {
        note(messages, &format!("{name}.{}", nested.name()), nested);
    }
    messages.insert(format!(".{name}"), message);
}

fn decode(encoded: &[u8]) -> Result<UnknownFields, String> {
    UnknownFields::decode_from_slice(encoded).map_err(|cause| format!("(google.api.http): {cause}"))
}

fn bytes(data: &UnknownFieldData) -> Option<&[u8]> {
    match data {
        UnknownFieldData::LengthDelimited(bytes) => Some(bytes),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "(google.api.http): text that is not UTF-8".to_owned())
}

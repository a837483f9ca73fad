//! Descriptors as .proto source.

use super::schema::Symbol;
use prost_reflect::{
    Cardinality, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor, Syntax,
    prost_types::{
        EnumOptions, EnumValueOptions, FieldOptions, MessageOptions, method_options::IdempotencyLevel,
    },
};

/// Returns the source of a symbol; for a method, with its messages.
pub(super) fn source(symbol: &Symbol) -> String {
    let mut printer = Printer::default();
    match symbol {
        Symbol::Enum(found) => printer.enumeration(found),
        Symbol::Field(field) => printer.field(field),
        Symbol::Message(message) => printer.message(message),
        Symbol::Service(service) => printer.service(service),
        Symbol::Method(method) => {
            printer.method(method);
            printer.blank();
            printer.message(&method.input());
            if method.input() != method.output() {
                printer.blank();
                printer.message(&method.output());
            }
        }
    }
    printer.text
}

/// Returns `rpc Name(Request) returns (stream Reply)` without its options.
pub(super) fn signature(method: &MethodDescriptor) -> String {
    let stream = |streams: bool| if streams { "stream " } else { "" };
    format!(
        "({}{}) returns ({}{})",
        stream(method.is_client_streaming()),
        method.input().full_name(),
        stream(method.is_server_streaming()),
        method.output().full_name()
    )
}

#[derive(Default)]
struct Printer {
    text: String,
    depth: usize,
}

impl Printer {
    fn line(&mut self, line: &str) {
        self.text += &"  ".repeat(self.depth);
        self.text += line;
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn block(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        let start = self.text.len();
        self.depth += 1;
        body(self);
        self.depth -= 1;
        if self.text.len() == start {
            self.text.pop();
            self.text += "}\n";
        } else {
            self.line("}");
        }
    }

    /// Writes the comments above the element at `path`, if the schema has comments.
    fn comments(&mut self, file: &FileDescriptor, path: &[i32]) {
        let Some(info) = &file.file_descriptor_proto().source_code_info else { return };
        let Some(location) = info.location.iter().find(|location| location.path == path) else { return };
        for line in location.leading_comments().lines() {
            self.line(format!("//{line}").trim_end());
        }
    }

    fn service(&mut self, service: &ServiceDescriptor) {
        self.comments(&service.parent_file(), service.path());
        self.block(&format!("service {}", service.full_name()), |printer| {
            for method in service.methods() {
                printer.method(&method);
            }
        });
    }

    fn method(&mut self, method: &MethodDescriptor) {
        self.comments(&method.parent_file(), method.path());
        let head = format!("rpc {}{}", method.name(), signature(method));
        let mut options = Vec::new();
        if let Some(set) = &method.method_descriptor_proto().options {
            if set.deprecated() {
                options.push("option deprecated = true;".to_owned());
            }
            if set.idempotency_level() != IdempotencyLevel::IdempotencyUnknown {
                options
                    .push(format!("option idempotency_level = {};", set.idempotency_level().as_str_name()));
            }
        }
        if options.is_empty() {
            return self.line(&format!("{head};"));
        }
        self.block(&head, |printer| options.iter().for_each(|option| printer.line(option)));
    }

    fn message(&mut self, message: &MessageDescriptor) {
        self.comments(&message.parent_file(), message.path());
        let name = if self.depth == 0 { message.full_name() } else { message.name() };
        self.block(&format!("message {name}"), |printer| printer.members(message));
    }

    fn members(&mut self, message: &MessageDescriptor) {
        if message.descriptor_proto().options.as_ref().is_some_and(MessageOptions::deprecated) {
            self.line("option deprecated = true;");
        }
        self.reserved(
            message.reserved_ranges().map(|range| (range.start, range.end - 1)).collect(),
            &message.reserved_names().collect::<Vec<_>>(),
            "reserved",
        );
        self.reserved(
            message.extension_ranges().map(|range| (range.start, range.end - 1)).collect(),
            &[],
            "extensions",
        );
        let mut printed = Vec::new();
        // In the order of the source, with each oneof at its first member.
        for field in ordered(message) {
            let Some(oneof) = field.containing_oneof().filter(|oneof| !oneof.is_synthetic()) else {
                self.field(&field);
                continue;
            };
            if printed.contains(&oneof.name().to_owned()) {
                continue;
            }
            printed.push(oneof.name().to_owned());
            self.comments(&message.parent_file(), oneof.path());
            self.block(&format!("oneof {}", oneof.name()), |printer| {
                for member in ordered(message) {
                    if member.containing_oneof().as_ref() == Some(&oneof) {
                        printer.field(&member);
                    }
                }
            });
        }
        for child in message.child_messages().filter(|child| !child.is_map_entry()) {
            self.blank();
            self.message(&child);
        }
        for child in message.child_enums() {
            self.blank();
            self.enumeration(&child);
        }
    }

    fn field(&mut self, field: &FieldDescriptor) {
        self.comments(&field.parent_file(), field.path());
        let label = label(field);
        let (name, number) = (field.name(), field.number());
        self.line(&format!("{label}{} {name} = {number}{};", type_of(field), options(field)));
    }

    fn enumeration(&mut self, found: &EnumDescriptor) {
        self.comments(&found.parent_file(), found.path());
        let name = if self.depth == 0 { found.full_name() } else { found.name() };
        self.block(&format!("enum {name}"), |printer| {
            if found.enum_descriptor_proto().options.as_ref().is_some_and(EnumOptions::allow_alias) {
                printer.line("option allow_alias = true;");
            }
            printer.reserved(
                found.reserved_ranges().map(|range| (*range.start(), *range.end())).collect(),
                &found.reserved_names().collect::<Vec<_>>(),
                "reserved",
            );
            for value in found.values() {
                printer.comments(&value.parent_file(), value.path());
                let deprecated = value
                    .enum_value_descriptor_proto()
                    .options
                    .as_ref()
                    .is_some_and(EnumValueOptions::deprecated);
                let options = if deprecated { " [deprecated = true]" } else { "" };
                printer.line(&format!("{} = {}{options};", value.name(), value.number()));
            }
        });
    }

    fn reserved<N: PartialEq + ToString>(&mut self, ranges: Vec<(N, N)>, names: &[&str], word: &str) {
        if !ranges.is_empty() {
            let ranges = ranges.into_iter().map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{} to {}", first.to_string(), last.to_string()),
            });
            self.line(&format!("{word} {};", ranges.collect::<Vec<_>>().join(", ")));
        }
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            self.line(&format!("{word} {};", names.join(", ")));
        }
    }
}

/// Sorts fields by their order in the source; descriptors list them by number.
fn ordered(message: &MessageDescriptor) -> Vec<FieldDescriptor> {
    let protos = &message.descriptor_proto().field;
    protos.iter().filter_map(|field| message.get_field(field.number() as u32)).collect()
}

fn label(field: &FieldDescriptor) -> &'static str {
    let in_oneof = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
    match field.cardinality() {
        _ if field.is_map() || in_oneof => "",
        Cardinality::Repeated => "repeated ",
        Cardinality::Required => "required ",
        Cardinality::Optional => {
            let written = match field.parent_file().syntax() {
                Syntax::Proto2 => true,
                Syntax::Proto3 => field.field_descriptor_proto().proto3_optional(),
            };
            if written { "optional " } else { "" }
        }
    }
}

fn type_of(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", name_of(&key.kind()), name_of(&value.kind()))
        }
        kind if field.is_group() => format!("group {}", name_of(&kind)),
        kind => name_of(&kind),
    }
}

fn name_of(kind: &Kind) -> String {
    match kind {
        Kind::Enum(found) => found.full_name().to_owned(),
        Kind::Message(message) => message.full_name().to_owned(),
        // Scalars have the same names in Rust and .proto files, except for upper case.
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn options(field: &FieldDescriptor) -> String {
    let proto = field.field_descriptor_proto();
    let mut options = Vec::new();
    if let Some(default) = &proto.default_value {
        options.push(match field.kind() {
            Kind::String | Kind::Bytes => format!("default = {default:?}"),
            _ => format!("default = {default}"),
        });
    }
    if let Some(FieldOptions { packed: Some(packed), .. }) = proto.options {
        options.push(format!("packed = {packed}"));
    }
    if proto.options.as_ref().is_some_and(FieldOptions::deprecated) {
        options.push("deprecated = true".into());
    }
    if field.json_name() != json_name(field.name()) {
        options.push(format!("json_name = {:?}", field.json_name()));
    }
    if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) }
}

/// Returns the default JSON name of a field.
fn json_name(name: &str) -> String {
    let mut upper = false;
    let mut json = String::new();
    for letter in name.chars() {
        match letter {
            '_' => upper = true,
            _ if upper => {
                json.push(letter.to_ascii_uppercase());
                upper = false;
            }
            _ => json.push(letter),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    const SOURCE: &str = r#"syntax = "proto3";
package t.v1;

// Stores things.
service Store {
  // Puts one.
  rpc Put(stream t.v1.Thing) returns (t.v1.Thing);
  rpc Look(t.v1.Thing) returns (stream t.v1.Thing) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
}

// A thing.
message Thing {
  reserved 4, 10 to 12;
  reserved "gone";
  // Its name.
  string name = 1;
  optional sint64 size = 2;
  repeated t.v1.Thing.Part parts = 3 [deprecated = true];
  map<string, t.v1.Color> colors = 5;
  oneof place {
    bytes here = 7 [json_name = "HERE"];
    double there = 6;
  }

  message Part {}

  enum Shape {
    ROUND = 0;
  }
}

enum Color {
  RED = 0;
  BLUE = 2 [deprecated = true];
}
"#;

    #[test]
    fn source_survives_the_round_trip() {
        let file = protox::file::File::from_source("t.proto", SOURCE).unwrap();
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file.file_descriptor_proto().clone()).unwrap();
        let printed = [
            Symbol::Service(pool.get_service_by_name("t.v1.Store").unwrap()),
            Symbol::Message(pool.get_message_by_name("t.v1.Thing").unwrap()),
            Symbol::Enum(pool.get_enum_by_name("t.v1.Color").unwrap()),
        ]
        .map(|symbol| source(&symbol))
        .join("\n");
        // An element that is described alone has its full name.
        let expected = SOURCE
            .split_once("package t.v1;\n\n")
            .unwrap()
            .1
            .replace("service Store", "service t.v1.Store")
            .replace("message Thing", "message t.v1.Thing")
            .replace("enum Color", "enum t.v1.Color");
        assert_eq!(printed, expected);
    }
}

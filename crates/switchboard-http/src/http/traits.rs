//! Descriptors of services that are Rust traits: their methods and the arguments of these.
//!
//! Traits have no protobuf schema and do not support protobuf. The descriptors describe their JSON: a message with a
//! field of any type for each argument, and a reply of any type. By the rules of protobuf JSON these are exactly the
//! messages that traits accept, so tools that list, describe and call with JSON work. The service refuses protobuf with
//! a text that names the supported codecs.
//!
//! HTTP paths and queries need more: for them, arguments that text can fill have scalar types. Reflection has the paths
//! of a method in the option `google.api.http`, and the scalar types in a separate option, so that a proxy can offer
//! the same paths.

use buffa::{Message, MessageField, UnknownField, UnknownFieldData};
use buffa_descriptor::generated::descriptor::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FieldOptions,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, MethodDescriptorProto, MethodOptions,
    OneofDescriptorProto, ServiceDescriptorProto, SourceCodeInfo,
    field_descriptor_proto::{Label, Type},
    method_options::IdempotencyLevel,
    source_code_info::Location,
};
use switchboard_wire::{HttpRule, Idempotency, Kind, MethodInfo, Params, ServiceInfo, TextKind, TextParam};

/// The folder of these files; `switchboard call` uses it to detect that a service supports only JSON.
const FOLDER: &str = "switchboard/json";
const STRUCT: &str = "google/protobuf/struct.proto";
const VALUE: &str = ".google.protobuf.Value";
const NUMBER_OF_SERVICE: i32 = 6;
/// Most fields of a message: field numbers from here on are reserved.
const ARGUMENTS_MAX: usize = 18_000;

/// Returns whether the service is made from a trait. A missing descriptor is not enough: services written by hand have
/// none either.
pub(super) fn is_trait(service: &ServiceInfo) -> bool {
    let of_trait =
        |method: &MethodInfo| method.schema.is_some() || matches!(method.params, Params::Arguments(_));
    // Reflection does not describe the messages of a request stream.
    let is_open = |method: &MethodInfo| {
        method.params == Params::Unknown && matches!(method.kind, Kind::Bidi | Kind::ClientStream)
    };
    service.descriptor.is_empty()
        && service.methods.iter().any(of_trait)
        && service.methods.iter().all(|method| of_trait(method) || is_open(method))
}

/// Returns an encoded `FileDescriptorSet` of these services.
pub(super) fn descriptors<'a>(services: impl Iterator<Item = &'a ServiceInfo>) -> Vec<u8> {
    let mut files = vec![values()];
    files.extend(services.map(|service| file(service, &untyped)));
    FileDescriptorSet { file: files, ..Default::default() }.encode_to_vec()
}

/// Returns the files of these services for HTTP paths and queries, preceded by the file of [`STRUCT`], if there are
/// any.
pub(super) fn typed<'a>(services: impl Iterator<Item = &'a ServiceInfo>) -> Vec<FileDescriptorProto> {
    let mut services = services.peekable();
    let values = services.peek().is_some().then(values);
    let files = services.map(|service| FileDescriptorProto {
        // Fields that are required need proto2.
        syntax: some("proto2"),
        // The comment is for readers who expect protobuf.
        source_code_info: MessageField::none(),
        ..file(service, &of_text)
    });
    values.into_iter().chain(files).collect()
}

/// Returns whether the file of this name has a service that is a trait.
pub(super) fn is_of_trait(file: &FileDescriptorProto) -> bool {
    file.name.as_deref().is_some_and(|name| name.starts_with(FOLDER))
}

/// Creates the field of an argument from its name, its number and its type in text.
type Field = dyn Fn(&str, i32, Option<TextParam>) -> FieldDescriptorProto;

fn untyped(name: &str, number: i32, param: Option<TextParam>) -> FieldDescriptorProto {
    let mut field = field(name, number, VALUE);
    if let Some(param) = param {
        let mut options = FieldOptions::default();
        let data = UnknownFieldData::Varint(param.number().into());
        options.__buffa_unknown_fields.0.push(UnknownField { number: TextParam::OPTION, data });
        field.options = options.into();
    }
    field
}

/// Returns the options of a method, if it has any: whether it is idempotent, and its HTTP paths.
fn method_options(method: &MethodInfo) -> MessageField<MethodOptions, buffa::Inline<MethodOptions>> {
    let level = match method.idempotency {
        Idempotency::Idempotent => Some(IdempotencyLevel::IDEMPOTENT),
        Idempotency::NoSideEffects => Some(IdempotencyLevel::NO_SIDE_EFFECTS),
        _ => None,
    };
    if level.is_none() && method.http.is_empty() {
        return MessageField::none();
    }
    let mut options = MethodOptions { idempotency_level: level, ..Default::default() };
    if let Some(rules) = HttpRule::encode(method.http) {
        let data = UnknownFieldData::LengthDelimited(rules);
        options.__buffa_unknown_fields.0.push(UnknownField { number: HttpRule::OPTION, data });
    }
    options.into()
}

fn of_text(name: &str, number: i32, param: Option<TextParam>) -> FieldDescriptorProto {
    let Some(TextParam { kind, is_list, is_optional }) = param else { return field(name, number, VALUE) };
    let kind = match kind {
        TextKind::Bool => Type::TYPE_BOOL,
        TextKind::Float => Type::TYPE_DOUBLE,
        TextKind::Int32 => Type::TYPE_INT32,
        TextKind::Int64 => Type::TYPE_INT64,
        TextKind::String => Type::TYPE_STRING,
        TextKind::Uint32 => Type::TYPE_UINT32,
        TextKind::Uint64 => Type::TYPE_UINT64,
    };
    let label = match (is_list, is_optional) {
        (true, _) => Label::LABEL_REPEATED,
        (false, true) => Label::LABEL_OPTIONAL,
        (false, false) => Label::LABEL_REQUIRED,
    };
    FieldDescriptorProto { label: Some(label), ..scalar(name, number, kind) }
}

fn file(info: &ServiceInfo, field_of: &Field) -> FileDescriptorProto {
    let (package, name) = info.name.rsplit_once('.').unwrap_or(("", info.name));
    let mut messages = Vec::new();
    let methods = info.methods.iter().map(|method| {
        let input = match arguments(method) {
            None => VALUE.to_owned(),
            Some(arguments) => {
                let texts = method.texts.iter().copied().chain(std::iter::repeat(None));
                let fields = arguments.iter().zip(texts).zip(1..);
                let fields = fields.map(|((argument, text), number)| FieldDescriptorProto {
                    json_name: some(argument),
                    ..field_of(argument, number, text)
                });
                let message = format!("{name}{}Arguments", method.name);
                messages.push(message_of(&message, fields.collect()));
                if package.is_empty() { format!(".{message}") } else { format!(".{package}.{message}") }
            }
        };
        MethodDescriptorProto {
            name: some(method.name),
            input_type: Some(input),
            output_type: some(VALUE),
            client_streaming: matches!(method.kind, Kind::Bidi | Kind::ClientStream).then_some(true),
            server_streaming: matches!(method.kind, Kind::Bidi | Kind::ServerStream).then_some(true),
            options: method_options(method),
            ..Default::default()
        }
    });
    let service =
        ServiceDescriptorProto { name: some(name), method: methods.collect(), ..Default::default() };
    let comment = " A Rust trait. It takes JSON, not protobuf: as Connect, HTTP/JSON or JSON-RPC, or with\n \
                   `switchboard call`. Every argument and reply is a value of its own type.\n";
    let location = Location {
        path: vec![NUMBER_OF_SERVICE, 0],
        span: vec![0, 0, 0],
        leading_comments: some(comment),
        ..Default::default()
    };
    FileDescriptorProto {
        name: Some(format!("{FOLDER}/{}.proto", info.name)),
        package: some(package).filter(|package| !package.is_empty()),
        dependency: vec![STRUCT.into()],
        message_type: messages,
        service: vec![service],
        source_code_info: SourceCodeInfo { location: vec![location], ..Default::default() }.into(),
        syntax: some("proto3"),
        ..Default::default()
    }
}

/// Returns the arguments of a method whose message is an object, if protobuf allows fields of these names.
fn arguments(method: &MethodInfo) -> Option<&'static [&'static str]> {
    let Params::Arguments(names) = method.params else { return None };
    let is_name = |name: &&str| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    (names.len() <= ARGUMENTS_MAX && names.iter().all(is_name)).then_some(names)
}

/// Creates `google/protobuf/struct.proto`, for servers none of whose services contains it.
fn values() -> FileDescriptorProto {
    let (structure, list) = (".google.protobuf.Struct", ".google.protobuf.ListValue");
    let mut entry =
        message_of("FieldsEntry", vec![scalar("key", 1, Type::TYPE_STRING), field("value", 2, VALUE)]);
    entry.options = MessageOptions { map_entry: Some(true), ..Default::default() }.into();
    let mut map =
        message_of("Struct", vec![repeated(field("fields", 1, ".google.protobuf.Struct.FieldsEntry"))]);
    map.nested_type.push(entry);
    let mut null = scalar("null_value", 1, Type::TYPE_ENUM);
    null.type_name = some(".google.protobuf.NullValue");
    let mut value = message_of(
        "Value",
        vec![
            null,
            scalar("number_value", 2, Type::TYPE_DOUBLE),
            scalar("string_value", 3, Type::TYPE_STRING),
            scalar("bool_value", 4, Type::TYPE_BOOL),
            field("struct_value", 5, structure),
            field("list_value", 6, list),
        ],
    );
    value.field.iter_mut().for_each(|field| field.oneof_index = Some(0));
    value.oneof_decl.push(OneofDescriptorProto { name: some("kind"), ..Default::default() });
    let zero = EnumValueDescriptorProto { name: some("NULL_VALUE"), number: Some(0), ..Default::default() };
    let null = EnumDescriptorProto { name: some("NullValue"), value: vec![zero], ..Default::default() };
    FileDescriptorProto {
        name: some(STRUCT),
        package: some("google.protobuf"),
        message_type: vec![map, value, message_of("ListValue", vec![repeated(field("values", 1, VALUE))])],
        enum_type: vec![null],
        syntax: some("proto3"),
        ..Default::default()
    }
}

fn message_of(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: some(name), field, ..Default::default() }
}

fn field(name: &str, number: i32, message: &str) -> FieldDescriptorProto {
    FieldDescriptorProto { type_name: some(message), ..scalar(name, number, Type::TYPE_MESSAGE) }
}

fn scalar(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: some(name),
        number: Some(number),
        label: Some(Label::LABEL_OPTIONAL),
        r#type: Some(kind),
        ..Default::default()
    }
}

fn repeated(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto { label: Some(Label::LABEL_REPEATED), ..field }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffa_descriptor::DescriptorPool;

    static CALC: ServiceInfo = ServiceInfo {
        name: "calc.v1.Calc",
        methods: &[
            MethodInfo::new("Add", Kind::Unary)
                .params(Params::Arguments(&["a", "the_other"]))
                .texts(&[Some(TextParam { kind: TextKind::Int64, is_list: false, is_optional: true }), None])
                .http(&[HttpRule { verb: "GET", path: "/add/{a}", body: "", response_body: "" }])
                .idempotency(Idempotency::NoSideEffects)
                .schema(1),
            MethodInfo::new("Sum", Kind::ClientStream).schema(2),
            MethodInfo::new("Odd", Kind::ServerStream).params(Params::Arguments(&["zahl_ä"])).schema(3),
        ],
        descriptor: &[],
    };
    static BY_HAND: ServiceInfo =
        ServiceInfo { name: "Hand", methods: &[MethodInfo::new("Do", Kind::Unary)], descriptor: &[] };

    #[test]
    fn trait_is_described_by_its_arguments() {
        assert!(is_trait(&CALC) && !is_trait(&BY_HAND));
        let bytes = descriptors([&CALC].into_iter());
        let pool = DescriptorPool::decode(&bytes).expect("a descriptor set that fits together");
        assert_eq!(pool.services().len(), 1);
        let set = FileDescriptorSet::decode_from_slice(&bytes).expect("a set");
        let file = &set.file[1];
        assert_eq!(file.name.as_deref(), Some("switchboard/json/calc.v1.Calc.proto"));
        let inputs: Vec<_> =
            file.service[0].method.iter().map(|method| method.input_type.as_deref().expect("one")).collect();
        // Messages of a request stream have a message type of their own, and names that protobuf does not allow are
        // left out.
        assert_eq!(inputs, [".calc.v1.CalcAddArguments", VALUE, VALUE]);
        let names: Vec<_> =
            file.message_type[0].field.iter().map(|field| field.json_name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("the_other")]);
        let options = &file.service[0].method[0].options;
        assert_eq!(options.idempotency_level, Some(IdempotencyLevel::NO_SIDE_EFFECTS));
        let [UnknownField { number: HttpRule::OPTION, data: UnknownFieldData::LengthDelimited(rules) }] =
            options.__buffa_unknown_fields.0.iter().as_slice()
        else {
            panic!("{options:?}")
        };
        assert_eq!(HttpRule::decode(rules).expect("rules"), CALC.methods[0].http);
        let texts = file.message_type[0].field.iter().map(|field| {
            let options = field.options.__buffa_unknown_fields.0.iter();
            options.map(|option| (option.number, option.data.clone())).next()
        });
        let number = UnknownFieldData::Varint(CALC.methods[0].texts[0].expect("a text").number().into());
        assert_eq!(texts.collect::<Vec<_>>(), [Some((TextParam::OPTION, number)), None]);
    }
}

//! Fields of messages: found by name and set from the text of paths and queries.

use super::{super::traits, json};
use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use buffa_descriptor::{
    DescriptorPool, EnumValueDescriptor, FieldDescriptor, FieldKind, MessageIndex, ScalarType, SingularKind,
    generated::descriptor::FileDescriptorSet,
};
use serde_json::{Map, Number, Value};
use switchboard_wire::ServiceInfo;

/// Writes padding, as protobuf JSON does, and reads with and without it.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The messages of all services of a server.
pub(super) struct Schema {
    pub(super) pool: DescriptorPool,
}

/// A field that text can fill, and the messages that enclose it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Names in JSON and in the `.proto` file, outermost first.
    names: Vec<(String, String)>,
    pub(super) kind: SingularKind,
    pub(super) is_repeated: bool,
}

impl Schema {
    /// Reads the descriptors of services.
    ///
    /// # Errors
    /// Descriptors that do not fit together.
    pub(super) fn of(services: &[&'static ServiceInfo]) -> Result<Schema, String> {
        let mut all = FileDescriptorSet::default();
        let mut seen: Vec<*const u8> = Vec::new();
        // These bytes are part of the program.
        let options = buffa::DecodeOptions::new().with_element_memory_limit(usize::MAX);
        for service in services.iter().filter(|service| !service.descriptor.is_empty()) {
            if seen.contains(&service.descriptor.as_ptr()) {
                continue;
            }
            seen.push(service.descriptor.as_ptr());
            let set: FileDescriptorSet = options
                .decode_from_slice(service.descriptor)
                .map_err(|error| format!("the descriptor of service {}: {error}", service.name))?;
            for file in set.file {
                if !all.file.iter().any(|known| known.name == file.name) {
                    all.file.push(file);
                }
            }
        }
        for file in traits::typed(services.iter().copied().filter(|service| traits::is_trait(service))) {
            if !all.file.iter().any(|known| known.name == file.name) {
                all.file.push(file);
            }
        }
        let pool = DescriptorPool::new(all).map_err(|error| format!("the descriptors: {error}"))?;
        Ok(Schema { pool })
    }

    /// Returns whether the message holds the arguments of a trait's method, which serde reads.
    pub(super) fn is_arguments(&self, message: MessageIndex) -> bool {
        let name = self.pool.message(message).full_name();
        self.pool.file_containing_symbol(name).is_some_and(traits::is_of_trait)
    }

    /// Returns the field at `path`, names with dots in between, if text can fill it.
    ///
    /// # Errors
    /// An invalid path, with the reason.
    pub(super) fn target(&self, message: MessageIndex, path: &str) -> Result<Target, String> {
        let mut names = Vec::new();
        let mut within = Some(message);
        let mut found: Option<&FieldDescriptor> = None;
        for name in path.split('.') {
            // The writer of the JSON and its parser descend one level for each field.
            if names.len() == json::DEPTH_MAX {
                return Err(format!("fields inside of more than {} others", json::DEPTH_MAX));
            }
            let Some(message) = within else {
                return Err(format!("the field before `{name}` has no fields"));
            };
            let message = self.pool.message(message);
            let field = message
                .field_by_name(name)
                .ok_or_else(|| format!("{} has no field `{name}`", message.full_name()))?;
            names.push((field.json_name().to_owned(), field.name().to_owned()));
            within = match field.kind() {
                FieldKind::Singular(SingularKind::Message(message)) => Some(message),
                _ => None,
            };
            found = Some(field);
        }
        let field = found.ok_or("a field without a name")?;
        let (kind, is_repeated) = match field.kind() {
            FieldKind::Singular(kind) => (kind, false),
            FieldKind::List(kind) => (kind, true),
            FieldKind::Map { .. } => return Err("it is a map, which text cannot fill".to_owned()),
        };
        if let SingularKind::Message(message) = kind {
            let name = self.pool.message(message).full_name();
            if text_kind(name).is_none() {
                return Err(format!("it is a {name}, which text cannot fill: name one of its fields"));
            }
        }
        Ok(Target { names, kind, is_repeated })
    }

    /// Parses `text` as the value of a field of this kind.
    ///
    /// # Errors
    /// The values that the field allows.
    pub(super) fn value(&self, kind: SingularKind, text: &str) -> Result<Value, String> {
        match kind {
            SingularKind::Scalar(scalar) => scalar_value(scalar, text),
            SingularKind::Enum(index) => {
                let enumeration = self.pool.enumeration(index);
                let by_number = || text.parse::<i32>().ok().map(Value::from);
                let by_name = enumeration.value_by_name(text).map(|value| value.name().into());
                by_name.or_else(by_number).ok_or_else(|| {
                    let names: Vec<_> =
                        enumeration.values().iter().take(20).map(EnumValueDescriptor::name).collect();
                    format!("`{text}` is not a {}: use one of {}", enumeration.full_name(), names.join(", "))
                })
            }
            SingularKind::Message(index) => match text_kind(self.pool.message(index).full_name()) {
                Some(Some(scalar)) => scalar_value(scalar, text),
                _ => Ok(text.into()),
            },
        }
    }
}

impl Target {
    /// Sets the field; a repeated field gets one more value, others are overwritten.
    ///
    /// # Errors
    /// `false` if an enclosing field exists and is not an object, or if a repeated field is not an array.
    pub(super) fn put(&self, object: &mut Map<String, Value>, value: Value) -> bool {
        let Some(((json, proto), outer)) = self.names.split_last() else { return false };
        let mut object = object;
        for (json, proto) in outer {
            let slot = slot(object, json, proto);
            if slot.is_null() {
                *slot = Value::Object(Map::new());
            }
            let Value::Object(inner) = slot else { return false };
            object = inner;
        }
        let slot = slot(object, json, proto);
        if !self.is_repeated {
            *slot = value;
            return true;
        }
        if slot.is_null() {
            *slot = Value::Array(Vec::new());
        }
        slot.as_array_mut().map(|list| list.push(value)).is_some()
    }

    /// Returns whether both are the same field, or one is inside the other.
    pub(super) fn overlaps(&self, other: &Target) -> bool {
        self.names.iter().zip(&other.names).all(|(ours, theirs)| ours == theirs)
    }

    /// Returns the field of the message itself that contains this one.
    pub(super) fn outermost(&self) -> &str {
        self.names.first().map_or("", |(json, _)| json)
    }

    /// Returns the path of the field in JSON.
    pub(super) fn json_path(&self) -> String {
        self.names.iter().map(|(json, _)| json.as_str()).collect::<Vec<_>>().join(".")
    }
}

/// Returns the entry of a field, which JSON may have under either name; adds null if there was none.
fn slot<'a>(object: &'a mut Map<String, Value>, json: &str, proto: &str) -> &'a mut Value {
    if json != proto
        && let Some(value) = object.remove(proto)
    {
        object.insert(json.to_owned(), value);
    }
    object.entry(json).or_insert(Value::Null)
}

/// Well-known messages whose JSON is one value: any text, or a scalar.
pub(super) fn text_kind(message: &str) -> Option<Option<ScalarType>> {
    Some(match message.strip_prefix("google.protobuf.")? {
        "Duration" | "FieldMask" | "Timestamp" => None,
        "BoolValue" => Some(ScalarType::Bool),
        "BytesValue" => Some(ScalarType::Bytes),
        "DoubleValue" => Some(ScalarType::Double),
        "FloatValue" => Some(ScalarType::Float),
        "Int32Value" => Some(ScalarType::Int32),
        "Int64Value" => Some(ScalarType::Int64),
        "StringValue" => Some(ScalarType::String),
        "UInt32Value" => Some(ScalarType::Uint32),
        "UInt64Value" => Some(ScalarType::Uint64),
        _ => return None,
    })
}

fn scalar_value(scalar: ScalarType, text: &str) -> Result<Value, String> {
    use ScalarType::{
        Bool, Bytes, Double, Fixed32, Fixed64, Float, Int32, Int64, Sfixed32, Sfixed64, Sint32, Sint64,
        String, Uint32, Uint64,
    };
    fn number<T: std::str::FromStr + Into<Value>>(
        text: &str,
        what: &str,
    ) -> Result<Value, std::string::String> {
        text.parse::<T>().map(Into::into).map_err(|_| format!("`{text}` is not a {what}"))
    }
    match scalar {
        Bool => match text {
            "true" | "1" => Ok(true.into()),
            "false" | "0" => Ok(false.into()),
            _ => Err(format!("`{text}` is neither true nor false")),
        },
        Bytes => {
            let standard = text.replace('-', "+").replace('_', "/");
            let bytes =
                BASE64.decode(standard).map_err(|error| format!("`{text}` is not base64: {error}"))?;
            Ok(BASE64.encode(bytes).into())
        }
        Double | Float => {
            let read = match text {
                "NaN" | "Infinity" | "-Infinity" => return Ok(text.into()),
                _ => text.parse::<f64>().ok().and_then(Number::from_f64),
            };
            read.map(Value::Number).ok_or_else(|| format!("`{text}` is not a number"))
        }
        Fixed32 | Uint32 => number::<u32>(text, "number from 0 to 2^32 - 1"),
        Fixed64 | Uint64 => number::<u64>(text, "number from 0 to 2^64 - 1"),
        Int32 | Sfixed32 | Sint32 => number::<i32>(text, "number of 32 bits"),
        Int64 | Sfixed64 | Sint64 => number::<i64>(text, "number of 64 bits"),
        String => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarType::{Bool, Bytes, Double, Fixed64, Float, Int32, Int64, Sint32, String, Uint32, Uint64};
    use serde_json::json;

    #[test]
    fn text_becomes_the_json_of_its_type() {
        for (scalar, text, value) in [
            (Bool, "true", json!(true)),
            (Bool, "0", json!(false)),
            (Bytes, "-_8", json!("+/8=")),
            (Bytes, "+/8=", json!("+/8=")),
            (Bytes, "", json!("")),
            (Double, "-1.5e3", json!(-1500.0)),
            (Double, "-Infinity", json!("-Infinity")),
            (Float, "NaN", json!("NaN")),
            (Fixed64, "18446744073709551615", json!(u64::MAX)),
            (Int32, "-2147483648", json!(i32::MIN)),
            (Int64, "-9223372036854775808", json!(i64::MIN)),
            (Sint32, "+7", json!(7)),
            (String, "", json!("")),
            (String, "true", json!("true")),
            (Uint32, "4294967295", json!(u32::MAX)),
        ] {
            assert_eq!(scalar_value(scalar, text), Ok(value), "{scalar:?} {text}");
        }
        for (scalar, text) in [
            (Bool, "yes"),
            (Bool, ""),
            (Bytes, "*"),
            (Double, "inf"),
            (Double, "1e999"),
            (Double, ""),
            (Int32, "2147483648"),
            (Int32, "1.0"),
            (Int64, "0x1"),
            (Uint32, "-1"),
            (Uint64, "18446744073709551616"),
        ] {
            assert!(scalar_value(scalar, text).is_err(), "{scalar:?} {text}");
        }
    }

    #[test]
    fn fields_are_put_where_they_are_under_either_name() {
        let target = |is_repeated| Target {
            names: [("outerOne", "outer_one"), ("inner", "inner")]
                .map(|(json, proto)| (json.to_owned(), proto.to_owned()))
                .to_vec(),
            kind: SingularKind::Scalar(Int32),
            is_repeated,
        };
        let mut object = Map::new();
        assert!(target(true).put(&mut object, 1.into()) && target(true).put(&mut object, 2.into()));
        assert_eq!(Value::from(object), json!({"outerOne": {"inner": [1, 2]}}));

        let Value::Object(mut object) = json!({"outer_one": {"inner": 5, "other": 6}}) else { panic!() };
        assert!(target(false).put(&mut object, 1.into()));
        assert_eq!(Value::from(object.clone()), json!({"outerOne": {"inner": 1, "other": 6}}));
        assert!(!target(true).put(&mut object, 1.into()));
        object.insert("outerOne".to_owned(), 3.into());
        assert!(!target(false).put(&mut object, 1.into()));
    }
}

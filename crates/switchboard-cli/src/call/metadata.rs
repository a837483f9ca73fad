//! Metadata on the command line and in output: binary values in base64.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use switchboard::Metadata;

/// With padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Parses `name: value` of the command line.
pub(crate) fn parse(text: &str) -> Result<(String, Bytes), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'name: value'")?;
    let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
    let value = if name.ends_with("-bin") {
        let decoded = from_base64(value);
        Bytes::from(decoded.map_err(|error| format!("the value of {name} is not base64: {error}"))?)
    } else {
        Bytes::copy_from_slice(value.as_bytes())
    };
    let checked = Metadata::new().insert(&name, value.clone());
    checked.map(|()| (name, value)).map_err(|error| error.to_string())
}

/// Formats a value as text.
pub(crate) fn text(name: &str, value: &Bytes) -> String {
    if name.ends_with("-bin") { base64(value) } else { String::from_utf8_lossy(value).into_owned() }
}

/// Encodes bytes as base64 text.
pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes base64 text.
pub(super) fn from_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    BASE64.decode(text)
}

/// Maps names to the list of their values.
pub(crate) fn json(metadata: &Metadata) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    for (name, value) in metadata.iter() {
        let values = object.entry(name).or_insert_with(|| serde_json::Value::Array(Vec::new()));
        if let serde_json::Value::Array(values) = values {
            values.push(text(name, value).into());
        }
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_and_binary_ones_decoded() {
        assert_eq!(parse("X-Tenant: a:b "), Ok(("x-tenant".into(), Bytes::from_static(b"a:b"))));
        assert_eq!(parse("k-bin:AAE"), Ok(("k-bin".into(), Bytes::from_static(b"\x00\x01"))));
        assert_eq!(parse("k-bin:AAE="), parse("k-bin:AAE"));
        for (wrong, why) in [("x", "'name: value'"), ("k-bin: ?", "base64"), ("ü: x", "metadata name")] {
            assert!(parse(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn values_of_one_name_stay_together() {
        let mut metadata = Metadata::new();
        for (name, value) in [("a", "1"), ("b-bin", "\u{1}"), ("a", "2")] {
            metadata.insert(name, value).unwrap();
        }
        assert_eq!(json(&metadata), serde_json::json!({"a": ["1", "2"], "b-bin": ["AQ=="]}));
    }
}

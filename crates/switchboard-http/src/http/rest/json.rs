//! JSON of a request: nested as deep as protobuf allows, without duplicate keys.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;
use switchboard_core::Result;
use switchboard_wire::Status;

/// Deepest nesting of JSON, as in protobuf JSON.
pub(super) const DEPTH_MAX: usize = 100;

/// Parses JSON.
///
/// # Errors
/// `InvalidArgument` for text that is not JSON, nests too deep or has a duplicate key.
pub(super) fn read(text: &[u8]) -> Result<Value> {
    check_depth(text)?;
    let read: Strict = serde_json::from_slice(text)
        .map_err(|error| Status::invalid_argument(format!("the body is not JSON: {error}")))?;
    Ok(read.0)
}

/// Counts brackets; whether the text is valid JSON is checked by its parser.
///
/// # Errors
/// `InvalidArgument` over the limit.
pub(super) fn check_depth(text: &[u8]) -> Result<()> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    let text = format!("the JSON nests deeper than {DEPTH_MAX} levels");
                    return Err(Status::invalid_argument(text));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// A JSON value without duplicate keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Strict, D::Error> {
        from.deserialize_any(Reader).map(Strict)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                return Err(Error::custom(format!("the key `{key}` is duplicate")));
            }
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept() {
        let text = r#"{"a":[1,-2,1.5,true,null,"x\"{"],"b":{"a":18446744073709551615}}"#;
        assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn duplicate_keys_and_deep_nesting_are_refused() {
        let twice = read(br#"{"a":{"b":1,"b":2}}"#).unwrap_err();
        assert!(twice.message().contains("`b` is duplicate"), "{twice}");
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(nested(100).as_bytes()).is_ok());
        assert!(read(nested(101).as_bytes()).unwrap_err().message().contains("100 levels"));
        assert!(check_depth(format!("\"\\\"{}\"", "[".repeat(200)).as_bytes()).is_ok());
        assert!(read(b"{").unwrap_err().message().contains("not JSON"));
    }
}

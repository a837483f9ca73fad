//! Reading of values whose fields have names, with the path of the place that is read: for errors, and to refuse fields
//! that a type does not have.
//!
//! Costs about as much again as reading without it, so a message is read so only after it has failed, or where unknown
//! fields are refused.

mod access;

use super::FieldNames;
use crate::near::nearest;
use access::{Role, Watch};
use serde::{
    Deserializer,
    de::{DeserializeOwned, Error, Visitor},
};
use std::{cell::RefCell, fmt::Write};

/// Longest path in an error, in bytes: the names in it are the caller's.
const PATH_BYTES_MAX: usize = 256;

/// The place that is read, `items[1].price`, and what was found there.
#[derive(Default)]
pub(super) struct Track {
    path: RefCell<String>,
    unknown: RefCell<Option<Unknown>>,
    refuses_unknown: bool,
}

/// A field that the type of its message does not have.
struct Unknown {
    path: String,
    near: Option<String>,
}

/// A value that could not be read.
pub(super) struct Failure<E> {
    /// Empty at the outermost value.
    path: String,
    unknown: Option<Unknown>,
    error: E,
}

impl<E: std::fmt::Display> std::fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.unknown {
            Some(Unknown { path, near: None }) => write!(f, "unknown field {}", shown(path)),
            Some(Unknown { path, near: Some(near) }) => {
                write!(f, "unknown field {}; did you mean {near}?", shown(path))
            }
            None if self.path.is_empty() => self.error.fmt(f),
            None => write!(f, "field {}: {}", shown(&self.path), self.error),
        }
    }
}

/// The path as far as an error has it.
fn shown(path: &str) -> &str {
    &path[..path.floor_char_boundary(PATH_BYTES_MAX)]
}

impl<E> Failure<E> {
    /// The outermost value could not be read.
    pub(super) fn outermost(error: E) -> Failure<E> {
        Failure { path: String::new(), unknown: None, error }
    }

    /// Looks among `names` for the unknown field.
    pub(super) fn nearest(mut self, names: &FieldNames) -> Failure<E> {
        if let Some(unknown) = &mut self.unknown
            && unknown.near.is_none()
        {
            unknown.near = names.nearest(&unknown.path);
        }
        self
    }
}

/// Reads a value.
///
/// # Errors
/// The failure with its place; with `refuses_unknown` also a field that its message does not have, the first one.
pub(super) fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    from: D,
    refuses_unknown: bool,
) -> Result<T, Failure<D::Error>> {
    let track = Track { refuses_unknown, ..Track::default() };
    let result = T::deserialize(Located { inner: from, track: &track, role: Role::Value });
    result.map_err(|error| Failure {
        path: track.path.into_inner(),
        unknown: track.unknown.into_inner(),
        error,
    })
}

impl Track {
    fn len(&self) -> usize {
        self.path.borrow().len()
    }

    /// Goes back to the place whose path has this length.
    fn back_to(&self, len: usize) {
        self.path.borrow_mut().truncate(len);
    }

    fn enter_field(&self, name: &dyn std::fmt::Display) {
        let mut path = self.path.borrow_mut();
        let dot = if path.is_empty() { "" } else { "." };
        // Writing to a `String` does not fail.
        let _ = write!(path, "{dot}{name}");
    }

    fn enter_item(&self, index: usize) {
        let _ = write!(self.path.borrow_mut(), "[{index}]");
    }

    /// Keeps the field at the current place as unknown, if such fields are refused.
    fn refuse(&self, names: &'static [&'static str], parent: usize) -> bool {
        let path = self.path.borrow();
        let name = path[parent.min(path.len())..].trim_start_matches('.');
        // A declared field may be of a type that ignores its value.
        if !self.refuses_unknown || names.contains(&name) {
            return false;
        }
        let near = nearest(name, names.iter().copied()).map(str::to_owned);
        *self.unknown.borrow_mut() = Some(Unknown { path: path.clone(), near });
        true
    }
}

/// Something of serde, a deserializer above all, that keeps the path.
struct Located<'t, X> {
    inner: X,
    track: &'t Track,
    role: Role,
}

impl<'t, X> Located<'t, X> {
    fn watch<V>(&self, inner: V, names: &'static [&'static str]) -> Watch<'t, V> {
        Watch { inner, track: self.track, is_key: matches!(self.role, Role::Key), names }
    }
}

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.watch(visitor, &[]);
            self.inner.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Located<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any()
        deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64()
        deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf()
        deserialize_option() deserialize_unit() deserialize_seq() deserialize_map() deserialize_identifier()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.watch(visitor, fields);
        self.inner.deserialize_struct(name, fields, visitor)
    }

    /// The value of a field that its message does not have.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        if let Role::Field { names, parent } = self.role
            && self.track.refuse(names, parent)
        {
            return Err(D::Error::custom("unknown field"));
        }
        let visitor = self.watch(visitor, &[]);
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is only read")]
    struct Order {
        items: Vec<Item>,
        #[serde(default)]
        shape: Option<Shape>,
        #[serde(default)]
        by_number: BTreeMap<u32, Item>,
        #[serde(default)]
        skipped: serde::de::IgnoredAny,
        #[serde(default)]
        pair: Option<(u8, Wrapped)>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is only read")]
    struct Item {
        price: i32,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is only read")]
    struct Wrapped(Item);

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "it is only read")]
    enum Shape {
        Circle { radius: u32 },
        Square(Item),
        Point,
    }

    fn read_order(json: &str, refuses_unknown: bool) -> String {
        let mut from = serde_json::Deserializer::from_str(json);
        match read::<Order, _>(&mut from, refuses_unknown) {
            Ok(_) => "read".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn unknown_fields_are_named_with_their_path_and_a_near_name() {
        for (json, wanted) in [
            (
                r#"{"items": [{"price": 1}, {"price": 2, "prise": 3}]}"#,
                "unknown field items[1].prise; did you mean price?",
            ),
            (r#"{"items": [], "itms": 1}"#, "unknown field itms; did you mean items?"),
            (r#"{"items": [], "colour": {"a": [1]}}"#, "unknown field colour"),
            (
                r#"{"items": [], "shape": {"Circle": {"radius": 1, "radus": 1}}}"#,
                "unknown field shape.Circle.radus; did you mean radius?",
            ),
            (r#"{"items": [], "shape": {"Square": {"price": 1, "a": 1}}}"#, "unknown field shape.Square.a"),
            (r#"{"items": [], "by_number": {"7": {"price": 1, "a": 1}}}"#, "unknown field by_number.7.a"),
            (r#"{"items": [], "pair": [1, {"price": 1, "a": 1}]}"#, "unknown field pair[1].a"),
        ] {
            assert_eq!(read_order(json, true), wanted, "{json}");
            assert_eq!(read_order(json, false), "read", "{json}");
        }
    }

    #[test]
    fn known_fields_are_read() {
        for json in [
            r#"{"items": [{"price": 1}], "shape": "Point", "by_number": {"1": {"price": 1}}, "skipped": {"a": 1}}"#,
            r#"{"pair": [1, {"price": 1}], "shape": {"Circle": {"radius": 1}}, "items": []}"#,
            r#"{"shape": null, "items": []}"#,
        ] {
            assert_eq!(read_order(json, true), "read", "{json}");
        }
    }

    #[test]
    fn failures_have_the_path_of_the_value() {
        for (json, wanted) in [
            (
                r#"{"items": [{"price": 1}, {"price": "x"}]}"#,
                "field items[1].price: invalid type: string \"x\", expected i32",
            ),
            (r#"{"items": [{"price": 1}, {}]}"#, "field items[1]: missing field `price`"),
            (r#"{"items": [], "shape": "Hexagon"}"#, "field shape: unknown variant `Hexagon`"),
            (
                r#"{"items": [], "shape": {"Circle": {"radius": -1}}}"#,
                "field shape.Circle.radius: invalid value",
            ),
            (r#"{"items": [], "by_number": {"x": {"price": 1}}}"#, "field by_number: invalid value"),
            (r#"{"shape": null}"#, "missing field `items`"),
            (r#"[]"#, "invalid length 0, expected struct Order"),
        ] {
            let text = read_order(json, false);
            assert!(text.starts_with(wanted), "{json}: {text}");
        }
    }
}

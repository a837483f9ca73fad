//! Converts JSON values to the types of schemas, with errors that name the field.

use serde_json::Value as Json;

/// A value that does not fit.
pub(super) struct Wrong {
    /// Path from the request to the value.
    path: String,
    text: String,
}

impl Wrong {
    pub(super) fn new(text: impl Into<String>) -> Wrong {
        Wrong { path: String::new(), text: text.into() }
    }

    pub(super) fn expected(what: &str, json: &Json) -> Wrong {
        let mut found = json.to_string();
        if found.len() > SHOWN_MAX {
            found.truncate(found.floor_char_boundary(SHOWN_MAX));
            found.push('…');
        }
        Wrong::new(format!("expected {what} and not {found}"))
    }

    pub(super) fn within(mut self, step: &str) -> Wrong {
        self.path.insert_str(0, step);
        self
    }

    pub(super) fn said(self) -> String {
        match self.path.trim_start_matches('.') {
            "" => self.text,
            path => format!("field {path}: {}", self.text),
        }
    }
}

/// Most bytes of a value that an error shows.
const SHOWN_MAX: usize = 60;

pub(super) fn integer<T: TryFrom<i128>>(json: &Json) -> Result<T, Wrong> {
    let number = json.as_number().and_then(|number| T::try_from(number.as_i128()?).ok());
    number.ok_or_else(|| Wrong::expected(&format!("a whole number of {} bits", 8 * size_of::<T>()), json))
}

/// Reads a number, or the name of a number that JSON cannot represent.
pub(super) fn double(json: &Json) -> Result<f64, Wrong> {
    let named = match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => json.as_f64(),
    };
    named.ok_or_else(|| Wrong::expected("a number", json))
}

/// Returns the name of a number that JSON cannot represent.
pub(super) fn name_of_double(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_finite() => None,
        _ if number.is_nan() => Some("NaN"),
        _ if number > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

pub(super) fn boolean(json: &Json) -> Result<bool, Wrong> {
    json.as_bool().ok_or_else(|| Wrong::expected("true or false", json))
}

pub(super) fn text<'a>(json: &'a Json, what: &str) -> Result<&'a str, Wrong> {
    json.as_str().ok_or_else(|| Wrong::expected(what, json))
}

pub(super) fn base64(text: &str) -> Result<Vec<u8>, Wrong> {
    let decoded = super::metadata::from_base64(text);
    decoded.map_err(|why| Wrong::new(format!("the text is not base64: {why}")))
}

pub(super) fn list(json: &Json) -> Result<&[Json], Wrong> {
    json.as_array().map(Vec::as_slice).ok_or_else(|| Wrong::expected("a list", json))
}

/// Returns the object of a value of the type with this name.
pub(super) fn object<'a>(name: &str, json: &'a Json) -> Result<&'a serde_json::Map<String, Json>, Wrong> {
    json.as_object().ok_or_else(|| Wrong::expected(&format!("an object, {name},"), json))
}

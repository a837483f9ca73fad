//! Reading of requests from a JSON text.

use super::{
    BATCH_MAX, DEPTH_MAX, ErrorObject, ID_BYTES_MAX,
    scan::{Scanned, Scanner},
};
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// A received JSON text.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: JSON-RPC 2.0, section 6: one request or a batch
pub enum Body {
    /// Several requests with a common response; at least one.
    Batch(Vec<Bytes>),
    /// One request.
    One(Bytes),
}

/// A request or notification.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The id as it was written; `None` for a notification.
    pub id: Option<Bytes>,
    /// The name of the method.
    pub method: String,
    /// An array or object as it was written.
    pub params: Option<Bytes>,
}

/// An entry that is not a request, with its id if that is readable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invalid {
    /// The id as it was written.
    pub id: Option<Bytes>,
    /// Reason for the rejection.
    pub error: ErrorObject,
}

impl Body {
    /// Reads a complete text.
    ///
    /// # Errors
    /// Returns an error for text that is not JSON or nested too deep, for an empty batch, and for one with too many
    /// entries.
    pub fn read(text: &Bytes) -> Result<Body, ErrorObject> {
        let value: &RawValue =
            serde_json::from_slice(text).map_err(|error| ErrorObject::parse(&error.to_string()))?;
        let value = value.get();
        if Scanner::default().scan(value.as_bytes()) == Scanned::Deep {
            return Err(ErrorObject::parse(&format!("nested deeper than {DEPTH_MAX}")));
        }
        let whole = text.slice_ref(value.as_bytes());
        if !value.starts_with('[') {
            return Ok(Body::One(whole));
        }
        let FirstOf { values, more } = FirstOf::read(value, BATCH_MAX)?;
        if more {
            return Err(ErrorObject::invalid(&format!("a batch has at most {BATCH_MAX} entries")));
        }
        if values.is_empty() {
            return Err(ErrorObject::invalid("a batch must have at least one entry"));
        }
        Ok(Body::Batch(values.into_iter().map(|value| text.slice_ref(value.get().as_bytes())).collect()))
    }
}

impl Request {
    /// Reads one entry of a [`Body`].
    ///
    /// # Errors
    /// Returns an error for an entry that is not a request object.
    pub fn read(text: &Bytes) -> Result<Request, Box<Invalid>> {
        let wrong = |id: Option<Bytes>, why: &str| Box::new(Invalid { id, error: ErrorObject::invalid(why) });
        if text.first() != Some(&b'{') {
            return Err(wrong(None, "a request is an object"));
        }
        let Members { id, jsonrpc, method, params } =
            serde_json::from_slice(text).map_err(|error| wrong(None, &error.to_string()))?;
        let id = match id.map(RawValue::get) {
            None => None,
            Some(id)
                if !id.starts_with(['"', '-', 'n'])
                    && !id.starts_with(|first: char| first.is_ascii_digit()) =>
            {
                return Err(wrong(None, "an id is a string, a number or null"));
            }
            Some(id) if id.len() > ID_BYTES_MAX => {
                return Err(wrong(None, &format!("an id has at most {ID_BYTES_MAX} bytes")));
            }
            // A copy, because the id lives as long as the call and the text does not have to.
            Some(id) => Some(Bytes::copy_from_slice(id.as_bytes())),
        };
        let string = |value: Option<&RawValue>| {
            value.and_then(|value| serde_json::from_str::<String>(value.get()).ok())
        };
        if string(jsonrpc).as_deref() != Some("2.0") {
            return Err(wrong(id, "jsonrpc must be \"2.0\""));
        }
        let Some(method) = string(method) else { return Err(wrong(id, "method must be a string")) };
        let params = match params.map(RawValue::get) {
            // The specification does not allow null, but some languages write it for a missing value.
            None | Some("null") => None,
            Some(params) if params.starts_with(['[', '{']) => Some(text.slice_ref(params.as_bytes())),
            Some(_) => return Err(wrong(id, "params must be an array or object")),
        };
        Ok(Request { id, method, params })
    }
}

/// Returns the member `id` of the parameters of `rpc.cancel`, as it is written.
pub(super) fn id_of(params: &Bytes) -> Option<&[u8]> {
    let members = serde_json::from_slice::<Members<'_>>(params).ok()?;
    members.id.map(|id| id.get().as_bytes())
}

/// The members of an object that are used; of repeated members the last one counts.
#[derive(Default)]
struct Members<'a> {
    id: Option<&'a RawValue>,
    jsonrpc: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key::<String>()? {
                    let value: &RawValue = map.next_value()?;
                    match name.as_str() {
                        "id" => members.id = Some(value),
                        "jsonrpc" => members.jsonrpc = Some(value),
                        "method" => members.method = Some(value),
                        "params" => members.params = Some(value),
                        _ => {}
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Read)
    }
}

/// The first values of an array; a long array must not use more memory than its text.
pub(super) struct FirstOf<'a> {
    pub(super) values: Vec<&'a RawValue>,
    /// True if there were more values.
    pub(super) more: bool,
}

impl<'a> FirstOf<'a> {
    /// Reads at most `max` values of an array that is valid JSON.
    pub(super) fn read(array: &'a str, max: usize) -> Result<FirstOf<'a>, ErrorObject> {
        struct Read(usize);

        impl<'de> Visitor<'de> for Read {
            type Value = FirstOf<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<FirstOf<'de>, A::Error> {
                let mut values = Vec::new();
                while values.len() < self.0 {
                    let Some(value) = seq.next_element()? else { return Ok(FirstOf { values, more: false }) };
                    values.push(value);
                }
                let mut more = false;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    more = true;
                }
                Ok(FirstOf { values, more })
            }
        }

        let mut deserializer = serde_json::Deserializer::from_str(array);
        deserializer.deserialize_seq(Read(max)).map_err(|error| ErrorObject::parse(&error.to_string()))
    }
}

//! Definition of the messages: one list of fields for JSON and for Protocol Buffers.

use super::field::Field;
use crate::proto::{Fields, Malformed};
use bytes::BytesMut;

/// A message of the protocol.
pub(super) trait Message: Default + PartialEq {
    /// Appends the fields that are not empty, as Protocol Buffers.
    fn encode(&self, into: &mut BytesMut);

    /// Reads fields of Protocol Buffers. Unknown ones are skipped.
    fn decode(fields: Fields<'_>) -> Result<Self, Malformed>;
}

/// Defines messages: `NUMBER name: Type` for each field, whose name is the one in JSON.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( $(#[$field_doc:meta])* $number:literal $field:ident: $kind:ty, )* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[serde(skip_serializing_if = "crate::centrifuge::field::Field::is_empty")]
                pub $field: $kind,
            )*
        }

        impl crate::centrifuge::message::Message for $name {
            #[allow(unused_variables, reason = "a message may have no fields")]
            fn encode(&self, into: &mut bytes::BytesMut) {
                $(crate::centrifuge::message::put($number, &self.$field, into);)*
            }

            fn decode(
                mut fields: crate::proto::Fields<'_>,
            ) -> Result<Self, crate::proto::Malformed> {
                let mut message = $name::default();
                while let Some((number, value)) = fields.next()? {
                    match number {
                        $($number => crate::centrifuge::field::Field::merge(&mut message.$field, value)?,)*
                        _ => {}
                    }
                }
                Ok(message)
            }
        }
    )*};
}

pub(super) use messages;

/// Appends a field that is not empty.
pub(super) fn put<F: Field>(number: u32, field: &F, into: &mut BytesMut) {
    if !field.is_empty() {
        field.put(number, into);
    }
}

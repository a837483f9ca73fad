//! Conversions by `.fbs` files: FlatBuffers tables, and objects by the names of their fields in JSON and MessagePack.
//!
//! ```text
//! JSON, MessagePack ─► value ─► table
//! JSON, MessagePack, Thrift ─► protobuf ─► value ─► table        with a protobuf schema besides the file
//! ```
//!
//! Objects have the form of servers and clients that are generated from the file. With a protobuf schema, callers see
//! its messages, and both schemas must name the same fields.

use super::messages::{Messages, Side, read_value, write_value};
use crate::call::{For, Look, Procedure, Root};
use bytes::Bytes;
use serde_json::Value;
use switchboard::{Codec, Result, proxy::Translation};

/// Bytes that every message may have after conversion.
const ALLOWANCE: usize = 1 << 20;
/// Factor by which a larger message may grow: tables contain no names and defaults, and always complete structs. The
/// same factor applies to Thrift.
const GROWTH_MAX: usize = 16;

/// Messages of a method as tables.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    procedure: Procedure,
    /// Types in protobuf, by which all other codecs are converted.
    messages: Option<Messages>,
}

impl Tables {
    pub(super) fn new(procedure: &Procedure, messages: Option<Messages>) -> Tables {
        Tables { procedure: procedure.clone(), messages }
    }

    /// Converts the messages of a call.
    pub(super) fn translation(self, from: Codec, to: Codec) -> Translation {
        let of_replies = self.clone();
        Translation::new(
            move |request| self.rewritten(Side::Request, &request, from, to),
            move |reply| of_replies.rewritten(Side::Reply, &reply, to, from),
        )
    }

    /// Converts a message to JSON for people.
    ///
    /// # Errors
    /// A malformed message.
    pub(super) fn shown(&self, side: Side, message: &Bytes) -> std::result::Result<Value, String> {
        let text = self.text(side, message, Look::for_people(true, false))?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    fn rewritten(&self, side: Side, message: &Bytes, from: Codec, to: Codec) -> Result<Bytes> {
        let wrong = |why: String| side.malformed(from, &why);
        let Some(messages) = &self.messages else {
            let no_table = |why: String| side.malformed(Codec::FlatBuffers, &why);
            return match [from, to].map(is_table) {
                [true, true] => Ok(message.clone()),
                [true, false] => self.read(side, message, to).map_err(no_table),
                [false, _] => read_value(message, from)
                    .and_then(|value| self.written(side, &value, message))
                    .map_err(wrong),
            };
        };
        if from == Codec::FlatBuffers {
            let read = self.text(side, message, Look::for_protobuf());
            let message = read.and_then(|text| messages.of_names(side, &text)).map_err(wrong)?;
            return messages.rewritten(side, &message, Codec::Proto, to);
        }
        let message = messages.rewritten(side, message, from, Codec::Proto)?;
        let value = messages.by_name(side, &message);
        value.and_then(|value| self.written(side, &value, &message)).map_err(wrong)
    }

    /// Converts a table to JSON or MessagePack.
    fn read(&self, side: Side, message: &Bytes, to: Codec) -> std::result::Result<Bytes, String> {
        let text = self.text(side, message, Look::for_programs())?;
        match to {
            Codec::Json => Ok(text.into()),
            _ => write_value(&serde_json::from_str(&text).map_err(|error| error.to_string())?, to),
        }
    }

    fn text(&self, side: Side, message: &Bytes, look: Look) -> std::result::Result<String, String> {
        let read = self.root(side).read(message, look, room(message));
        read.map_err(|malformed| malformed.to_string())
    }

    fn written(&self, side: Side, value: &Value, message: &Bytes) -> std::result::Result<Bytes, String> {
        self.root(side).write(value, For::Programs, room(message))
    }

    fn root(&self, side: Side) -> Root<'_> {
        match side {
            Side::Request => self.procedure.request(),
            Side::Reply => self.procedure.reply(),
        }
    }
}

/// Returns the bytes that a message may have after conversion.
fn room(message: &Bytes) -> usize {
    message.len().saturating_mul(GROWTH_MAX).max(ALLOWANCE)
}

/// Without protobuf messages, the codec protobuf means tables.
fn is_table(codec: Codec) -> bool {
    matches!(codec, Codec::FlatBuffers | Codec::Proto)
}

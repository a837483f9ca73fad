//! What `.fbs` files say: tables of FlatBuffers, and objects by the names of their fields in JSON and MessagePack.
//!
//! ```text
//! JSON, MessagePack ─► value ─► table
//! JSON, MessagePack, Thrift ─► protobuf ─► value ─► table        with a schema of protobuf beside the file
//! ```
//!
//! Objects are as servers and clients made of the file have them. With a schema of protobuf that is what callers see,
//! and both have to name the same fields.

use super::messages::{Messages, Side, read_value, write_value};
use crate::call::{For, Look, Procedure, Root};
use bytes::Bytes;
use serde_json::Value;
use switchboard::{Codec, Result, proxy::Translation};

/// What every message may take once it is rewritten, in bytes.
const ALLOWANCE: usize = 1 << 20;
/// How many times larger than that a message may become: names and defaults are not in tables, and structs are whole
/// there. So it is with Thrift.
const GROWTH_MAX: usize = 16;

/// Messages of a method as tables.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    procedure: Procedure,
    /// In protobuf, and by that in all other codecs.
    messages: Option<Messages>,
}

impl Tables {
    pub(super) fn new(procedure: &Procedure, messages: Option<Messages>) -> Tables {
        Tables { procedure: procedure.clone(), messages }
    }

    /// Rewrites the messages of a call.
    pub(super) fn translation(self, from: Codec, to: Codec) -> Translation {
        let of_replies = self.clone();
        Translation::new(
            move |request| self.rewritten(Side::Request, &request, from, to),
            move |reply| of_replies.rewritten(Side::Reply, &reply, to, from),
        )
    }

    /// As JSON for people.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn shown(&self, side: Side, message: &Bytes) -> std::result::Result<Value, String> {
        let text = self.text(side, message, Look::for_people(true, false))?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    fn rewritten(&self, side: Side, message: &Bytes, from: Codec, to: Codec) -> Result<Bytes> {
        let wrong = |why: String| side.wrong(from, &why);
        let Some(messages) = &self.messages else {
            let no_table = |why: String| side.wrong(Codec::FlatBuffers, &why);
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

    /// A table in JSON or MessagePack.
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

/// What a message may take once it is rewritten.
fn room(message: &Bytes) -> usize {
    message.len().saturating_mul(GROWTH_MAX).max(ALLOWANCE)
}

/// Without messages of protobuf, what says to be them is tables.
fn is_table(codec: Codec) -> bool {
    matches!(codec, Codec::FlatBuffers | Codec::Proto)
}

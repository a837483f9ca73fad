//! Converts messages from one codec to another: protobuf by its schema, Thrift by that or by a `.thrift` file,
//! FlatBuffers by a `.fbs` file, JSON and MessagePack into each other without one.

mod functions;
mod messages;
mod tables;

pub(super) use messages::Side;

use super::schema::{Method, ProxySchema};
use messages::{Messages, read_value};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use switchboard::{
    Call, Codec, Result, Status,
    proxy::{Translate, Translation},
};
use tables::Tables;

const OTHERS: &str =
    "proto, json, msgpack, thrift and flatbuffers can be converted to each other, but no others";
const NO_SCHEMA: &str = "its messages are unknown: give the proxy a schema with --proto, --descriptor-set or \
                         --reflect";
const NO_FILE: &str = "its arguments are unknown: give the proxy the .thrift file of the service with \
                       --thrift, or a schema of protobuf with --proto, --descriptor-set or --reflect";
const FILE_ALONE: &str = "a .thrift file has no protobuf types: give the proxy a protobuf schema too, with --proto, \
                          --descriptor-set or --reflect";
const NO_TABLES: &str = "its tables are unknown: give the proxy the .fbs file of the service with --fbs";
const TABLES_ALONE: &str = "a .fbs file has no Thrift types: give the proxy a protobuf schema too, with --proto, \
                            --descriptor-set or --reflect";
const OTHER_SHAPE: &str = "its .thrift file has other arguments than a struct of number 1, or another result than a \
                           struct, which protobuf cannot express";

/// Converts messages of the known methods.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    methods: Arc<HashMap<String, Method>>,
}

/// Groups of codecs that need the same information for conversion.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    /// Messages contain the names of their fields.
    Plain,
    Proto,
    /// FlatBuffers.
    Tables,
    Thrift,
    Other,
}

impl Rewrite {
    pub(super) fn new(known: &ProxySchema) -> Rewrite {
        Rewrite { methods: known.methods.clone() }
    }
}

impl Translate for Rewrite {
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
        let (name, from) = (call.full_name(), call.codec());
        let method = self.methods.get(&name);
        let known = method.map_or((None, None), |known| (known.messages.as_ref(), known.function.as_ref()));
        let [one, other] = [from, to].map(|codec| Family::of_method(method, codec));
        let why = match (one, other, known) {
            (Family::Other, ..) | (_, Family::Other, _) => OTHERS,
            (Family::Plain, Family::Plain, _) => return Ok(Messages::plain().translation(from, to)),
            (Family::Tables, beside, _) | (beside, Family::Tables, _) => match tables(method, beside)? {
                Ok(tables) => return Ok(tables.translation(from, to)),
                Err(why) => why,
            },
            (one, other, (Some(known), function)) => {
                let has_thrift = [one, other].contains(&Family::Thrift);
                match function.filter(|function| has_thrift && !function.is_of_messages()) {
                    Some(_) => OTHER_SHAPE,
                    None => return Ok(Messages::of(known, function, has_thrift)?.translation(from, to)),
                }
            }
            (Family::Proto, _, (None, Some(_))) | (_, Family::Proto, (None, Some(_))) => FILE_ALONE,
            (_, _, (None, Some(function))) => return Ok(functions::translation(function, from, to)),
            (Family::Proto, ..) | (_, Family::Proto, _) => NO_SCHEMA,
            _ => NO_FILE,
        };
        let text = format!("{name} was called in {from}, and the upstream server expects {to}: {why}");
        Err(Status::unimplemented(text))
    }
}

/// Returns the tables of a method, for conversion with messages of another family, or the reason why there are none.
///
/// # Errors
/// A schema that Thrift cannot represent, if Thrift is needed.
fn tables(method: Option<&Method>, beside: Family) -> Result<std::result::Result<Tables, &'static str>> {
    let Some(Method { procedure: Some(procedure), messages, function }) = method else {
        return Ok(Err(NO_TABLES));
    };
    let (is_thrift, function) = (beside == Family::Thrift, function.as_ref());
    Ok(match messages {
        Some(_) if is_thrift && function.is_some_and(|function| !function.is_of_messages()) => {
            Err(OTHER_SHAPE)
        }
        Some(messages) => {
            let messages = Messages::of(messages, function, is_thrift)?;
            Ok(Tables::new(procedure, Some(messages)))
        }
        None if is_thrift => Err(TABLES_ALONE),
        None => Ok(Tables::new(procedure, None)),
    })
}

impl Family {
    /// gRPC without a subtype means protobuf, and the generated code of FlatBuffers uses it.
    fn of_method(method: Option<&Method>, codec: Codec) -> Family {
        let has_tables_alone =
            method.is_some_and(|method| method.procedure.is_some() && method.messages.is_none());
        match Family::of(codec) {
            Family::Proto if has_tables_alone => Family::Tables,
            family => family,
        }
    }

    fn of(codec: Codec) -> Family {
        match codec {
            Codec::Json | Codec::MsgPack => Family::Plain,
            Codec::Proto => Family::Proto,
            Codec::Thrift | Codec::ThriftStruct => Family::Thrift,
            Codec::FlatBuffers => Family::Tables,
            _ => Family::Other,
        }
    }
}

/// Converts a message to JSON for people.
///
/// # Errors
/// A malformed message, or one whose type is unknown.
pub(super) fn shown(
    known: Option<&Method>,
    side: Side,
    message: &bytes::Bytes,
    codec: Codec,
) -> std::result::Result<Value, String> {
    let is_thrift = Family::of(codec) == Family::Thrift;
    match known {
        Some(Method { procedure: Some(procedure), .. })
            if Family::of_method(known, codec) == Family::Tables =>
        {
            Tables::new(procedure, None).shown(side, message)
        }
        Some(Method { function: Some(function), .. }) if is_thrift => {
            functions::shown(function, side, message, codec)
        }
        Some(Method { messages: Some(known), function, .. }) => {
            let messages = Messages::of(known, function.as_ref(), is_thrift);
            messages
                .and_then(|messages| messages.shown(side, message, codec))
                .map_err(|status| status.to_string())
        }
        _ => read_value(message, codec),
    }
}

//! Conversions by `.thrift` files: arguments by name and plain values in JSON and MessagePack, structs in Thrift.

use super::messages::{Side, read_value, write_value};
use crate::call::{For, Function, Outcome};
use bytes::Bytes;
use serde_json::{Value, json};
use switchboard::{Codec, Result, proxy::Translation};

/// Converts arguments of a method and its result back, with the exceptions that it declares.
pub(super) fn translation(function: &Function, from: Codec, to: Codec) -> Translation {
    let [requests, replies, failures] = [(); 3].map(|()| function.clone());
    Translation::new(
        move |message| {
            let read = read_request(&requests, &message, from, For::Programs);
            let written = read.and_then(|value| write_request(&requests, &value, to));
            written.map_err(|why| Side::Request.malformed(from, &why))
        },
        move |message| {
            let value = read_reply(&replies, &message, to)?;
            write_reply(&replies, &value, from).map_err(|why| Side::Reply.malformed(to, &why))
        },
    )
    .failure(move |status| match from {
        Codec::Thrift => failures.write_thrown(&status).ok_or(status),
        _ => Err(status),
    })
}

/// Converts a Thrift message to JSON for people, an exception under its name.
pub(super) fn shown(
    function: &Function,
    side: Side,
    message: &Bytes,
    codec: Codec,
) -> std::result::Result<Value, String> {
    match side {
        Side::Request => read_request(function, message, codec, For::People),
        Side::Reply => {
            match outcome(function, message, codec, For::People).map_err(|status| status.to_string())? {
                Outcome::Value(value) => Ok(value),
                Outcome::Thrown(thrown) => Ok(json!({ thrown.name: thrown.fields })),
                Outcome::Nothing => Err(function.nothing().to_string()),
            }
        }
    }
}

fn read_request(
    function: &Function,
    message: &Bytes,
    codec: Codec,
    whom: For,
) -> std::result::Result<Value, String> {
    let arguments = match (codec, function.sole()) {
        (Codec::ThriftStruct, Some(id)) => &in_field(id, message),
        (Codec::Thrift | Codec::ThriftStruct, _) => message,
        _ => return read_value(message, codec),
    };
    function.read_arguments(arguments, whom).map_err(|malformed| malformed.to_string())
}

fn write_request(function: &Function, value: &Value, codec: Codec) -> std::result::Result<Bytes, String> {
    match (codec, function.sole()) {
        (Codec::ThriftStruct, Some(_)) => function.write(value).map(|arguments| out_of_field(&arguments)),
        (Codec::Thrift | Codec::ThriftStruct, _) => function.write(value),
        _ => write_value(value, codec),
    }
}

fn read_reply(function: &Function, message: &Bytes, codec: Codec) -> Result<Value> {
    if !matches!(codec, Codec::Thrift | Codec::ThriftStruct) {
        return read_value(message, codec).map_err(|why| Side::Reply.malformed(codec, &why));
    }
    match outcome(function, message, codec, For::Programs)? {
        Outcome::Value(value) => Ok(value),
        Outcome::Thrown(thrown) => Err(thrown.status()),
        Outcome::Nothing => Err(function.nothing()),
    }
}

fn write_reply(function: &Function, value: &Value, codec: Codec) -> std::result::Result<Bytes, String> {
    match codec {
        Codec::ThriftStruct if function.returns_struct() => {
            function.write_result(value).map(|result| out_of_field(&result))
        }
        Codec::Thrift | Codec::ThriftStruct => function.write_result(value),
        _ => write_value(value, codec),
    }
}

/// Returns the content of a Thrift result.
pub(super) fn outcome(function: &Function, message: &Bytes, codec: Codec, whom: For) -> Result<Outcome> {
    match codec {
        Codec::ThriftStruct if function.returns_struct() => function.read_result(&in_field(0, message), whom),
        _ => function.read_result(message, whom),
    }
}

/// Bytes before the struct in a field: type and number.
const FIELD_HEAD: usize = 3;

/// Encloses a struct as the only field of another.
fn in_field(id: i16, message: &Bytes) -> Bytes {
    let [high, low] = id.to_be_bytes();
    [&[12, high, low][..], message, &[0]].concat().into()
}

/// Returns the struct that is the only field of another; a missing one is empty.
fn out_of_field(whole: &Bytes) -> Bytes {
    match whole.len() > FIELD_HEAD {
        true => whole.slice(FIELD_HEAD..whole.len() - 1),
        false => whole.clone(),
    }
}

//! Types of `.thrift` files: Thrift's binary protocol, JSON and postcard.
//!
//! In Thrift, a request is the struct of a method's arguments and a reply that of its result, in which field 0 is the
//! value and others are the exceptions that the method declares. In JSON and postcard the arguments have names, and the
//! reply is the value. As a plain struct, which rpcx uses, a request is the only argument if that is a struct, and a
//! reply is the value if that is one; others are as in Thrift. In all codecs except Thrift an exception is a [`Status`]
//! with the exception as its detail, whose type name is that of the exception and whose value is its struct in the
//! binary protocol.

#[cfg(feature = "http")]
mod messages;

#[cfg(feature = "http")]
pub use messages::{Messages, MethodMessages};

use super::{FieldNames, malformed, serde, short_name};
use crate::Result;
use ::serde::{Serialize, de::DeserializeOwned};
use bytes::Bytes;
pub use switchboard_wire::thrift::{
    Double, Malformed, Reader, Type, Uuid, Value,
    value::{put_field as field, put_stop as stop},
};
use switchboard_wire::{
    Codec, Status,
    thrift::value::{put_field, put_field_head, put_stop},
};

/// An exception of a `.thrift` file.
///
/// A handler fails with it, `Err(exception.into())`, if the method declares it. A caller reads it from the status of
/// its call: `NotFound::of(&status)`. It arrives typed on every wire that carries details, and in Thrift itself.
pub trait Exception: Into<Status> + Value {
    /// The name with the package, as in the detail of the status.
    const NAME: &'static str;

    /// Returns the exception that a call ended with, if it is this one.
    fn of(status: &Status) -> Option<Self> {
        let detail = status.details().iter().find(|detail| detail.type_name == Self::NAME)?;
        Self::read(&mut Reader::new(&detail.value)).ok()
    }
}

/// An exception that a method declares; for generated code.
#[derive(Clone, Copy, Debug)]
pub struct Throw {
    /// Its field in the result.
    pub id: i16,
    /// [`Exception::NAME`].
    pub name: &'static str,
    /// Reads it and returns it as a status.
    pub read: fn(&mut Reader<'_>) -> std::result::Result<Status, Malformed>,
}

impl Throw {
    /// Describes the exception `E` in this field of the result.
    pub const fn new<E: Exception>(id: i16) -> Throw {
        Throw { id, name: E::NAME, read: |input| E::read(input).map(Into::into) }
    }
}

/// Returns the status of an exception; for generated code.
pub fn status<E: Exception>(exception: &E, code: switchboard_wire::Code, text: &str) -> Status {
    let mut value = Vec::new();
    exception.write(&mut value);
    Status::new(code, text).with_detail(E::NAME, value)
}

/// Encodes a message.
///
/// # Errors
/// `Internal` if the type cannot be serialized, `ResourceExhausted` for a message too large for Thrift, `Unimplemented`
/// for protobuf.
pub fn encode<T: Serialize + Value>(message: &T, codec: Codec) -> Result<Bytes> {
    match codec {
        Codec::Thrift => written::<T>(|out| message.write(out)),
        Codec::ThriftStruct => {
            let whole = written::<T>(|out| message.write(out))?;
            Ok(if T::SOLE.is_some() { whole.slice(FIELD_HEAD..whole.len() - STOP) } else { whole })
        }
        codec => serde::encode(message, codec),
    }
}

/// Decodes a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are not such a message, `Unimplemented` for protobuf.
pub fn decode<T: DeserializeOwned + Value>(codec: Codec, bytes: Bytes) -> Result<T> {
    let whole = match (codec, T::SOLE) {
        (Codec::ThriftStruct, Some(id)) => {
            let mut whole = Vec::with_capacity(FIELD_HEAD + bytes.len() + STOP);
            put_field_head(&mut whole, Type::STRUCT, id);
            whole.extend_from_slice(&bytes);
            put_stop(&mut whole);
            whole.into()
        }
        (Codec::Thrift | Codec::ThriftStruct, _) => bytes,
        _ => return serde::decode(codec, bytes),
    };
    let mut input = Reader::new(&whole);
    T::read(&mut input).map_err(|error| unreadable::<T>(&whole, input.left(), codec, &error))
}

/// The status for a struct that cannot be read further than to its last `left` bytes.
#[cold]
fn unreadable<T>(whole: &Bytes, left: usize, codec: Codec, error: &Malformed) -> Status {
    let at = whole.len() - left;
    let place = match switchboard_wire::thrift::field_at(whole, at) {
        fields if fields.is_empty() => format!("at byte {at}"),
        fields => format!("field {fields} at byte {at}"),
    };
    malformed(short_name::<T>(), codec, &format_args!("{place}: {error}"))
}

/// Reads a message of a request and refuses fields that the type does not have, where fields are written by name;
/// `names` are those of the message.
///
/// # Errors
/// Returns the errors of [`decode`], and `InvalidArgument` for such a field.
#[doc(hidden)]
pub fn decode_strict<T: DeserializeOwned + Value>(
    codec: Codec,
    bytes: Bytes,
    names: impl Into<FieldNames>,
) -> Result<T> {
    match codec {
        Codec::Thrift | Codec::ThriftStruct => decode(codec, bytes),
        _ => serde::decode_strict(codec, bytes, names),
    }
}

/// Error text for an empty result.
const NOTHING: &str = "the result has neither a value nor an exception that the method declares";

/// Bytes before the struct in a field: type and number.
const FIELD_HEAD: usize = 3;
/// Bytes behind the last field.
const STOP: usize = 1;

/// Encodes the value that a method returned, or one of the exceptions that it declares.
///
/// # Errors
/// The errors of [`encode`], and the status of the method if Thrift cannot express it.
pub fn encode_result<T: Serialize + Value>(
    outcome: Result<T>,
    codec: Codec,
    throws: &[Throw],
) -> Result<Bytes> {
    if codec == Codec::ThriftStruct && T::TYPE == Type::STRUCT {
        let value = outcome?;
        return written::<T>(|out| value.write(out));
    }
    if !matches!(codec, Codec::Thrift | Codec::ThriftStruct) {
        return serde::encode(&outcome?, codec);
    }
    match outcome {
        Ok(value) => written::<T>(|out| {
            if T::TYPE != Type::VOID {
                put_field(out, 0, &value);
            }
            put_stop(out);
        }),
        Err(status) => {
            let thrown = throws.iter().find_map(|throw| {
                let detail = status.details().iter().find(|detail| detail.type_name == throw.name)?;
                Some((throw.id, &detail.value))
            });
            let Some((id, value)) = thrown else { return Err(status) };
            written::<T>(|out| {
                put_field_head(out, Type::STRUCT, id);
                out.extend_from_slice(value);
                put_stop(out);
            })
        }
    }
}

/// Decodes the result of a method.
///
/// # Errors
/// The exception that it threw, the errors of [`decode`], and `Internal` for a result with neither value nor exception.
pub fn decode_result<T: DeserializeOwned + Value>(codec: Codec, bytes: Bytes, throws: &[Throw]) -> Result<T> {
    if codec == Codec::ThriftStruct && T::TYPE == Type::STRUCT {
        return T::read(&mut Reader::new(&bytes))
            .map_err(|error| malformed(short_name::<T>(), codec, &error));
    }
    if !matches!(codec, Codec::Thrift | Codec::ThriftStruct) {
        return serde::decode(codec, bytes);
    }
    read_result(&bytes, throws)
        .map_err(|error| malformed(short_name::<T>(), codec, &error))?
        .map_err(|thrown| thrown.unwrap_or_else(|| Status::internal(NOTHING)))
}

type Read<T> = std::result::Result<std::result::Result<T, Option<Status>>, Malformed>;

fn read_result<T: Value>(bytes: &Bytes, throws: &[Throw]) -> Read<T> {
    let mut input = Reader::new(bytes);
    let (mut value, mut thrown) = (None, None);
    input.enter()?;
    while let Some((kind, id)) = input.field()? {
        let throw = throws.iter().find(|throw| throw.id == id && kind == Type::STRUCT);
        match (id, throw) {
            (0, _) => input.known(kind, &mut value)?,
            (_, Some(throw)) => thrown = Some((throw.read)(&mut input)?),
            (_, None) => input.skip(kind)?,
        }
    }
    match (thrown, value.or_else(T::absent)) {
        (Some(status), _) => Ok(Err(Some(status.with_origin(switchboard_wire::Origin::Peer)))),
        (None, Some(value)) => Ok(Ok(value)),
        (None, None) => Ok(Err(None)),
    }
}

/// Returns the output of `write`, in one allocation of its size.
fn written<T>(write: impl FnOnce(&mut Vec<u8>)) -> Result<Bytes> {
    let mut scratch = serde::scratch();
    write(&mut scratch);
    if scratch.len() > i32::MAX as usize {
        let text = format!("{} of {} bytes is over the limit of Thrift", short_name::<T>(), scratch.len());
        return Err(Status::resource_exhausted(text));
    }
    Ok(serde::payload(scratch))
}

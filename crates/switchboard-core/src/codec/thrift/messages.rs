//! Converts messages of `.proto` files to Thrift structs and back, by their descriptors: for callers on Thrift that
//! call protobuf services, and for a proxy between the two.

mod read;
mod write;

#[cfg(test)]
mod tests;

use super::NOTHING;
use crate::Result;
use buffa::DecodeOptions;
use buffa_descriptor::{DescriptorPool, MessageIndex, reflect::DynamicMessage};
use bytes::Bytes;
use read::Structs;
use std::{fmt, sync::Arc};
use switchboard_wire::{
    Code, Codec, Origin, Status,
    thrift::{
        Type,
        value::{put_field_head, put_stop},
    },
};
use write::Written;

/// Messages of protobuf as structs of Thrift, and back.
///
/// | in protobuf | in Thrift |
/// | --- | --- |
/// | a method | a function with field 1, the request, and field 0 of the result, the reply |
/// | a message | a struct; fields keep their numbers |
/// | `int32 sint32 sfixed32`, enums | `i32` |
/// | `uint32 fixed32`, and everything of 64 bits | `i64`, that of `uint64` with the same bits |
/// | `bool`, `double float` | `bool`, `double` |
/// | `string`, `bytes` | `string`, `binary` |
/// | `repeated`, `map` | `list`, `map` |
/// | a member of a `oneof`, and an `optional` field | a field that is present if it was set |
///
/// Other fields are always written in Thrift, like Thrift fields that are neither `optional` nor `required`. When
/// Thrift is read, integers of any width fit if their value does, a `set` is a list, and fields that the message does
/// not have are skipped. Thrift numbers fields with 16 bits: a message in which a field of a higher number is set is
/// refused.
#[derive(Clone)]
pub struct Messages {
    pool: Arc<DescriptorPool>,
}

/// The messages of one method.
#[derive(Clone)]
pub struct MethodMessages {
    pool: Arc<DescriptorPool>,
    request: MessageIndex,
    reply: MessageIndex,
}

/// Field 1 of a function's arguments, or field 0 of its result.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Reply = 0,
    Request = 1,
}

impl Messages {
    /// Reads an encoded `google.protobuf.FileDescriptorSet`, such as
    /// [`ServiceInfo`](switchboard_wire::ServiceInfo::descriptor)
    /// has.
    ///
    /// # Errors
    /// `Internal` for a malformed descriptor.
    pub fn read(descriptor: &[u8]) -> Result<Messages> {
        // It is part of the program, or of its settings.
        let pool = DescriptorPool::decode_with_options(descriptor, &trusted());
        let pool = pool.map_err(|error| Status::internal(format!("the descriptor: {error}")))?;
        Ok(Messages { pool: Arc::new(pool) })
    }

    /// Returns the messages of a method.
    ///
    /// # Errors
    /// `Unimplemented` if the descriptor has no such method.
    pub fn method(&self, service: &str, name: &str) -> Result<MethodMessages> {
        let method = self.pool.service_by_name(service).and_then(|service| service.method(name));
        let method = method.ok_or_else(|| {
            Status::unimplemented(format!("{service}/{name} has no descriptor for its Thrift messages"))
        })?;
        Ok(MethodMessages { pool: self.pool.clone(), request: method.input(), reply: method.output() })
    }
}

impl MethodMessages {
    /// Converts a request to another of the codecs `Proto`, `Thrift` and `ThriftStruct`.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not such a request, `Unimplemented` for a field whose number Thrift does
    /// not have and for other codecs, `ResourceExhausted` for a message that is too large or too deep for Thrift. A
    /// request is refused if it grows to more than 1 MiB and 16 times its size, or to more than 4 MiB and by more than
    /// a quarter.
    pub fn request(&self, from: Codec, to: Codec, bytes: &Bytes) -> Result<Bytes> {
        self.rewritten(Side::Request, from, to, bytes)
    }

    /// Converts a reply to another of these codecs.
    ///
    /// # Errors
    /// The errors of [`request`](Self::request), with `Internal` for bytes that are not such a reply;
    /// `FailedPrecondition` for a result that contains an exception, which protobuf cannot express.
    pub fn reply(&self, from: Codec, to: Codec, bytes: &Bytes) -> Result<Bytes> {
        self.rewritten(Side::Reply, from, to, bytes)
    }

    fn rewritten(&self, side: Side, from: Codec, to: Codec, bytes: &Bytes) -> Result<Bytes> {
        let message = match from {
            Codec::Proto => bytes.clone(),
            Codec::Thrift | Codec::ThriftStruct => self.to_protobuf(side, from, bytes)?,
            other => return Err(self.foreign(side, other)),
        };
        match to {
            Codec::Proto => Ok(message),
            Codec::Thrift | Codec::ThriftStruct => self.to_thrift(side, to, &message),
            other => Err(self.foreign(side, other)),
        }
    }

    fn to_protobuf(&self, side: Side, from: Codec, bytes: &Bytes) -> Result<Bytes> {
        let message = self.of(side);
        let mut structs = Structs::new(&self.pool, bytes, grown_max(bytes.len()));
        let mut written = Vec::with_capacity(bytes.len());
        let read = match (from, side) {
            (Codec::ThriftStruct, _) => structs.message(message, &mut written).map(Ok),
            (_, Side::Request) => structs.argument(message, &mut written).map(Ok),
            (_, Side::Reply) => structs.result(message, &mut written),
        };
        match read {
            Ok(Ok(())) => Ok(written.into()),
            Ok(Err(Some(field))) => Err(Status::new(
                Code::FailedPrecondition,
                format!(
                    "the method threw the exception of field {field} of its result, which protobuf cannot express"
                ),
            )
            .with_origin(Origin::Peer)),
            // `void`.
            Ok(Err(None)) if self.pool.message(message).fields().is_empty() => Ok(Bytes::new()),
            Ok(Err(None)) => Err(Status::internal(NOTHING)),
            Err(error) => Err(self.malformed(side, from, &error)),
        }
    }

    fn to_thrift(&self, side: Side, to: Codec, bytes: &Bytes) -> Result<Bytes> {
        let (options, most) = match side {
            Side::Request => (DecodeOptions::new(), grown_max(bytes.len())),
            // A local handler wrote it.
            Side::Reply => (trusted(), i32::MAX as usize),
        };
        let mut message = DynamicMessage::new(self.pool.clone(), self.of(side));
        let read = message.merge_with_options(bytes, &options);
        read.map_err(|error| self.malformed(side, Codec::Proto, &error))?;
        let mut written = Written::new(bytes.len() * 2, most.min(i32::MAX as usize));
        if to == Codec::Thrift {
            put_field_head(written.out(), Type::STRUCT, side as i16);
        }
        written.message(&message, 1)?;
        if to == Codec::Thrift {
            put_stop(written.out());
        }
        Ok(written.into_bytes())
    }

    fn of(&self, side: Side) -> MessageIndex {
        match side {
            Side::Reply => self.reply,
            Side::Request => self.request,
        }
    }

    fn malformed(&self, side: Side, codec: Codec, error: &dyn fmt::Display) -> Status {
        let status = super::malformed(self.pool.message(self.of(side)).full_name(), codec, error);
        match side {
            Side::Request => status,
            Side::Reply => Status::internal(status.message().to_owned()),
        }
    }

    #[cold]
    fn foreign(&self, side: Side, codec: Codec) -> Status {
        super::super::foreign(self.pool.message(self.of(side)).full_name(), codec, "proto and thrift")
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}

impl fmt::Debug for MethodMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |side| self.pool.message(self.of(side)).full_name();
        let (request, reply) = (name(Side::Request), name(Side::Reply));
        f.debug_struct("MethodMessages").field("request", &request).field("reply", &reply).finish()
    }
}

/// Largest size that any message may be converted to. A few bytes of protobuf can represent many empty fields, which
/// Thrift writes, and a byte of Thrift can be ten of protobuf.
const GROWN_MAX: usize = 1 << 20;
/// Factor by which a larger message may grow, up to the usual `message_bytes_max`.
const GROWTH_MAX: usize = 16;
const LARGE_MAX: usize = 4 << 20;

/// Returns the largest size that a message of `bytes` may be converted to: one above the usual limit grows by a quarter
/// at most.
fn grown_max(bytes: usize) -> usize {
    let large = LARGE_MAX.max(bytes.saturating_add(bytes / 4));
    GROWN_MAX.max(bytes.saturating_mul(GROWTH_MAX)).min(large)
}

fn trusted() -> DecodeOptions {
    DecodeOptions::new().with_element_memory_limit(usize::MAX)
}

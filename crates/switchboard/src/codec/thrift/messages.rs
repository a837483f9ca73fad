//! Messages of `.proto` files as structs of Thrift, by their descriptors: what callers on Thrift send to services of
//! protobuf, and get from them.
//!
//! | in protobuf | in Thrift |
//! | --- | --- |
//! | a method | a function with field 1, the request, and field 0 of the result, the reply |
//! | a message | a struct; fields keep their numbers |
//! | `int32 sint32 sfixed32`, enums | `i32` |
//! | `uint32 fixed32`, and everything of 64 bits | `i64`, that of `uint64` with the same bits |
//! | `bool`, `double float` | `bool`, `double` |
//! | `string`, `bytes` | `string`, `binary` |
//! | `repeated`, `map` | `list`, `map` |
//! | a member of a `oneof`, and what is `optional` | a field that is there if it was set |
//!
//! Other fields are always there in replies, as those of Thrift are that are neither `optional` nor `required`. Of
//! requests all whole numbers fit where their value does, a `set` is a list, and fields that the message does not have
//! are skipped. Thrift numbers fields with 16 bits: a reply in which a field of a higher number is set is refused.

mod read;
mod write;

#[cfg(test)]
mod tests;

use crate::{Codec, Result, Status};
use buffa::DecodeOptions;
use buffa_descriptor::{DescriptorPool, MethodDescriptor, reflect::DynamicMessage};
use bytes::Bytes;
use read::Requests;
use std::sync::Arc;
use switchboard_wire::{
    ServiceInfo,
    thrift::{
        Type,
        value::{put_field_head, put_stop},
    },
};

/// The messages of a service.
pub(crate) struct Messages {
    pool: Arc<DescriptorPool>,
    service: &'static str,
}

impl Messages {
    /// Those that the descriptor of the service describes.
    ///
    /// # Errors
    /// `Internal` for a descriptor that fits nothing.
    pub(crate) fn of(service: &ServiceInfo) -> Result<Messages> {
        // These bytes are part of the program.
        let pool = DescriptorPool::decode_with_options(service.descriptor, &trusted()).map_err(|error| {
            Status::internal(format!("the descriptor of service {}: {error}", service.name))
        })?;
        Ok(Messages { pool: Arc::new(pool), service: service.name })
    }

    /// The request of a method as protobuf.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no such struct.
    pub(crate) fn request(&self, method: &str, codec: Codec, bytes: &Bytes) -> Result<Bytes> {
        let input = self.method(method)?.input();
        let mut requests = Requests::new(&self.pool, bytes);
        let mut written = Vec::with_capacity(bytes.len());
        let read = match codec {
            Codec::ThriftStruct => requests.message(input, &mut written),
            _ => requests.argument(input, &mut written),
        };
        read.map_err(|error| super::malformed(self.pool.message(input).full_name(), codec, &error))?;
        Ok(written.into())
    }

    /// The reply of a method, which is protobuf, as Thrift.
    ///
    /// # Errors
    /// `Unimplemented` for a field whose number Thrift does not have, `ResourceExhausted` for what is too large or too
    /// deep for it.
    pub(crate) fn reply(&self, method: &str, codec: Codec, bytes: &[u8]) -> Result<Bytes> {
        let output = self.method(method)?.output();
        let mut message = DynamicMessage::new(self.pool.clone(), output);
        // The handler wrote them.
        message.merge_with_options(bytes, &trusted()).map_err(|error| {
            let name = self.pool.message(output).full_name();
            Status::internal(format!("the reply is no {name}: {error}"))
        })?;
        let mut written = Vec::with_capacity(bytes.len() * 2);
        if codec != Codec::ThriftStruct {
            put_field_head(&mut written, Type::STRUCT, 0);
        }
        write::message(&message, &mut written, 1)?;
        if codec != Codec::ThriftStruct {
            put_stop(&mut written);
        }
        if written.len() > i32::MAX as usize {
            let text = format!("a reply of {} bytes is over the limit of Thrift", written.len());
            return Err(Status::resource_exhausted(text));
        }
        Ok(written.into())
    }

    fn method(&self, name: &str) -> Result<&MethodDescriptor> {
        let method = self.pool.service_by_name(self.service).and_then(|service| service.method(name));
        method.ok_or_else(|| {
            Status::unimplemented(format!(
                "{}/{name} has no descriptor that Thrift could go by",
                self.service
            ))
        })
    }
}

fn trusted() -> DecodeOptions {
    DecodeOptions::new().with_element_memory_limit(usize::MAX)
}

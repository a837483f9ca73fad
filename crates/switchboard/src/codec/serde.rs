//! Serde types: postcard between Rust programs, JSON and MessagePack with everybody else.

use super::{OFFSET, Payload, foreign, malformed, msgpack, raw, short_name};
use crate::{Codec, Result};
use bytes::{Buf, Bytes};
use serde::{Serialize, de::DeserializeOwned};
use std::cell::Cell;

/// Writes a message.
///
/// # Errors
/// `Internal` when the type refuses to be written, `Unimplemented` for protobuf, Thrift and FlatBuffers.
pub fn encode<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    write(message, codec, payload)
}

/// As [`encode`], for messages that are sent at once: small ones need no memory of their own.
///
/// # Errors
/// Those of [`encode`].
pub fn encode_payload<T: Serialize>(message: &T, codec: Codec) -> Result<Payload> {
    write(message, codec, |mut scratch| {
        if scratch.len() > SCRATCH_MAX {
            return payload(scratch).into();
        }
        let written = &scratch[OFFSET..];
        let payload = Payload::encode(written.len(), |into| into.extend_from_slice(written));
        scratch.truncate(OFFSET);
        SCRATCH.set(scratch);
        payload
    })
}

/// Writes a message into the scratch, and passes that on.
fn write<T: Serialize, P: From<Vec<u8>>>(
    message: &T,
    codec: Codec,
    finish: impl FnOnce(Vec<u8>) -> P,
) -> Result<P> {
    let refused = |error: &dyn std::fmt::Display| {
        crate::Status::internal(format!("{} cannot be written as {codec}: {error}", short_name::<T>()))
    };
    match codec {
        Codec::Postcard => postcard::serialize_with_flavor(message, Scratch(scratch()))
            .map(finish)
            .map_err(|error| refused(&error)),
        Codec::Json => {
            let mut scratch = scratch();
            serde_json::to_writer(&mut scratch, message).map_err(|error| refused(&error))?;
            Ok(finish(scratch))
        }
        Codec::MsgPack => {
            let mut scratch = scratch();
            msgpack::write(&mut scratch, message).map_err(|error| refused(&error))?;
            Ok(finish(scratch))
        }
        Codec::Raw => raw::write(message).map(P::from).ok_or_else(|| {
            let text = format!(
                "{} cannot be written as raw bytes: it is more than one value of bytes",
                short_name::<T>()
            );
            crate::Status::unimplemented(text)
        }),
        Codec::FlatBuffers | Codec::Proto | Codec::Thrift | Codec::ThriftStruct => {
            Err(foreign(short_name::<T>(), codec, KNOWN))
        }
    }
}

/// What serde types are written as.
const KNOWN: &str = "postcard, json, msgpack and raw";

/// Larger messages keep the memory that they were written into.
const SCRATCH_MAX: usize = 16 << 10;

thread_local! {
    /// Where messages are written, since their size is not known before: a vector of their own would grow step by
    /// step, each an allocation.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Postcard's own vector begins empty with every message, and its writer to other collections goes byte by byte.
struct Scratch(Vec<u8>);

impl postcard::ser_flavors::Flavor for Scratch {
    type Output = Vec<u8>;

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Where a message is written to, behind what is there already.
#[inline]
pub(super) fn scratch() -> Vec<u8> {
    let mut scratch = SCRATCH.take();
    if scratch.is_empty() {
        scratch.resize(OFFSET, 0);
    }
    scratch
}

/// What was written into the scratch, in one allocation of its size.
pub(super) fn payload(mut scratch: Vec<u8>) -> Bytes {
    if scratch.len() > SCRATCH_MAX {
        let mut whole = Bytes::from(scratch);
        whole.advance(OFFSET);
        return whole;
    }
    let payload = Bytes::copy_from_slice(&scratch[OFFSET..]);
    scratch.truncate(OFFSET);
    SCRATCH.set(scratch);
    payload
}

/// Reads a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are no such message, `Unimplemented` for protobuf, Thrift and FlatBuffers.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape of every decoder; protobuf takes shares of the bytes"
)]
pub fn decode<T: DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<T> {
    match codec {
        Codec::Postcard => {
            postcard::from_bytes(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error))
        }
        Codec::Json => {
            serde_json::from_slice(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error))
        }
        Codec::MsgPack => msgpack::read(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error)),
        Codec::Raw => raw::read(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error)),
        Codec::FlatBuffers | Codec::Proto | Codec::Thrift | Codec::ThriftStruct => {
            Err(foreign(short_name::<T>(), codec, KNOWN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_the_same_behind_every_codec() {
        // JSON reads some of these as a neighbor, unless it takes its time.
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        let scattered = std::iter::repeat_with(|| {
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            f64::from_bits(bits)
        });
        let floats: Vec<f64> =
            [31.245_270_191_439_438, 2.638_344_616_030_823e-256, f64::MAX, f64::MIN_POSITIVE]
                .into_iter()
                .chain(scattered.filter(|float| float.is_finite()).take(1000))
                .collect();
        for codec in [Codec::Json, Codec::MsgPack, Codec::Postcard] {
            let read: Vec<f64> = decode(codec, encode(&floats, codec).unwrap()).unwrap();
            let other = read.iter().zip(&floats).find(|(read, float)| read.to_bits() != float.to_bits());
            assert_eq!(other, None, "{codec}");
        }
    }
}

//! Serde types: postcard between Rust programs, JSON and MessagePack with all others.

use super::{FieldNames, foreign, located, malformed, msgpack, raw, read_json, read_strict_json, short_name};
use crate::{
    Result,
    payload::{OFFSET, Payload},
};
use bytes::{Buf, Bytes};
use serde::{Serialize, de::DeserializeOwned};
use std::cell::Cell;
use switchboard_wire::Codec;

/// Encodes a message.
///
/// # Errors
/// `Internal` if the type cannot be serialized, `Unimplemented` for protobuf, Thrift and FlatBuffers.
pub fn encode<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    write(message, codec, payload)
}

/// Encodes a message as [`encode`] does, for messages that are sent at once: small ones need no separate memory.
///
/// # Errors
/// The errors of [`encode`].
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

/// Writes a message into the scratch buffer, and converts the buffer.
fn write<T: Serialize, P: From<Vec<u8>>>(
    message: &T,
    codec: Codec,
    finish: impl FnOnce(Vec<u8>) -> P,
) -> Result<P> {
    let refused = |error: &dyn std::fmt::Display| {
        switchboard_wire::Status::internal(format!(
            "{} cannot be written as {codec}: {error}",
            short_name::<T>()
        ))
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
            switchboard_wire::Status::unimplemented(text)
        }),
        _ => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// Codecs of serde types.
const KNOWN: &str = "postcard, json, msgpack and raw";

/// Larger messages keep the memory that they were written into.
const SCRATCH_MAX: usize = 16 << 10;

// Of the thread: `encode` is a plain function, which handlers and callers call without a place for a buffer.
thread_local! {
    /// Buffer for messages, since their size is not known before: a vector per message would grow step by step, with an
    /// allocation for each.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Postcard's own vector starts empty for every message, and its writer to other collections goes byte by byte.
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

/// Returns the buffer that a message is appended to.
#[inline]
pub(super) fn scratch() -> Vec<u8> {
    let mut scratch = SCRATCH.take();
    if scratch.is_empty() {
        scratch.resize(OFFSET, 0);
    }
    scratch
}

/// Copies the content of the scratch buffer, in one allocation of its size.
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

/// Decodes a message.
///
/// # Errors
/// `InvalidArgument` for bytes that are not such a message, `Unimplemented` for protobuf, Thrift and FlatBuffers.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape of every decoder; protobuf takes shares of the bytes"
)]
pub fn decode<T: DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<T> {
    match codec {
        Codec::Postcard => postcard::from_bytes(&bytes).map_err(|error| postcard_error::<T>(&bytes, &error)),
        Codec::Json => read_json(&bytes, short_name::<T>(), codec),
        Codec::MsgPack => msgpack::read(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error)),
        Codec::Raw => raw::read(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error)),
        _ => Err(foreign(short_name::<T>(), codec, KNOWN)),
    }
}

/// Reads the message again for the place at which it fails: the bytes have no names, but the type has.
#[cold]
fn postcard_error<T: DeserializeOwned>(bytes: &[u8], error: &postcard::Error) -> switchboard_wire::Status {
    let mut reader = postcard::Deserializer::from_bytes(bytes);
    match located::read::<T, _>(&mut reader, false) {
        Err(failure) => {
            let at = bytes.len() - reader.finalize().map_or(0, <[u8]>::len);
            malformed(short_name::<T>(), Codec::Postcard, &format_args!("{failure}, at byte {at}"))
        }
        Ok(_) => malformed(short_name::<T>(), Codec::Postcard, error),
    }
}

/// Reads a message of a request and refuses fields that the type does not have, where fields have names; `names` are
/// those of the message.
///
/// # Errors
/// Returns the errors of [`decode`], and `InvalidArgument` for such a field.
#[doc(hidden)]
pub fn decode_strict<T: DeserializeOwned>(
    codec: Codec,
    bytes: Bytes,
    names: impl Into<FieldNames>,
) -> Result<T> {
    match codec {
        Codec::Json => read_strict_json(&bytes, short_name::<T>(), codec, names.into()),
        Codec::MsgPack => {
            msgpack::read_strict(&bytes).map_err(|error| malformed(short_name::<T>(), codec, &error))
        }
        _ => decode(codec, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_without_names_in_the_bytes_too() {
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code, reason = "it is only read")]
        struct Order {
            customer: String,
            items: Vec<Item>,
        }
        #[derive(Debug, serde::Deserialize, Serialize)]
        struct Item {
            price: u32,
            name: String,
        }
        #[derive(Serialize)]
        struct Other {
            customer: &'static str,
            items: Vec<(u32, u32)>,
        }
        let item = || Item { price: 1, name: "pen".to_owned() };
        let whole = encode(&("Ada", vec![item(), item()]), Codec::Postcard).unwrap();
        let cut = whole.slice(..whole.len() - 1);
        let status = decode::<Order>(Codec::Postcard, cut).unwrap_err();
        let wanted = "the postcard message is no Order: field items[1].name: Hit the end of buffer, expected more \
            data, at byte 12";
        assert_eq!(status.message(), wanted);
        let other = Other { customer: "Ada", items: vec![(1, 2)] };
        let status = decode::<Order>(Codec::MsgPack, encode(&other, Codec::MsgPack).unwrap()).unwrap_err();
        let wanted = "the msgpack message is no Order: field items[0].name: ";
        assert!(status.message().starts_with(wanted), "{status}");
    }

    #[test]
    fn floats_are_the_same_behind_every_codec() {
        // JSON decodes some of these to a neighbouring value, unless precise parsing is on.
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

//! Encoding of the messages between callers and servers. Where a wire has its own message format, the message has one
//! field with postcard inside.

use ::serde::{Serialize, de::DeserializeOwned};
use bytes::{BufMut, Bytes, BytesMut};
use switchboard_core::{Result, codec::serde};
use switchboard_wire::{Codec, Status};

/// End of a Thrift struct, after the bytes.
const STOP: u8 = 0;
/// Field 1 of a Thrift struct, of type binary.
const STRUCT: [u8; 3] = [11, 0, 1];
/// Field 1 of a protobuf message, of type bytes.
const MESSAGE: u8 = 10;

pub(super) fn write<T: Serialize>(message: &T, codec: Codec) -> Result<Bytes> {
    if !matches!(codec, Codec::Proto | Codec::Thrift) {
        return serde::encode(message, codec);
    }
    let inside = serde::encode(message, Codec::Postcard)?;
    let mut whole = BytesMut::with_capacity(inside.len() + 16);
    if codec == Codec::Thrift {
        whole.put_slice(&STRUCT);
        whole.put_u32(inside.len() as u32);
        whole.put_slice(&inside);
        whole.put_u8(STOP);
    } else {
        whole.put_u8(MESSAGE);
        let mut len = inside.len();
        while len >= 0x80 {
            whole.put_u8(len as u8 | 0x80);
            len >>= 7;
        }
        whole.put_u8(len as u8);
        whole.put_slice(&inside);
    }
    Ok(whole.freeze())
}

pub(super) fn read<T: DeserializeOwned>(codec: Codec, bytes: Bytes) -> Result<T> {
    let range = match codec {
        Codec::Proto => message_range(&bytes),
        Codec::Thrift => struct_range(&bytes),
        _ => return serde::decode(codec, bytes),
    };
    let range =
        range.ok_or_else(|| Status::invalid_argument(format!("{bytes:x?} is not as it was written")))?;
    serde::decode(Codec::Postcard, bytes.slice(range))
}

/// Returns the range of the bytes in the field, which must end with the message.
fn message_range(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let rest = bytes.strip_prefix(&[MESSAGE])?;
    let digits = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let len = rest.get(..digits)?.iter().rev().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7F));
    (bytes.len() == 1 + digits + len).then_some(1 + digits..bytes.len())
}

fn struct_range(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let rest = bytes.strip_prefix(&STRUCT)?;
    let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    (bytes.len() == 8 + len && bytes.last() == Some(&STOP)).then_some(7..7 + len)
}

#[test]
fn messages_are_read_as_they_were_written() {
    for codec in [Codec::Json, Codec::Postcard, Codec::Proto, Codec::Thrift] {
        for len in [0, 1, 127, 128, 70_000] {
            let message = vec![7u8; len];
            let written = write(&message, codec).unwrap();
            assert_eq!(read::<Vec<u8>>(codec, written.clone()).unwrap(), message, "{codec}");
            assert!(read::<Vec<u8>>(codec, written.slice(..written.len() - 1)).is_err(), "{codec}");
        }
    }
}

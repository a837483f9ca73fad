//! Protobuf messages that stay encoded: read in place, answered without being built.

use super::{arena, proto, short_name};
use crate::{Codec, Cx, Result};
use buffa::{HasMessageView, Message, MessageView, SizeCache, ViewEncode};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, marker::PhantomData};

/// A protobuf message in its encoded form.
///
/// Building a message costs an allocation for every string in it. A handler that is marked
/// `(switchboard.encoded)` answers with one of these instead, made from a view of the request or of anything else;
/// a caller gets one with [`UnaryCall::encoded`](crate::UnaryCall::encoded) and looks at it with
/// [`view`](Self::view).
pub struct Encoded<M> {
    codec: Codec,
    bytes: Bytes,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Serialize + DeserializeOwned + HasMessageView> Encoded<M> {
    /// Encodes `message` for the caller of `cx`.
    ///
    /// # Errors
    /// Those of [`proto::encode`].
    #[inline]
    pub fn new(message: &M, cx: &Cx) -> Result<Encoded<M>> {
        Ok(Encoded { codec: cx.codec(), bytes: proto::encode(message, cx.codec())?, message: PhantomData })
    }

    /// Encodes `view` for the caller of `cx`.
    ///
    /// # Errors
    /// Those of [`proto::encode`].
    #[inline]
    pub fn of_view<'a, V>(view: &V, cx: &Cx) -> Result<Encoded<M>>
    where
        V: ViewEncode<'a> + MessageView<'a, Owned = M> + Serialize,
    {
        match cx.codec() {
            Codec::Proto => {}
            codec => {
                return Ok(Encoded { codec, bytes: proto::encode_json(view, codec)?, message: PhantomData });
            }
        }
        let mut sizes = SizeCache::new();
        let len = view.compute_size(&mut sizes);
        proto::check_len::<M>(len)?;
        let bytes = arena::encode(len as usize, |into| view.write_to(&mut sizes, into));
        Ok(Encoded { codec: Codec::Proto, bytes, message: PhantomData })
    }

    /// What came as an answer, so that it can be viewed: in protobuf, whatever it came as.
    #[inline]
    pub(crate) fn received(codec: Codec, bytes: Bytes) -> Result<Encoded<M>> {
        let bytes = proto::view_bytes::<M>(codec, bytes)?;
        Ok(Encoded { codec: Codec::Proto, bytes, message: PhantomData })
    }

    /// The message, read in place.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no such message, `Unimplemented` if it was encoded as something else
    /// than protobuf, as for a caller that asked for JSON.
    #[inline]
    pub fn view(&self) -> Result<M::View<'_>> {
        match self.codec {
            Codec::Proto => proto::view(&self.bytes),
            codec => Err(super::foreign(short_name::<M>(), codec, "proto")),
        }
    }

    /// The message, built.
    ///
    /// # Errors
    /// Those of [`proto::decode`].
    pub fn decode(&self) -> Result<M> {
        proto::decode(self.codec, self.bytes.clone())
    }

    /// The bytes for a reply to the caller of `codec`; for generated code.
    ///
    /// # Errors
    /// Those of [`proto::decode`] and [`proto::encode`], if it was encoded for another caller.
    #[doc(hidden)]
    #[inline]
    pub fn into_reply(self, codec: Codec) -> Result<Bytes> {
        if self.codec == codec { Ok(self.bytes) } else { proto::encode(&self.decode()?, codec) }
    }

    /// Reads a message that was kept or came by other means, without looking at it yet.
    pub fn from_bytes(bytes: Bytes) -> Encoded<M> {
        Encoded { codec: Codec::Proto, bytes, message: PhantomData }
    }

    /// The encoded message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl<M> Clone for Encoded<M> {
    fn clone(&self) -> Self {
        Encoded { codec: self.codec, bytes: self.bytes.clone(), message: PhantomData }
    }
}

impl<M> fmt::Debug for Encoded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded<{}>({:?}, {} bytes)", short_name::<M>(), self.codec, self.bytes.len())
    }
}

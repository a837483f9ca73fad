//! Protobuf messages that stay encoded: read in place, and sent without building the message.

use super::{proto, short_name};
use crate::{
    Cx, Result,
    payload::{PARTS_FROM, Payload},
};
use buffa::{HasMessageView, Message, MessageView, SizeCache, ViewEncode};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, marker::PhantomData};
use switchboard_wire::Codec;

/// A protobuf message in its encoded form.
///
/// Building a message costs an allocation for every string in it. A handler that is marked `(switchboard.encoded)`
/// returns one of these instead, made from a view of the request or of any other message. A caller gets one with
/// `UnaryCall::encoded` and reads it with [`view`](Self::view).
pub struct Encoded<M> {
    codec: Codec,
    bytes: Payload,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Serialize + DeserializeOwned + HasMessageView> Encoded<M> {
    /// Encodes `message` for the caller of `cx`.
    ///
    /// # Errors
    /// The errors of [`proto::encode`].
    #[inline]
    pub fn new(message: &M, cx: &Cx) -> Result<Encoded<M>> {
        Ok(Encoded {
            codec: cx.codec(),
            bytes: proto::encode_payload(message, cx.codec())?,
            message: PhantomData,
        })
    }

    /// Encodes `view` for the caller of `cx`.
    ///
    /// # Errors
    /// The errors of [`proto::encode`].
    #[inline]
    pub fn of_view<'a, V>(view: &V, cx: &Cx) -> Result<Encoded<M>>
    where
        V: ViewEncode<'a> + MessageView<'a, Owned = M> + Serialize,
    {
        match cx.codec() {
            Codec::Proto => {}
            codec => {
                let bytes = proto::encode_json(view, codec)?.into();
                return Ok(Encoded { codec, bytes, message: PhantomData });
            }
        }
        let mut sizes = SizeCache::new();
        let len = view.compute_size(&mut sizes);
        proto::check_len::<M>(len)?;
        let bytes = if len as usize >= PARTS_FROM {
            // Bytes that the view borrows from the request are not copied.
            proto::gather(len, cx.request(), |into| view.write_to(&mut sizes, into))
        } else {
            Payload::encode(len as usize, |into| view.write_to(&mut sizes, into))
        };
        Ok(Encoded { codec: Codec::Proto, bytes, message: PhantomData })
    }

    /// Wraps a received reply so that it can be viewed: in protobuf, regardless of the codec in which it arrived.
    #[inline]
    #[doc(hidden)]
    pub fn received(codec: Codec, bytes: Bytes) -> Result<Encoded<M>> {
        let bytes = proto::view_bytes::<M>(codec, bytes)?;
        Ok(Encoded { codec: Codec::Proto, bytes: bytes.into(), message: PhantomData })
    }

    /// Returns a view of the message, read in place.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not such a message, `Unimplemented` if it was encoded in a codec other than
    /// protobuf, as for a caller that requested JSON.
    #[inline]
    pub fn view<'a>(&'a self) -> Result<M::View<'a>>
    where
        M::View<'a>: Default,
    {
        match self.codec {
            Codec::Proto => proto::view(self.bytes.whole()),
            codec => Err(super::foreign(short_name::<M>(), codec, "proto")),
        }
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// The errors of [`proto::decode`].
    pub fn decode(&self) -> Result<M> {
        proto::decode(self.codec, self.bytes.whole().clone())
    }

    /// Returns the bytes for a reply to the caller of `codec`; for generated code.
    ///
    /// # Errors
    /// The errors of [`proto::decode`] and [`proto::encode`], if it was encoded for another caller.
    #[doc(hidden)]
    #[inline]
    pub fn into_reply(self, codec: Codec) -> Result<Payload> {
        if self.codec == codec { Ok(self.bytes) } else { proto::encode_payload(&self.decode()?, codec) }
    }

    /// Wraps a message that was stored or received elsewhere, without checking it yet.
    pub fn from_bytes(bytes: Bytes) -> Encoded<M> {
        Encoded { codec: Codec::Proto, bytes: bytes.into(), message: PhantomData }
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> &Bytes {
        self.bytes.whole()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Peer, call::RequestBody};
    use buffa_types::google::protobuf::StringValue;
    use std::sync::Arc;
    use switchboard_wire::{Code, Kind, Metadata, MethodInfo, ServiceInfo};

    static METHOD: MethodInfo = MethodInfo::new("Say", Kind::Unary);
    static SERVICE: ServiceInfo = ServiceInfo { name: "test.v1.Echo", methods: &[], descriptor: &[] };

    fn cx(codec: Codec) -> Cx {
        let peer = Peer::without_connection(switchboard_wire::WireId::LOCAL, "local".into());
        let cx = Cx::new(&Arc::new(peer), &SERVICE, &METHOD, None, Metadata::new());
        Call::new(0, codec, RequestBody::One(Bytes::new()), cx).into_one().expect("one message").1
    }

    #[test]
    fn view_of_a_request_is_a_reply_in_the_codec_of_the_caller() {
        let said = StringValue { value: "häy".into(), ..Default::default() };
        let request = Encoded::new(&said, &cx(Codec::Proto)).expect("a request");
        let view = request.view().expect("a view");
        assert_eq!(view.value, "häy");
        let reply = Encoded::<StringValue>::of_view(&view, &cx(Codec::Proto)).expect("a reply");
        assert_eq!((reply.bytes(), reply.decode().expect("a message")), (request.bytes(), said.clone()));

        let reply = Encoded::<StringValue>::of_view(&view, &cx(Codec::Json)).expect("a reply in json");
        assert_eq!(reply.bytes(), "\"häy\"");
        assert_eq!(reply.view().expect_err("no view of json").code(), Code::Unimplemented);
        let received = Encoded::<StringValue>::received(Codec::Json, reply.bytes().clone()).expect("json");
        assert_eq!(received.view().expect("written anew").value, "häy");
    }

    #[test]
    fn reply_that_was_encoded_for_another_caller_is_written_anew() {
        let said = StringValue { value: "a".into(), ..Default::default() };
        let kept = Encoded::new(&said, &cx(Codec::Proto)).expect("kept");
        assert_eq!(kept.clone().into_reply(Codec::Json).expect("json").whole(), "\"a\"");
        assert_eq!(kept.clone().into_reply(Codec::Proto).expect("proto").whole(), kept.bytes());
    }

    #[test]
    fn bytes_that_are_no_message_are_refused_when_they_are_viewed() {
        let bad = Encoded::<StringValue>::from_bytes(Bytes::from_static(b"\x0A\xFF"));
        assert_eq!(bad.view().expect_err("cut short").code(), Code::InvalidArgument);
    }
}
